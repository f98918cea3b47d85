"""The proof of objective perturbation, step by step: losses, the integral, the added noise."""

import math

import numpy as np
import pytest
import scipy
from scipy import special, stats

from protocols.problems.instances import neighbours
from shuffle_sim.privacy.bounds import objective
from shuffle_sim.privacy.central_theorems import ObjectiveTheorem
from shuffle_sim.privacy.events import ObjectiveEvent

SLOPES = np.linspace(0, 1, 1001)


def most(chi, a, curvature):
    """The bound of the loss at chi: the largest over the slope s of the changed row."""
    steep = (1 + SLOPES) / 2 * a
    bends = np.log1p(4 * SLOPES * (1 - SLOPES) * curvature)
    return float((bends + steep**2 / 2 + steep * chi).max()) + 1e-6


def pair(rng):
    """Two neighbours of logistic rows of norm 1 at most, labels in them, and a point w."""
    d, n = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    rows = rng.normal(size=(n, d)) * rng.choice([0.3, 1.0, 30.0])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    other = rows[0] * rng.choice([-1.0, 0.5]) + rng.choice([0.0, 0.3]) * rng.normal(size=d)
    other /= max(1.0, float(np.linalg.norm(other)))
    return rows, other, rng.normal(size=d) * rng.choice([0.3, 3.0, 30.0])


def term(rows, times, ridge, w):
    """(b, second derivative) at the minimiser w."""
    s = special.expit(-rows @ w)
    bend = (rows * (times * s * (1 - s))[:, None]).T @ rows + ridge * np.eye(len(w))
    return (times * s) @ rows - ridge * w, bend


def losses(rows, other, w, ridge, sigma, times=None):
    """(ln p/p' at w for Gaussian b, chi, (||b'|| - ||b||), ln of the Jacobians' ratio)."""
    times = np.ones(len(rows)) if times is None else times
    b, bend = term(rows, times, ridge, w)
    second = np.array([other, *rows[1:]])
    b_other, bend_other = term(second, times, ridge, w)
    jacobian = np.linalg.slogdet(bend)[1] - np.linalg.slogdet(bend_other)[1]
    plane = np.linalg.qr(np.array([rows[0], other]).T)[0]
    chi = float(np.linalg.norm(plane.T @ b)) / sigma
    apart = b_other - b
    gaussian = float(b @ apart / sigma**2 + apart @ apart / (2 * sigma**2))
    return gaussian + jacobian, chi, float(np.linalg.norm(b_other) - np.linalg.norm(b)), jacobian


def test_no_loss_is_above_the_bound_at_its_chi():
    """1,500 random neighbours and points, both kinds of the linear term."""
    rng, tight = np.random.default_rng(0), 0.0
    for _ in range(1500):
        rows, other, w = pair(rng)
        ridge, a = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-2, 0.5)
        loss, chi, longer, jacobian = losses(rows, other, w, ridge, 2 / a)
        bound = most(chi, a, 0.25 / ridge)
        assert loss <= bound
        tight = max(tight, loss / bound)
        tilt = 10 ** rng.uniform(-2, 1)
        assert tilt * longer / 2 + jacobian <= objective.pure(tilt, 0.25 / ridge, True)
    assert tight > 0.5


def attained(a, ridge, chi=2.0, far=500.0):
    """Loss over bound, and over that for 0.9 a, where rows push w far out along one axis.

    They bend only there.
    The changed row turns round across that axis, from the worst slope to slope 1, along b.
    """
    sigma, curvature = 2 / a, 0.25 / ridge
    steep = (1 + SLOPES) / 2 * a
    bends = np.log1p(4 * SLOPES * (1 - SLOPES) * curvature)
    s = min(float(SLOPES[(bends + steep**2 / 2 + steep * chi).argmax()]), 0.999)
    across = (s + chi * sigma) / ridge  # so that b is about -chi sigma there
    w = np.array([-far, across])
    cosines = (special.logit(s) + across) / far, (8 - across) / far
    first, second = (
        np.array([cosine, side * math.sqrt(1 - cosine**2)])
        for cosine, side in zip(cosines, (1, -1), strict=True)
    )
    times = np.array([1.0, (s * cosines[0] + ridge * far) / special.expit(-far)])
    rows = np.array([first, [-1.0, 0.0]])
    loss, chi, *_ = losses(rows, second, w, ridge, sigma, times)
    return [loss / most(chi, each, curvature) for each in (a, 0.9 * a)]


@pytest.mark.parametrize("ridge", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("a", [0.3, 1.0])
def test_the_bound_of_the_loss_is_attained(a, ridge):
    """A bound for a distance that is a tenth smaller is refuted."""
    whole, less = attained(a, ridge)
    assert 0.97 < whole <= 1 < less


def density(w, rows, times, ridge, sigma):
    """Of the minimiser at points w, shape (..., 2)."""
    b, bend = -ridge * w, ridge * np.eye(2) + np.zeros((*w.shape[:-1], 2, 2))
    for row, often in zip(rows, times, strict=True):
        s = special.expit(-w @ row)
        b += often * s[..., None] * row
        bend += often * (s * (1 - s))[..., None, None] * np.outer(row, row)
    gaussian = stats.norm(scale=sigma).logpdf(b).sum(axis=-1)
    return np.exp(gaussian + np.log(np.linalg.det(bend)))


def test_two_tables_show_most_of_the_bound():
    """By integration over all outputs, which draws cannot show: delta is 1e-6."""
    n, delta, multiplier, ridge = 1000, 1e-6, 5.26, 0.79
    first, second = neighbours(n, 2)["split"]
    rows, times = np.unique(first[1:, :2], axis=0, return_counts=True)
    line = np.linspace(-130.0, 130.0, 801)
    w = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    here, there = (
        density(w, [*rows, table[0, :2]], [*times, 1], ridge, 2 * multiplier)
        * (line[1] - line[0]) ** 2
        for table in (first, second)
    )
    assert here.sum() == pytest.approx(1, abs=1e-6)
    assert there.sum() == pytest.approx(1, abs=1e-6)

    def found(epsilon):
        apart = np.maximum(here - math.exp(epsilon) * there, 0).sum()
        return max(apart, np.maximum(there - math.exp(epsilon) * here, 0).sum())

    stated = objective.epsilon(delta, multiplier, 0.25 / ridge, True)
    assert found(0.72 * stated) > delta > found(0.75 * stated)


@pytest.mark.parametrize(("a", "curvature"), [(0.2, 0.025), (0.3, 0.25), (1.0, 1.0), (0.1, 3.0)])
@pytest.mark.full
def test_the_sum_over_cells_is_an_upper_one_and_close(a, curvature):
    for epsilon in (0.1, 0.5, 1.0, 2.0):

        def gain(chi, at=epsilon):
            loss = most(chi, a, curvature)
            return chi * math.exp(-chi * chi / 2) * -math.expm1(min(0.0, at - loss))

        grid = np.linspace(0, 14, 1001)
        truth = float(scipy.integrate.simpson([gain(chi) for chi in grid], x=grid))
        found = objective.delta(epsilon, 1 / a, curvature, True)
        plain = objective.delta(epsilon, 1 / a, curvature)
        assert truth * (1 - 1e-3) <= found <= plain
        assert found <= max(1.3 * truth, 1e-12) or found == plain


@pytest.mark.parametrize(("share", "kept"), [(1.0, True), (4.0, False)])
def test_the_noise_for_the_certified_distance_is_accounted_for(share, kept):
    """d = 1: points r to either side of the exact minimiser, plus Laplace noise for 2 r.

    The whole law by convolution; noise of a quarter of the scale is caught.
    """
    ridge, rate, r = 20.0, 0.5, 2.0
    event = ObjectiveEvent(objective.multiplier_for(0.5, 1e-3, 0.25 / ridge), 0.25 / ridge, rate)
    sigma, step = 2 * event.noise_multiplier, 0.004
    w = np.arange(-12, 12, step)

    def density(x):
        rows = np.array([x])
        s = special.expit(-rows[:, None] * w)
        slope = -(rows[:, None] * s).sum(axis=0) + ridge * w
        bend = (rows[:, None] ** 2 * s * (1 - s)).sum(axis=0) + ridge
        return stats.norm(scale=sigma).pdf(slope) * bend

    scale = 2 * r / rate / share
    wide = np.arange(-200, 200, step)
    laws = []
    for x, side in ((1.0, r), (-1.0, -r)):
        noise = np.exp(-np.abs(wide - side) / scale) / (2 * scale)
        law = scipy.signal.fftconvolve(density(x), noise) * step
        laws.append(law / law.sum())
    theorem = ObjectiveTheorem()
    for epsilon in (0.2, 0.4, 0.6):
        worst = max(
            float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
            for p, q in (tuple(laws), tuple(laws[::-1]))
        )
        stated = theorem.delta(((event, 1),), epsilon)
        if not kept:
            assert worst > stated
            break
        assert worst <= stated


def test_a_large_epsilon_has_a_multiplier_too():
    for coupled in (False, True):
        found = objective.multiplier_for(39.0, 1e-3, 2.5, coupled)
        assert objective.delta(39.0, found, 2.5, coupled) <= 1e-3
        assert objective.delta(39.0, found / 2, 2.5, coupled) > 1e-3
