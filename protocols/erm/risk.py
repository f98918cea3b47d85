"""What a trusted party minimises: the risk of rows, and how far a row moves its minimiser.

Docs: theory, Output perturbation, "Sensitivity".
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import Objective
from protocols.erm.smooth import ERM, LinearERM, SoftmaxERM
from protocols.problems.domains import Box, Domain, L2Ball, RealSpace, Simplex
from protocols.problems.held import hold_to_constants
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.multiclass import Softmax
from protocols.problems.problem import Problem, minimiser_norm
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive

Shape = tuple[str, int, tuple[float, ...]]
"""A domain in plain values: its name, its dimension and its numbers."""


@dataclass(frozen=True)
class Risk:
    """mean_i l(w; z_i) + (ridge/2) ||w||^2, minimised over R^d or a closed convex set.

    Attributes:
        loss: l.
        ridge: public.
        shape: of the domain, as `shape_of` gives it.

    Raises:
        ParameterError: no strong convexity, kinks without a certificate, no bound of the slopes.
    """

    loss: Loss
    ridge: float
    shape: Shape
    certified: ClassVar[bool] = True

    @classmethod
    def of(cls, problem: Problem, ridge: float | None = None, **own: Any) -> Self:
        """Of a problem, with its ridge or another.

        Raises:
            ParameterError: naming what would help.
        """
        if not isinstance(problem, Problem):
            raise ParameterError("problem", problem, "a Problem(loss, domain, ridge)")
        if problem.norm_bound is not None:
            allowed = "None: clipped gradients are those of no convex loss; clip rows"
            raise ParameterError("norm_bound", problem.norm_bound, allowed)
        if cls.certified:
            demand_certificate(problem.loss, problem.domain)
        chosen = problem.ridge if ridge is None else ridge
        return cls(problem.loss, chosen, shape_of(problem.domain), **own)

    def __post_init__(self) -> None:
        """Refuse what has no minimiser that moves a bounded distance."""
        if not self.strong_convexity > 0:
            allowed = "above 0: the minimiser of a convex loss may jump; give a ridge"
            raise ParameterError("ridge", self.ridge, allowed)
        positive("ridge", self.strong_convexity)
        if not math.isfinite(self.lipschitz):
            allowed = "finite: bound the labels, such as Squared(labels=1.0), or the domain"
            raise ParameterError("lipschitz", self.lipschitz, allowed)

    @cached_property
    def domain(self) -> Domain:
        """Where w may be."""
        return domain_of(self.shape)

    @property
    def d(self) -> int:
        """Parameters."""
        return self.domain.d

    @property
    def strong_convexity(self) -> float:
        """lambda."""
        return self.ridge + self.loss.strong_convexity()

    @cached_property
    def reach(self) -> float:
        """rho: no minimiser is longer, whatever the rows."""
        return minimiser_norm(self.loss, self.strong_convexity, self.domain)

    @cached_property
    def lipschitz(self) -> float:
        """L of one row's loss, without the ridge: over the domain, or at minimisers."""
        everywhere = self.lipschitz_within(self.domain.radius)
        # Squared loss over R^d: its slopes are bounded where minimisers are, and Lemma S asks for
        # no others.
        return everywhere if math.isfinite(everywhere) else self.lipschitz_within(self.reach)

    def lipschitz_within(self, radius: float) -> float:
        """L where ||w|| <= radius; infinite without a bound."""
        return self.loss.lipschitz(radius)

    @cached_property
    def swing(self) -> float:
        """How far one row's loss moves over the domain, at most; infinite without a bound."""
        domain = self.domain
        return min(self.lipschitz * domain.diameter, self.loss.swing(domain.radius))

    @property
    def smoothness(self) -> float:
        """beta_0 of one row's loss; infinite for kinks."""
        beta = self.loss.smoothness()
        return math.inf if beta is None else beta

    def sensitivity(self, n: int) -> tuple[float, str]:
        """(D, proof): how far apart the minimisers are of n rows that differ in one."""
        # Two rows' slopes at one minimiser, not 2 L: for logistic loss they are nearer
        # ("Sensitivity").
        apart = self.loss.gradient_diameter(self.reach)
        moved = apart / (self.strong_convexity * n)
        proof = "Lemma S: the rows' slopes at one minimiser are at most G apart, over lambda n"
        return min(moved, self.domain.diameter), proof

    def objective(self, rows: Floats) -> Objective:
        """The function of the rows, to be minimised."""
        return erm(self.loss, rows, self.ridge, self.domain)

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows for which the constants do not hold, and a loss that is seen to be false."""
        self.loss.check(rows, self.d)
        radius = self.domain.radius if self.domain.bounded else self.reach
        hold_to_constants(self.loss, rows, self.d, radius)


def erm(
    loss: Loss,
    rows: Floats,
    ridge: float,
    domain: Domain,
    centre: Floats | None = None,
    linear: Floats | None = None,
) -> Objective:
    """The empirical risk of a loss, by the class that knows most of it; arguments as of `ERM`.

    Raises:
        ParameterError: no strong convexity, or kinks without a certificate.
    """
    kind: type[ERM] = ERM
    if isinstance(loss, Softmax):
        kind = SoftmaxERM
    elif isinstance(loss, LinearLoss):
        kind = LinearERM if loss.curvature() is not None else KinkedERM
    demand_certificate(loss, domain)
    return kind(loss, rows, ridge, domain, centre, linear)


def demand_certificate(loss: Loss, domain: Domain) -> None:
    """Refuse a loss with kinks for which no certificate of a minimiser is known, or none in time.

    Raises:
        ParameterError: naming what would help.
    """
    if loss.smoothness() is not None:
        return
    if not isinstance(loss, LinearLoss) or loss.kink(np.ones(1)) is None:
        allowed = "smooth, or a LinearLoss with `kink`: its minimiser can be certified then"
        raise ParameterError("loss", loss, allowed)
    if not isinstance(domain, RealSpace | L2Ball):
        allowed = "RealSpace or L2Ball for a loss with kinks: they are certified fast there alone"
        raise ParameterError("domain", type(domain).__name__, allowed)


def shape_of(domain: Domain) -> Shape:
    """The domain in plain values.

    Raises:
        ParameterError: a domain without exact projections, or one that has no plain values.
    """
    if isinstance(domain, RealSpace):
        return "real", domain.d, ()
    if isinstance(domain, L2Ball):
        return "ball", domain.d, (domain.size, *domain.center.tolist())
    if isinstance(domain, Box):
        return "box", domain.d, (*domain.lower.tolist(), *domain.upper.tolist())
    if isinstance(domain, Simplex):
        return "simplex", domain.d, (domain.total,)
    allowed = "one of exact projections: RealSpace, L2Ball, Box or Simplex"
    raise ParameterError("domain", type(domain).__name__, allowed)


def domain_of(shape: Shape) -> Domain:
    """The domain again."""
    name, d, numbers = shape
    if name == "real":
        return RealSpace(d)
    if name == "ball":
        return L2Ball(d, numbers[0], np.array(numbers[1:]))
    if name == "box":
        return Box(d, np.array(numbers[:d]), np.array(numbers[d:]))
    return Simplex(d, numbers[0])
