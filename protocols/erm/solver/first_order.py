"""Solvers that take full gradients: descent, subgradients, acceleration, extragradient.

Every solver is `solver(objective, radius, w, rng) -> w`. It may stop where it likes: a certificate,
not the solver, says how near it came.
"""

import math
from collections.abc import Callable

import numpy as np

from protocols.erm.objective import Kinked, Objective
from protocols.erm.saddle import Saddle
from protocols.erm.solver.certificate import certify
from protocols.problems.domains import L2Ball
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError

_MOST = 20_000
_FEW = 2000  # of methods that do not come near: a polisher goes on
_LOOK = 10  # steps between certificates
_MOST_PAIRS, _LOOK_AT_PAIRS = 50_000, 20  # of steps of both players


def descent(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """Projected gradient descent with step 2/(beta + lambda)."""
    smooth = nearly(objective)
    # Of the fastest contraction, (kappa - 1)/(kappa + 1) a step.
    step = 2 / (smooth.smoothness + smooth.strong_convexity)
    for t in range(1, _MOST + 1):
        w = smooth.domain.project(w - step * smooth.gradient(w))
        if t % _LOOK == 0 and certify(smooth, w).radius <= radius:
            break
    return w


def subgradient(
    objective: Objective, radius: float, w: Floats, rng: np.random.Generator, steps: int = _FEW
) -> Floats:
    """Steps 2/(lambda (t + 1)), and the average with weights t of where gradients were taken.

    Source: Lacoste-Julien, Schmidt and Bach (2012). Algorithm 2 of Lowy and Razaviyayn (2021)
    prints the step n times as long and returns the last iterate.
    """
    average = np.zeros_like(w)
    for t in range(1, steps + 1):
        average += 2 * t / (steps * (steps + 1)) * w
        step = 2 / (objective.strong_convexity * (t + 1))
        w = objective.domain.project(w - step * objective.gradient(w))
    return objective.domain.project(average)


def adaptive_subgradient(
    objective: Objective, radius: float, w: Floats, rng: np.random.Generator
) -> Floats:
    """`adaptive` to lambda radius^2/2 above the least value, which is within the radius."""
    found = certify(objective, w)
    if not math.isfinite(found.radius):
        return w
    domain = objective.domain
    ball = L2Ball(objective.d, max(found.radius, radius), found.point)  # it holds the minimiser
    accuracy = objective.strong_convexity * radius**2 / 2

    def project(each: Floats) -> Floats:
        return domain.project(ball.project(each))

    # Both projections bring a point no farther from the minimiser, which both sets hold.
    return adaptive(objective.gradient, project, 2 * ball.size, accuracy, found.point, _FEW)[0]


def adaptive(
    subgradient: Callable[[Floats], Floats],
    project: Callable[[Floats], Floats],
    diameter: float,
    accuracy: float,
    start: Floats,
    most: float = math.inf,
) -> tuple[Floats, int]:
    """Steps D/sqrt(S), S the sum of squared norms of subgradients: no slope need be known.

    It stops where 3 D sqrt(S) <= accuracy t, after (3 D L/accuracy)^2 steps at most. The value at
    the mean of all points, (d,), is then at most `accuracy` above the least. Returned with t.
    Source: Algorithm 3 and Proposition 2.9 of Lowy (2026).

    Args:
        subgradient: of a convex function on a closed convex set.
        project: to the set.
        diameter: D, of the set.
        accuracy: alpha, above 0.
        start: in the set.
        most: steps, after which it stops without a promise.
    """
    w, total, squares, t = start, np.zeros_like(start), 0.0, 0
    while t < most:
        slope, t = subgradient(w), t + 1
        square = float(slope @ slope)
        if not square:
            return w, t
        squares, total = squares + square, total + w
        if 3 * diameter * math.sqrt(squares) <= accuracy * t:
            break
        w = project(w - diameter / math.sqrt(squares) * slope)
    return total / t, t


def accelerated(
    objective: Objective,
    radius: float,
    w: Floats,
    rng: np.random.Generator,
    most: float = _MOST,
) -> Floats:
    """Nesterov's method with constant momentum (sqrt kappa - 1)/(sqrt kappa + 1), projected."""
    smooth = nearly(objective)
    root = math.sqrt(smooth.smoothness / smooth.strong_convexity)
    momentum, before, ahead = (root - 1) / (root + 1), w, w
    t = 0
    while t < most:
        t += 1
        w = smooth.domain.project(ahead - smooth.gradient(ahead) / smooth.smoothness)
        ahead, before = w + momentum * (w - before), w
        if t % _LOOK == 0 and certify(smooth, w).radius <= radius:
            break
    return w


def extragradient(
    objective: Objective, radius: float, w: Floats, rng: np.random.Generator
) -> Floats:
    """A step with the slopes at a step ahead, both projected (Korpelevich 1976).

    Steps are 1/(2 steepness).

    Raises:
        ParameterError: no saddle problem.
    """
    if not isinstance(objective, Saddle):
        raise ParameterError("solver", "extragradient", "newton or another: no saddle problem")
    step, v = 1 / (2 * objective.steepness), objective.opponent.center
    mine, other = objective.domain.project, objective.opponent.project
    for t in range(1, _MOST_PAIRS + 1):
        down, up = objective.slopes(w, v)
        down, up = objective.slopes(mine(w - step * down), other(v + step * up))
        w, v = mine(w - step * down), other(v + step * up)
        if t % _LOOK_AT_PAIRS == 0 and certify(objective, w).radius <= radius:
            break
    return w


def steps_to(objective: Objective, radius: float, apart: float) -> float:
    """Steps with which `accelerated` certainly reaches a certificate of `radius` from `apart`.

    Its gap after T steps is at most (beta + lambda)/2 apart^2 (1 - kappa^{-1/2})^T (Nesterov 2018,
    Theorem 2.2.3), the residual at most 3 beta times the distance.
    """
    beta, ridge = objective.smoothness, objective.strong_convexity
    # A residual of 3 beta near is below lambda radius; the last quarter leaves room for rounding
    # errors.
    near = radius * ridge / (4 * beta)  # a distance whose certificate is below radius
    ratio = (beta + ridge) * apart**2 / (ridge * near**2)
    return 2 * _LOOK + 2 * math.sqrt(beta / ridge) * max(1.0, math.log(ratio))


def width_for(objective: Objective, radius: float) -> float:
    """A width at which smoothing moves the minimiser by less than radius/4."""
    # Ramps of slopes up to 1 take width/2 of F at most: minimisers move by sqrt(width/lambda).
    return objective.strong_convexity * radius**2 / 32


def nearly(objective: Objective) -> Objective:
    """The objective, smoothed a little where it has kinks."""
    if not isinstance(objective, Kinked):
        return objective
    return objective.smoothed(objective.width * 1e-3)
