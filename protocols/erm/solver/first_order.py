"""Solvers that take full gradients: descent, subgradients, acceleration.

Every solver is `solver(objective, radius, w, rng) -> w`. It may stop where it likes: a certificate,
not the solver, says how near it came.
"""

import math

import numpy as np

from protocols.erm.objective import Kinked, Objective
from protocols.erm.solver.certificate import certify
from shuffle_sim.arrays import Floats

_MOST = 20_000
_LOOK = 10  # steps between certificates


def descent(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """Projected gradient descent with step 2/(beta + lambda)."""
    smooth = _smooth(objective)
    step = 2 / (smooth.smoothness + smooth.strong_convexity)
    for t in range(1, _MOST + 1):
        w = smooth.domain.project(w - step * smooth.gradient(w))
        if t % _LOOK == 0 and certify(smooth, w).radius <= radius:
            break
    return w


def subgradient(
    objective: Objective, radius: float, w: Floats, rng: np.random.Generator, steps: int = 2000
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


def accelerated(
    objective: Objective,
    radius: float,
    w: Floats,
    rng: np.random.Generator,
    most: float = _MOST,
) -> Floats:
    """Nesterov's method with constant momentum (sqrt kappa - 1)/(sqrt kappa + 1), projected."""
    smooth = _smooth(objective)
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


def steps_to(objective: Objective, radius: float, apart: float) -> float:
    """Steps with which `accelerated` certainly reaches a certificate of `radius` from `apart`.

    Its gap after T steps is at most (beta + lambda)/2 apart^2 (1 - kappa^{-1/2})^T (Nesterov 2018,
    Theorem 2.2.3), the residual at most 3 beta times the distance.
    """
    beta, ridge = objective.smoothness, objective.strong_convexity
    near = radius * ridge / (4 * beta)  # a distance whose certificate is below radius
    ratio = (beta + ridge) * apart**2 / (ridge * near**2)
    return 2 * _LOOK + 2 * math.sqrt(beta / ridge) * max(1.0, math.log(ratio))


def width_for(objective: Objective, radius: float) -> float:
    """A width at which smoothing moves the minimiser by less than radius/4."""
    return objective.strong_convexity * radius**2 / 32


def _smooth(objective: Objective) -> Objective:
    if not isinstance(objective, Kinked):
        return objective
    return objective.smoothed(objective.width * 1e-3)
