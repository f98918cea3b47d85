"""Strongly convex losses without a ridge: their own curvature takes the ridge's place."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from protocols import Box, L2Ball, Logistic, PhasedERM, PhasedSCO, Problem, Simplex
from protocols.central.person.extension_minimiser import ExtensionMinimiser
from protocols.central.person.parts import Parts
from protocols.problems import Linear, MeanEstimation
from protocols.problems.flattened import Flattened
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss, OfLoss
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import dense

USUAL = Privacy(1.0, 1e-6)
BALL, ASIDE = L2Ball(2, 1.0), L2Ball(2, 1.0, (3.0, -4.0))
LOGISTIC = Logistic()
KINDS = [PhasedERM, PhasedSCO]


@dataclass(frozen=True)
class Bowled(OfLoss):
    """A loss of one's own: another and a bowl, of which only the constants are known."""

    loss: Loss = LOGISTIC
    bowl: float = 0.5
    stated: float = 0.5

    @property
    def classification(self):
        return getattr(self.loss, "classification", False)

    def values(self, theta, rows):
        return self.loss.values(theta, rows) + self.bowl / 2 * theta @ theta

    def gradients(self, theta, rows, smoothing=None):
        return dense(self.loss.gradients(theta, rows)) + self.bowl * theta

    def lipschitz(self, radius):
        return self.loss.lipschitz(radius) + self.bowl * radius

    def smoothness(self):
        return self.loss.smoothness() + self.bowl

    def strong_convexity(self):
        return self.stated


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [10_000, 1_000_000])
def test_bounds_are_those_of_the_same_objective_with_a_ridge(kind, n):
    """||theta - x||^2/2 is -<theta, x> + ||theta||^2/2 and a constant."""
    points = Problem(MeanEstimation(), BALL, records=100)
    ridged = Problem(Linear(), BALL, ridge=1.0, records=100)
    made, same = (
        kind.calibrated(n=n, problem=problem, privacy=USUAL) for problem in (points, ridged)
    )
    assert made.bowl == 1.0
    assert made.bound == pytest.approx(same.bound, rel=1e-9)
    assert made.ridges == pytest.approx(same.ridges)
    sensitivities = [each.plan(each.init()).sensitivity.value for each in (made, same)]
    assert sensitivities[0] == pytest.approx(sensitivities[1], rel=1e-9)


@pytest.mark.parametrize("loss", [MeanEstimation(), Bowled()])
def test_the_bound_falls_with_the_square_of_n(loss):
    problem = Problem(loss, BALL, records=100)
    found = [
        PhasedERM.calibrated(n=n, problem=problem, privacy=USUAL).bound
        for n in (10**3, 10**4, 10**5, 10**6)
    ]
    slopes = np.diff(np.log10(found))
    assert slopes == pytest.approx([-2] * 3, abs=0.2)
    plain = PhasedERM.calibrated(
        n=10**6, problem=replace(problem, norm_bound=loss.lipschitz(1.0)), privacy=USUAL
    )
    assert plain.bowl == 0  # the control: with the loss as it is, the slope is -1
    assert plain.bound > 100 * found[-1]


def test_an_explicit_ridge_is_planned_for_as_ever():
    """Numbers of before losses gave anything to the ridge."""
    ridged = Problem(Linear(), BALL, ridge=1.0, records=100)
    made = PhasedERM.calibrated(n=10_000, problem=ridged, privacy=USUAL)
    assert made.bowl == 0
    assert made.bound == pytest.approx(1.7710756311173247e-05, rel=1e-9)
    both = replace(ridged, loss=MeanEstimation())
    assert PhasedERM.calibrated(n=10_000, problem=both, privacy=USUAL).bound < made.bound


@pytest.mark.parametrize("n", [60, 1000, 10_000])
@pytest.mark.parametrize("bowl", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("domain", [BALL, ASIDE])
def test_no_bound_is_larger_than_with_the_loss_as_it_is(n, bowl, domain):
    problem = Problem(Bowled(Logistic(), bowl, bowl), domain, records=20)
    flat = replace(problem, loss=Bowled(Logistic(), bowl, 0.0))
    found = [
        PhasedERM.calibrated(n=n, problem=each, privacy=USUAL).bound for each in (problem, flat)
    ]
    assert found[0] <= found[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("middle", [0.3, 0.95])
def test_the_measured_excess_is_below_the_bound(kind, middle):
    """Inside and next to the border; on their own objective, or on the distribution's."""
    problem = Problem(MeanEstimation(), BALL, records=5)
    made = kind.calibrated(n=1000, problem=problem, privacy=USUAL)
    excess = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = np.array([middle, 0.2]) + rng.uniform(-0.02, 0.02, size=(1000, 5, 2))
        result = run(made, x, seed=seed)
        assert 0.95 < result.privacy.epsilon <= 1
        mean = x.mean(axis=(0, 1)) if kind is PhasedERM else np.array([middle, 0.2])
        excess.append(((result.value - mean) ** 2).sum() / 2)
    assert 0 < np.mean(excess) < made.bound
    assert made.bound < 0.02


DOMAINS = [BALL, ASIDE, L2Ball(2, 0.01, (0.5, 0.0)), Box(2, (1.0, -1.0), 2.0), Simplex(2)]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("loss", [MeanEstimation(2.0), Bowled(), Bowled(Logistic(), 20.0, 20.0)])
def test_slopes_of_what_is_left_are_no_longer_than_stated(loss, domain):
    flat = Flattened(loss, loss.strong_convexity())
    gamma = flat.steepest(domain.radius)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if isinstance(loss, Bowled):
        rows = np.concatenate([np.column_stack([rows, 0 * rows[:, 0] + s]) for s in (1, -1)])
    else:
        rows *= 2.0
    largest = 0.0
    for _ in range(15):
        theta = domain.project(domain.center + domain.diameter * rng.normal(size=2))
        slopes = flat.gradients(theta, rows)
        largest = max(largest, np.linalg.norm(slopes, axis=1).max())
        ends = np.tile(theta, (len(rows), 1))
        assert flat.gradients_at(ends, rows) == pytest.approx(slopes)
        assert flat.values_at(ends, rows) == pytest.approx(flat.values(theta, rows))
    assert largest <= gamma * (1 + 1e-9)
    assert gamma <= np.sqrt(2) * loss.lipschitz(domain.radius)  # never much is lost
    if isinstance(loss, MeanEstimation):
        assert (gamma, largest) == pytest.approx((2.0, 2.0))  # points' own length, and attained


ENDS = {
    "points": [*np.vstack([np.eye(2), -np.eye(2)]), [1e9, 0], [np.nan, 0]],
    "own": [[1, 0, 1], [-1, 0, 1], [0, 1, -1], [0, -1, 1], [1e9, 0, 1], [np.nan, 0, 1]],
}


def largest_move(kind, loss, share=1.0, center=(0.0, 0.0), gamma=1.0, ridge=0.0, domain=BALL, n=4):
    """Over neighbours: the largest distance of minimisers over share times what is stated."""
    bowl = loss.strong_convexity()
    settings = ridge + bowl, np.zeros(2), np.asarray(center), gamma, 1e-4 * gamma / bowl, n
    statistic = ExtensionMinimiser(Flattened(loss, bowl), domain, *settings, 3)
    rng = np.random.default_rng(1)
    found = []
    for end in ENDS[kind]:
        others = rng.uniform(-0.3, 0.3, size=(n - 1, 3, len(end)))
        if kind == "own":
            others[:, :, -1] = 1.0
        rng = np.random.default_rng(1)  # the same for every end
        rows = np.concatenate([np.tile(np.asarray(end, float), (1, 3, 1)), others])
        asked: Any = lambda part, rows=rows: part(rows)  # noqa: E731
        found.append(statistic(asked, n))
    gaps = [np.linalg.norm(a - b) for a, b in itertools.combinations(found, 2)]
    return max(gaps) / (share * statistic.sensitivity.value)


@pytest.mark.parametrize("domain", [BALL, Box(2, -1.0, 1.0), Simplex(2)])
def test_a_replaced_person_moves_the_minimiser_as_stated(domain):
    """Slopes are all within gamma of the center, or none is."""
    for kind, loss in (("points", MeanEstimation()), ("own", Bowled())):
        for center, gamma in (((0.0, 0.0), 1.0), ((0.0, 0.0), 0.1), ((0.4, -0.3), 0.2)):
            if not isinstance(domain, L2Ball) and gamma < 1:
                continue  # there a phase has one release
            assert largest_move(kind, loss, center=center, gamma=gamma, domain=domain) <= 1


def test_the_sensitivity_is_attained_and_less_would_be_seen():
    assert 0.98 < largest_move("points", MeanEstimation()) <= 1
    assert largest_move("points", MeanEstimation(), share=0.9) > 1
    # The power control: a bowl that counts twice states half of what persons move.
    assert largest_move("points", MeanEstimation(), share=0.5) > 1.9


class Straight(LinearLoss):
    """No loss of a linear model is strongly convex: it is flat across x."""

    def value(self, margins, labels):
        return margins**2 / 2

    def derivative(self, margins, labels):
        return margins

    def slope(self, reach):
        return reach

    def curvature(self):
        return 1.0

    def strong_convexity(self):
        return 0.5


@pytest.mark.parametrize("loss", [Straight(), Bowled(Logistic(), 0.5, 0.6)])
def test_a_curvature_that_rows_refute_is_refused(loss):
    with pytest.raises(ParameterError, match="must be convex, with slopes"):
        PhasedERM.calibrated(n=1000, problem=Problem(loss, BALL), privacy=USUAL)


def test_what_a_loss_does_not_have_is_refused():
    problem = Problem(MeanEstimation(), BALL, records=5)
    made = PhasedERM.calibrated(n=1000, problem=problem, privacy=USUAL)
    own = {"n": 1000, "privacy": USUAL, "ridges": made.ridges, "releases": made.releases}
    own |= {"mechanism": made.mechanism, "tau": made.tau}
    assert PhasedERM(problem=problem, bowl=0.5, **own).plan(made.init()).statistic.ridge == 0.5
    for bowl, changed in (
        (1.1, {}),
        (-0.5, {}),
        (1.0, {"norm_bound": 1.0}),
        (0.1, {"loss": Logistic()}),
    ):
        with pytest.raises(ParameterError, match="bowl"):
            PhasedERM(problem=replace(problem, **changed), bowl=bowl, **own)
    with pytest.raises(ParameterError, match=r"ridges\[0\]"):
        PhasedERM(problem=problem, **own)
    with pytest.raises(ParameterError, match="smoothing"):
        Parts.of(problem, 1.0).loss.gradients(np.zeros(2), np.zeros((1, 2)), 2.0)
    with pytest.raises(ParameterError, match="LinearLoss with kinks"):
        PhasedERM(problem=problem, bowl=1.0, smoothing=2.0, **own)
