"""Tilted empirical risk (Li, Beirami, Sanjabi and Smith 2021): hard rows weigh more."""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from protocols.erm.objective import UNIT, Objective, gradient_rounding, mean_of_rows
from protocols.erm.risk import Risk
from protocols.erm.smooth import probabilities, softmax_bend
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.multiclass import Softmax
from protocols.problems.problem import minimiser_norm
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError, positive

_MARGINS = 257  # at which losses are looked at, to bound them from below


class TiltedObjective(Objective):
    """(1/tilt) ln mean_i e^{tilt l(w; z_i)} + (ridge/2) ||w||^2, for a smooth convex loss."""

    def __init__(
        self, loss: LinearLoss | Softmax, rows: Floats, ridge: float, domain: Domain, tilt: float
    ) -> None:
        """Of rows as the loss takes them; tilt is above 0."""
        self.loss, self.rows, self.ridge = loss, np.asarray(rows, np.float64), ridge
        self.domain, self.tilt, self.n = domain, positive("tilt", tilt), len(rows)
        self.strong_convexity = positive("ridge", ridge)
        self._far = minimiser_norm(loss, ridge, domain)
        self._slope = loss.lipschitz(self._far)
        # The mean second derivative, and tilt times the covariance of slopes up to L.
        self.smoothness = (loss.smoothness() or 0.0) + tilt * self._slope**2 + ridge

    def value(self, w: Floats) -> float:
        losses = self.tilt * self.loss.values(w, self.rows)
        mean = float(scipy.special.logsumexp(losses)) - math.log(self.n)
        return mean / self.tilt + self.ridge / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        gradients = dense(self.loss.gradients(w, self.rows, None))
        weights = scipy.special.softmax(self.tilt * self.loss.values(w, self.rows))
        return np.asarray(mean_of_rows(weights * self.n, gradients) + self.ridge * w)

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """The rows' second derivatives and the covariance of their slopes, both weighted."""
        rows = self.rows[::stride]
        x, y = rows[:, :-1], rows[:, -1]
        weights = scipy.special.softmax(self.tilt * self.loss.values(w, rows))
        if isinstance(self.loss, Softmax):
            bend = softmax_bend(x, probabilities(x, w), weights)
        else:
            bends = self.loss.second(x @ w, y)
            if bends is None:
                return None
            bend = (x * (weights * bends)[:, None]).T @ x
        slopes = dense(self.loss.gradients(w, rows, None))
        slopes = slopes - weights @ slopes
        spread = (slopes * weights[:, None]).T @ slopes
        return np.asarray(bend + self.tilt * spread + self.ridge * np.eye(self.d))

    def rounding(self, w: Floats) -> float:
        norm = float(np.linalg.norm(w))
        slope = self.loss.lipschitz(norm)
        largest = float(np.abs(self.loss.values(w, self.rows)).max())
        return self._error(norm, slope, largest)

    def _error(self, norm: float, slope: float, largest: float) -> float:
        losses = self.tilt * ((self.d + 2) * slope * norm + 8 * largest)
        if isinstance(self.loss, Softmax):  # a difference of two numbers as large as the scores
            losses += 8 * self.tilt * (self.loss.classes + self.loss.features * norm)
        # A weight is off relatively by what its exponent is off absolutely, and by the sum it is
        # divided by.
        weights = 4 * UNIT * slope * (losses + 16 + math.log2(self.n + 1))
        beta = self.loss.smoothness() or 0.0
        return weights + gradient_rounding(self.n, self.d, slope, beta, self.ridge, norm)

    @property
    def least_radius(self) -> float:
        """Of the gradient's errors where minimisers are; a loss there is below l(0) + L w.

        l(0) is that of the worst label, not of the rows' own: what is refused is public.
        """
        largest = self._slope * self._far
        if isinstance(self.loss, Softmax):
            largest += math.log(self.loss.classes)
        else:
            size = 1.0 if self.loss.classification else self.loss.label_bound
            labels = np.array([-size, size])
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
        if not math.isfinite(self.smoothness) or not isinstance(self.loss, LinearLoss | Softmax):
            allowed = "a smooth LinearLoss, such as Logistic(), or Softmax(classes)"
            raise ParameterError("loss", self.loss, allowed)
        if self.loss.strong_convexity():
            raise ParameterError("loss", self.loss, "one without strong convexity of its own")

    @property
    def smoothness(self) -> float:
        """beta_0 + tilt L^2: the mean second derivative, and the gradients' covariance."""
        return super().smoothness + self.tilt * self.lipschitz_within(self.domain.radius) ** 2

    def spread(self, radius: float) -> float:
        """How far apart two rows' losses are at one w, ||w|| <= radius, at most.

        Of labels the ends count, and 0: `Loss.verify` looks at the same.
        """
        assert isinstance(self.loss, LinearLoss | Softmax)
        reach = self.loss.features * radius
        if isinstance(self.loss, Softmax):
            return softmax_spread(self.loss.classes, reach)
        size = 1.0 if self.loss.classification else self.loss.label_bound
        labels = np.array([-size, size] if self.loss.classification else [-size, 0.0, size])
        inner = labels[np.abs(labels) < reach]
        margins = np.unique(np.append(np.linspace(-reach, reach, _MARGINS), inner))
        pairs = [each.ravel() for each in np.meshgrid(margins, labels)]
        shape = len(labels), len(margins)
        with np.errstate(invalid="ignore"):  # labels without a bound
            values, slopes = self.loss.value(*pairs), self.loss.derivative(*pairs)
            return _span(margins, values.reshape(shape), slopes.reshape(shape))

    def factor(self, n: int, radius: float) -> float:
        """C/(n - 1 + C), C = e^{tilt spread}: no row's tilted weight is larger."""
        exponent = self.tilt * self.spread(radius)
        # C/(n - 1 + C) without e^exponent, which may overflow.
        return 1 / (1 + (n - 1) * math.exp(-exponent))

    def sensitivity(self, n: int) -> tuple[float, str]:
        """(2 L/lambda) C/(n - 1 + C)."""
        moved = 2 * self.loss.lipschitz(self.reach) / self.ridge * self.factor(n, self.reach)
        proof = "a row's tilted weight is at most C/(n - 1 + C), C = e^(tilt spread); Lemma S"
        return min(moved, self.domain.diameter, 2 * self.reach), proof

    def objective(self, rows: Floats) -> Objective:
        assert isinstance(self.loss, LinearLoss | Softmax)
        return TiltedObjective(self.loss, rows, self.ridge, self.domain, self.tilt)


def _span(margins: Floats, values: Floats, slopes: Floats) -> float:
    """The largest of convex functions on an interval less a bound of the least.

    They are highest at its ends, and nowhere below both tangents of a cell.

    Args:
        margins: ends of cells, (margins,).
        values: of each function there, (functions, margins).
        slopes: likewise.
    """
    width = np.diff(margins)
    rise = slopes[:, 1:] - slopes[:, :-1]
    # Where the tangents of both ends meet; flat ones are lines.
    ahead = values[:, 1:] - slopes[:, 1:] * width - values[:, :-1]
    at = np.divide(-ahead, rise, out=np.zeros_like(rise), where=rise > 0)
    least = values[:, :-1] + slopes[:, :-1] * np.clip(at, 0.0, width)
    found = values.max() - min(least.min(), values.min())
    return float(found) if np.isfinite(found) else math.inf


def softmax_spread(classes: int, reach: float) -> float:
    """Bound of a largest softmax loss less a least one, scores of l2 norm up to `reach`.

    Exact for two classes: sqrt(2) reach. The least is ln(1 + (K - 1) e^(-reach sqrt(K/(K - 1)))),
    by Jensen. The largest is at most that with e^(sqrt(2) reach), as no two scores are further
    apart. With b the norm of the others' scores and s_y = -a it is also at most the maximum over
    a^2 + b^2 = reach^2 of ln(1 + e^a (e^b + K - 2 + (sqrt(K - 1) - 1) b)): e^t <= 1 + t + (t/b)^2
    (e^b - 1 - b) for t <= b. Cells of a take the upper end for a and the lower for b.
    """
    others = classes - 1
    least = np.logaddexp(0.0, math.log(others) - reach * math.sqrt(classes / others))
    # The bound rises in a and in b, and b falls with a: ends of a cell of both bound what is
    # inside.
    a = np.linspace(0.0, reach, 4097)
    b = np.sqrt(np.maximum(reach**2 - a**2, 0.0))[:-1]
    with np.errstate(divide="ignore"):  # two classes: no others
        rest = np.log(others - 1 + (math.sqrt(others) - 1) * b)
    most = float(np.logaddexp(0.0, a[1:] + np.logaddexp(b, rest)).max())
    apart = float(np.logaddexp(0.0, math.log(others) + math.sqrt(2) * reach))
    return min(most, apart) - float(least)
