"""Newton's method over a ball, for many functions at once."""

import numpy as np
import pytest
import scipy

from protocols.erm.balls import lengths, model_step, newton_over_ball


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_a_step_minimises_the_model_over_the_ball(rank):
    """Optimality: the model's slope at the end is 0, or an inward multiple of the end."""
    rng = np.random.default_rng(rank)
    roots = rng.normal(size=(200, 4, rank))
    bends, slopes = roots @ roots.transpose(0, 2, 1), rng.normal(size=(200, 4))
    points = rng.normal(size=(200, 4))
    points /= np.maximum(1, lengths(points))[:, None]
    ends = points + model_step(points, slopes, bends, 1.0)
    after = slopes + np.einsum("ijk,ik->ij", bends, ends - points)
    pull = -np.einsum("ij,ij->i", after, ends)
    on = lengths(ends) > 1 - 1e-12
    assert (lengths(ends) <= 1 + 1e-12).all()
    assert (pull[on] >= -1e-9).all()
    assert lengths(after + pull[:, None] * ends)[on] == pytest.approx(0, abs=1e-9)
    assert lengths(after)[~on] == pytest.approx(0, abs=1e-6)
    assert on.any()


def test_each_function_has_a_step_of_its_own():
    """log cosh around far and near places: full steps would leave the flat ones for good."""
    places = np.array([[0.3, 0.1], [40.0, 0.0], [0.0, -0.9], [0.0, 0.0]])
    steep = np.array([30.0, 1.0, 5.0, 100.0])[:, None]
    asked = []

    def values(which, u):
        apart = steep[which] * (u - places[which])
        return (np.logaddexp(apart, -apart)).sum(axis=1)

    def ask(which, u):
        asked.append(len(which))
        apart = np.tanh(steep[which] * (u - places[which]))
        bends = (steep[which] ** 2 * (1 - apart**2))[:, :, None] * np.eye(2)
        return values(which, u), steep[which] * apart, bends

    def finished(which, u, slope):
        rest = slope - np.minimum(0, np.einsum("ij,ij->i", slope, u))[:, None] * u
        inside = lengths(u) < 1 - 1e-12
        return np.where(inside, lengths(slope), lengths(rest)) < 1e-9

    found = np.full((4, 2), 0.6)
    newton_over_ball(ask, values, found, 1.0, 60, finished)
    assert len(asked) < 40
    assert asked[-1] < 4  # who has finished is not asked again
    ball = scipy.optimize.NonlinearConstraint(lambda u: u @ u, -np.inf, 1.0)
    for at, point in enumerate(found):
        best = scipy.optimize.minimize(
            lambda u, at=at: values([at], u[None])[0], point / 2, constraints=ball, method="SLSQP"
        )
        assert values([at], point[None])[0] <= best.fun + 1e-6
