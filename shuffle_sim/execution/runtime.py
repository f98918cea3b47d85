"""A runtime hosts the roles and connects them; the protocol is the same on all runtimes."""

import hashlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shuffle_sim.data.population import Population
from shuffle_sim.errors import RoundAbortedError, ShuffleSimError
from shuffle_sim.execution.closing import Closing
from shuffle_sim.execution.exchange import Exchange, exchange_of
from shuffle_sim.roles import (
    Analyzer,
    Deployment,
    Directory,
    PlannedRound,
    ShardRecord,
    Shuffler,
    ShuffleRecord,
    Station,
    UserShard,
)
from shuffle_sim.wire.messages import Tally

_CHUNKS_TOGETHER = 2  # frames of a view that are asked for together
ATTEMPTS = 6
"""How often a round is begun before it is aborted, if every time a role is lost."""
ROUND_TIMEOUT = 600.0
"""Where nothing else is said."""
_Value = TypeVar("_Value")


class HostLostError(ShuffleSimError, RuntimeError):
    """Where a role lived is gone, and what it knew with it."""


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Seconds that a runtime takes beside the work of the roles.

    Attributes:
        start: of the runtime.
        worker: to start each.
        alone: of a round of one worker.
        each_round: of a round of several.
    """

    start: float = 0.0
    worker: float = 0.0
    alone: float = 0.0
    each_round: float = 0.0

    def seconds(self, workers: int, rounds: int) -> float:
        """Of a run."""
        return (
            self.start
            + workers * self.worker
            + rounds * (self.alone if workers == 1 else self.each_round)
        )


def worker_blocks(deployment: Deployment, workers: int) -> list[range]:
    """Which user blocks each worker hosts: every workers-th one.

    So a cohort of neighbours is spread over all workers.
    """
    blocks = deployment.blocks()
    return [blocks[worker::workers] for worker in range(min(workers, len(blocks)))]


class Runtime(Closing):
    """Hosts all roles of one run; a context manager that leaves nothing behind.

    How a round goes is said here, once, in calls of the roles' methods; a runtime says where a role
    lives, and how it is called. What a call gives is a handle: it may be passed on to the next
    call, and only `get` waits for it.

    A round is a transaction. Where a role is lost, all are put back to where they were at its
    beginning, and it is run again: everything is drawn from the same streams, so the same bytes are
    sent again.
    """

    name: str
    round_timeout: float = ROUND_TIMEOUT
    """Seconds after which a role that is waited for is ended and put back."""
    placement: str = "apart"
    """Whether users and shuffler are apart, or together in stations."""
    quick_together: bool = False
    """Whether stations are faster than roles apart: where what passes between roles is sent."""
    overhead = Overhead()

    def open(
        self, deployment: Deployment, population: Population, workers: int
    ) -> PlannedRound | None:
        """Set the roles up; returns the first round."""
        self.start()
        self._deployment, self._rows = deployment, self.shared(population)
        self._asked: list[bytes] = []
        self._over: list[Tally] = []
        self._blocks = worker_blocks(deployment, workers)
        self._contents: dict[int, bytes] | None = None
        self._together = self.placement == "together"
        if self._together:
            self._shards = [self._station(shard) for shard in range(deployment.shuffler_shards)]
            self._shufflers = list[Any]()
            self._analyzer = self._shards[0]
        else:
            self._apart()
        planned = self._surely(self._begun)
        self._contents = self._surely(self._read)
        return planned

    def _apart(self) -> None:
        """A place for each role."""
        deployment = self._deployment
        self._shards = [self._shard(blocks) for blocks in self._blocks]
        self._shufflers = [
            self.host(Shuffler, deployment.of_shuffler, shard)
            for shard in range(deployment.shuffler_shards)
        ]
        self._analyzer = self.host(Analyzer, deployment.of_analyzer)

    @property
    def content(self) -> bytes:
        """A hash of all rows as they were first read; the same where they cannot change."""
        pairs = sorted((self._contents or {}).items())
        return hashlib.sha256(b"".join(value for _, value in pairs)).digest()

    def _read(self) -> dict[int, bytes]:
        """What the shards read, by block."""
        asked = [handle for shard in self._shards for handle in self.call(shard, "contents")]
        return {block: each for found in self.get(asked) for block, each in found.items()}

    def recall(self, broadcast: bytes, tally: Tally) -> PlannedRound | None:
        """The analyzer updates from a round that was over before the run was resumed."""
        self._asked.append(broadcast)
        following = self._surely(lambda: self._recalled(broadcast, tally))
        self._over.append(tally)
        return following

    def exchange(self, broadcast: bytes) -> tuple[Exchange, PlannedRound | None]:
        """One round: users answer, the shuffler permutes, and the analyzer updates and plans on.

        Raises:
            RoundAbortedError: if roles are lost again and again.
        """
        self._asked.append(broadcast)
        exchange, following = self._surely(lambda: self._round(broadcast))
        self._over.append(exchange.tally)
        return exchange, following

    def _round(self, broadcast: bytes) -> tuple[Exchange, PlannedRound | None]:
        if self._together:
            return self._gathered(broadcast)
        batches = self._deployment.block_batches(broadcast)
        if len(batches) > 1 or len(self._shufflers) > 1:
            return self._streamed(broadcast, batches)
        frames, noted = self._answers(broadcast, batches[0])
        view, shuffled = self.call(self._shufflers[0], "shuffle", broadcast, many=frames, returns=2)
        concluded = self.call(self._analyzer, "conclude", view)
        conclusion, record, *users = self.get([*concluded, shuffled, *noted])
        return exchange_of(users, [record], conclusion)

    def _gathered(self, broadcast: bytes) -> tuple[Exchange, PlannedRound | None]:
        """A round of stations.

        One call where it is alone. Else one to each and one more to the first, which gets all sums;
        messages take two to each.
        """
        stations, many = self._shards, len(self._shards)
        if many == 1:
            (whole,) = self.get(self.call(stations[0], "whole", broadcast))
            conclusion, released, (noted, shuffled) = whole
            return exchange_of([noted], [shuffled, released], conclusion)
        sent = [self.call(each, "gather", broadcast, returns=many + 1) for each in stations]
        records = [each[-1] for each in sent]
        coming = [[*records, *(each[target] for each in sent)] for target in range(many)]
        if self._deployment.fidelity == "literal":
            read = [
                self.call(station, "deliver", broadcast, many, many=given, returns=2)
                for station, given in zip(stations, coming, strict=True)
            ]
            concluded = self.call(stations[0], "conclude", many=[reading for reading, _ in read])
            ended = [*concluded, *(record for _, record in read)]
        else:
            ended = self.call(stations[0], "finish", broadcast, many, many=coming[0], returns=2)
        conclusion, *found = self.get([*ended, *records])
        pairs, released = found[-many:], found[:-many]
        shuffled = [*(record for _, record in pairs), *released]
        return exchange_of([noted for noted, _ in pairs], shuffled, conclusion)

    def result(self) -> Any:
        """The protocol's output."""
        return self._surely(lambda: self._first("result"))

    def start(self) -> None:
        """Make ready to host roles."""

    def cores(self, deployment: Deployment) -> int:
        """How many cores the workers of such a run may use."""
        return 1

    def close(self) -> None:
        """End what was started."""

    @abstractmethod
    def host(self, role: type, *arguments: Any) -> Any:
        """Build a role where it is to live."""

    @abstractmethod
    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        """Handles of what a role's method returns, `returns` values.

        `many`, if given, goes in as one list, last.
        """

    @abstractmethod
    def get(self, handles: list[Any]) -> list[Any]:
        """Wait, and give the values.

        Raises:
            ShuffleSimError: what a role raised.
        """

    def shared(self, population: Population) -> Any:
        """The population as roles are given it."""
        return population

    def alive(self, host: Any) -> bool:
        """Whether a role is still there."""
        return True

    def _shard(self, blocks: range) -> Any:
        known = self._contents
        return self.host(UserShard, self._deployment, self._rows, blocks, tuple(self._asked), known)

    def _station(self, shard: int) -> Any:
        asked, over = tuple(self._asked), tuple(self._over)
        known = self._deployment, self._rows, shard, asked, self._contents, over
        return self.host(Station, *known)

    def _surely(self, step: Callable[[], _Value]) -> _Value:
        """What the step gives; where a role is lost, all are put back and it is taken again."""
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    self._put_back()
                return step()
            except HostLostError as error:
                lost = error
        raise RoundAbortedError(
            f"round {len(self._over)}: a role was lost in each of {ATTEMPTS} attempts: {lost}"
        ) from lost

    def _put_back(self) -> None:
        """Put every role back to where it was at the beginning of the round.

        Users only answer again. The others may have seen some of the round, and are built again.
        """
        if self._together:
            self._shards = [self._renewed(*each) for each in enumerate(self._shards)]
            self._analyzer = self._shards[0]
            self._begun()
            return
        shards = zip(self._shards, self._blocks, strict=True)
        self._shards = [
            shard if self.alive(shard) else self._shard(blocks) for shard, blocks in shards
        ]
        last = self._asked[-1] if self._asked else None
        self._shufflers = [
            self._anew(host, Shuffler, self._deployment.of_shuffler, shard, last)
            for shard, host in enumerate(self._shufflers)
        ]
        known = self._deployment.of_analyzer, tuple(self._over)
        self._analyzer = self._anew(self._analyzer, Analyzer, *known)
        self._begun()

    def _renewed(self, shard: int, station: Any) -> Any:
        """A station with all but its users built again: at its old place if that is still there."""
        if not self.alive(station):
            return self._station(shard)
        last = self._asked[-1] if self._asked else None
        self.get(self.call(station, "renew", last, tuple(self._over)))
        return station

    def _anew(self, host: Any, role: type, *arguments: Any) -> Any:
        """The role, built again: at its old place if that is still there."""
        if not self.alive(host):
            return self.host(role, *arguments)
        self.get(self.call(host, "__init__", *arguments))
        return host

    def _recalled(self, broadcast: bytes, tally: Tally) -> PlannedRound | None:
        if self._deployment.adversary is not None:  # corrupted users may remember what they did
            for blocks in self._deployment.block_batches(broadcast):
                self.get(self._answers(broadcast, blocks)[1])
        self.get(self.call(self._analyzer, "recall", tally))
        return self._planned()

    def _first(self, method: str) -> Any:
        """What a method of the analyzer gives."""
        return self.get(self.call(self._analyzer, method))[0]

    def _planned(self) -> PlannedRound | None:
        planned: PlannedRound | None = self._first("plan")
        return planned

    def _begun(self) -> PlannedRound | None:
        """The first round, or after a loss the current one; with protection, keys are exchanged."""
        if self._deployment.security != "none":
            roles = [*self._shards, *self._shufflers, self._analyzer]
            *keys, analyzer = self.get(
                [key for role in roles for key in self.call(role, "introduce")]
            )
            directory = Directory(
                tuple(keys[: len(self._shards)]), tuple(keys[len(self._shards) :]), (analyzer,)
            )
            self.get([done for role in roles for done in self.call(role, "meet", directory)])
        return self._planned()

    def _answers(self, broadcast: bytes, blocks: range) -> tuple[list[Any], list[Any]]:
        """Handles of the frames and of the records of all user shards for these blocks."""
        answers = [
            self.call(shard, "answer", broadcast, blocks, returns=2) for shard in self._shards
        ]
        return [frames for frames, _ in answers], [noted for _, noted in answers]

    def _streamed(
        self, broadcast: bytes, batches: list[range]
    ) -> tuple[Exchange, PlannedRound | None]:
        """A round too large for one place, or of several shuffler shards: by batches of blocks."""
        collected = self._windowed(self._collected(broadcast, blocks) for blocks in batches)
        users = [record for record in collected if isinstance(record, ShardRecord)]
        records = [record for record in collected if isinstance(record, ShuffleRecord)]
        asked = [
            self.call(shuffler, "release", broadcast, many=records) for shuffler in self._shufflers
        ]
        released = self.get([record for (record,) in asked])
        pieces = [
            (shuffler, start, min(start + _CHUNKS_TOGETHER, len(record.chunks)))
            for shuffler, record in zip(self._shufflers, released, strict=True)
            for start in range(0, len(record.chunks), _CHUNKS_TOGETHER)
        ]
        viewed = self._windowed(self._viewed(broadcast, *piece) for piece in pieces)
        sent = [record for record in viewed if isinstance(record, ShuffleRecord)]
        return exchange_of(users, [*records, *released, *sent], self._first("concluded"))

    def _collected(self, broadcast: bytes, blocks: range) -> list[Any]:
        """Users of these blocks answer to the shuffler's shards: handles of all records."""
        shards, sent, records = len(self._shufflers), [], []
        for home, shuffler in enumerate(self._shufflers):
            frames, noted = self._answers(
                broadcast, blocks[(home - blocks.start) % shards :: shards]
            )
            *chunks, record = self.call(
                shuffler, "collect", broadcast, many=frames, returns=shards + 1
            )
            sent.append(chunks)
            records += [record, *noted]
        for target, shuffler in enumerate(self._shufflers if shards > 1 else ()):
            records += self.call(
                shuffler, "accept", broadcast, many=[chunks[target] for chunks in sent]
            )
        return records

    def _viewed(self, broadcast: bytes, shuffler: Any, start: int, stop: int) -> list[Any]:
        """A piece of the view goes to the analyzer: handles of the record and of its answer."""
        view, record = self.call(shuffler, "view", broadcast, start, stop, returns=2)
        return [record, *self.call(self._analyzer, "receive", view)]

    def _windowed(self, steps: Iterable[list[Any]]) -> list[Any]:
        """The values of all steps' handles, with two steps under way at a time."""
        values: list[Any] = []
        under_way: deque[list[Any]] = deque()
        for handles in steps:
            under_way.append(handles)
            if len(under_way) > 1:
                values += self.get(under_way.popleft())
        return values + [value for handles in under_way for value in self.get(handles)]
