"""A runtime hosts the roles and connects them; nothing about the protocol differs between runtimes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from shuffle_sim.cohort import Cohort
from shuffle_sim.population import Population
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.roles import Analyzer, Deployment, ShardRecord, Shuffler, ShuffleRecord, UserShard

Plan = tuple[bytes, Cohort, PrivacyEvent] | None


@dataclass(frozen=True)
class Exchange:
    """What one round leaves behind for the driver: the records of both sides, and the next plan."""

    users: ShardRecord
    shuffler: ShuffleRecord
    plan: Plan


def worker_blocks(deployment: Deployment, workers: int) -> list[range]:
    """Which user blocks each worker hosts: every workers-th one, so that a cohort of neighbours is spread over all."""
    blocks = deployment.blocks()
    return [blocks[worker::workers] for worker in range(min(workers, len(blocks)))]


class Runtime(ABC):
    """Hosts user shards, one shuffler and one analyzer for one run; a context manager that leaves nothing behind."""

    name: str

    @abstractmethod
    def open(self, deployment: Deployment, population: Population, workers: int) -> Plan:
        """Set the roles up; returns the first round's plan."""

    @abstractmethod
    def exchange(self, broadcast: bytes) -> Exchange:
        """One round: users answer the broadcast, the shuffler permutes, the analyzer updates and plans on."""

    @abstractmethod
    def result(self) -> Any:
        """The protocol's output."""

    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> "Runtime":
        """The runtime itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close, whatever happened."""
        self.close()


class InProcessRuntime(Runtime):
    """All roles in this process; the same bytes pass between them as anywhere."""

    name = "inprocess"

    def open(self, deployment: Deployment, population: Population, workers: int) -> Plan:
        """Build the roles, one shard per worker."""
        self._shards = [UserShard(deployment, population, blocks) for blocks in worker_blocks(deployment, workers)]
        self._shuffler, self._analyzer = Shuffler(deployment), Analyzer(deployment)
        return self._analyzer.plan()

    def exchange(self, broadcast: bytes) -> Exchange:
        """The round, one role after the other."""
        answers = [shard.answer(broadcast) for shard in self._shards]
        view, record = self._shuffler.shuffle(broadcast, [batch for batch, _ in answers])
        self._analyzer.receive(view)
        return Exchange(sum((noted for _, noted in answers), ShardRecord()), record, self._analyzer.plan())

    def result(self) -> Any:
        """The analyzer's result."""
        return self._analyzer.result()
