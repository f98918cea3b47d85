"""Proposals of a Gaussian for a rejection sampler on a bounded domain.

Where the Gaussian's centre is far outside, hardly any of its points are in the domain: at 10
deviations one in 10^22. Then it is drawn given that it lies in a slab, or box, around the domain.
Of points in the domain the law is the same.
"""

import math

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from protocols.erm.smooth import ERM
from protocols.erm.solver import certify
from protocols.erm.solver.minimise import SOLVERS
from protocols.problems.domains import Box, Domain, L2Ball, RealSpace
from shuffle_sim.arrays import Floats


def proposed(
    rng: np.random.Generator, domain: Domain, centre: Floats, scale: float, size: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """So many points (size, d) of the Gaussian, given a set around the domain; which are in it."""
    points = centre + scale * rng.standard_normal((size, domain.d))
    if isinstance(domain, L2Ball):
        offset = centre - domain.center
        far = float(np.linalg.norm(offset))
        if far > domain.size:
            way = offset / far
            low, high = ((end - far) / scale for end in (-domain.size, domain.size))
            along = far + scale * between(rng, low, high, size)
            points -= ((points - domain.center) @ way - along)[:, None] * way
    elif isinstance(domain, Box) and (domain.project(centre) != centre).any():
        for place, middle in enumerate(centre.tolist()):
            low, high = ((end[place] - middle) / scale for end in (domain.lower, domain.upper))
            points[:, place] = middle + scale * between(rng, low, high, size)
    return points, within(domain, points)


def within(domain: Domain, points: Floats) -> NDArray[np.bool_]:
    """Which points (points, d) are in a domain."""
    if isinstance(domain, RealSpace):
        return np.ones(len(points), bool)
    if isinstance(domain, L2Ball):
        return np.asarray(np.linalg.norm(points - domain.center, axis=1) <= domain.size)
    # Of others: their projection leaves their points as they are, to the bit.
    return np.array([np.array_equal(domain.project(each), each) for each in points])


def between(rng: np.random.Generator, low: float, high: float, size: int) -> Floats:
    """Standard Gaussian numbers, given that they lie between two others, (size,).

    By the inverse of the law, in logarithms: its tails keep their digits.
    """
    if low > 0:  # the lower tail is the one with small probabilities
        return -between(rng, -high, -low, size)
    first, last = scipy.special.log_ndtr([low, high])
    share = rng.random(size)
    # Phi(low) + share (Phi(high) - Phi(low)), as a multiple of Phi(high).
    found = last + np.log(share + (1 - share) * np.exp(first - last))
    return np.asarray(np.clip(scipy.special.ndtri_exp(found), low, high))


def near_least(objective: ERM, k: float) -> Floats:
    """Some point near the minimiser, around which proposals are drawn."""
    radius = 1e-6 / math.sqrt(k * objective.strong_convexity)
    start = objective.domain.project(objective.start)
    # w0 decides on the speed alone, so nothing is certified here and the generator is fixed.
    found = SOLVERS["newton"](objective, radius, start, np.random.default_rng(0))
    return certify(objective, objective.domain.project(found)).point
