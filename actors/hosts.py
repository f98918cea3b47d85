"""The actors: each hosts one role, and only passes bytes and records on.

Randomness is drawn in here, so nothing is ever retried: a retry would re-randomize, which is a second release.
"""

from typing import Any

import ray

from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.population import Population
from shuffle_sim.roles import Analyzer, Deployment, ShardRecord, Shuffler, ShuffleRecord, UserShard
from shuffle_sim.runtime import Plan


class _UserShardHost:
    """Hosts a `UserShard`: many users."""

    def __init__(self, deployment: Deployment, population: Population, blocks: range) -> None:
        """Build the role here; the population comes once, by reference.

        An error is kept for the first call: Ray would make text of it.
        """
        self._error: ShuffleSimError | None = None
        try:
            self._shard = UserShard(deployment, population, blocks)
        except ShuffleSimError as error:
            self._error = error

    @ray.method(num_returns=2)
    def answer(self, broadcast: bytes) -> tuple[bytes, ShardRecord]:
        """Two objects: the frames, for the shuffler alone, and the record, for the driver alone."""
        if self._error is not None:
            raise self._error
        return self._shard.answer(broadcast)


class _ShufflerHost:
    """Hosts the `Shuffler`."""

    def __init__(self, deployment: Deployment) -> None:
        """Build the role here."""
        self._shuffler = Shuffler(deployment)

    @ray.method(num_returns=2)
    def shuffle(self, broadcast: bytes, *batches: bytes) -> tuple[bytes, ShuffleRecord]:
        """Two objects: the view, for the analyzer alone, and the record, for the driver alone."""
        return self._shuffler.shuffle(broadcast, batches)


class _AnalyzerHost:
    """Hosts the `Analyzer`, and with it the protocol's state."""

    def __init__(self, deployment: Deployment) -> None:
        """Build the role here."""
        self._analyzer = Analyzer(deployment)

    def plan(self) -> Plan:
        """The first round's plan."""
        return self._analyzer.plan()

    def receive(self, view: bytes) -> Plan:
        """Take the view, update, plan on."""
        self._analyzer.receive(view)
        return self._analyzer.plan()

    def result(self) -> Any:
        """The protocol's output."""
        return self._analyzer.result()


_actor: Any = ray.remote(max_restarts=0, max_task_retries=0, num_cpus=0)
UserShardActor = _actor(_UserShardHost)
ShufflerActor = _actor(_ShufflerHost)
AnalyzerActor = _actor(_AnalyzerHost)
