"""A payoff of one's own: solved, certified, released, and held to what it states."""

from dataclasses import dataclass

import numpy as np
import pytest

from protocols import L2Ball, Logistic, Problem, RealSpace, SaddleERM
from protocols.erm import Grouped, Payoff, Steepness, minimise
from protocols.erm.groups import Mixture
from protocols.erm.payoff import hold_to_slopes
from protocols.erm.saddle import SaddleRisk
from protocols.problems.loss import refuse_rows
from shuffle_sim import ParameterError, Privacy, run

BALL = 50.0


@dataclass(frozen=True)
class Bilinear(Payoff):
    """h = <a, w> + <b, v> + bend w_1 v_1 - hump/2 ||v||^2; rows (a, b), each in a unit ball."""

    bend: float = 0.8
    own: float = 1.0  # beside what bend adds
    crossed: float = 1.0  # of the constant that is stated, as a share
    hump: float = 0.0
    sign: float = -1.0

    @property
    def opponent(self):
        return L2Ball(2, BALL)

    def columns(self, d):
        return d + 2

    def check(self, rows, d):
        refuse_rows(np.linalg.norm(rows[:, :-2], axis=1) > 1 + 1e-9, "with a in the unit ball")
        refuse_rows(np.linalg.norm(rows[:, -2:], axis=1) > 1 + 1e-9, "with b in the unit ball")

    def payoffs(self, w, v, rows):
        known = rows[:, :-2] @ w + rows[:, -2:] @ v
        return known + self.bend * w[0] * v[0] + self.sign * self.hump / 2 * v @ v

    def row_slopes(self, w, v, rows):
        own, other = rows[:, :-2].copy(), rows[:, -2:] + self.sign * self.hump * v
        own[:, 0] += self.bend * v[0]
        other[:, 0] += self.bend * w[0]
        return own, other

    def steepness(self, radius):
        # Two rows differ in a and b alone.
        own, other = self.own + self.bend * BALL, 1 + self.bend * radius + self.hump * BALL
        return Steepness(own, other, 0.0, self.crossed * self.bend, self.hump, 2.0)


def rows_of(n, seed=0):
    drawn = np.random.default_rng(seed).normal(size=(n, 2, 2))
    return (drawn / np.linalg.norm(drawn, axis=2, keepdims=True)).reshape(n, 4)


def saddle_point(game, rows, ridge, price):
    """w of the saddle, in closed form, where v is inside its ball."""
    mean, mu = rows.mean(axis=0), price + game.hump
    first = -(mean[0] + game.bend * mean[2] / mu) / (ridge + game.bend**2 / mu)
    return np.array([first, -mean[1] / ridge])


@pytest.mark.parametrize("hump", [0.0, 0.5])
def test_it_is_solved_to_the_radius_that_is_certified(hump):
    game, rows = Bilinear(hump=hump), rows_of(20, 3)
    risk = SaddleRisk.of(Problem(game, RealSpace(2), 0.3), concavity=0.7)
    found = minimise(risk.objective(rows), 1e-4, "extragradient")
    apart = np.linalg.norm(found.point - saddle_point(game, rows, 0.3, 0.7))
    assert apart <= found.certificate.radius <= 1e-4


def moved_over_stated(risk, n):
    """The farthest that a changed row moves w, in units of the sensitivity; brute force."""
    far, stated = 0.0, risk.sensitivity(n)[0]
    for seed in range(20):
        rows = rows_of(n, seed)
        for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False):
            other = rows.copy()
            other[0, :2] = np.cos(angle), np.sin(angle)
            other[0, 2:] = np.sign(np.cos(angle)) or 1.0, 0.0
            points = [saddle_point(risk.game, each, risk.ridge, 0.7) for each in (rows, other)]
            far = max(far, float(np.linalg.norm(points[0] - points[1])))
    return far / stated


def test_no_changed_row_moves_it_further_than_stated():
    """And a payoff that states a tenth of its slopes in w is found out by the same search."""
    problem = Problem(Bilinear(), RealSpace(2), 0.3)
    assert 0.01 < moved_over_stated(SaddleRisk.of(problem, concavity=0.7), 10) <= 1
    wrong = Problem(ShortOfSlopes(), RealSpace(2), 0.3)
    assert moved_over_stated(SaddleRisk.of(wrong, concavity=0.7), 10) > 1


class ShortOfSlopes(Bilinear):
    """It states too little."""

    def steepness(self, radius):
        return Steepness(0.1, 0.1, 0.0, self.bend, 0.0, 0.1)


def test_a_release_pays_for_the_stated_slopes_and_says_so():
    n, problem = 400, Problem(Bilinear(), L2Ball(2, 3.0), 0.5)
    made = SaddleERM.calibrated(n=n, problem=problem, privacy=Privacy(2.0), concavity=2.0)
    result = run(made, rows_of(n), seed=1)
    assert result.value.shape == (2,)
    assert result.privacy.epsilon == pytest.approx(2.0)
    assert made.shift >= made.risk.sensitivity(n)[0] + 2 * made.radius * (1 - 1e-12)
    assert any("as stated" in each or "than stated" in each for each in made.assumptions)


@pytest.mark.parametrize(
    ("game", "said"),
    [
        (Bilinear(hump=0.5, sign=1.0), "concave in v"),
        (Bilinear(crossed=0.5), "that the other player moves no more"),
        (ShortOfSlopes(), "no steeper in w"),
    ],
)
def test_a_payoff_that_is_not_as_stated_is_refused_before_the_data(game, said):
    case = {"n": 400, "problem": Problem(game, L2Ball(2, 3.0), 0.5), "privacy": Privacy(2.0)}
    with pytest.raises(ParameterError, match=said) as caught:
        SaddleERM.calibrated(**case, concavity=2.0)
    assert caught.value.parameter == "loss"
    assert "\n" not in str(caught.value)


def test_weights_are_of_groups_alone():
    with pytest.raises(ParameterError, match="weights"):
        SaddleRisk.of(Problem(Bilinear(), RealSpace(2), 0.3), weights=(1.0, 2.0))


def test_the_mixture_of_groups_is_as_it_states():
    rows = np.c_[rows_of(30)[:, :2], np.where(np.arange(30) % 2, 1.0, -1.0), np.arange(30) % 3]
    hold_to_slopes(Mixture(Grouped(Logistic(), 3), (1.0, 2.0, 3.0)), rows, 2, 5.0)
