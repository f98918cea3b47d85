"""The centred Lipschitz extension in one dimension, by its definition alone, on many random cases.

Everything is piecewise linear between the points of a grid, ridge included: minima are at its
points, and statements are exact but for rounding.
"""

import numpy as np
import pytest

GRID = np.linspace(-1.0, 1.0, 201)
STEP = GRID[1] - GRID[0]


def drawn(rng):
    """A convex function on the grid: absolute, linear, quadratic, logistic or max-affine."""
    steep, place = 10 ** rng.uniform(-1, 3), rng.uniform(-1.2, 1.2)
    sign = rng.choice([-1.0, 1.0])
    return (
        steep * np.abs(GRID - place),
        sign * steep * GRID,
        steep * (GRID - place) ** 2 / 2,
        np.logaddexp(0.0, sign * steep * (GRID - place)),
        (steep * rng.normal(size=(3, 1)) * GRID + rng.normal(size=(3, 1))).max(axis=0),
    )[rng.integers(5)]


def extended(h, c, gamma):
    """min over u of h(u) + c (w - u) + gamma |w - u|, by two running minima."""
    tilted = h - c * GRID
    below = np.minimum.accumulate(tilted - gamma * GRID) + gamma * GRID
    above = np.minimum.accumulate((tilted + gamma * GRID)[::-1])[::-1] - gamma * GRID
    return c * GRID + np.minimum(below, above)


def certified(people, ridge, c, gamma, at):
    """Whether slopes u_i + v within gamma of c prove that the plain minimiser `at` stays one.

    On the border the normal part v takes up any slope outwards.
    """
    last = at == len(GRID) - 1
    low = np.full(len(people), -np.inf) if at == 0 else (people[:, at] - people[:, at - 1]) / STEP
    high = np.full(len(people), np.inf) if last else (people[:, at + 1] - people[:, at]) / STEP
    low, high = np.maximum(low, c - gamma), np.minimum(high, c + gamma)
    least = -np.inf if last else -(ridge[at + 1] - ridge[at]) / STEP
    most = np.inf if at == 0 else -(ridge[at] - ridge[at - 1]) / STEP
    return bool((low <= high).all() and low.mean() <= most and high.mean() >= least)


def cases(count):
    """(border, certified, whether the plain minimiser minimises the extended objective)."""
    rng = np.random.default_rng(5)
    for _ in range(count):
        people = np.array([drawn(rng) for _ in range(rng.integers(1, 8))])
        strong, anchor = 10 ** rng.uniform(-2, 2), rng.uniform(-1.5, 1.5)
        ridge = strong / 2 * (GRID - anchor) ** 2
        plain = people.mean(axis=0) + ridge
        at = int(plain.argmin())
        centred = strong * (anchor - GRID[at])  # mean u + v, where it is certified
        largest = np.abs(np.gradient(people, STEP, axis=1)[:, at]).max()
        gamma = 10 ** rng.uniform(-1, 1) * (largest + abs(centred)) + 1e-3
        c = centred + rng.uniform(-0.5, 0.5) * gamma
        whole = np.mean([extended(h, c, gamma) for h in people], axis=0) + ridge
        exact = whole[at] <= whole.min() + 1e-10 * (1 + np.abs(whole).max())
        yield at in (0, len(GRID) - 1), certified(people, ridge, c, gamma, at), bool(exact)


@pytest.mark.full
def test_certified_minimisers_are_those_of_the_extension():
    """More cases than the theory counts: 1,137 inside, 802 with a normal part. None may fail; of
    those without a certificate about half do, so that the test can.
    """
    found = list(cases(4200))
    inside = [exact for border, proven, exact in found if proven and not border]
    normal = [exact for border, proven, exact in found if proven and border]
    others = [exact for _, proven, exact in found if not proven]
    assert len(inside) >= 1137
    assert len(normal) >= 802
    assert all(inside)
    assert all(normal)
    assert np.mean(others) < 0.6
