"""Strongly convex functions that are minimised to a promised radius: what solvers ask of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protocols.problems.domains import Domain
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive

UNIT = 2.0**-53
"""Unit roundoff of doubles."""
BLOCK = 4096
"""Rows that are added in floating point; the sums of blocks are joined without error."""

DIGITS = 1e4
"""What is larger than a domain, or than what a loss changes by on it, by more than this is refused:
changes have too few digits left beside it."""


def most_loss(slope: float, wide: float) -> float:
    """The largest loss of a row in the middle of a domain beside which its changes have digits."""
    return max(DIGITS * slope * wide, 100.0)


class Objective(ABC):
    """F: convex, and strongly convex with a known constant, over R^d or a closed convex set.

    Attributes:
        domain: where minimisers are looked for; `RealSpace(d)` for all of R^d.
        strong_convexity: lambda of F, above 0.
        smoothness: beta of F; infinite where F has kinks.
        n: rows behind it, for counting; 1 where it has none.
    """

    domain: Domain
    strong_convexity: float
    smoothness: float
    n: int = 1

    @property
    def d(self) -> int:
        """Number of parameters."""
        return self.domain.d

    @property
    def start(self) -> Floats:
        """Where solvers start; theirs to change."""
        return self.domain.center.copy()

    @abstractmethod
    def value(self, w: Floats) -> float:
        """F(w)."""

    @abstractmethod
    def gradient(self, w: Floats) -> Floats:
        """A subgradient of F at w, shape (d,)."""

    @abstractmethod
    def rounding(self, w: Floats) -> float:
        """Bound of the l2 error of the computed `gradient(w)` (`gradient_rounding` is one)."""

    @property
    @abstractmethod
    def least_radius(self) -> float:
        """What rounding errors may add to a certificate's radius, for any data; public."""

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Both, where they share work."""
        return self.value(w), self.gradient(w)

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """The second derivative (d, d), or one of every stride-th row; None where not known."""
        return None


class FiniteSum(Objective):
    """F = mean over n rows of f_i + a quadratic: what stochastic solvers ask for.

    Attributes:
        row_smoothness: beta_0, of every f_i; infinite where one has kinks.
    """

    row_smoothness: float

    @abstractmethod
    def row_gradients(self, w: Floats, rows: NDArray[np.int64]) -> Floats:
        """Subgradients of f_i at w for these rows, shape (len(rows), d)."""

    @abstractmethod
    def regulariser_gradient(self, w: Floats) -> Floats:
        """Of the quadratic, lambda (w - centre) + linear."""

    @abstractmethod
    def regulariser_step(self, w: Floats, step: float) -> Floats:
        """The minimiser of the quadratic + ||. - w||^2/(2 step) over the domain."""


class Kinked(Objective):
    """An objective with kinks, and a certificate for them.

    Near a minimiser subgradients are not small, so the residual says nothing. It is the smoothed
    problem's dual point that does.
    """

    @abstractmethod
    def smoothed(self, width: float) -> Objective:
        """A smooth objective that tends to this one with the width."""

    @abstractmethod
    def witness(self, w: Floats, width: float) -> tuple[Floats, float]:
        """(u, r): a point u of the domain, at most r from the minimiser; any w and width do.

        It is good where w is a minimiser of `smoothed(width)` and the width small. Floating point
        is in r.
        """

    @property
    @abstractmethod
    def width(self) -> float:
        """The largest width worth trying."""


def mean_of_rows(factors: Floats, rows: Floats) -> Floats:
    """factors @ rows / n; blocks of BLOCK rows are joined by sums without rounding errors.

    Args:
        factors: (n,).
        rows: (n, d).
    """
    n, d = rows.shape
    # Sums of 10^6 rows in one go would be off by 10^6 roundings: blocks keep `gradient_rounding`
    # small.
    whole = n - n % BLOCK
    if not whole:
        return np.asarray(factors @ rows / n)
    blocks = rows[:whole].reshape(-1, BLOCK, d)
    parts = np.matmul(factors[:whole].reshape(-1, 1, BLOCK), blocks)[:, 0, :]
    parts = np.concatenate([parts, (factors[whole:] @ rows[whole:])[None]])
    sums = np.array([math.fsum(column) for column in parts.T])
    return np.asarray(sums / n)


def gradient_rounding(
    n: int, d: int, lipschitz: float, smoothness: float, ridge: float, norm: float
) -> float:
    """Bound of the error of a mean of n gradients of a linear model in doubles (l2).

    Sums of n terms in any order, or of blocks by `mean_of_rows`; margins to (d + 2) u B ||w||.

    Args:
        n: rows.
        d: parameters.
        lipschitz: L of every row's loss.
        smoothness: beta_0 of every row's loss; infinite: kinks, where margins do not matter.
        ridge: lambda.
        norm: of w.

    Source: Higham (2002), sections 3.1 and 4.2.
    """
    terms = min(n, BLOCK + 4) + d + 4
    margins = 0.0 if math.isinf(smoothness) else (d + 2) * smoothness * norm
    return UNIT * (terms * lipschitz + margins + 4 * ridge * norm)


def demand_convex(objective: Objective) -> None:
    """Refuse what is not strongly convex.

    Raises:
        ParameterError: no Objective, or lambda not above 0.
    """
    if not isinstance(objective, Objective):
        raise ParameterError("objective", objective, "an Objective, such as LinearERM(...)")
    positive("strong_convexity", objective.strong_convexity)


def as_point(w: Sequence[float] | Floats, d: int) -> Floats | None:
    """`w` as d finite floats, or None."""
    try:
        point = np.asarray(w, np.float64).reshape(-1)
    except (TypeError, ValueError):
        return None
    return point if point.shape == (d,) and np.isfinite(point).all() else None
