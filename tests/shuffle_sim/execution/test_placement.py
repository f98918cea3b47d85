"""Roles together in stations: the same bits as apart, through every death, and what is refused."""

import numpy as np
import pytest
from rounds import PROTOCOLS, Remembers, outcome, rows
from runs import run

from protocols import CarryVectorSum, OutputPerturbation, SingleMessageSum, VectorSum
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import HostLostError
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.roles import Station

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 3)) * 0.5
SUMS = {
    "bits": (VectorSum(n=300, d=3, g=5, b=6), ROWS),
    "carries": (CarryVectorSum(n=300, d=3, g=6.5, r=3, b=16), ROWS),
    "symbols": (SingleMessageSum(n=300, steps=3, gamma=0.5), np.linspace(0, 1, 300)),
}


@pytest.mark.parametrize("adversary", [None, Dropout(0.3)])
@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.full
def test_both_placements_give_the_same_bits(name, fidelity, adversary):
    protocol, data = SUMS[name]
    how = {"seed": 3, "fidelity": fidelity, "block_size": 32, "adversary": adversary}
    for kernel in ("numpy", "compiled"):
        alone = run(protocol, data, kernel=kernel, **how)
        for workers in (1, 2, 3):
            together = run(
                protocol, data, workers=workers, placement="together", kernel=kernel, **how
            )
            apart = run(protocol, data, workers=2, shuffler_shards=workers, kernel=kernel, **how)
            assert outcome(together) == outcome(apart)
            assert np.array_equal(together.value, alone.value)
            assert (together.placement, apart.placement) == ("together", "apart")
            assert together.shuffler_shards == workers


def test_almost_nothing_crosses_for_one_bit_messages():
    protocol = VectorSum(n=3000, d=3, g=5, b=60)
    result = run(
        protocol, np.zeros((3000, 3)), fidelity="literal", workers=2, placement="together", seed=1
    )
    parts = 2 * len(range(0, 3000, 188)) / 16
    assert 0 < result.costs.routed_bytes < 200 * parts
    assert result.costs.routed_bytes < result.costs.view_bytes / 100


class Deadly(InProcessRuntime):
    """Stations in this process, of which one is lost before or after a step."""

    def __init__(self, at, after):
        self.at, self.after, self.calls, self.dead, self.deaths = at, after, 0, [], 0

    def alive(self, host):
        return host not in self.dead

    def call(self, host, method, *arguments, many=(), returns=1):
        if host in self.dead:
            raise HostLostError("dead")
        self.calls += 1
        due = self.calls == self.at
        if due and not self.after:
            return self._lose(host)
        given = super().call(host, method, *arguments, many=many, returns=returns)
        return self._lose(host) if due else given

    def _lose(self, host):
        self.deaths += 1
        self.dead.append(host)
        raise HostLostError("dead")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("workers", "adversary"), [(1, None), (2, None), (2, Remembers())])
@pytest.mark.full
def test_a_station_lost_at_any_call_changes_nothing(workers, after, adversary):
    how = {"seed": 5, "fidelity": "literal", "block_size": 7, "adversary": adversary}
    how |= {"workers": workers, "placement": "together"}
    alone, steps = run(PROTOCOLS["interactive"](3), rows(), **how), {1: 7, 2: 19}[workers]
    for at in range(1, steps, 3 if adversary else 1):
        host = Deadly(at, after)
        result = run(PROTOCOLS["interactive"](3), rows(), runtime=host, **how)
        assert host.deaths == 1
        assert outcome(result) == outcome(alone)


@pytest.mark.long
def test_a_station_killed_on_ray_is_put_back_with_its_bits():
    from actors.runtime import RayRuntime, ray

    class Killed(RayRuntime):
        def call(self, host, method, *arguments, many=(), returns=1):
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls in (6, 17):
                ray.kill(self._shards[self.calls % 2])
            return super().call(host, method, *arguments, many=many, returns=returns)

    how = {"seed": 5, "fidelity": "literal", "block_size": 7, "workers": 2, "placement": "together"}
    alone = run(PROTOCOLS["interactive"](4), rows(), **how)
    host = Killed()
    hosted = run(PROTOCOLS["interactive"](4), rows(), runtime=host, **how)
    assert outcome(hosted) == outcome(alone)
    assert host.calls > 4 + 5 * 4  # rounds were taken again


def test_a_checkpoint_is_resumed_in_the_other_placement(tmp_path):
    how = {"seed": 5, "fidelity": "literal", "block_size": 7, "shuffler_shards": 2, "workers": 2}
    alone = run(PROTOCOLS["interactive"](4), rows(), **how)

    class StoppedError(Exception):
        pass

    def stop(done, *_):
        if done == 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(
            PROTOCOLS["interactive"](4),
            rows(),
            placement="together",
            checkpoint=tmp_path,
            on_round=stop,
            **how,
        )
    resumed = run(PROTOCOLS["interactive"](4), rows(), checkpoint=tmp_path, resume=True, **how)
    assert outcome(resumed) == outcome(alone)


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"placement": "near"}, "placement"),
        ({"placement": "together", "security": "onion"}, "placement"),
        ({"placement": "together", "security": "transport"}, "placement"),
        ({"placement": "together", "workers": 2, "shuffler_shards": 3}, "shuffler_shards"),
        ({"placement": "together", "workers": 301}, "workers"),
        ({"placement": "together", "workers": 1025}, "workers"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(how, name):
    with pytest.raises(ParameterError, match=f"^{name}"):
        run(SUMS["bits"][0], ROWS, **how)


def test_a_curator_has_no_placement():
    problem = Problem(Logistic(), L2Ball(2, 1.0), ridge=0.1)
    algorithm = OutputPerturbation.calibrated(problem=problem, n=60, privacy=Privacy(1.0, 0.0))
    with pytest.raises(ParameterError, match="placement"):
        run(algorithm, rows(), placement="together")


def stations(shards):
    """Two stations in the middle of a round: their broadcast and what each sent."""
    from shuffle_sim.data.population import InMemory
    from shuffle_sim.execution.setup import deployment_of

    made, _ = deployment_of(SUMS["bits"][0], "literal", 1, None, 32, "numpy", shards, "none")
    hosts = [Station(made, InMemory(ROWS), shard) for shard in range(shards)]
    broadcast = hosts[0].plan().broadcast
    return hosts, broadcast, [host.gather(broadcast) for host in hosts]


def test_a_view_is_taken_whole_once_and_in_its_round():
    (first, second), broadcast, sent = stations(2)
    records = [each[-1] for each in sent]
    with pytest.raises(RoundAbortedError, match="holds"):  # what the other sent is missing
        first.deliver(broadcast, 2, [*records, b"", b""])
    (first, second), broadcast, sent = stations(2)
    read = [
        host.deliver(broadcast, 2, [*records, *(each[place] for each in sent)])[0]
        for place, host in enumerate((first, second))
    ]
    with pytest.raises(FrameError, match="missing"):
        first.conclude(read[:1])
    with pytest.raises(FrameError, match="twice"):
        first.conclude(read[:1])
    conclusion = first.conclude(read[1:])
    assert conclusion.tally.reports == 300
    with pytest.raises(RoundAbortedError):
        first.conclude(read)


class Spread(InProcessRuntime):
    """A runtime whose roles are sent what they exchange, as far as defaults go."""

    quick_together = True


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
@pytest.mark.parametrize("name", SUMS)
def test_what_is_fastest_is_the_default_and_moves_no_bit(name, fidelity):
    protocol, data = SUMS[name]
    how = {"seed": 3, "fidelity": fidelity, "block_size": 32}
    alone = run(protocol, data, **how)
    assert (alone.placement, alone.shuffler_shards) == ("apart", 1)
    for workers in (1, 2, 3):
        chosen = run(protocol, data, runtime=Spread(), workers=workers, **how)
        assert (chosen.placement, chosen.shuffler_shards) == ("together", workers)
        assert np.array_equal(chosen.value, alone.value)
        assert chosen.reports == alone.reports
        assert chosen.costs.payload_bits_per_user == alone.costs.payload_bits_per_user


@pytest.mark.parametrize(
    "asked", [{"placement": "apart"}, {"security": "transport"}, {"shuffler_shards": 2}]
)
def test_roles_are_apart_where_that_is_asked_for(asked):
    chosen = run(SUMS["bits"][0], ROWS, runtime=Spread(), workers=2, seed=3, **asked)
    assert chosen.placement == "apart"


def test_a_run_in_a_folder_is_resumed_with_any_workers(tmp_path):
    how = {"seed": 5, "fidelity": "literal", "runtime": Spread(), "checkpoint": tmp_path}
    alone = run(PROTOCOLS["interactive"](4), rows(), workers=2, **how)
    for workers in (1, 3):
        again = run(PROTOCOLS["interactive"](4), rows(), workers=workers, resume=True, **how)
        assert np.array_equal(again.value, alone.value)


def test_processes_and_ray_take_what_is_fastest():
    from actors.runtime import RayRuntime
    from shuffle_sim.execution.processes import ProcessesRuntime

    kinds = InProcessRuntime, ProcessesRuntime, RayRuntime
    assert [kind.quick_together for kind in kinds] == [False, True, True]
