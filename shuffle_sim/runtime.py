"""A runtime hosts the roles and connects them; nothing about the protocol differs between runtimes."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from shuffle_sim.cohort import Cohort
from shuffle_sim.population import Population
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.roles import Analyzer, Deployment, Directory, ShardRecord, Shuffler, ShuffleRecord, UserShard, ViewRecord

_HANDS = 4  # frames of a view that are asked for together
Plan = tuple[bytes, Cohort, PrivacyEvent] | None


@dataclass(frozen=True)
class Exchange:
    """What one round leaves behind for the driver: the records of both sides, and the next plan."""

    users: ShardRecord
    shuffler: ShuffleRecord
    plan: Plan
    analyzer: ViewRecord = field(default_factory=ViewRecord)


def worker_blocks(deployment: Deployment, workers: int) -> list[range]:
    """Which user blocks each worker hosts: every workers-th one, so that a cohort of neighbours is spread over all."""
    blocks = deployment.blocks()
    return [blocks[worker::workers] for worker in range(min(workers, len(blocks)))]


class Runtime(ABC):
    """Hosts the user shards, the shuffler's shards and the analyzer of one run; a context manager that leaves nothing behind.

    How a round goes is said here, once, in calls of the roles' methods; a runtime says where a role lives, and how it is called.
    What a call gives is a handle: it may be passed on to the next call, and only `get` waits for it.
    """

    name: str

    def open(self, deployment: Deployment, population: Population, workers: int) -> Plan:
        """Set the roles up; returns the first round's plan."""
        self._deployment = deployment
        rows = self.shared(population)
        self._shards = [self.host(UserShard, deployment, rows, blocks) for blocks in worker_blocks(deployment, workers)]
        self._shufflers = [self.host(Shuffler, deployment, shard) for shard in range(deployment.shuffler_shards)]
        self._analyzer = self.host(Analyzer, deployment)
        if deployment.security != "none":
            self._introduce()
        plan: Plan = self.get(self.call(self._analyzer, "plan"))[0]
        return plan

    def exchange(self, broadcast: bytes) -> Exchange:
        """One round: users answer the broadcast, the shuffler permutes, the analyzer updates and plans on."""
        waves = self._deployment.waves(broadcast)
        if len(waves) > 1 or len(self._shufflers) > 1:
            return self._streamed(broadcast, waves)
        frames, noted = self._answers(broadcast, waves[0])
        view, shuffled = self.call(self._shufflers[0], "shuffle", broadcast, many=frames, returns=2)
        received = self.call(self._analyzer, "receive", view)
        plan, record, _, *users = self.get([*self.call(self._analyzer, "plan"), shuffled, *received, *noted])
        return Exchange(sum(users, ShardRecord()), record, plan, self._found())

    def _introduce(self) -> None:
        """Every role makes its keys, and learns everybody's public ones."""
        roles = [*self._shards, *self._shufflers, self._analyzer]
        *keys, analyzer = self.get([key for role in roles for key in self.call(role, "introduce")])
        directory = Directory(tuple(keys[: len(self._shards)]), tuple(keys[len(self._shards) :]), (analyzer,))
        self.get([done for role in roles for done in self.call(role, "meet", directory)])

    def _found(self) -> ViewRecord:
        """What the analyzer found in the last view, where only it can know."""
        if self._deployment.security != "onion":
            return ViewRecord()
        record: ViewRecord = self.get(self.call(self._analyzer, "found"))[0]
        return record

    def result(self) -> Any:
        """The protocol's output."""
        return self.get(self.call(self._analyzer, "result"))[0]

    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> "Runtime":
        """The runtime itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close, whatever happened."""
        self.close()

    @abstractmethod
    def host(self, role: type, *arguments: Any) -> Any:
        """Build a role where it is to live."""

    @abstractmethod
    def call(self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1) -> list[Any]:
        """Handles of what a role's method returns, `returns` values; `many`, if given, goes in as one list, last."""

    @abstractmethod
    def get(self, handles: list[Any]) -> list[Any]:
        """Wait, and give the values.

        Raises:
            ShuffleSimError: what a role raised.
        """

    def shared(self, population: Population) -> Any:
        """The population as roles are given it."""
        return population

    def _answers(self, broadcast: bytes, blocks: range) -> tuple[list[Any], list[Any]]:
        """Handles of the frames and of the records of all user shards for these blocks."""
        answers = [self.call(shard, "answer", broadcast, blocks, returns=2) for shard in self._shards]
        return [frames for frames, _ in answers], [noted for _, noted in answers]

    def _streamed(self, broadcast: bytes, waves: list[range]) -> Exchange:
        """A round that is too large to be anywhere at once, or whose shuffler has several shards: wave by wave."""
        collected = self._windowed(self._collected(broadcast, blocks) for blocks in waves)
        users = [record for record in collected if isinstance(record, ShardRecord)]
        records = [record for record in collected if isinstance(record, ShuffleRecord)]
        asked = [self.call(shuffler, "release", broadcast, many=records) for shuffler in self._shufflers]
        released = self.get([record for (record,) in asked])
        pieces = [
            (shuffler, start, min(start + _HANDS, len(record.hands)))
            for shuffler, record in zip(self._shufflers, released, strict=True)
            for start in range(0, len(record.hands), _HANDS)
        ]
        viewed = self._windowed(self._viewed(broadcast, *piece) for piece in pieces)
        (plan,) = self.get(self.call(self._analyzer, "plan"))
        sent = [record for record in viewed if isinstance(record, ShuffleRecord)]
        return Exchange(sum(users, ShardRecord()), sum([*records, *released, *sent], ShuffleRecord()), plan, self._found())

    def _collected(self, broadcast: bytes, blocks: range) -> list[Any]:
        """Users of these blocks answer, and the shuffler's shards have their messages: handles of all records."""
        shards, sent, records = len(self._shufflers), [], []
        for home, shuffler in enumerate(self._shufflers):
            frames, noted = self._answers(broadcast, blocks[(home - blocks.start) % shards :: shards])
            *hands, record = self.call(shuffler, "collect", broadcast, many=frames, returns=shards + 1)
            sent.append(hands)
            records += [record, *noted]
        for target, shuffler in enumerate(self._shufflers if shards > 1 else ()):
            records += self.call(shuffler, "accept", broadcast, many=[hands[target] for hands in sent])
        return records

    def _viewed(self, broadcast: bytes, shuffler: Any, start: int, stop: int) -> list[Any]:
        """A piece of the view goes to the analyzer: handles of the record and of the analyzer's answer."""
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


class InProcessRuntime(Runtime):
    """All roles in this process; the same bytes pass between them as anywhere."""

    name = "inprocess"

    def host(self, role: type, *arguments: Any) -> Any:
        """The role itself."""
        return role(*arguments)

    def call(self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1) -> list[Any]:
        """The values themselves."""
        value = getattr(host, method)(*arguments, *([list(many)] if many else []))
        return [value] if returns == 1 else list(value)

    def get(self, handles: list[Any]) -> list[Any]:
        """They are there."""
        return handles
