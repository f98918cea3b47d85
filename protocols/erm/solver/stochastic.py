"""Solvers that take gradients of single rows: averages, variance reduction, dual ascent."""

import math
from collections.abc import Callable
from functools import wraps

import numpy as np

from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import FiniteSum, Objective
from protocols.erm.one_vs_rest import Stacked
from protocols.erm.solver.certificate import certify
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError

_EPOCHS = 60
_Solver = Callable[[Objective, float, Floats, np.random.Generator], Floats]


def _part_by_part(solver: _Solver) -> _Solver:
    """The solver, also for a sum of objectives that have parameters of their own."""

    @wraps(solver)
    def solved(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
        if not isinstance(objective, Stacked):
            return solver(objective, radius, w, rng)
        share = radius / math.sqrt(len(objective.parts))
        return np.concatenate([solver(part, share, own, rng) for part, own in objective.split(w)])

    return solved


@_part_by_part
def stochastic_subgradient(
    objective: Objective, radius: float, w: Floats, rng: np.random.Generator
) -> Floats:
    """One row a step, steps 2/(lambda (t + 1)), the average with weights t.

    Algorithm 3 of Lowy and Razaviyayn (2021) weights the iterate after a step, where the proof
    (Bubeck 2015, Theorem 6.2) weights the one before.
    """
    sums = _finite(objective, "stochastic-subgradient")
    steps, average = 5 * sums.n, np.zeros_like(w)
    for t, row in enumerate(rng.integers(0, sums.n, steps), 1):
        average += 2 * t / (steps * (steps + 1)) * w
        slope = sums.row_gradients(w, np.array([row]))[0] + sums.regulariser_gradient(w)
        w = sums.domain.project(w - 2 / (sums.strong_convexity * (t + 1)) * slope)
    return sums.domain.project(average)


@_part_by_part
def svrg(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """Stochastic variance reduced gradients (Johnson and Zhang 2013), epochs of 2 n rows."""
    sums = _smooth(objective, "svrg")
    step = 1 / (4 * (sums.row_smoothness + sums.strong_convexity))
    for _ in range(_EPOCHS):
        anchor, full = w, sums.gradient(w) - sums.regulariser_gradient(w)
        total = np.zeros_like(w)
        order = rng.integers(0, sums.n, 2 * sums.n)
        for row in order:
            one = np.array([row])
            change = sums.row_gradients(w, one)[0] - sums.row_gradients(anchor, one)[0]
            w = sums.regulariser_step(w - step * (change + full), step)
            total += w
        mean = total / len(order)
        w = min(w, mean, key=lambda each: certify(objective, each).radius)
        if certify(objective, w).radius <= radius:
            break
    return w


@_part_by_part
def katyusha(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """Accelerated variance reduction (Allen-Zhu 2017, Algorithm 1), the ridge as psi."""
    sums = _smooth(objective, "katyusha")
    n, beta, ridge = sums.n, sums.row_smoothness, sums.strong_convexity
    inner, anchor = 2 * n, w
    first = min(math.sqrt(inner * ridge / (3 * beta)), 0.5)
    step = 1 / (3 * first * beta)
    y = z = w
    for _ in range(_EPOCHS):
        full = sums.gradient(anchor) - sums.regulariser_gradient(anchor)
        total, weight, weights = np.zeros_like(w), 1.0, 0.0
        for row in rng.integers(0, n, inner):
            # tau_1 z + tau_2 anchor + (1 - tau_1 - tau_2) y, tau_2 = 1/2.
            x = first * z + anchor / 2 + (0.5 - first) * y
            one = np.array([row])
            change = sums.row_gradients(x, one)[0] - sums.row_gradients(anchor, one)[0]
            slope = full + change
            z = sums.regulariser_step(z - step * slope, step)
            y = sums.regulariser_step(x - slope / (3 * beta), 1 / (3 * beta))
            total, weights = total + weight * y, weights + weight
            weight *= 1 + step * ridge
            # Only quotients of weights count: all are scaled down before one overflows.
            if weight > 1e100:
                total, weights, weight = total / weight, weights / weight, 1.0
        anchor = total / weights
        if certify(objective, anchor).radius <= radius:
            break
    return anchor


@_part_by_part
def sdca(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """Stochastic dual coordinate ascent (Shalev-Shwartz and Zhang 2013) for losses with a kink."""
    if not isinstance(objective, KinkedERM):
        allowed = "svrg, katyusha, newton or lbfgs: this loss has no kinks"
        raise ParameterError("solver", "sdca", allowed)
    x, n, ridge = objective.features, objective.n, objective.ridge
    squares = np.einsum("ij,ij->i", x, x)
    signs, low, high = objective.residuals(w)[1:]
    places = signs * (x @ w) - objective.residuals(w)[0]
    s = np.clip(np.zeros(n), low, high)
    far = objective.centre - objective.linear / ridge  # of which the domain has the projection
    far = far - x.T @ (s * signs) / (n * ridge)
    for _ in range(_EPOCHS):
        for row in rng.permutation(n):
            # A row of zeros has a margin of 0 whatever w is: it moves nothing.
            if not squares[row]:
                continue
            point = objective.domain.project(far)
            r = signs[row] * float(x[row] @ point) - places[row]
            # r falls by squares/(lambda n) times the change: to 0, if the slope may go so far.
            new = min(high, max(low, s[row] + ridge * n * r / squares[row]))
            far = far - (new - s[row]) * signs[row] / (n * ridge) * x[row]
            s[row] = new
        point, reached = objective.dual_point(s * signs)
        if reached <= radius:
            break
    return point


def _finite(objective: Objective, name: str) -> FiniteSum:
    if not isinstance(objective, FiniteSum):
        allowed = "gd, agd, subgradient, lbfgs or newton: this objective is no sum over rows"
        raise ParameterError("solver", name, allowed)
    return objective


def _smooth(objective: Objective, name: str) -> FiniteSum:
    sums = _finite(objective, name)
    if not math.isfinite(sums.row_smoothness):
        allowed = "newton, subgradient, stochastic-subgradient or sdca for a loss with kinks"
        raise ParameterError("solver", name, allowed)
    return sums
