"""Losses: derivatives, proximal maps and stated constants against independent computations."""

import inspect
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from protocols.erm.groups import Grouped
from protocols.problems.domains import L2Ball
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Hinge, Linear, Logistic, MeanEstimation
from protocols.problems.multiclass import Softmax
from protocols.problems.problem import Gradient, Problem
from protocols.problems.regression import Absolute, Huber, Pinball, Squared
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import dense
from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.wire.codec import decode, encode


@dataclass(frozen=True)
class SquaredHinge(LinearLoss):
    """A user's own loss: max(0, 1 - y margin)^2/2; `prox` is the base class's."""

    classification = True

    def value(self, margins, labels):
        return np.maximum(0.0, 1 - labels * margins) ** 2 / 2

    def derivative(self, margins, labels):
        return -labels * np.maximum(0.0, 1 - labels * margins)

    def slope(self, reach):
        return 1 + reach

    def curvature(self):
        return 1.0


LOSSES = (
    Linear(2.0),
    Logistic(2.0),
    Hinge(2.0),
    SquaredHinge(2.0),
    Squared(2.0, 1.5),
    Huber(2.0, None, 0.7),
    Absolute(2.0),
    Pinball(2.0, 1.5, 0.8),
)
ALL = (*LOSSES, MeanEstimation(2.0))
name = lambda loss: type(loss).__name__  # noqa: E731


def rows_of(loss, n, d, seed=0):
    """Rows at and inside the loss's bounds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x *= (
        2.0
        * np.maximum(rng.random((n, 1)), rng.random((n, 1)) < 0.5)
        / np.linalg.norm(x, axis=1, keepdims=True)
    )
    if isinstance(loss, MeanEstimation):
        return x
    return np.c_[
        x, rng.choice([-1.0, 1.0], n) if loss.classification else rng.uniform(-1.5, 1.5, n)
    ]


def points_of(d, radius, n, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, d))
    sizes = radius * np.maximum(rng.random((n, 1)), rng.random((n, 1)) < 0.3)
    return theta * sizes / np.linalg.norm(theta, axis=1, keepdims=True)


def test_a_users_own_loss_takes_less_than_forty_lines():
    assert len(inspect.getsource(SquaredHinge).splitlines()) < 40


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_derivatives_are_those_of_finite_differences(loss):
    rng = np.random.default_rng(1)
    margins = rng.uniform(-4, 4, 2000)
    labels = rng.choice([-1.0, 1.0], 2000) if loss.classification else rng.uniform(-1.5, 1.5, 2000)
    h = 1e-5
    difference = (loss.value(margins + h, labels) - loss.value(margins - h, labels)) / (2 * h)
    away = (
        np.abs(loss.derivative(margins + 2 * h, labels) - loss.derivative(margins - 2 * h, labels))
        < 1e-3
    )  # of the kinks
    assert away.mean() > 0.99
    assert np.abs(difference - loss.derivative(margins, labels))[away].max() < 1e-5
    curvature = loss.second(margins, labels)
    if curvature is not None:
        second = (loss.derivative(margins + h, labels) - loss.derivative(margins - h, labels)) / (
            2 * h
        )
        assert np.abs(second - curvature).max() < 1e-8


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_proximal_maps_solve_their_one_dimensional_problem(loss):
    rng = np.random.default_rng(2)
    for _ in range(60):
        m, q, beta = rng.uniform(-4, 4), rng.uniform(0.01, 4), 10 ** rng.uniform(-2, 3)
        y = rng.choice([-1.0, 1.0]) if loss.classification else rng.uniform(-1.5, 1.5)
        (c,) = loss.prox(np.array([m]), np.array([y]), np.array([q]), beta)

        def envelope(c, m=m, y=y, q=q, beta=beta):
            return float(loss.value(np.array([m - c * q / beta]), np.array([y]))[0]) + c * c * q / (
                2 * beta
            )

        end = float(loss.derivative(np.array([m]), np.array([y]))[0])
        bounds = (min(end, 0) - 0.1, max(end, 0) + 0.1)
        found = minimize_scalar(envelope, bounds=bounds, method="bounded", options={"xatol": 1e-10})
        assert envelope(c) <= found.fun + 1e-12
        assert c == pytest.approx(found.x, abs=max(1e-5, 1e-6 * np.sqrt(beta / q)))
        assert abs(c) <= abs(end) + 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_the_general_proximal_map_agrees_with_the_closed_forms(loss):
    rng = np.random.default_rng(3)
    m, q = rng.uniform(-4, 4, 3000), rng.uniform(0, 4, 3000)
    y = rng.choice([-1.0, 1.0], 3000) if loss.classification else rng.uniform(-1.5, 1.5, 3000)
    for beta in (0.01, 1.0, 300.0):
        general, own = LinearLoss.prox(loss, m, y, q, beta), loss.prox(m, y, q, beta)
        step = q / beta
        away = step > 1e-9  # without features any subgradient does
        assert np.abs(general - own)[away].max() < 1e-9 / min(1.0, float(step[away].min()) ** 0.5)


@pytest.mark.parametrize("loss", ALL, ids=name)
@pytest.mark.parametrize("smoothing", [None, 0.5, 20.0])
def test_stated_constants_hold_and_are_not_wasteful(loss, smoothing):
    d, radius = 3, 1.5
    rows, thetas = rows_of(loss, 400, d), points_of(d, radius, 60)
    gradients = np.array([dense(loss.gradients(theta, rows, smoothing)) for theta in thetas])
    norms = np.linalg.norm(gradients, axis=2)
    bound = loss.lipschitz(radius)
    assert norms.max() <= bound * (1 + 1e-12)
    if smoothing is None:
        assert norms.max() >= 0.8 * bound
    beta = smoothing if loss.smoothness() is None else loss.smoothness()
    strong = loss.strong_convexity() if smoothing is None else 0.0
    for i, j in np.random.default_rng(4).integers(0, len(thetas), (200, 2)):
        if i != j:
            gap = thetas[i] - thetas[j]
            growth = (gradients[i] - gradients[j]) @ gap / (gap @ gap)
            assert growth.min() >= strong - 1e-9  # monotone: convex
            if beta is not None:
                steep = np.linalg.norm(gradients[i] - gradients[j], axis=1) / np.linalg.norm(gap)
                assert steep.max() <= beta * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_the_envelope_is_below_as_theory_says(loss):
    d, radius, beta = 3, 1.5, 5.0
    rows, bound = rows_of(loss, 300, d), loss.lipschitz(radius)
    for theta in points_of(d, radius, 20):
        x, y = rows[:, :-1], rows[:, -1]
        c = loss.prox(x @ theta, y, (x**2).sum(1), beta)
        envelope = loss.value(x @ theta - c * (x**2).sum(1) / beta, y) + c**2 * (x**2).sum(1) / (
            2 * beta
        )
        above = loss.values(theta, rows) - envelope
        assert above.min() >= -1e-12
        assert above.max() <= bound**2 / (2 * beta) + 1e-12
        own = np.linalg.norm(dense(loss.gradients(theta, rows)), axis=1)
        assert (
            np.linalg.norm(dense(loss.gradients(theta, rows, beta)), axis=1) <= own + 1e-12
        ).all()


def test_mean_estimation_smooths_to_its_envelope_s_gradient():
    loss, beta = MeanEstimation(2.0), 3.0
    rows, theta = rows_of(loss, 5, 3), np.array([0.3, -0.2, 1.0])
    nearest = (beta * theta + rows) / (1 + beta)  # argmin |t - x|^2/2 + beta/2 |t - theta|^2
    assert np.allclose(loss.gradients(theta, rows, beta), beta * (theta - nearest))


@pytest.mark.parametrize("loss", ALL, ids=name)
def test_gradients_can_be_broadcast_and_only_by_the_vocabulary(loss):
    rows = rows_of(loss, 7, 3)
    query = Gradient(loss, np.array([0.1, 0.2, -0.3]), 2.0)
    again = decode(encode(query), (Gradient, type(loss)))
    assert np.array_equal(dense(again(rows)), dense(query(rows)))
    with pytest.raises(FrameError):
        decode(encode(query), (Gradient,))


class Steeper(Logistic):
    """Ten times as steep as its derivative says: an exponential mechanism draws by values."""

    def value(self, margins, labels):
        return 10 * super().value(margins, labels)


class Kinked(Hinge):
    """Ten times as steep as it states where minimisers are certified."""

    def kink(self, labels):
        return labels, np.ones_like(labels), -10.0, 0.0


class Wavy(Hinge):
    """Whose envelope is not convex."""

    def prox(self, margins, labels, squared_norms, beta):
        return -labels * (np.sin(40 * margins) > 0)


class Flatter(Logistic):
    """Which states too small a slope."""

    def slope(self, reach):
        return 0.1


class Normed(Absolute):
    """Of margins less those of all rows asked: one row moves the slopes of all others."""

    prox = LinearLoss.prox

    def kink(self, labels):
        return None

    def value(self, margins, labels):
        return super().value(margins - margins.mean(), labels)

    def derivative(self, margins, labels):
        return super().derivative(margins - margins.mean(), labels)


class Drawn(Logistic):
    """With slopes of chance."""

    def derivative(self, margins, labels):
        rng = np.random.default_rng()
        return (1 - 1e-6 * rng.random(len(margins))) * super().derivative(margins, labels)


class Lengthened(Logistic):
    """Whose rows have ten times the gradients of their margins."""

    def gradients(self, theta, rows, smoothing=None):
        return 10 * dense(super().gradients(theta, rows, smoothing))


class Valued(Logistic):
    """Whose rows have ten times the values of their margins: tilted risks weigh by values."""

    def values(self, theta, rows):
        return 10 * super().values(theta, rows)


OWN = Steeper(), Kinked(), Wavy(), Flatter(), Normed(), Drawn(), Lengthened(), Valued()


@pytest.mark.parametrize("loss", OWN, ids=name)
@pytest.mark.parametrize("wrap", [lambda loss: loss, Weighted, lambda loss: Grouped(loss, 2)])
def test_what_is_not_of_its_derivative_is_refused(loss, wrap):
    with pytest.raises(ParameterError, match=name(loss)):
        Problem(wrap(loss), L2Ball(2, 1.0))


@pytest.mark.parametrize("loss", LOSSES, ids=name)
@pytest.mark.parametrize("radius", [1e-9, 1e-3, 1.0, 30.0, 1e6])
def test_what_is_of_its_derivative_is_not(loss, radius):
    loss.verify(radius)


def test_rows_the_constants_do_not_hold_for_are_refused():
    x = np.array([[0.6, 0.8], [0.1, 0.0]])
    good = np.c_[x, [1.0, -1.0]]
    for kind in (Logistic(), Hinge(), Squared(1.0, 1.0), Absolute()):
        kind.check(good, 2)
    for loss, rows, match in (
        (Logistic(), np.c_[x * 1.01, [1.0, -1.0]], r"data\[0\].*norm at most 1"),
        (Logistic(), np.c_[x, [1.0, 0.0]], r"data\[1\].*-1 or \+1"),
        (Hinge(), np.c_[x, [2.0, 1.0]], r"data\[0\].*-1 or \+1"),
        (Squared(1.0, 1.0), np.c_[x, [0.0, -1.5]], r"data\[1\].*labelled in \[-1, 1\]"),
        (Absolute(), np.c_[x, [0.0, np.nan]], r"data\[1\].*finite"),
        (Logistic(), x, "shape"),
        (MeanEstimation(0.5), x, "norm at most 0.5"),
    ):
        with pytest.raises(ParameterError, match=match):
            loss.check(rows, 2)


@pytest.mark.parametrize("loss", [Logistic(1e-165), MeanEstimation(1e-165)], ids=name)
def test_rows_whose_squares_vanish_are_held_to_their_bound_too(loss):
    rows = np.ones((1, loss.columns(2)))
    rows[:, :2] = 0.6e-165, 0.8e-165
    loss.check(rows, 2)
    rows[:, :2] = 1.5e-162, 0.0  # its square is 0
    with pytest.raises(ParameterError):
        loss.check(rows, 2)


def test_loss_parameters_outside_their_range_are_refused():
    for make in (
        lambda: Logistic(0.0),
        lambda: Squared(1.0, -1.0),
        lambda: Huber(1.0, None, 0.0),
        lambda: Pinball(1.0, None, 1.0),
        lambda: MeanEstimation(-1.0),
    ):
        with pytest.raises(ParameterError):
            make()


@pytest.mark.parametrize("loss", [*ALL, Softmax(3)], ids=name)
def test_no_loss_moves_by_more_than_its_swing(loss):
    """Over a ball; for those that state their own it is attained."""
    d, radius = 3 * (3 if isinstance(loss, Softmax) else 1), 1.5
    if isinstance(loss, Softmax):
        rows = np.c_[rows_of(Linear(), 400, 3)[:, :3] / 2, np.arange(400) % 3]
    else:
        rows = rows_of(loss, 400, d)
    ways = rows[:, :3] / np.linalg.norm(rows[:, :3], axis=1, keepdims=True)
    points = [*points_of(d, radius, 200), *(radius * np.tile(ways[:100], d // 3))]
    values = np.array([loss.values(sign * w, rows) for w in points for sign in (-1, 1)])
    found = float((values.max(axis=0) - values.min(axis=0)).max())
    assert found <= loss.swing(radius) * (1 + 1e-12)
    if isinstance(loss, Logistic | Hinge | Linear):
        assert found >= 0.95 * loss.swing(radius)
