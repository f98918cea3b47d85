"""What is to be minimised: a convex loss over a bounded domain, with a public ridge if wanted.

Users are asked for gradients of the loss alone; the analyzer adds the ridge's gradient itself, at
no privacy and no noise.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from protocols.problems.domains import Domain
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.data.persons import MOST_RECORDS
from shuffle_sim.errors import ParameterError, integer, positive, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Query


@dataclass(frozen=True)
class Gradient(Query):
    """Asks for the gradient of a loss at theta, or of its Moreau envelope.

    Attributes:
        loss: the loss.
        theta: where.
        smoothing: beta of the envelope; None: the loss itself.
    """

    loss: Loss
    theta: Floats
    smoothing: float | None = None
    moves: ClassVar[tuple[str, ...]] = ("theta",)

    def __call__(self, rows: Floats) -> Values:
        return self.loss.gradients(self.theta, np.asarray(rows, np.float64), self.smoothing)


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and value == math.inf


@dataclass(frozen=True)
class Problem:
    """Minimise E l(theta; row) + (ridge/2) ||theta||^2 over a domain.

    Attributes:
        loss: l, convex.
        domain: where theta may be.
        ridge: kappa; makes the objective kappa-strongly convex.
        start: where optimisation starts; None: the domain's centre.
        norm_bound: a bound L of the gradients that replaces the loss's own; longer ones are clipped
            on the user's side. Infinite: none is known, and only algorithms that choose a clip for
            moments take the problem (`HeavyTailedERM`).
        declared_smoothness: a beta that replaces the loss's own in what is planned; infinite: as
            of a loss with kinks. What is declared serves bounds of utility, never privacy.
        declared_spread: a bound of how far any user's gradient is from the population's mean, if
            below L: less sampling noise to plan for (0: users are all alike, only privacy's noise
            counts). Where users are persons, it speaks of one record's gradient.
        declared_root: G_2, a bound of the root mean square length of users' gradients, if below L.
        records: m, how many records a person nominally has; public, and no person's own number.
            As many of a person's records count, its first ones (`most_records`).
        constant: of linear models: the value of the last feature, public and the same in all rows,
            for the intercept. Given it, tuned steps may center the others. None: there is none.
    """

    loss: Loss
    domain: Domain
    ridge: float = 0.0
    start: Floats | None = None
    norm_bound: float | None = None
    declared_smoothness: float | None = None
    declared_spread: float | None = None
    declared_root: float | None = None
    records: int = 1
    constant: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not convex, not bounded or not Lipschitz."""
        if not isinstance(self.loss, Loss):
            raise ParameterError("loss", self.loss, "a Loss, such as Logistic()")
        if not isinstance(self.domain, Domain):
            raise ParameterError(
                "domain", self.domain, "a bounded convex Domain, such as L2Ball(d, radius)"
            )
        real("ridge", self.ridge, 0.0, math.inf, closed=(True, False))
        integer("records", self.records)
        if self.constant is not None:
            positive("constant", self.constant)
        if not (self.norm_bound is None or _infinite(self.norm_bound)):
            positive("norm_bound", self.norm_bound)
        for name, value in (
            ("declared_smoothness", self.declared_smoothness),
            ("declared_spread", self.declared_spread),
            ("declared_root", self.declared_root),
        ):
            if not (value is None or _infinite(value)):
                real(name, value, 0.0, math.inf, closed=(True, True))
        if not 0 <= self.loss.strong_convexity() < math.inf:
            raise ParameterError(
                "strong_convexity",
                self.loss.strong_convexity(),
                "at least 0: the loss must be convex",
            )
        beta = self.loss.smoothness()
        if beta is not None and not max(0.0, self.loss.strong_convexity()) <= beta < math.inf:
            raise ParameterError(
                "smoothness",
                beta,
                "at least the strong convexity, or None for a loss that is not smooth",
            )
        if not self.domain.bounded and not self.strong_convexity > 0:
            allowed = "above 0 over R^d, where else there may be no minimiser; or give a domain"
            raise ParameterError("ridge", self.ridge, allowed)
        if not 0 < self.lipschitz < math.inf and self.norm_bound != math.inf:
            allowed = (
                "finite and above 0: bound the features, the labels and the domain, or give "
                "norm_bound (infinite for algorithms that choose a clip by moments)"
            )
            raise ParameterError("lipschitz", self.lipschitz, allowed)
        # Privacy takes the loss's own constants: they are held against its values here.
        self.loss.verify(self.size)
        if self.start is not None:
            start = np.asarray(self.start, np.float64)
            if start.shape != (self.d,) or not np.isfinite(start).all():
                raise ParameterError("start", self.start, f"{self.d} finite numbers")
            # `reach` takes the diameter, which bounds no distance from outside.
            object.__setattr__(self, "start", self.domain.project(start))

    @property
    def d(self) -> int:
        """Number of parameters."""
        return self.domain.d

    @property
    def origin(self) -> Floats:
        """Where optimisation starts."""
        return self.domain.center if self.start is None else self.start

    @property
    def reach(self) -> float:
        """Distance from the start to the minimiser at most."""
        # Over an intersection either may be the smaller.
        return min(self.domain.reach(self.origin), self.domain.diameter)

    @cached_property
    def lipschitz(self) -> float:
        """L of what users send; over R^d, of what minimisers see."""
        return self.loss.lipschitz(self.size) if self.norm_bound is None else self.norm_bound

    @cached_property
    def size(self) -> float:
        """No point of the domain, or over R^d no minimiser of any rows, has a larger norm."""
        if self.domain.bounded:
            return self.domain.radius
        return minimiser_norm(self.loss, self.strong_convexity, self.domain)

    @cached_property
    def objective_lipschitz(self) -> float:
        """L of the objective, with the ridge."""
        return self.lipschitz + self.ridge * self.domain.radius

    @property
    def root(self) -> float:
        """Root of the second moment of what users send: L, or as declared; for bounds alone."""
        return (
            self.lipschitz
            if self.declared_root is None
            else min(self.lipschitz, self.declared_root)
        )

    @property
    def objective_root(self) -> float:
        """Of the objective's gradients, with the ridge."""
        return self.root + self.ridge * self.domain.radius

    @property
    def smooth(self) -> bool:
        """Whether the objective is planned for as smooth."""
        return self.planned_smoothness() < math.inf

    @property
    def spread(self) -> float:
        """Root of the bound of the variance of one user's gradient, a mean over its records.

        It is L, or as declared, over sqrt(m); for bounds alone.
        """
        length, declared = self.lipschitz, self.declared_spread
        return (length if declared is None else min(length, declared)) / math.sqrt(self.records)

    def smoothness(self, smoothing: float | None = None) -> float:
        """beta of the objective, or of its envelope, by the loss's own; infinite for kinks."""
        return self._beta(self.loss.smoothness(), smoothing)

    def planned_smoothness(self, smoothing: float | None = None) -> float:
        """As `smoothness`, by what is declared: for steps and bounds, never for privacy."""
        beta = self.declared_smoothness
        return self._beta(self.loss.smoothness() if beta is None else beta, smoothing)

    def _beta(self, *bounds: float | None) -> float:
        # An envelope is never rougher than its loss: the smaller of both.
        return min((each for each in bounds if each is not None), default=math.inf) + self.ridge

    @property
    def most_records(self) -> int:
        """How many records of a person count: m, or 1,024 where none is stated."""
        return self.records if self.records > 1 else MOST_RECORDS

    @property
    def strong_convexity(self) -> float:
        """lambda of the objective, with the ridge."""
        return self.loss.strong_convexity() + self.ridge

    def risk(self, theta: Floats, rows: Floats) -> float:
        """The objective on `rows`."""
        return float(self.loss.values(theta, rows).mean()) + self.ridge / 2 * float(theta @ theta)


def minimiser_norm(loss: Loss, strong_convexity: float, domain: Domain) -> float:
    """rho: no minimiser of loss + ridge over the domain is longer, whatever the rows.

    Source: docs, theory, Output perturbation, "Sensitivity". At a minimiser w the slope along w is
    not positive. Needs 0 in the domain.
    """
    # Without 0 in the domain <slope, w> <= 0 does not hold at minimisers.
    if not strong_convexity > 0 or np.any(domain.project(np.zeros(domain.d))):
        return domain.radius
    ridge = strong_convexity - loss.strong_convexity()
    return min(domain.radius, loss.minimiser_norm(ridge))


def demand_bounded(problem: Problem) -> None:
    """Refuse R^d and gradients without a bound, where an algorithm needs a diameter and L.

    Raises:
        ParameterError: the domain or the gradients are not bounded.
    """
    if not problem.lipschitz < math.inf:
        raise ParameterError("norm_bound", problem.lipschitz, "finite for this algorithm")
    demand_diameter(problem)


def demand_diameter(problem: Problem) -> None:
    """Refuse R^d, where steps, phases or a clip rest on a diameter.

    Raises:
        ParameterError: the domain is not bounded.
    """
    if not problem.domain.bounded:
        allowed = "bounded for this algorithm, such as L2Ball(d, radius)"
        raise ParameterError("domain", type(problem.domain).__name__, allowed)


def demand_near(problem: Problem, most: float) -> None:
    """Refuse a domain so far from 0 that doubles do not tell its points apart.

    Args:
        problem: whose domain is bounded.
        most: norm of its points over its diameter.

    Raises:
        ParameterError: it is farther.
    """
    domain = problem.domain
    if domain.radius > most * domain.diameter:
        allowed = f"within {most:g} times its diameter of 0: move it, and the data"
        raise ParameterError("domain", type(domain).__name__, allowed)


def demand_slope(problem: Problem) -> None:
    """Refuse a loss without a bound of its own, where minimisers are computed: a clip is none.

    Raises:
        ParameterError: slopes that no rows bound.
    """
    if not problem.loss.lipschitz(problem.size) < math.inf:
        allowed = "of bounded slope over the domain: bound its features, points or labels"
        raise ParameterError("loss", problem.loss, allowed)


def demand(problem: Problem, privacy: Privacy) -> None:
    """Refuse what is not a problem, or not a privacy target.

    Raises:
        ParameterError: naming which.
    """
    if not isinstance(problem, Problem):
        raise ParameterError("problem", problem, "a Problem(loss, domain)")
    if not isinstance(privacy, Privacy):
        raise ParameterError("privacy", privacy, "a Privacy(epsilon, delta)")
