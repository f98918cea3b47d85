"""An optimiser costs one file and one entry point; phases know no trust model."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from protocols import ShuffleACSA, ShuffleGD, ShuffleSGD, VectorSum
from protocols.central.record.pan_private import PanPrivateACSA
from protocols.learning.baselines import Baseline
from protocols.optimisation.base import Optimiser, OptimiserState
from protocols.optimisation.phases import Phased, Phases
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.data.cohort import Cohort

PRIVACY = Privacy(1.0, 1e-6)
PROBLEM = Problem(Logistic(), L2Ball(3, 2.0), ridge=0.2)
COMMON = {"n": 1000, "problem": PROBLEM, "privacy": PRIVACY}


@pytest.mark.parametrize("kind", [ShuffleSGD, ShuffleACSA, ShuffleGD, PanPrivateACSA])
def test_what_an_optimiser_does_not_take_is_refused(kind):
    for make in (kind.calibrated, kind.paper):
        with pytest.raises(ParameterError) as error:
            make(momentum=0.9, **COMMON | {"privacy": Privacy(0.5, 1e-6)})
        assert (error.value.parameter, error.value.value) == ("momentum", 0.9)
        assert ", ".join(kind.takes) in str(error.value)
    for name in set(kind.adapts) - set(kind.takes):
        with pytest.raises(ParameterError, match=name):
            kind.paper(**COMMON, **{name: 0.5})
    with pytest.raises(ParameterError, match="trust = 'quantum'"):
        kind.calibrated(trust="quantum", **COMMON)


@pytest.mark.parametrize("optimiser", [None, "shuffle-gd", VectorSum, Optimiser])
def test_phases_of_what_is_no_optimiser_are_refused(optimiser):
    with pytest.raises(ParameterError, match="optimiser"):
        Phased.calibrated(optimiser=optimiser, **COMMON)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a curator may be asked: no randomizer, no event."""

    cohort: Cohort
    noise: float


@dataclasses.dataclass(kw_only=True)
class Centre(Optimiser[OptimiserState]):
    """One round over its users; another kind of run than a shuffle protocol."""

    n: int
    problem: Problem
    privacy: Privacy
    start: float
    rounds = 1

    def __post_init__(self):
        self.bound, self.choices = self.start / self.n, {"start": f"{self.start}: as near"}

    @classmethod
    def expected_bound(cls, setting, choices):
        return setting.distance / setting.n

    @classmethod
    def calibrated_for(cls, setting, choices):
        problem, privacy = setting.problem, setting.privacy
        return cls(n=setting.n, problem=problem, privacy=privacy, start=setting.distance)

    def check(self, rows):
        assert len(rows) == self.n

    def init_at(self, theta):
        return (0, theta)

    def plan(self, state):
        return Asked(Cohort.of(0, self.n), 1 / self.n) if state[0] == 0 else None

    def update(self, state, estimate):
        return (1, state[1] + estimate)

    def result(self, state):
        return state[1]


def test_phases_serve_any_trust_whose_rounds_have_a_cohort():
    made: Any = Phases.calibrated(optimiser=Centre, phases=3, growth=2.0, **COMMON)
    assert [phase.n for phase in made.phases] == [142, 285, 571]
    starts = [phase.start for phase in made.phases]
    assert starts == sorted(starts, reverse=True)
    assert starts[1] == pytest.approx((2 * starts[0] / 142 / 0.2) ** 0.5)
    assert made.bound == made.phases[-1].bound
    state, asked = made.init(), []
    while (spec := made.plan(state)) is not None:
        asked.append(spec)
        state = made.update(state, np.ones(3))
    assert [spec.cohort.ranges for spec in asked] == [((0, 142),), ((142, 427),), ((427, 998),)]
    assert [spec.noise for spec in asked] == [1 / 142, 1 / 285, 1 / 571]  # all else is the phase's
    assert made.result(state).tolist() == [3.0, 3.0, 3.0]  # each phase starts at the result before
    with pytest.raises(ParameterError, match="runs as Protocol"):
        Phased.calibrated(optimiser=Centre, **COMMON)
    with pytest.raises(ParameterError, match="at most n = 997"):
        Phases(n=997, phases=made.phases)


def test_what_was_given_and_what_was_chosen_is_recorded():
    made = ShuffleSGD.calibrated(eta=0.1, batch=None, trust="local", **COMMON)
    assert (made.eta, made.choices["eta"]) == (0.1, "given")
    assert made.choices["batch"].startswith(f"{made.mean.batch}: smallest proven bound")
    assert made.choices["rounds"].startswith(f"{made.rounds}: floor")
    assert made.choices["trust"].startswith("local: rho = ")
    smooth = ShuffleGD.calibrated(rounds=3, **COMMON)
    assert smooth.choices["smoothing"] == "none: the loss is smooth"
    assert smooth.choices["eta"].startswith(f"{smooth.eta:.4g}: ")
    own = ShuffleSGD(rounds=2, eta=0.1, mean=made.mean, **COMMON)
    assert own.choices == {"batch": "given", "rounds": "given", "eta": "given"}


def test_a_baseline_of_what_is_no_shuffle_protocol_is_refused():
    made = Phases.calibrated(optimiser=Centre, phases=2, growth=1.0, **COMMON)
    with pytest.raises(ParameterError, match="optimiser, such as"):
        Baseline(made, "central")


@pytest.mark.full
def test_rounds_with_the_same_users_are_chosen_up_to_a_number():
    free, few = (ShuffleGD.calibrated(max_rounds_per_user=most, **COMMON) for most in (1000, 7))
    assert (few.rounds, few.mean.batch) == (7, 1000)
    assert few.rounds < free.rounds
    assert "at most 7" in few.choices["rounds"]
    assert ShuffleGD.calibrated(max_rounds_per_user=7, rounds=9, **COMMON).rounds == 9
    sequential = ShuffleSGD.calibrated(max_rounds_per_user=1, **COMMON)
    assert sequential.rounds == ShuffleSGD.calibrated(**COMMON).rounds > 1
    with pytest.raises(ParameterError, match="max_rounds_per_user"):
        ShuffleGD.calibrated(max_rounds_per_user=0, **COMMON)
