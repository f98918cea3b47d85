"""Tilted empirical risk (Li, Beirami, Sanjabi and Smith 2021): hard rows weigh more."""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from protocols.erm.objective import UNIT, Objective, gradient_rounding, mean_of_rows
from protocols.erm.risk import Risk
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.problem import minimiser_norm
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError, positive


class TiltedObjective(Objective):
    """(1/tilt) ln mean_i e^{tilt l(w; z_i)} + (ridge/2) ||w||^2, for a smooth convex loss."""

    def __init__(
        self, loss: LinearLoss, rows: Floats, ridge: float, domain: Domain, tilt: float
    ) -> None:
        """Of rows as the loss takes them; tilt is above 0."""
        self.loss, self.rows, self.ridge = loss, np.asarray(rows, np.float64), ridge
        self.domain, self.tilt, self.n = domain, positive("tilt", tilt), len(rows)
        self.strong_convexity = positive("ridge", ridge)
        self._far = minimiser_norm(loss, ridge, domain)
        self._slope = loss.lipschitz(self._far)
        self.smoothness = (loss.smoothness() or 0.0) + tilt * self._slope**2 + ridge

    def value(self, w: Floats) -> float:
        losses = self.tilt * self.loss.values(w, self.rows)
        mean = float(scipy.special.logsumexp(losses)) - math.log(self.n)
        return mean / self.tilt + self.ridge / 2 * float(w @ w)

    def _weights(self, w: Floats) -> Floats:
        return np.asarray(scipy.special.softmax(self.tilt * self.loss.values(w, self.rows)))

    def gradient(self, w: Floats) -> Floats:
        gradients = dense(self.loss.gradients(w, self.rows, None))
        return np.asarray(mean_of_rows(self._weights(w) * self.n, gradients) + self.ridge * w)

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        rows = self.rows[::stride]
        x, y = rows[:, :-1], rows[:, -1]
        weights = scipy.special.softmax(self.tilt * self.loss.values(w, rows))
        bends = self.loss.second(x @ w, y)
        if bends is None:
            return None
        slopes = self.loss.derivative(x @ w, y)
        mean = (weights * slopes) @ x
        square = weights * (bends + self.tilt * slopes**2)
        found = (x * square[:, None]).T @ x - self.tilt * np.outer(mean, mean)
        return np.asarray(found + self.ridge * np.eye(self.d))

    def rounding(self, w: Floats) -> float:
        norm = float(np.linalg.norm(w))
        slope = self.loss.lipschitz(norm)
        largest = float(np.abs(self.loss.values(w, self.rows)).max())
        return self._error(norm, slope, largest)

    def _error(self, norm: float, slope: float, largest: float) -> float:
        losses = self.tilt * ((self.d + 2) * slope * norm + 8 * largest)
        weights = 4 * UNIT * slope * (losses + 16 + math.log2(self.n + 1))
        beta = self.loss.smoothness() or 0.0
        return weights + gradient_rounding(self.n, self.d, slope, beta, self.ridge, norm)

    @property
    def least_radius(self) -> float:
        """Of the gradient's errors where minimisers are; a loss there is below l(0) + L w.

        l(0) is that of the worst label, not of the rows' own: what is refused is public.
        """
        size = 1.0 if self.loss.classification else self.loss.label_bound
        labels = np.array([-size, size])
        largest = self._slope * self._far
        largest += float(np.abs(self.loss.value(np.zeros(2), labels)).max())
        return self._error(self._far, self._slope, largest) / self.ridge


@dataclass(frozen=True)
class TiltedRisk(Risk):
    """The tilted risk.

    Attributes:
        tilt: tau, above 0; the plain risk is its limit at 0.
    """

    tilt: float = 1.0

    def __post_init__(self) -> None:
        positive("tilt", self.tilt)
        super().__post_init__()
        if not math.isfinite(self.smoothness) or not isinstance(self.loss, LinearLoss):
            raise ParameterError("loss", self.loss, "a smooth LinearLoss, such as Logistic()")
        if self.loss.strong_convexity():
            raise ParameterError("loss", self.loss, "one without strong convexity of its own")

    @property
    def smoothness(self) -> float:
        """beta_0 + tilt L^2: the mean second derivative, and the gradients' covariance."""
        return super().smoothness + self.tilt * self.lipschitz_within(self.domain.radius) ** 2

    def spread(self, radius: float) -> float:
        """How far apart two rows' losses are at one w, ||w|| <= radius, at most."""
        assert isinstance(self.loss, LinearLoss)
        reach = self.loss.features * radius
        margins = np.array([-reach, reach])
        if self.loss.classification:
            low, high = self.loss.value(-margins, np.ones(2))
            return float(high - low) if high > low else float(low - high)
        labels = np.full(2, self.loss.label_bound)
        return float(self.loss.value(margins, labels).max())

    def factor(self, n: int, radius: float) -> float:
        """C/(n - 1 + C), C = e^{tilt spread}: no row's tilted weight is larger."""
        exponent = self.tilt * self.spread(radius)
        return 1 / (1 + (n - 1) * math.exp(-exponent))

    def sensitivity(self, n: int) -> tuple[float, str]:
        """(2 L/lambda) C/(n - 1 + C)."""
        moved = 2 * self.loss.lipschitz(self.reach) / self.ridge * self.factor(n, self.reach)
        proof = "a row's tilted weight is at most C/(n - 1 + C), C = e^(tilt spread); Lemma S"
        return min(moved, self.domain.diameter, 2 * self.reach), proof

    def objective(self, rows: Floats) -> Objective:
        assert isinstance(self.loss, LinearLoss)
        return TiltedObjective(self.loss, rows, self.ridge, self.domain, self.tilt)
