"""Computable certificates: how far a point is from the minimiser at most, whatever found it.

Docs: theory, Output perturbation, "Certificates".
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.erm.objective import UNIT, Kinked, Objective
from protocols.erm.saddle import Saddle
from protocols.problems.domains import RealSpace
from shuffle_sim.arrays import Floats

WIDTHS = 10.0 ** -np.arange(0.0, 15.0)
"""Of smoothing, from the largest, that `certify` tries for kinks."""
_ROUND = 1 + 1e-12  # of norms of d numbers


@dataclass(frozen=True, eq=False)
class Certificate:
    """A point and a bound of its l2 distance from the minimiser, rounding errors included.

    Attributes:
        point: shape (d,); the point asked about, or a better one near it.
        radius: the bound; it depends on the data, and no release may.
        basis: by which proof.
    """

    point: Floats
    radius: float
    basis: str


def certify(objective: Objective, w: Floats, width: float | None = None) -> Certificate:
    """A certificate of `w` or of a point near it.

    Without kinks over R^d: ||g||/lambda. Over a set: w+ = Proj(w - eta g) and the residual
    g(w+) - g(w) + (w - w+)/eta of it. With kinks: the gap of the smoothed problem's dual point. Of
    saddle problems: the gap with the opponent's answer, or that residual, whichever is less.

    Args:
        objective: strongly convex.
        w: (d,), finite.
        width: of the smoothed problem that w minimises, for kinks; None: the best of many.
    """
    if isinstance(objective, Kinked):
        widths = objective.width * WIDTHS if width is None else (width,)
        found = [objective.witness(w, float(each)) for each in widths]
        point, radius = min(found, key=lambda each: each[1])
        return Certificate(point, radius, "duality gap, row by row")
    plain = _residual(objective, w)
    if isinstance(objective, Saddle):
        w = objective.domain.project(w)
        # lambda/2 ||w - w*||^2 <= F(w) - F(w*) <= gap, for any answer of the opponent.
        radius = math.sqrt(2 * objective.gap(w, objective.worst(w)) / objective.strong_convexity)
        if radius < plain.radius:
            return Certificate(w, radius, "duality gap of the saddle problem")
    return plain


def _residual(objective: Objective, w: Floats) -> Certificate:
    """Of a gradient, or of a projected step; without kinks."""
    # A subgradient of a lambda-strongly convex function at distance r of its minimiser is
    # at least lambda r long.
    ridge, gradient = objective.strong_convexity, objective.gradient(w)
    size, error = float(np.linalg.norm(gradient)), objective.rounding(w)
    if isinstance(objective.domain, RealSpace):
        return Certificate(w, (size * _ROUND + error) / ridge, "norm of the gradient")
    # (w - w+)/eta - g(w) is normal to the set at w+: with g(w+) it is a subgradient there.
    # Every eta is valid.
    eta = 1 / objective.smoothness
    after = objective.domain.project(w - eta * gradient)
    residual = objective.gradient(after) - gradient + (w - after) / eta
    error += objective.rounding(after)
    far = float(np.linalg.norm(w)) + float(np.linalg.norm(objective.domain.center))
    error += 4 * UNIT * (far + eta * size) / eta  # a projection is computed from the center
    radius = (float(np.linalg.norm(residual)) * _ROUND + error) / ridge
    return Certificate(after, radius, "residual of a projected step")
