"""Descent with a public number of steps: a minimiser that no time limit can cut short.

Privacy may rest on what is computed here, so no step depends on a clock. `fixed` needs no
certificate: its sensitivity is proven after any number of steps. `certified` stops where the
residual proves the distance to the minimiser; else after a public number of steps, where a theorem
does (docs: theory, Heavy tails).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protocols.erm.objective import UNIT
from protocols.erm.solver import UncertifiedError
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import PROX_ERROR
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive

Gradient = Callable[[Floats], Floats]
_LARGEST_BUDGET = 10**6


@dataclass(frozen=True)
class ProximalObjective:
    """mean h + (strong/2) ||w - center||^2 over a domain, with h convex, Lipschitz and smooth.

    Attributes:
        domain: where w may be.
        center: of the quadratic.
        strong: lambda, above 0.
        lipschitz: C of h.
        smoothness: beta of h; infinite where it is not known.
        terms: of the sums behind one gradient: rows of a block plus blocks.
    """

    domain: Domain
    center: Floats
    strong: float
    lipschitz: float
    smoothness: float = math.inf
    terms: int = 1

    def __post_init__(self) -> None:
        for name in ("strong", "lipschitz"):
            positive(name, getattr(self, name))

    @property
    def start(self) -> Floats:
        """The centre, or the point of the domain next to it."""
        return self.domain.project(self.center)

    def gradient(self, mean: Floats, w: Floats) -> Floats:
        """Of the objective, from that of mean h."""
        return np.asarray(mean + self.strong * (w - self.center))

    def rounding(self, w: Floats, step: float) -> float:
        """Bound of the error of a computed residual in doubles."""
        d, far, near = self.domain.d, self.domain.diameter, float(np.linalg.norm(w))
        bent = 0.0 if math.isinf(self.smoothness) else (d + 2) * self.smoothness * near
        sums = 2 * UNIT * ((self.terms + d + 4) * self.lipschitz + bent)
        sums += 2 * PROX_ERROR * self.lipschitz
        return sums + 4 * UNIT * (near + float(np.linalg.norm(self.center)) + far) / step

    def stray(self, far: float, step: float) -> float:
        """What a projection that is not quite the nearest point adds to a distance.

        Where <theta - w, z - w> <= slack for all z of the domain, strong convexity makes
        ||r||/lambda + sqrt(slack/(step lambda)) of ||r||/lambda.

        Args:
            far: the length of the projection.
            step: after whose gradient it was.
        """
        return math.sqrt(self.domain.slack(far) / (step * self.strong))

    @property
    def hidden(self) -> float:
        """A distance that rounding errors may hide; twice as much can be proven."""
        top = self.smoothness + self.strong
        far = self.domain.diameter + float(np.linalg.norm(self.center - self.start))
        worst = np.full(self.domain.d, self.domain.radius / math.sqrt(self.domain.d))
        slope = self.lipschitz + self.strong * far  # where it ends, a projection goes as far
        return 2 * self.rounding(worst, 1 / top) / self.strong + self.stray(
            2 * slope / top, 1 / top
        )

    def budget(self, distance: float) -> int:
        """Accelerated steps after which the residual proves `distance`, for every data set.

        N = ceil(sqrt(1 + beta/lambda) ln((2/(lambda t^2)) (D (C + lambda D) + lambda D^2/2))) steps
        come within t of the minimiser; t = distance lambda/(4 (beta + lambda)).

        Raises:
            ParameterError: no smoothness, more than 10^6 steps, or a distance that rounding errors
                would not let prove.
        """
        top = self.smoothness + self.strong
        far = self.domain.diameter + float(np.linalg.norm(self.center - self.start))
        if math.isinf(top):
            raise ParameterError("smoothing", None, "given: the number of steps rests on it")
        if not self.hidden <= distance / 2:
            allowed = f"larger: rounding errors hide {distance:.3g} at lambda {self.strong:.3g}"
            raise ParameterError("tau", distance, allowed)
        # I - grad/top does not expand: the residual is 2 top t = lambda distance/2 at most, the
        # rest is rounding.
        near = positive("distance", distance) * self.strong / (4 * top)
        gap = far * (self.lipschitz + 1.5 * self.strong * far)
        wanted = math.sqrt(top / self.strong) * math.log(2 * gap / (self.strong * near**2) + math.e)
        if wanted > _LARGEST_BUDGET:
            allowed = f"smaller: {wanted:.3g} steps of descent are above {_LARGEST_BUDGET}"
            raise ParameterError("smoothing", self.smoothness, allowed)
        return math.ceil(wanted)


def fixed_sensitivity(
    clip: float, strong: float, users: int, smoothness: float, steps: int
) -> float:
    """(2 C/(lambda m)) (1 - (1 - eta lambda)^T): of `fixed`, however far from the minimiser.

    The map of a step contracts by 1 - eta lambda, and one datum shifts it by 2 eta C/m at most.
    """
    eta = 2 / (smoothness + 2 * strong)
    # 1 - (1 - eta lambda)^T, where the power is 1 to most digits.
    return 2 * clip / (strong * users) * -math.expm1(steps * math.log1p(-eta * strong))


def fixed(objective: ProximalObjective, mean: Gradient, steps: int) -> Floats:
    """`steps` projected gradient steps of length 2/(beta + 2 lambda) from the centre.

    Raises:
        ParameterError: no smoothness.
    """
    if math.isinf(objective.smoothness):
        raise ParameterError("smoothing", None, "given: the step rests on it")
    eta, w = 2 / (objective.smoothness + 2 * objective.strong), objective.start
    for _ in range(integer("steps", steps)):
        w = objective.domain.project(w - eta * objective.gradient(mean(w), w))
    return w


def certified(objective: ProximalObjective, mean: Gradient, distance: float) -> Floats:
    """A point that is proven to be within `distance` of the minimiser.

    First adaptive steps with restarts, then at most the public number of steps at a constant
    momentum; both end where the residual proves the distance.

    Args:
        objective: without its data.
        mean: w -> the gradient of mean h at w.
        distance: tau.

    Raises:
        ParameterError: as `ProximalObjective.budget` does.
        UncertifiedError: the public steps did not prove it. In real arithmetic they always do.
    """
    budget = objective.budget(distance)
    found, nearest = _adaptive(objective, mean, distance, min(budget, 300))
    if found is None:
        found = _constant(objective, mean, distance, budget, nearest)
    if found is None:
        raise UncertifiedError(f"rounding errors do not allow a distance of {distance:.3g}")
    return found


def _proof(
    objective: ProximalObjective,
    w: Floats,
    at_w: Floats,
    step: float,
    after: Floats,
    at_after: Floats,
) -> float:
    """Distance of `after` to the minimiser at most: ||r||/lambda, r a subgradient at `after`."""
    residual = (w - after) / step + at_after - at_w
    error = objective.rounding(w, step) + objective.rounding(after, step)
    far = float(np.linalg.norm(w - step * at_w - after))
    length = float(np.linalg.norm(residual))
    return (length + error) / objective.strong + objective.stray(far, step)


def _adaptive(
    objective: ProximalObjective, mean: Gradient, distance: float, tries: int
) -> tuple[Floats | None, Floats]:
    """Accelerated descent with a step that follows the curvature met, and restarts."""
    project = objective.domain.project
    w = y = objective.start
    step, momentum = 1 / objective.strong, 1.0
    longest = step
    at_y = objective.gradient(mean(y), y)
    for _ in range(tries):
        after = project(y - step * at_y)
        moved = after - y
        at_after = objective.gradient(mean(after), after)
        if _proof(objective, y, at_y, step, after, at_after) <= distance:
            return after, after
        bend = float((at_after - at_y) @ moved)
        size = float(moved @ moved)
        # A step of 1/(beta + lambda) is short enough for any rows; it is shortened only above that.
        if bend * step > size and step * (objective.smoothness + objective.strong) > 1:
            step *= max(0.1, 0.5 * size / (bend * step))
            continue
        # The move goes uphill: momentum begins anew (O'Donoghue and Candes 2015).
        if float((y - after) @ (after - w)) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = project(after + (momentum - 1) / following * (after - w))
        w, momentum, step = after, following, min(1.1 * step, longest)
        at_y = at_after if y is after else objective.gradient(mean(y), y)
    return None, w


def _constant(
    objective: ProximalObjective, mean: Gradient, distance: float, steps: int, start: Floats
) -> Floats | None:
    """Nesterov's method of constant momentum: linear convergence for every data set."""
    ratio = math.sqrt(objective.strong / (objective.strong + objective.smoothness))
    momentum, step = (1 - ratio) / (1 + ratio), 1 / (objective.strong + objective.smoothness)
    w = y = start
    for index in range(steps):
        at_y = objective.gradient(mean(y), y)
        after = objective.domain.project(y - step * at_y)
        # A proof costs a gradient of its own.
        if index % 10 == 9 or index == steps - 1:
            at_after = objective.gradient(mean(after), after)
            if _proof(objective, y, at_y, step, after, at_after) <= distance:
                return after
        y = after + momentum * (after - w)
        w = after
    return None
