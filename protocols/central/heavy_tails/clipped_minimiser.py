"""The minimiser of a clipped surrogate with a quadratic around a point: what phases release."""

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from protocols.erm.objective import UNIT
from protocols.erm.proximal import ProximalObjective, certified, fixed, fixed_sensitivity
from protocols.problems.domains import Domain
from protocols.problems.surrogates import ScaledSurrogate, Surrogate
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive, real
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total


@dataclass(frozen=True)
class ClippedMinimiser(Statistic):
    """argmin over the domain of mean h + (ridge/2) ||w||^2 + (strong/2) ||w - theta||^2.

    Attributes:
        surrogate: h, convex and clip-Lipschitz, whatever the rows.
        domain: where w may be.
        theta: centre of the quadratic, (d,).
        strong: lambda.
        ridge: public, at least 0.
        tau: distance of the computed point to the minimiser at most, by certificate; with `steps`,
            what rounding errors may add.
        users: m, by which the sum of gradients is divided.
        steps: of plain descent, in place of a certificate; None: certified.

    Raises:
        ParameterError: a number out of range, or a tau that rounding errors exceed.
    """

    surrogate: Surrogate | ScaledSurrogate
    domain: Domain
    theta: Floats
    strong: float
    ridge: float
    tau: float
    users: int
    steps: int | None = None
    objective: ProximalObjective = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that what is promised can be computed, before any data are seen."""
        integer("users", self.users)
        positive("strong", self.strong)
        positive("tau", self.tau)
        real("ridge", self.ridge, 0.0, math.inf, closed=(True, False))
        if math.isinf(self.domain.slack(1.0)):
            allowed = "of proven projections: L2Ball, Box, Simplex, Polytope or Intersection"
            raise ParameterError("domain", type(self.domain).__name__, allowed)
        beta, whole = self.surrogate.smoothing, self.strong + self.ridge
        objective = ProximalObjective(
            domain=self.domain,
            # Both quadratics as one, up to a constant: whole/2 ||w - (strong/whole) theta||^2.
            center=np.asarray(self.strong / whole * self.theta),
            strong=whole,
            lipschitz=self.surrogate.clip,
            smoothness=math.inf if beta is None else beta,
            terms=self.users,
        )
        object.__setattr__(self, "objective", objective)
        if self.steps is None:
            objective.budget(self.tau)
        elif (error := self._rounding(integer("steps", self.steps))) > self.tau:
            raise ParameterError("tau", self.tau, f"at least {error:.3g}, of rounding errors")

    @property
    def sensitivity(self) -> Sensitivity:
        """2 C/(lambda m) + 2 tau."""
        # As planned, without the ridge: with it the shift is smaller.
        value = 2 * self.surrogate.clip / (self.strong * self.users) + 2 * self.tau
        if self.steps is None:
            proof = (
                "exact minimisers are 2 C/(lambda m) apart: add the inequalities of strong "
                "convexity; each computed point is certified to tau"
            )
            return Sensitivity(value, "l2", proof)
        assert self.surrogate.smoothing is not None
        moved = fixed_sensitivity(
            self.surrogate.clip,
            self.strong + self.ridge,
            self.users,
            self.surrogate.smoothing,
            self.steps,
        )
        proof = "each of T steps contracts, and one datum shifts it by 2 eta C/m at most"
        return Sensitivity(min(value, moved + 2 * self.tau), "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        def mean(w: Floats) -> Floats:
            return np.asarray(total(partial(self.surrogate.gradient, w)) / self.users)

        if self.steps is None:
            return certified(self.objective, mean, self.tau)
        return fixed(self.objective, mean, self.steps)

    def _rounding(self, steps: int) -> float:
        """Of plain descent: errors of a step, over the contraction."""
        objective, d = self.objective, self.domain.d
        far = self.domain.diameter + self.domain.radius
        error = UNIT * ((self.users + d + 4) * objective.lipschitz)
        error += UNIT * (d + 2) * objective.smoothness * self.domain.radius
        eta = 2 / (objective.smoothness + 2 * objective.strong)
        slope = objective.lipschitz + objective.strong * far
        stray = math.sqrt(self.domain.slack(eta * slope)) / (eta * objective.strong)
        # Each step is off by eta e and contracts by 1 - eta lambda: together e/lambda at most.
        return (2 * error + 4 * UNIT * far / eta) / objective.strong + stray
