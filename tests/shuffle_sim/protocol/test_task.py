"""What a run may ask is agreed to before its first round."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest

from protocols import L2Ball, Logistic, Problem, ShuffleSGD, VectorSum
from shuffle_sim import Execution, ParameterError, Privacy, run
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.protocol.adversary import Coalition
from shuffle_sim.protocol.task import Participation, TaskLimits, task_of

N = 40
SUM = VectorSum(n=N, d=2, g=3, b=9)


def sgd() -> ShuffleSGD:
    problem = Problem(Logistic(), L2Ball(2, 1.0))
    return ShuffleSGD.calibrated(n=N, problem=problem, privacy=Privacy(5.0, 1e-3), batch=10)


@pytest.mark.full
def test_the_task_of_a_protocol_is_what_its_rounds_ask():
    task = task_of(sgd())
    assert (task.rounds, task.participation, task.cohort) == (4, 1, 10)
    assert len(task.forms) == len(task.events) == 1


def test_participation_is_counted_by_user():
    rng, counted, truth = np.random.default_rng(1), Participation(), Counter[int]()
    for _ in range(200):
        low = int(rng.integers(0, 50))
        mid = low + int(rng.integers(1, 9))
        cohort = Cohort(((low, mid), (mid + 3, mid + 3 + int(rng.integers(1, 9)))))
        asked = [user for span in cohort.ranges for user in range(*span)]
        assert counted.most(cohort) == max(truth[user] for user in asked)
        truth.update(asked)
        assert counted.add(cohort) == max(truth[user] for user in asked)


class Watched(InProcessRuntime):
    """It knows whether a role was made."""

    hosted = 0

    def host(self, role, *arguments):
        self.hosted += 1
        return super().host(role, *arguments)


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        ({"rounds": 3}, "rounds"),
        ({"cohort": 11}, "cohort"),
        ({"minimum": 2}, "minimum"),
        ({"report_bits": 2}, "report_bits"),
    ],
)
def test_a_protocol_above_a_limit_is_refused_before_anything(limits, names):
    rows, runtime = np.ones((N, 3)) / 2, Watched()
    rows[:, -1] = 1.0
    with pytest.raises(ParameterError, match=rf"limits\.{names} = .* the protocol asks for that"):
        run(sgd(), rows, runtime=runtime, execution=Execution(limits=TaskLimits(**limits)))
    assert runtime.hosted == 0


def test_limits_that_hold_change_nothing():
    rows = np.random.default_rng(0).normal(size=(N, 2)) / 4
    limits = TaskLimits(rounds=1, participation=1, cohort=N, minimum=1, report_bits=24)
    first, second = (
        run(SUM, rows, seed=3),
        run(SUM, rows, seed=3, execution=Execution(limits=limits)),
    )
    assert np.array_equal(first.value, second.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_limits_out_of_range_are_refused(value):
    with pytest.raises(ParameterError, match=r"limits\.rounds"):
        TaskLimits(rounds=value)


class Wavers(VectorSum):
    """In the run it asks fewer users than it said before."""

    asked = 0

    def plan(self, state):
        spec = super().plan(state)
        type(self).asked += 1
        if spec is not None and type(self).asked > 4:
            object.__setattr__(spec, "cohort", Cohort.of(0, 1))
            object.__setattr__(spec, "event", self.randomizer.event(1, spec.query))
        return spec


def test_a_protocol_that_leaves_its_task_is_stopped_uncharged():
    with pytest.raises(ParameterError, match="task that users agreed to") as caught:
        run(Wavers(n=N, d=2, g=3, b=9), np.zeros((N, 2)))
    assert not caught.value.ledger.charges


class Floods(Coalition):
    """Each corrupted user sends 16 MiB."""

    def send(self, context, user, packet, rng):
        return (packet + bytes(1 << 24),)


@pytest.mark.full
def test_long_packets_are_dropped_before_they_are_kept():
    """Many users x 16 MiB; power: one packet alone is seen."""
    protocol, rows = VectorSum(n=100, d=2, g=3, b=9), np.zeros((100, 2))
    tracemalloc.start()
    try:
        result = run(protocol, rows, adversary=Floods(0.34), seed=1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.reports.dropped["oversized"] == result.reports.corrupted > 20
    assert 1 << 24 < most < 3 << 24
