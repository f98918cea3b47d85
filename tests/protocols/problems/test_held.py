"""Losses of one's own: what privacy takes from their authors is tried at points, and said."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from protocols import (
    AcceleratedPhasedERM,
    CuratedPhases,
    ExponentialMechanism,
    Gibbs,
    Grouped,
    HeavyTailedERM,
    Hinge,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    MeanEstimation,
    OneShotAverage,
    OutputPerturbation,
    PanPrivateACSA,
    PhasedERM,
    PhasedSCO,
    Problem,
    RealSpace,
    SaddleERM,
    ShuffleACSA,
    ShuffleGD,
    ShuffleSGD,
    Softmax,
    Squared,
    UserLevelACSA,
    UserLevelGD,
)
from protocols.problems import Loss
from protocols.problems.regression import Regression
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.data.persons import Persons

RECORD = (OutputPerturbation, ExponentialMechanism, Gibbs)
PERSON = (PhasedERM, PhasedSCO, LinearTimePhasedSGD)
PURE, USUAL = Privacy(1.0), Privacy(1.0, 1e-6)


@dataclass(frozen=True)
class Own(Loss):
    """sign sqrt(1 + |theta - x|^2): convex, of slope and curvature 1, for the sign 1."""

    sign: float = 1.0
    steep: float = 1.0
    curved: float = 1.0
    strong: float = 0.0
    turned: float = 1.0

    def columns(self, d):
        return d

    def values(self, theta, rows):
        return self.sign * np.sqrt(1 + ((rows - theta) ** 2).sum(axis=1))

    def gradients(self, theta, rows, smoothing=None):
        return self.turned * (theta - rows) / self.values(theta, rows)[:, None]

    def lipschitz(self, radius):
        return self.steep

    def smoothness(self):
        return self.curved

    def strong_convexity(self):
        return self.strong

    def check(self, rows, d):
        pass


def made(kind, loss):
    n, privacy = (200, USUAL) if kind not in (ExponentialMechanism,) else (200, PURE)
    return kind.calibrated(n=n, problem=Problem(loss, L2Ball(2, 1.0), 0.1), privacy=privacy)


def data(kind):
    rows = np.random.default_rng(1).normal(size=(400, 2)) / 2
    return Persons.in_memory(np.split(rows, 200)) if kind in PERSON else rows[:200]


@pytest.mark.parametrize("kind", [*RECORD, *PERSON])
@pytest.mark.parametrize(
    "false",
    [Own(sign=-1.0), Own(steep=0.5), Own(curved=0.2), Own(strong=0.9), Own(turned=0.8)],
    ids=["concave", "steeper", "more curved", "less convex", "of other slopes"],
)
def test_a_loss_that_is_not_what_it_states_is_refused(kind, false):
    with pytest.raises(ParameterError, match="loss") as refused:
        run(made(kind, false), data(kind), seed=1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [*RECORD, *PERSON])
def test_a_true_one_runs_and_results_say_what_is_believed(kind):
    """Of this package's losses nothing is."""
    own = run(made(kind, Own()), data(kind), seed=1)
    assert "Own is convex" in "; ".join(own.privacy.assumptions)
    if kind is Gibbs:
        return  # it takes no loss of rows of this form
    known = run(made(kind, MeanEstimation(3.0)), data(kind), seed=1)
    assert "its author says so" not in "; ".join(known.privacy.assumptions)


def test_it_is_said_where_privacy_takes_it_and_nowhere_else():
    problem = Problem(Own(), L2Ball(2, 1.0), 0.1)
    average = {"n": 20, "records": 5, "problem": problem, "privacy": USUAL}
    assert OneShotAverage.calibrated(**average, protects="record").believed
    assert OneShotAverage.calibrated(**average).believed == ()
    clipped = ShuffleGD.calibrated(n=5000, problem=problem, privacy=USUAL)
    assert clipped.believed == ()
    phased = CuratedPhases.calibrated(
        n=5000, problem=problem, privacy=USUAL, optimiser=OutputPerturbation, phases=2
    )
    assert len(phased.believed) == 1
    for loss in (
        Logistic(),
        Squared(labels=1.0),
        MeanEstimation(),
        Softmax(3),
        Grouped(Logistic(), 2),
    ):
        assert loss.believed() == ()
    assert Grouped(Own(), 2).believed() != ()


@dataclass(frozen=True)
class Apart(Own):
    """|theta - x|, a loss with a kink; what it computes with smoothing is the author's."""

    def values(self, theta, rows):
        return np.linalg.norm(rows - theta, axis=1)

    def smoothness(self):
        return None


def test_a_pass_rests_on_no_envelope_that_nobody_checked():
    """Steps along gradients of no envelope may expand, and the plain mean has no clip or test."""
    plan = {"n": 5000, "privacy": USUAL}
    problem, hinge = Problem(Apart(), L2Ball(2, 1.0)), Problem(Hinge(), L2Ball(2, 1.0))
    with pytest.raises(ParameterError, match="nobody checked") as refused:
        LinearTimePhasedSGD.calibrated(problem=problem, mean="plain", **plan)
    assert "\n" not in str(refused.value)
    assert "plain" not in LinearTimePhasedSGD.calibrated(problem=problem, **plan).choices["mean"]
    assert "plain:" in LinearTimePhasedSGD.calibrated(problem=hinge, **plan).choices["mean"]


def test_bounds_that_rest_on_a_loss_of_ones_own_say_so():
    known, own = (Problem(loss, L2Ball(2, 1.0)) for loss in (MeanEstimation(), Own()))
    for kind in (ShuffleGD, ShuffleSGD, ShuffleACSA, PanPrivateACSA, UserLevelGD, UserLevelACSA):
        said = kind.calibrated(n=5000, problem=own, privacy=USUAL).assumes
        assert "Own is convex, and what it states" in said
        assert "convex" not in kind.calibrated(n=5000, problem=known, privacy=USUAL).assumes
    said = AcceleratedPhasedERM.calibrated(n=3000, problem=own, privacy=USUAL, phases=1).assumes
    assert "Own is convex" in said
    privacy = LinearTimePhasedSGD.calibrated(n=200, problem=own, privacy=USUAL)
    assert "Own" not in privacy.assumes  # there privacy rests on it, and says so


@pytest.mark.parametrize("kind", [ShuffleGD, UserLevelGD, PhasedERM, LinearTimePhasedSGD])
def test_delta_0_is_refused_by_a_line_that_says_what_fits(kind):
    with pytest.raises(ParameterError, match=f"above 0 for {kind.__name__}; OutputPert") as refused:
        kind.calibrated(n=5000, problem=Problem(Logistic(), L2Ball(2, 1.0)), privacy=PURE)
    assert "\n" not in str(refused.value)


@dataclass(frozen=True)
class Shifted(Logistic):
    """Logistic loss less a constant."""

    by: float = 0.0

    def value(self, margins, labels):
        return super().value(margins, labels) - self.by


@pytest.mark.parametrize("by", [0.0, 1.0, 1.3, 5.0, 20.0])
def test_slopes_of_groups_are_no_farther_apart_than_stated(by):
    """Also where losses are below 0; the largest size alone said too little from 1 on."""
    problem = Problem(Grouped(Shifted(by=by), 2), L2Ball(1, 2.0), 0.5)
    made: Any = SaddleERM.calibrated(n=50, problem=problem, privacy=PURE, concavity=0.05)
    risk = made.risk
    reach, game = risk.reach, risk.game
    signs = (-1.0, 1.0, 0.0)
    rows = np.array([[x, y, group] for x in signs for y in signs[:2] for group in (0.0, 1.0)])
    points = np.linspace(-reach, reach, 101)[:, None]
    slopes = np.array([game.row_slopes(w, game.opponent.center, rows)[1] for w in points])
    found = np.linalg.norm(slopes[:, :, None] - slopes[:, None], axis=3).max()
    stated = game.steepness(reach)
    assert 0.85 * stated.differ <= found <= stated.differ * (1 + 1e-12)
    most = np.sqrt(2) * 2.0 * (np.logaddexp(0, reach) - by)
    assert (found > most) == (by >= 1)  # the control: what was stated


@dataclass(frozen=True)
class Weighed(Regression):
    """w(y) log cosh(margin - y), w = 1 + `more` y^2 (1 - y^2): 1 where `verify` looks."""

    more: float = 36.0

    def weights(self, labels):
        return 1 + self.more * labels**2 * (1 - labels**2)

    def value(self, margins, labels):
        return self.weights(labels) * np.log(np.cosh(margins - labels))

    def derivative(self, margins, labels):
        return self.weights(labels) * np.tanh(margins - labels)

    def slope(self, reach):
        return 1.0

    def curvature(self):
        return 1.0


def labelled_rows(label):
    return np.column_stack([np.random.default_rng(2).uniform(-1, 1, 200), np.full(200, label)])


def test_a_linear_loss_of_one_s_own_is_held_to_the_rows_labels_too():
    """Of labels that no grid has it may say anything: minimisers moved 4.4 times as far."""
    made = OutputPerturbation.calibrated(
        n=200, problem=Problem(Weighed(labels=1.0), RealSpace(1), 0.1), privacy=PURE
    )
    said = run(made, labelled_rows(0.0), seed=1).privacy.assumptions
    assert "Weighed is convex" in "; ".join(said)
    with pytest.raises(ParameterError, match="no steeper"):
        run(made, labelled_rows(0.7), seed=1)


def test_curators_of_heavy_tails_say_what_they_take_from_a_linear_loss():
    problem = Problem(Weighed(labels=1.0), L2Ball(1, 1.0), norm_bound=1.0)
    made = HeavyTailedERM.calibrated(n=400, problem=problem, privacy=PURE)
    assert "Weighed is convex" in "; ".join(made.assumptions)
