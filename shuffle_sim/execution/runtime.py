"""A runtime hosts the roles and connects them; the protocol is the same on all runtimes."""

import hashlib
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from shuffle_sim.data.population import Population
from shuffle_sim.errors import RoundAbortedError, ShuffleSimError
from shuffle_sim.execution.calls import RoundOfCalls
from shuffle_sim.execution.exchange import Exchange
from shuffle_sim.roles import (
    Analyzer,
    Deployment,
    Directory,
    PlannedRound,
    Shuffler,
    Station,
    UserShard,
)
from shuffle_sim.wire.messages import Tally

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


class Runtime(RoundOfCalls):
    """Hosts all roles of one run; a context manager that leaves nothing behind.

    `RoundOfCalls` says how a round goes; a runtime says where a role lives, and how it is called.

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
