"""Rows around a released center: same margins, exact gradients, vectors within the bound."""

import math

import numpy as np
import pytest

from protocols.problems.centred import Centred, FeatureMoments
from protocols.problems.losses import Logistic
from protocols.problems.multiclass import Softmax
from protocols.problems.regression import Squared
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import dense

CONSTANT, CENTER = 0.25, np.array([0.2, -0.1, 0.3])
REACH = math.hypot(1, CONSTANT)
LOSSES = {
    "logistic": Logistic(REACH),
    "squared": Squared(REACH, labels=1.0),
    "softmax": Softmax(3, REACH),
    "weighted": Weighted(Logistic(REACH), 2.0),
}


def rows(name, n=40, shortest=0.0):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3))
    x *= (rng.uniform(shortest, 1, n) / np.linalg.norm(x, axis=1))[:, None]
    labels = rng.integers(0, 3, n) if name == "softmax" else rng.choice([-1.0, 1.0], n)
    parts = [x, np.full(n, CONSTANT), labels]
    return np.column_stack([*parts, rng.uniform(0, 2, n)] if name == "weighted" else parts)


def parameters(name, seed=2):
    return np.random.default_rng(seed).normal(size=12 if name == "softmax" else 4)


@pytest.mark.parametrize("name", LOSSES)
def test_margins_are_those_of_the_rows_where_nothing_is_clipped(name):
    theta, data = parameters(name), rows(name)
    wide = Centred(LOSSES[name], CENTER, 0.5, CONSTANT, reach=10.0)
    np.testing.assert_allclose(wide.outward(wide.inward(theta)), theta)
    np.testing.assert_allclose(wide.values(theta, data), LOSSES[name].values(theta, data))
    assert wide.columns(theta.size) == data.shape[1]
    wide.check(data, theta.size)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_in_the_parameters_of_centred_rows(name):
    centred, data = Centred(LOSSES[name], CENTER, 0.5, CONSTANT, reach=1.0), rows(name)
    inner = centred.inward(parameters(name))
    found = dense(centred.gradients(centred.outward(inner), data))
    step = 1e-6
    for place in range(inner.size):
        moved = np.eye(inner.size)[place] * step
        up, down = (centred.values(centred.outward(inner + s * moved), data) for s in (1, -1))
        np.testing.assert_allclose(found[:, place], (up - down) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("order", ["C", "F"])
def test_centred_rows_stay_in_the_ball_and_others_as_they_are(order):
    data = np.array(rows("weighted", shortest=0.9), order=order)
    before = data.copy()
    found = Centred(LOSSES["weighted"], CENTER, 0.1, CONSTANT, reach=1.0).rows(data)
    assert np.linalg.norm(found[:, :3], axis=1).max() == pytest.approx(1.0)
    np.testing.assert_array_equal(found[:, 3:], data[:, 3:])
    np.testing.assert_array_equal(data, before)


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_asked_first_is_bounded_and_unbiased(name):
    """The longest row reaches the bound; one coordinate 10 % too long would exceed it."""
    data, norm, d = rows(name, shortest=1.0), 0.3, parameters(name).size
    asked = FeatureMoments(LOSSES[name], 3, 1.0, norm)
    found = asked.gradients(np.zeros(d), data)
    lengths = np.linalg.norm(found, axis=1)
    assert lengths.max() == pytest.approx(norm, rel=1e-9)
    found[:, 3] *= 1.1
    assert np.linalg.norm(found, axis=1).max() > norm * 1.04
    mean = asked.gradients(np.zeros(d), rows(name)).mean(axis=0) / asked.unit
    x = rows(name)[:, :3]
    np.testing.assert_allclose(mean[:3], x.mean(axis=0))
    assert mean[3] == pytest.approx((x**2).sum(axis=1).mean())
    assert not mean[4:].any()
    assert asked.smoothness() == 0
    theta = parameters(name)
    np.testing.assert_allclose(asked.values(theta, data), asked.gradients(theta, data) @ theta)
    assert asked.lipschitz(5.0) == norm


@pytest.mark.parametrize("reach", [1.0, 2e-162])
def test_moved_rows_are_within_the_reach_where_squares_vanish(reach):
    """They were 10 times as long: a curator's objective perturbation takes them as they are."""
    near = Centred(Logistic(reach), np.zeros(400), 0.1, reach / 1000, reach)
    data = np.full((1, 402), reach / 20)
    moved = near.rows(data)[0, :400]
    assert np.hypot.reduce(moved) == pytest.approx(reach, rel=1e-9)


def test_a_row_with_another_constant_stays_in_the_ball():
    """Its features may be 0, and the constant as long as the ball: moved, it would leave it."""
    near = Centred(Logistic(REACH), CENTER, 0.1, CONSTANT, reach=1.0)
    data = np.array([[0.0, 0.0, 0.0, REACH, 1.0], [0.0, 0.0, 0.0, -REACH, 1.0]])
    moved = near.rows(data)[:, :4]
    assert np.linalg.norm(moved, axis=1).max() <= REACH * (1 + 1e-12)
    moved[:, 3] = data[:, 3]
    assert np.linalg.norm(moved, axis=1).min() > 1.2 * REACH  # power: as it was
