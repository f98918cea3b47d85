"""The linear, logistic and hinge loss, and the quadratic of mean estimation."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import ROUNDING, Loss, refuse_rows
from shuffle_sim.arrays import Floats, Values, lengths
from shuffle_sim.errors import positive
from shuffle_sim.protocol.base import check_rows

PULL = 0.2784645427610738
"""W(1/e), of Lambert's function: the largest m sigmoid(-m)."""
_ANGLES = 20_001


@dataclass(frozen=True)
class Linear(LinearLoss):
    """phi = margin, whatever the label; on a ball the hard instance of stochastic descent."""

    twice_differentiable: ClassVar[bool] = True

    def value(self, margins: Floats, labels: Floats) -> Floats:
        return margins

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        return np.ones_like(margins)

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        return np.zeros_like(margins)

    def slope(self, reach: float) -> float:
        return 1.0

    def curvature(self) -> float | None:
        return 0.0


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """ln(1 + e^(-y margin)), labels -1 and +1."""

    classification: ClassVar[bool] = True
    twice_differentiable: ClassVar[bool] = True

    def value(self, margins: Floats, labels: Floats) -> Floats:
        return np.asarray(np.logaddexp(0.0, -labels * margins))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        with np.errstate(over="ignore"):  # 1/infinity is the limit
            odds = np.exp(labels * margins)
        odds += 1
        return np.asarray(-labels / odds)

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        return np.asarray(scipy.special.expit(margins) * scipy.special.expit(-margins))

    def pull(self) -> float:
        """sup of m sigmoid(-m) = W(1/e), at m = 1 + W(1/e) (Lambert)."""
        return PULL

    def minimiser_norm(self, ridge: float) -> float:
        """The largest rho with ridge rho^2 <= m sigmoid(-m), m <= B rho; equal rows attain it.

        The right side rises up to m = 1 + W(1/e).
        """
        far = math.sqrt(PULL / ridge) if ridge > 0 else math.inf
        # Beyond m = 1 + W(1/e) the pull falls again, and its maximum binds.
        if not ridge > 0 or self.features * far >= 1 + PULL:
            return far
        root: float = scipy.optimize.brentq(
            lambda rho: ridge * rho - self.features * scipy.special.expit(-self.features * rho),
            0.0,
            self.features / ridge,
            xtol=1e-300,
            rtol=1e-14,
        )
        # Outward: the root is a bound.
        return root * (1 + 1e-13)

    def gradient_diameter(self, radius: float) -> float:
        """max over t of 2 B sin(t) sigmoid(radius B cos(t)): two rows at angle t to theta.

        They mirror each other. On a grid, with what it may miss added.
        """
        angles, step = np.linspace(0, math.pi / 2, _ANGLES, retstep=True)
        reach = self.features * radius
        found = 2 * np.sin(angles) * scipy.special.expit(reach * np.cos(angles))
        # Between two angles the function is above the higher by at most its second derivative.
        bend = 2 * (1 + 2 * reach + reach * reach)
        return self.features * min(2.0, float(found.max()) + bend * step * step / 8)

    def swing(self, radius: float) -> float:
        """ln((1 + e^m)/(1 + e^-m)) = m, of the largest margin m."""
        return self.features * radius

    def slope(self, reach: float) -> float:
        """sigmoid(reach), below 1."""
        return float(scipy.special.expit(reach))

    def curvature(self) -> float | None:
        """1/4, at margin 0."""
        return 0.25


@dataclass(frozen=True)
class Hinge(LinearLoss):
    """max(0, 1 - y margin), labels -1 and +1."""

    classification: ClassVar[bool] = True

    def value(self, margins: Floats, labels: Floats) -> Floats:
        return np.asarray(np.maximum(0.0, 1 - labels * margins))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        """-y short of the margin, else 0."""
        # At the kink itself 0 is a subgradient, too.
        return np.where(labels * margins < 1, -labels, 0.0)

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        """The kink becomes a ramp of width ||x||^2/beta below it."""
        return labels * ramp(labels * margins - 1, squared_norms / beta, -1.0, 0.0)

    def kink(self, labels: Floats) -> tuple[Floats, Floats, float, float] | None:
        """At margin 1 on the label's side."""
        return labels, np.ones_like(labels), -1.0, 0.0

    def pull(self) -> float:
        return 1.0

    def swing(self, radius: float) -> float:
        """(1 + m) - max(0, 1 - m), of the largest margin m."""
        reach = self.features * radius
        return reach + min(1.0, reach)

    def slope(self, reach: float) -> float:
        return 1.0

    def curvature(self) -> float | None:
        return None


def ramp(offset: Floats, width: Floats, low: float, high: float) -> Floats:
    """The envelope's slope of a function with slopes `low` and `high` around a kink at offset 0."""
    return np.asarray(np.clip(offset / np.maximum(width, 1e-300), low, high))


@dataclass(frozen=True)
class MeanEstimation(Loss):
    """||theta - x||^2/2 for points x in the l2 ball of radius `points`; rows are the points.

    Attributes:
        points: l2 bound of the points; infinite: none.
    """

    points: float = 1.0
    clipping_is_convex: ClassVar[bool] = True  # along the line through x: a Huber function

    def __post_init__(self) -> None:
        if self.points != math.inf:
            positive("points", self.points)

    def columns(self, d: int) -> int:
        return d

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return np.asarray(((theta - rows) ** 2).sum(axis=1) / 2)

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        """theta - x, shrunk by beta/(1 + beta) in the envelope."""
        gradients = theta - rows
        return gradients if smoothing is None else gradients * (smoothing / (1 + smoothing))

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        return np.asarray(((thetas - rows) ** 2).sum(axis=1) / 2)

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        return thetas - rows

    def lipschitz(self, radius: float) -> float:
        return radius + self.points

    def gradient_diameter(self, radius: float) -> float:
        return 2 * self.points

    def pull(self) -> float:
        """<x - theta, theta> is at most ||x||^2/4."""
        return self.points**2 / 4

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        return np.asarray(np.hypot.reduce(rows, axis=1) + radius)

    def smoothness(self) -> float | None:
        return 1.0

    def strong_convexity(self) -> float:
        return 1.0

    def check(self, rows: NDArray[Any], d: int) -> None:
        check_rows(rows, (len(rows), d))
        refuse_rows(lengths(rows) > self.points * ROUNDING, f"of l2 norm at most {self.points:g}")
