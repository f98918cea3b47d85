"""`Clipped`: no row has a longer gradient, whatever the loss and the row; and which are convex."""

import math

import numpy as np
import pytest

from protocols import Hinge, Huber, Logistic, Squared
from protocols.erm.groups import Grouped
from protocols.problems import MeanEstimation, Softmax
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.surrogates import Clipped, Surrogate
from protocols.problems.weighted import Weighted
from shuffle_sim import ParameterError
from shuffle_sim.arrays import dense

D = 6
LOSSES = [
    Logistic(),
    Hinge(math.inf),
    Squared(math.inf),
    Huber(math.inf),
    MeanEstimation(math.inf),
    Softmax(3),
    Weighted(Squared(), 2.0),
    Grouped(Logistic(), 2),
]


def rows_of(loss, users, rng):
    """Rows of which many are extremes."""
    ends = np.array([1e300, -1e300, 1.7e308, np.nan, np.inf, -np.inf, 0.0, 5e-324, 1.0, -1.0])
    rows = rng.choice(ends, (users, loss.columns(D)))
    tame = rng.random(users) < 0.5
    rows[tame] = rng.integers(0, 2, (tame.sum(), rows.shape[1])) * 2.0 - 1
    return rows


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("smoothing", [None, 3.0])
def test_no_gradient_is_longer_than_the_clip(loss, smoothing):
    if smoothing is not None and isinstance(loss, Softmax):
        smoothing = None  # it has no envelope
    rng, slopes = np.random.default_rng(0), Clipped(loss, 0.3, smoothing)
    rows, point = rows_of(loss, 2000, rng), rng.normal(size=D)
    found = dense(slopes.each(point, rows))
    norms = np.linalg.norm(found, axis=1)
    assert 0.3 * (1 - 1e-9) < norms.max() <= 0.3 * (1 + 1e-12)
    assert not found[~np.isfinite(rows).all(axis=1)].any()
    own = dense(slopes.each(np.tile(point, (50, 1)), rows[:50]))
    alone = np.concatenate([dense(slopes.each(point, row[None])) for row in rows[:50]])
    assert np.allclose(own, found[:50], atol=1e-12)
    assert np.allclose(alone, found[:50], atol=1e-12)
    points = np.stack([point, -2 * point])
    sums = slopes.gradients_of(points, rows)
    assert np.allclose(sums[0], found.sum(axis=0), atol=1e-9)
    assert np.allclose(sums, [slopes.gradient(each, rows) for each in points], atol=1e-9)


class Lost(Squared):
    """Whose derivative is no number far off."""

    prox = LinearLoss.prox

    def derivative(self, margins, labels):
        return np.where(np.abs(margins) > 1e30, np.nan, super().derivative(margins, labels))


@pytest.mark.parametrize("smoothing", [None, 3.0])
def test_nor_where_squares_vanish_or_slopes_are_lost(smoothing):
    """Each row alone: its square is below doubles, and its label as long as is let through."""
    for clip, x in ((1e-63, 1.5e-162), (1e-90, 1e-180), (1e-120, 1e-200)):
        slopes = Clipped(Squared(math.inf), clip, smoothing)
        found = slopes.gradient(np.zeros(1), np.array([[x, 1e99]]))
        assert abs(found[0]) == pytest.approx(min(clip, x * 1e99), rel=1e-9)
        assert abs(found[0]) <= clip * (1 + 1e-12)
    lost = Clipped(Lost(math.inf), 0.3, smoothing).gradient
    rows = np.array([[1e40, 0.0], [0.1, 1.0]])
    assert np.array_equal(lost(np.ones(1), rows), lost(np.ones(1), rows[1:]))


def test_the_smoothness_of_clipped_gradients_is_the_losss_own():
    assert Clipped(Logistic(), 0.1).smoothness == 0.25
    assert Clipped(Hinge(), 0.1).smoothness == math.inf
    assert Clipped(Hinge(), 0.1, 3.0).smoothness == 3.0
    rng = np.random.default_rng(1)
    for slopes in (Clipped(Logistic(), 0.6), Clipped(MeanEstimation(), 2.0)):
        rows = rng.normal(size=(4000, slopes.loss.columns(D)))
        rows[:, :D] /= np.linalg.norm(rows[:, :D], axis=1, keepdims=True)
        if isinstance(slopes.loss, Logistic):
            rows[:, -1] = np.sign(rows[:, -1])
        at, by = rng.normal(size=(2, 4000, D))
        a, b = (dense(slopes.each(points, rows)) for points in (at, at + 0.01 * by))
        share = np.linalg.norm(a - b, axis=1) / np.linalg.norm(0.01 * by, axis=1)
        assert 0.5 * slopes.smoothness < share.max() <= slopes.smoothness * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES[-3:], ids=repr)
def test_where_clipping_is_not_convex_there_is_no_surrogate(loss):
    with pytest.raises(ParameterError, match="clipping_is_convex"):
        Surrogate(loss, 1.0)


def test_gradients_of_ones_own_are_no_longer_those_of_a_line():
    class Bent(Logistic):
        def gradients(self, theta, rows, smoothing=None):
            return np.roll(dense(super().gradients(theta, rows, smoothing)), 1, axis=1)

    with pytest.raises(ParameterError, match="clipping_is_convex"):
        Surrogate(Bent(), 1.0)
    rows = np.array([[1.0, 0, 0, 0, 0, 0, 1.0]])
    assert np.allclose(Clipped(Bent(), 0.1).each(np.zeros(D), rows), [[0, -0.1, 0, 0, 0, 0]])
