"""Workers auto: what is planned from a rehearsal, and what is refused."""

import time

import numpy as np
import pytest
from rounds import PROTOCOLS, outcome, rows
from runs import run

from protocols import VectorSum
from shuffle_sim import ParameterError
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution import sizing
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.runtime import Overhead
from shuffle_sim.execution.setup import deployment_of
from shuffle_sim.execution.sizing import Speed, predicted, rehearsed, size_plan
from shuffle_sim.roles import UserShard

PROTOCOL = VectorSum(n=4000, d=3, g=5, b=6)
ROWS = np.zeros((4000, 3))
SLOW = Overhead(start=3.0, worker=0.5, alone=0.002, each_round=0.004)


class Wide(InProcessRuntime):
    """As if there were cores."""

    def __init__(self, many):
        self.many = many

    def cores(self, deployment):
        return self.many


def test_more_work_takes_more_workers_and_little_work_one():
    plans = [
        size_plan(Speed(each_round=1e-3, each_user=each), PROTOCOL, 8, SLOW, together=True)
        for each in (1e-9, 1e-3, 1e-1)
    ]
    assert [plan.workers for plan in plans] == [1, 3, 8]
    assert plans[0].seconds < plans[1].seconds < plans[2].seconds
    assert {plan.placement for plan in plans} == {"together"}
    assert plans[2].alone == pytest.approx(0.001 + 400)
    speed = Speed(each_round=1e-3, each_user=1e-3)
    times = [predicted(speed, [4000], many, SLOW) for many in range(1, 9)]
    assert 1 + int(np.argmin(times)) == plans[1].workers


def test_one_core_is_this_process_and_protected_roles_are_apart():
    speed = Speed(each_round=0.0, each_user=1.0)
    alone = size_plan(speed, PROTOCOL, 1, Overhead(), together=True)
    assert (alone.workers, alone.placement, alone.seconds) == (1, "apart", alone.alone)
    apart = size_plan(speed, PROTOCOL, 4, SLOW, together=False)
    assert (apart.workers, apart.placement) == (3, "apart")
    few = VectorSum(n=2, d=3, g=5, b=60)
    assert size_plan(speed, few, 64, SLOW, together=True).workers == 2


@pytest.mark.parametrize("fidelity", ["literal", "counts", "aggregate"])
def test_a_rehearsal_takes_time_and_draws_its_own_noise(fidelity, monkeypatch):
    made, _ = deployment_of(PROTOCOL, fidelity, 1, None, 256, "numpy", 3, "none")
    seen = []

    class Seen(UserShard):
        def __init__(self, deployment, *given):
            seen.append(deployment)
            super().__init__(deployment, *given)

    monkeypatch.setattr(sizing, "UserShard", Seen)
    speed = rehearsed(made, InMemory(ROWS))
    assert 0 < speed.each_user < 1e-2
    assert speed.each_round >= 0
    assert [each.entropy == made.entropy for each in seen] == [False]


def test_a_rehearsal_does_not_count_what_is_compiled_once(monkeypatch):
    made, _ = deployment_of(PROTOCOL, "literal", 1, None, 256, "numpy", 1, "none")
    clock, compiled = [0.0], []

    def answered(deployment, broadcast, users, blocks):
        clock[0] += 0.25 + 256 * len(blocks) * 1e-3
        if len(blocks) > 1 and not compiled:
            clock[0] += 60.0
            compiled.append(blocks)

    monkeypatch.setattr(sizing, "_round", answered)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    speed = rehearsed(made, InMemory(ROWS))
    assert (speed.each_round, speed.each_user) == pytest.approx((0.25, 1e-3))


@pytest.mark.full
def test_auto_gives_the_bits_of_what_it_planned():
    told = []
    how = {"runtime": Wide(4), "seed": 1, "fidelity": "literal", "on_plan": told.append}
    result = run(PROTOCOL, ROWS, workers="auto", **how)
    (plan,) = told
    assert (result.workers, result.placement) == (plan.workers, "together")
    assert "about" in str(plan)
    given = {"workers": plan.workers, "placement": "together", "seed": 1, "fidelity": "literal"}
    assert outcome(run(PROTOCOL, ROWS, **given)) == outcome(result)
    assert run(PROTOCOLS["interactive"](2), rows(), workers="auto").workers == 1


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"placement": "together"}, "placement"),
        ({"shuffler_shards": 2}, "shuffler_shards"),
        ({"checkpoint": "here"}, "workers"),
        ({"workers": "many"}, "workers"),
    ],
)
def test_what_auto_would_choose_is_refused(how, name):
    with pytest.raises(ParameterError, match=f"^{name}"):
        run(PROTOCOL, ROWS, **{"workers": "auto"} | how)


def test_a_cluster_that_shrank_since_it_was_planned_is_named(monkeypatch):
    from actors import runtime

    host, counts = runtime.RayRuntime(), iter([3, 3])
    monkeypatch.setattr(runtime, "cores", lambda: next(counts))
    monkeypatch.setattr(host, "_connect", lambda: None)
    host._counted = 4
    with pytest.raises(ParameterError, match="shrank from 4 to 3 cores"):
        host.start()
