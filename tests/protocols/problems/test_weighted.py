import math

import numpy as np
import pytest

from protocols import Absolute, Hinge, L2Ball, Logistic, Problem, ShuffleGD
from protocols.problems import Softmax, Weighted
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import dense

BOUND = 4.0


def rows(classes: bool, n: int = 50) -> np.ndarray:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3))
    x /= np.maximum(np.linalg.norm(x, axis=1), 1)[:, None]
    labels = rng.integers(0, 3, n) if classes else rng.choice([-1.0, 1.0], n)
    return np.column_stack([x, labels, rng.uniform(0, BOUND, n)])


LOSSES = {"logistic": Logistic(), "absolute": Absolute(labels=1.0), "softmax": Softmax(3)}


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_weighted(name):
    inner = LOSSES[name]
    data, weighted = rows(name == "softmax"), Weighted(inner, BOUND)
    d = 9 if name == "softmax" else 3
    theta = np.random.default_rng(2).normal(size=d)
    weights = data[:, -1]
    assert weighted.columns(d) == 5
    weighted.check(data, d)
    np.testing.assert_allclose(
        weighted.values(theta, data), weights * inner.values(theta, data[:, :-1])
    )
    gradients = dense(weighted.gradients(theta, data))
    plain = dense(inner.gradients(theta, data[:, :-1]))
    np.testing.assert_allclose(gradients, weights[:, None] * plain)
    assert np.linalg.norm(gradients, axis=1).max() <= weighted.lipschitz(2.0) * (1 + 1e-9)


def test_the_sensitivity_is_that_of_the_heaviest_row():
    """By brute force, over the worst pairs of rows at the edge."""
    loss, theta = Weighted(Logistic(), BOUND), np.array([-9.0, 0.0, 0.0])
    corners = np.array([[1.0, 0, 0, 1, BOUND], [1.0, 0, 0, -1, BOUND], [-1.0, 0, 0, 1, 0.0]])
    found = dense(loss.gradients(theta, corners))
    widest = max(np.linalg.norm(a - b) for a in found for b in found)
    assert widest <= loss.gradient_diameter(9.0)
    apart = dense(loss.gradients(-theta, corners)) - found
    assert np.linalg.norm(found, axis=1).max() > 0.9 * loss.lipschitz(9.0)  # nothing to spare
    assert np.abs(apart).max() > 0


def test_an_envelope_is_as_smooth_as_asked_and_as_near():
    loss, beta = Weighted(Hinge(), BOUND), 5.0
    row = np.array([[1.0, 0, 0, 1, BOUND]])
    at = np.linspace(0.0, 2.0, 2001)
    slopes = np.array([dense(loss.gradients(np.array([m, 0, 0]), row, beta))[0, 0] for m in at])
    steepest = np.abs(np.diff(slopes)).max() / (at[1] - at[0])
    assert 0.9 * beta <= steepest <= beta * (1 + 1e-6)
    envelope = np.cumsum(slopes[::-1] * -(at[1] - at[0]))[::-1]  # 0 beyond the margin
    true = np.array([loss.values(np.array([m, 0, 0]), row)[0] for m in at])
    assert (true - envelope).max() <= (BOUND * 1.0) ** 2 / (2 * beta) + 0.02


def test_training_with_weights_is_that_of_rows_that_count_so():
    """Rows of weight 0 do not count; what is learnt is what the others say."""
    rng = np.random.default_rng(3)
    n = 4000
    x = rng.uniform(-1, 1, size=(n, 1))
    heavy = rng.random(n) < 0.5
    labels = np.where(heavy, np.sign(x[:, 0]), -np.sign(x[:, 0]))
    labels[labels == 0] = 1.0
    data = np.column_stack([x, labels, np.where(heavy, 1.0, 0.0)])
    problem = Problem(Weighted(Logistic()), L2Ball(1, 10.0))
    made = ShuffleGD.calibrated(n=n, problem=problem, privacy=Privacy(4.0, 1e-6), rounds=20)
    result = run(made, data, seed=1)
    assert result.value[0] > 1.0
    assert result.privacy.epsilon <= 4.0
    assert made.mean.sum.norm_bound == pytest.approx(problem.lipschitz)
    twice = Problem(Weighted(Logistic(), 2.0), L2Ball(1, 10.0))
    assert twice.lipschitz == 2 * problem.lipschitz


@pytest.mark.parametrize("bound", [math.inf, 0.0, -1.0, math.nan])
def test_a_bound_of_weights_must_be_a_number(bound):
    with pytest.raises(ParameterError, match="weight_bound"):
        Weighted(Logistic(), bound)


@pytest.mark.parametrize("weight", [BOUND * 1.01, -0.1, math.nan, math.inf])
def test_weights_out_of_bound_are_refused_without_showing_them(weight):
    data = rows(False)
    data[3, -1] = weight
    with pytest.raises(ParameterError, match="weighted from 0 to 4") as caught:
        Weighted(Logistic(), BOUND).check(data, 3)
    assert str(weight) not in str(caught.value)


def test_weights_of_weights_are_refused():
    with pytest.raises(ParameterError, match="without weights"):
        Weighted(Weighted(Logistic()))
