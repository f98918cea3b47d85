"""Saddle problems: slopes, the gap's certificate, extragradient, sensitivity and the release."""

import math

import numpy as np
import pytest

from protocols import (
    Hinge,
    L2Ball,
    Logistic,
    OutputPerturbation,
    Problem,
    RealSpace,
    SaddleERM,
    Squared,
)
from protocols.erm import Grouped, Saddle
from protocols.erm.groups import ByClass, GroupRisk, Mixture
from protocols.erm.saddle import saddle_sensitivity
from protocols.erm.solver import certify, minimise
from shuffle_sim import ParameterError, Privacy, run

LOSS = Grouped(Logistic(), 3)


def rows_of(n, d, seed=0, groups=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    y = np.where(x[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    group = np.minimum(rng.geometric(0.6, n) - 1, groups - 1)
    y = np.where(group == groups - 1, -y, y)  # the rare group disagrees
    return np.column_stack([x, y, group])


class Game(Saddle):
    """<a, w> + <b, v> + bend w_1 v_1 and the two quadratics: all of it in closed form."""

    payoff_slope = reach = 10.0

    def __init__(self, ridge, concavity, bend, a, b):
        self.domain, self.opponent = RealSpace(len(a)), L2Ball(len(b), 50.0)
        self.strong_convexity, self.concavity, self.cross = ridge, concavity, bend
        self.smoothness = ridge + bend**2 / concavity
        self.steepness = max(ridge, concavity) + bend
        self.a, self.b = np.array(a), np.array(b)
        self.bend = bend * np.outer(np.eye(len(a))[0], np.eye(len(b))[0])

    def slopes(self, w, v):
        own = self.a + self.bend @ v + self.strong_convexity * w
        return own, self.b + self.bend.T @ w - self.concavity * v

    def payoff(self, w, v):
        bowl = self.strong_convexity / 2 * w @ w - self.concavity / 2 * v @ v
        return float(self.a @ w + self.b @ v + w @ self.bend @ v + bowl)

    def slope_rounding(self, w):
        return 1e-14, 1e-14

    @property
    def point(self):
        """w of the saddle point."""
        top = np.hstack([self.strong_convexity * np.eye(len(self.a)), self.bend])
        low = np.hstack([-self.bend.T, self.concavity * np.eye(len(self.b))])
        return np.linalg.solve(np.vstack([top, low]), np.concatenate([-self.a, self.b]))[
            : len(self.a)
        ]


def group_erm(n=60, d=3, seed=0, ridge=0.2, concavity=0.5, domain=None):
    problem = Problem(LOSS, domain or RealSpace(d), ridge)
    return GroupRisk.of(problem, concavity=concavity).objective(rows_of(n, d, seed))


def test_slopes_are_those_of_the_payoff():
    saddle, rng, step = group_erm(), np.random.default_rng(1), 1e-6
    w, v = rng.normal(size=3), saddle.opponent.project(rng.normal(size=3))
    own, other = saddle.slopes(w, v)
    for found, moved in (
        (own, [saddle.payoff(w + e, v) - saddle.payoff(w - e, v) for e in step * np.eye(3)]),
        (other, [saddle.payoff(w, v + e) - saddle.payoff(w, v - e) for e in step * np.eye(3)]),
    ):
        assert found == pytest.approx(np.array(moved) / (2 * step), abs=1e-8)
    assert saddle.payoff(w, saddle.worst(w)) >= saddle.payoff(w, v)
    assert Saddle.worst(saddle, w) == pytest.approx(saddle.worst(w), abs=1e-9)


def test_a_game_in_closed_form_is_solved_and_certified():
    """The general class, with nothing but slopes and constants; the worst v is found by ascent."""
    rng = np.random.default_rng(2)
    for _ in range(5):
        game = Game(0.3, 0.7, 2.0, rng.normal(size=2), rng.normal(size=3))
        found = minimise(game, 1e-5, "extragradient")
        assert not found.polished
        assert np.linalg.norm(found.point - game.point) <= found.certificate.radius <= 1e-5
        for w in (game.point + rng.normal(size=2), game.point + 1e-4 * rng.normal(size=2)):
            radius = certify(game, w).radius
            apart = float(np.linalg.norm(w - game.point))
            assert apart <= radius
            assert radius < 21 * apart  # beta/lambda: it is not vacuous


@pytest.mark.full
@pytest.mark.parametrize("domain", [RealSpace(2), L2Ball(2, 0.4)], ids=["space", "ball"])
def test_a_certificate_is_never_below_the_distance(domain):
    rng, tight = np.random.default_rng(7), 0.0
    for case in range(30):
        ridge, concavity = 10 ** rng.uniform(-1.5, 0), 10 ** rng.uniform(-1, 1)
        saddle = group_erm(int(rng.integers(6, 40)), 2, case, ridge, concavity, domain)
        truth = minimise(saddle, 1e-5, "lbfgs").point
        for size in (1.0, 1e-2, 1e-4):
            w = domain.project(truth + size * rng.normal(size=2))
            found = certify(saddle, w)
            apart = float(np.linalg.norm(found.point - truth))
            assert apart <= found.radius + 1e-5
            tight = max(tight, apart / found.radius)
    assert tight > 0.3


@pytest.mark.parametrize("solver", ["extragradient", "lbfgs", "agd", "newton", lambda o: o.start])
def test_every_solver_reaches_the_radius(solver):
    saddle = group_erm()
    found = minimise(saddle, 1e-4, solver)
    assert found.certificate.radius <= 1e-4
    assert found.passes > 0
    assert np.linalg.norm(found.point - minimise(saddle, 1e-6, "lbfgs").point) <= 1.02e-4


def test_no_swap_moves_the_saddle_point_by_more_than_is_stated():
    """Brute force over rows, labels and groups, in small tables."""
    risk = GroupRisk.of(Problem(LOSS, RealSpace(2), 0.3), concavity=0.5)
    rng, n, worst = np.random.default_rng(1), 4, 0.0
    stated, _ = risk.sensitivity(n)
    for case in range(12):
        rows = rows_of(n, 2, case)
        rows[:, :2] /= np.linalg.norm(rows[:, :2], axis=1)[:, None]
        other = rows.copy()
        other[0] = [*-rows[0, :2], rows[0, 2], rng.integers(0, 3)]
        points = [minimise(risk.objective(each), 1e-4, "lbfgs").point for each in (rows, other)]
        assert max(np.linalg.norm(each) for each in points) <= risk.reach + 1e-4
        worst = max(worst, float(np.linalg.norm(points[0] - points[1])))
    assert 0.02 * stated < worst <= stated + 2e-4


def test_the_sensitivity_is_attained_and_a_tenth_less_refuted():
    """A bilinear game of quadratics with the worst coupling."""
    ridge, concavity, own, other, n = 0.3, 0.7, 1.0, 1.5, 10
    bend = -own * concavity + math.hypot(own * concavity, other * math.sqrt(ridge * concavity))
    bend /= other
    games = [
        Game(ridge, concavity, bend, [side * own / (2 * n)], [side * other / (2 * n)])
        for side in (1, -1)
    ]
    apart = float(np.linalg.norm(games[0].point - games[1].point))
    stated = saddle_sensitivity(ridge, concavity, own, other, n)
    assert apart == pytest.approx(stated, rel=1e-9)
    assert apart > 0.9 * stated
    assert saddle_sensitivity(ridge, concavity, own, 0.0, n) == pytest.approx(own / (ridge * n))


def test_the_release_favours_the_group_that_is_worst_off():
    n, rows = 4000, rows_of(4000, 2)
    problem = Problem(LOSS, RealSpace(2), 0.5)
    case = {"n": n, "problem": problem, "privacy": Privacy(4.0)}
    made = SaddleERM.calibrated(**case, concavity=0.5, weights=(1.7, 4.2, 6.2))
    result = run(made, rows, seed=7)
    assert result.privacy.epsilon == pytest.approx(4.0)
    assert made.shift == pytest.approx(1.01 * made.risk.sensitivity(n)[0])
    assert np.isfinite(made.bound)
    plain = run(OutputPerturbation.calibrated(**case), rows, seed=7).value

    def worst(w):
        losses = LOSS.values(w, rows)
        return max(losses[rows[:, -1] == g].mean() for g in range(3))

    assert worst(result.value) < worst(plain)


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"concavity": 0.0}, "concavity"),
        ({"weights": (1.0, 2.0)}, "weights"),
        ({"weights": (1.0, 2.0, 0.0)}, "weights"),
        ({"population": True}, "population"),
        ({"solver": "svrg"}, "solver"),
        ({"tilt": 1.0}, "tilt"),
        ({"n": 10**14}, "radius"),
        ({"problem": Problem(Squared(labels=1.0), RealSpace(2), 0.1)}, "loss"),
        ({"problem": Problem(Grouped(Hinge(), 2), RealSpace(2), 0.1)}, "loss"),
        ({"problem": Problem(Grouped(Squared(labels=1.0), 2), RealSpace(2), 0.1)}, "loss"),
        ({"problem": Problem(LOSS, L2Ball(2, 1.0, 3.0), 0.1)}, "domain"),
    ],
)
def test_bad_input_is_refused_before_the_data(given, parameter):
    case = {"n": 50, "problem": Problem(LOSS, RealSpace(2), 0.1), "privacy": Privacy(1.0)}
    with pytest.raises(ParameterError) as caught:
        run(SaddleERM.calibrated(**(case | given)), rows_of(50, 2), seed=1)
    assert caught.value.parameter == parameter


def test_rows_without_a_group_are_refused():
    made = SaddleERM.calibrated(
        n=50, problem=Problem(LOSS, RealSpace(2), 0.1), privacy=Privacy(1.0)
    )
    rows = rows_of(50, 2)
    for bad in (rows[:, :-1], np.column_stack([rows[:, :-1], np.full(50, 7.0)])):
        with pytest.raises(ParameterError, match="data"):
            run(made, bad, seed=1)
    with pytest.raises(ParameterError, match="solver"):
        minimise(GroupRisk.of(made.problem).objective(rows), 1e-3, "katyusha")


def test_classes_are_the_groups_of_a_plain_loss():
    rows = rows_of(40, 3, groups=2)
    rows[:, -1] = (rows[:, -2] + 1) / 2  # the class, once more
    weights, w, v = (1.0, 3.0), np.array([0.3, -0.2, 0.5]), np.array([0.4, 0.6])
    told, own = Mixture(Grouped(Logistic(), 2), weights), Mixture(ByClass(Logistic()), weights)
    assert np.array_equal(told.payoffs(w, v, rows), own.payoffs(w, v, rows[:, :-1]))
    for one, other in (
        (told.row_slopes(w, v, rows), own.row_slopes(w, v, rows[:, :-1])),
        (told.mean_slopes(w, v, rows), own.mean_slopes(w, v, rows[:, :-1])),
    ):
        assert all(map(np.array_equal, one, other))
    assert told.steepness(2.0) == own.steepness(2.0)


def test_plain_and_grouped_rows_are_released_alike():
    rows = rows_of(300, 3, groups=2)
    rows[:, -1] = (rows[:, -2] + 1) / 2
    common = {"n": 300, "privacy": Privacy(1.0, 1e-6), "concavity": 0.1}
    plain, grouped = (
        SaddleERM.calibrated(problem=Problem(loss, L2Ball(3, 2.0), 0.1), **common)
        for loss in (Logistic(), Grouped(Logistic(), 2))
    )
    assert (plain.shift, plain.bound) == (grouped.shift, grouped.bound)
    released = run(plain, rows[:, :-1], seed=3).value
    assert np.array_equal(released, run(grouped, rows, seed=3).value)


def test_the_class_that_is_rare_counts_as_much():
    rng = np.random.default_rng(5)
    y = np.where(rng.random(20_000) < 0.9, 1.0, -1.0)
    x = np.clip(0.25 * y + 0.4 * rng.normal(size=20_000), -0.7, 0.7)
    rows = np.column_stack([x, np.full(20_000, 0.7), y])
    privacy, problem = Privacy(4.0, 1e-6), Problem(Logistic(), L2Ball(2, 10.0), ridge=0.05)
    weighted = {"concavity": 0.3, "weights": (10.0, 1 / 0.9)}  # 1 over the share of a class
    found = {}
    for kind, own in ((OutputPerturbation, {}), (SaddleERM, weighted)):
        theta = run(kind.calibrated(n=20_000, problem=problem, privacy=privacy, **own), rows).value
        right = y * (rows[:, :2] @ theta) > 0
        found[kind] = min(right[y > 0].mean(), right[y < 0].mean())
    assert found[SaddleERM] > found[OutputPerturbation] + 0.5  # 0.72 and 0
