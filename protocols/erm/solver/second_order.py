"""Newton's method and L-BFGS: the solvers for few parameters."""

import math
from collections.abc import Callable

import numpy as np
import scipy

from protocols.erm.objective import UNIT, Kinked, Objective
from protocols.erm.solver.certificate import WIDTHS
from protocols.erm.solver.first_order import nearly
from protocols.problems.domains import Box, L2Ball, RealSpace, Simplex
from shuffle_sim.arrays import Floats

_STEPS, _TRIES, _SECULAR = 200, 40, 60
_SAMPLE, _PER_PARAMETER = 20_000, 40  # rows of a sampled second derivative
_PROGRESS, _PATIENCE = 0.5, 20  # as much less of a gradient within so many steps, else no more
_BORDER = 1e-4  # in units of the smoothing, of how far from its border a ball's solution is
_HALF = math.sqrt(10)  # of the way from one of WIDTHS to the next
_FLAT = 0.5  # of the first slope along a step, from which the search ends


def newton(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """Newton's method, with the second derivative of a sample of the rows while that is enough.

    Kinks are smoothed, less and less. In an l2 ball the multiplier of its border is found, too.
    """
    if not isinstance(objective, Kinked):
        # A certificate shows a distance beta/lambda times as large: that is radius/20.
        near = radius * objective.strong_convexity / (20 * objective.smoothness)
        return _within(objective, radius, w, near)
    least = math.inf
    for width in (objective.width * WIDTHS).tolist():
        for between in ((), (_HALF * width,)):
            found = w
            for each in (*between, width):
                near = min(radius / 10, _BORDER * each)  # else the slopes of ramps are lost
                found = _within(objective.smoothed(each), near, found, near)
            gap = objective.witness(found, width)[1]
            if gap < least:
                break  # else a ramp was lost where many rows lie on one kink: in two steps
        w, least = found, gap
        if gap <= radius:
            break  # `certify` tries the same widths, and finds the same witness
    return w


def lbfgs(objective: Objective, radius: float, w: Floats, rng: np.random.Generator) -> Floats:
    """SciPy's L-BFGS over R^d, to a gradient as small as a certificate needs; then projected."""
    smooth = nearly(objective)
    tolerance = radius * smooth.strong_convexity / (2 * math.sqrt(smooth.d))
    limits = {"gtol": tolerance, "ftol": 0.0, "maxiter": 500, "maxls": 40, "maxcor": 20}
    found = scipy.optimize.minimize(
        smooth.value_and_gradient, w, jac=True, method="L-BFGS-B", options=limits
    )
    return smooth.domain.project(np.asarray(found.x))


def _within(objective: Objective, radius: float, w: Floats, near: float) -> Floats:
    """Over R^d; if the domain is a ball that excludes that, on its border to `near`."""
    ball = objective.domain
    if isinstance(ball, Box | Simplex):
        return _stepwise(objective, ball, radius, ball.project(w))
    free = _descend(objective, radius, w, 0.0, np.zeros_like(w))
    if isinstance(ball, RealSpace):
        return free
    if not isinstance(ball, L2Ball):
        return ball.project(free)
    centre, size, more = ball.center, ball.size, 0.0
    low, high = 0.0, math.inf  # bracket of the multiplier: the distance falls with it
    for _ in range(_SECULAR):
        apart = free - centre
        far = float(np.linalg.norm(apart))
        if (far <= size and more == 0) or abs(far - size) <= max(near, 1e-14 * size):
            break
        bend = objective.hessian(free)
        if bend is None:
            break
        low, high = (more, high) if far > size else (low, more)
        inner = float(apart @ np.linalg.solve(bend + more * np.eye(len(w)), apart))
        # More and Sorensen (1983): Newton's method on 1/distance, kept in the bracket.
        guess = more + far * far / inner * (far - size) / size
        if not low < guess < high:
            guess = (low + high) / 2 if high < math.inf else 2 * more
        more = guess
        free = _descend(objective, near, free, more, centre)
    return ball.project(free)


def _stepwise(objective: Objective, domain: Box | Simplex, radius: float, w: Floats) -> Floats:
    """Newton steps to where the second-order model is least in the domain."""
    least, since = math.inf, 0
    for _ in range(_STEPS):
        gradient, bend = objective.gradient(w), objective.hessian(w)
        if bend is None:
            break
        values, vectors = scipy.linalg.eigh(bend)
        root = np.sqrt(np.maximum(values, objective.strong_convexity))
        # ||root V'(v - w) + V'g/root||^2 is twice the model, but for a constant.
        step = w - _nearest(domain, w, root[:, None] * vectors.T, vectors.T @ gradient / root)
        falls, far = float(gradient @ step), float(np.linalg.norm(step))
        since = 0 if far < _PROGRESS * least else since + 1
        least = min(far, least)
        # The model is least within far of the minimiser, but for the model's error.
        if since > _PATIENCE or falls <= 0 or far <= 1e-3 * radius:
            break
        w = domain.project(_searched(objective.gradient, w, step, gradient)[0])
    return w


def _nearest(domain: Box | Simplex, w: Floats, root: Floats, push: Floats) -> Floats:
    """The v in the domain with the least ||root (v - w) + push||, by active sets; or before it."""
    size = domain.diameter / math.sqrt(domain.d)  # in units of it a small domain keeps its digits
    scale, ways = 1 / (float(np.linalg.norm(root)) * size), np.eye(domain.d)
    if isinstance(domain, Box):
        low, high = domain.lower - w, domain.upper - w
    else:  # the largest of w is what the others leave of the sum
        last = int(np.argmax(w))
        ways[last] = -1.0
        ways, others = np.delete(ways, last, axis=1), np.delete(w, last)
        low, high = -others, domain.total - others
    limits = low / size, np.maximum(high / size, low / size + UNIT)
    found = scipy.optimize.lsq_linear(
        scale * size * (root @ ways), -scale * push, limits, method="bvls", tol=1e-15
    )
    step = size * (ways @ found.x)
    if isinstance(domain, Simplex) and w[last] + step[last] < 0:
        step *= -w[last] / step[last]  # to where the largest is 0
    return domain.project(w + step)


def _descend(objective: Objective, radius: float, w: Floats, more: float, centre: Floats) -> Floats:
    """Damped Newton steps on F + (more/2) ||w - centre||^2."""

    def slope(at: Floats) -> Floats:
        return np.asarray(objective.gradient(at) + more * (at - centre))

    d, ridge = len(w), objective.strong_convexity + more
    stride = max(1, objective.n // max(_SAMPLE, _PER_PARAMETER * d))
    gradient, slow = slope(w), 0
    best, least, since = w, math.inf, 0
    for _ in range(_STEPS):
        size = float(np.linalg.norm(gradient))
        since += 1
        if size < _PROGRESS * least:
            since = 0
        if size < least:
            best, least = w, size
        # ||g||/lambda is the certificate: half of it, so that roundings cannot spoil it.
        if since > _PATIENCE or size + objective.rounding(w) <= 0.5 * ridge * radius:
            break
        bend = objective.hessian(w, stride)
        if bend is None:
            break
        # Near kinks the second derivative is so large that the ridge is lost in it.
        values, vectors = scipy.linalg.eigh(bend + more * np.eye(d))
        step = vectors @ (vectors.T @ gradient / np.maximum(values, ridge))
        w, after = _searched(slope, w, step, gradient)
        # A sampled second derivative serves until it is the reason for slow steps.
        slow = slow + 1 if np.linalg.norm(after) > _PROGRESS * size else 0
        if slow > 1:
            stride = 1
        gradient = after
    return best


def _searched(
    slope: Callable[[Floats], Floats], w: Floats, step: Floats, gradient: Floats
) -> tuple[Floats, Floats]:
    """Along w - t step to where F hardly falls any more; by slopes alone, as values lose digits.

    The slope along the way rises with t, as F is convex: its root is bracketed.
    """
    first = float(gradient @ step)  # F falls at this rate at t = 0
    low, high, t = 0.0, math.inf, 1.0
    after, found = w, gradient
    for _ in range(_TRIES):
        after = w - t * step
        found = slope(after)
        falls = float(found @ step)
        if abs(falls) <= _FLAT * first or (t == 1.0 and falls >= 0):
            break
        low, high = (t, high) if falls > 0 else (low, t)
        t = (low + high) / 2 if high < math.inf else 2 * t
    return after, found
