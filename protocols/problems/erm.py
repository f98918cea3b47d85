"""Empirical risk of a loss with a public ridge: the objectives of rows."""

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.problems.domains import Domain, L2Ball, RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.objective import (
    BLOCK,
    UNIT,
    FiniteSum,
    Kinked,
    Objective,
    gradient_rounding,
    mean_of_rows,
)
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError, positive, real

_WORTH = 1 << 22  # numbers that a Hessian's block of rows holds
_REFINED = 2


class ERM(FiniteSum):
    """mean_i l(w; z_i) + (ridge/2) ||w - centre||^2 + <linear, w> over R^d or a domain.

    Any `Loss` does; linear models are faster by `LinearERM`.
    """

    def __init__(
        self,
        loss: Loss,
        rows: Floats,
        ridge: float,
        domain: Domain,
        centre: Floats | None = None,
        linear: Floats | None = None,
    ) -> None:
        """Of rows as the loss takes them.

        Args:
            loss: l.
            rows: (n, columns), finite.
            ridge: lambda; above 0 unless the loss is strongly convex.
            domain: where w may be.
            centre: of the ridge; None: 0.
            linear: a public or secret linear term, (d,); None: 0.

        Raises:
            ParameterError: no strong convexity.
        """
        self.loss, self.domain = loss, domain
        self.ridge = real("ridge", ridge, 0.0, math.inf, closed=(True, False))
        self.rows = np.asarray(rows, np.float64)
        self.n = len(self.rows)
        self.strong_convexity = positive("ridge", ridge + loss.strong_convexity())
        beta = loss.smoothness()
        self.row_smoothness = math.inf if beta is None else beta
        self.smoothness = self.row_smoothness + ridge
        self.centre = np.zeros(domain.d) if centre is None else centre
        self.linear = np.zeros(domain.d) if linear is None else linear

    def value(self, w: Floats) -> float:
        """F(w)."""
        return float(self.loss.values(w, self.rows).mean()) + self._quadratic(w)

    def gradient(self, w: Floats) -> Floats:
        """A subgradient."""
        gradients = dense(self.loss.gradients(w, self.rows, None))
        mean = mean_of_rows(np.ones(self.n), gradients)
        return np.asarray(mean + self.regulariser_gradient(w))

    def rounding(self, w: Floats) -> float:
        """As of a linear model."""
        norm = float(np.linalg.norm(w))
        lipschitz = self.loss.lipschitz(norm)
        error = gradient_rounding(
            self.n, self.d, lipschitz, self.row_smoothness, self.ridge, norm + self._offset
        )
        return error + 4 * UNIT * float(np.linalg.norm(self.linear))

    @property
    def least_radius(self) -> float:
        """Of the gradient's errors where minimisers are."""
        error = gradient_rounding(
            self.n,
            self.d,
            self.loss.lipschitz(self.reach),
            self.row_smoothness,
            self.ridge,
            self.reach + self._offset,
        )
        return error / self.strong_convexity

    @property
    def reach(self) -> float:
        """No minimiser has a larger norm: lambda ||w - centre|| is at most a slope."""
        size = self.domain.radius
        if math.isfinite(size):
            return size
        # At the centre a row's slope is that of margins up to B ||centre||; F falls towards w*.
        pull = self.loss.lipschitz(self._offset) + float(np.linalg.norm(self.linear))
        return self._offset + pull / self.strong_convexity

    def row_gradients(self, w: Floats, rows: NDArray[np.int64]) -> Floats:
        """Of the loss alone."""
        return dense(self.loss.gradients(w, self.rows[rows], None))

    def regulariser_gradient(self, w: Floats) -> Floats:
        """lambda (w - centre) + linear."""
        return np.asarray(self.ridge * (w - self.centre) + self.linear)

    def regulariser_step(self, w: Floats, step: float) -> Floats:
        """The proximal step; the projection of the one over R^d, as both terms are round."""
        far = (w + step * (self.ridge * self.centre - self.linear)) / (1 + step * self.ridge)
        return self.domain.project(far)

    @property
    def _offset(self) -> float:
        return float(np.linalg.norm(self.centre))

    def _quadratic(self, w: Floats) -> float:
        apart = w - self.centre
        return self.ridge / 2 * float(apart @ apart) + float(self.linear @ w)


class LinearERM(ERM):
    """`ERM` of a linear model phi(<x, w>, y) without kinks: margins are computed once."""

    loss: LinearLoss

    @property
    def features(self) -> Floats:
        """(n, d)."""
        return np.asarray(self.rows[:, :-1])

    @property
    def labels(self) -> Floats:
        """(n,)."""
        return np.asarray(self.rows[:, -1])

    def gradient(self, w: Floats) -> Floats:
        """The gradient."""
        return self.value_and_gradient(w, want_value=False)[1]

    def value_and_gradient(self, w: Floats, want_value: bool = True) -> tuple[float, Floats]:
        """Both, of the same margins."""
        margins, labels = self.features @ w, self.labels
        slopes = self.loss.derivative(margins, labels)
        value = math.nan
        if want_value:
            value = float(self.loss.value(margins, labels).mean()) + self._quadratic(w)
        mean = mean_of_rows(slopes, self.features)
        return value, np.asarray(mean + self.regulariser_gradient(w))

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """mean of phi'' x x' + lambda."""
        x, y = self.features[::stride], self.labels[::stride]
        bends = self.loss.second(x @ w, y)
        if bends is None:
            return None
        found, step = np.zeros((self.d, self.d)), max(1, _WORTH // self.d)
        for low in range(0, len(x), step):
            part = x[low : low + step]
            found += (part * bends[low : low + step, None]).T @ part
        return np.asarray(found / len(x) + self.ridge * np.eye(self.d))


class KinkedERM(LinearERM, Kinked):
    """`ERM` of a linear model whose loss has one kink: hinge, absolute, pinball.

    In the residual r = sign * margin - place, phi is max(low r, high r), and its slope s lies in
    [low, high]. Any slopes s_i give a dual point v = centre - (mean s_i sign_i x_i + linear)/lambda
    and u = Proj(v), and

        F(u) - F* <= mean[(r_i)_+ (high - s_i) + (-r_i)_+ (s_i - low)],    r_i at u:

    a sum of terms that are not negative, so that no digits are lost (docs: theory, Output
    perturbation, "Certificates").
    """

    @property
    def width(self) -> float:
        """Of the order of a margin."""
        return 1.0

    @property
    def least_radius(self) -> float:
        """Were all rows at their kink, margins would be off by this much."""
        norm, size = self.reach, self.loss.features
        loose = (self.d + 2) * UNIT * size * norm
        if not isinstance(self.domain, RealSpace):
            loose += size * self._dual_error(norm)
        low, high = self.residuals(self.domain.center)[2:]
        return math.sqrt(2 * (high - low) * loose / self.ridge)

    def smoothed(self, width: float) -> "Smoothed":
        """With ramps of the width in place of kinks."""
        return Smoothed(self, width)

    def residuals(self, w: Floats) -> tuple[Floats, Floats, float, float]:
        """(r, sign, low, high)."""
        kink = self.loss.kink(self.labels)
        assert kink is not None
        sign, place, low, high = kink
        return np.asarray(sign * (self.features @ w) - place), sign, low, high

    def slopes(self, w: Floats, width: float) -> Floats:
        """s of the ramps at w, with its sign: what multiplies x."""
        r, sign, low, high = self.residuals(w)
        return np.asarray(sign * np.clip(r / width, low, high))

    def witness(self, w: Floats, width: float) -> tuple[Floats, float]:
        """The dual point of the ramps' slopes, with the rows on a ramp then put on their kink."""
        signed = self.slopes(w, width)
        best = self.dual_point(signed)
        for _ in range(_REFINED):
            signed = self._refined(signed)
            best = min(best, self.dual_point(signed), key=lambda each: each[1])
        return best

    def _refined(self, signed: Floats) -> Floats:
        """The least change of the slopes between low and high that puts their rows on the kink."""
        domain, far = self.domain, self._dual(signed)
        point = domain.project(far)
        r, sign, low, high = self.residuals(point)
        s = signed * sign
        free = (s > low) & (s < high)
        root = np.eye(self.d)  # of how the point moves with the dual one
        if (
            isinstance(domain, L2Ball)
            and (size := np.linalg.norm(far - domain.center)) > domain.size
        ):
            normal = (far - domain.center) / size
            root = (root - np.outer(normal, normal)) * math.sqrt(domain.size / size)
        rows = (self.features[free] * sign[free, None]) @ root
        values, vectors = np.linalg.eigh(rows.T @ rows)
        kept = values > 1e-12 * max(float(values[-1]), 1e-300)
        across = vectors[:, kept] @ ((vectors[:, kept].T @ (rows.T @ r[free])) / values[kept] ** 2)
        s[free] = np.clip(s[free] + self.ridge * self.n * (rows @ across), low, high)
        return np.asarray(s * sign)

    def _dual(self, signed: Floats) -> Floats:
        mean = mean_of_rows(signed, self.features)
        return np.asarray(self.centre - (mean + self.linear) / self.ridge)

    def dual_point(self, signed: Floats) -> tuple[Floats, float]:
        """(u, r) of slopes times signs, each in its range."""
        point = self.domain.project(self._dual(signed))
        r, sign, low, high = self.residuals(point)
        s = signed * sign
        gaps = np.maximum(r, 0.0) * (high - s) + np.maximum(-r, 0.0) * (s - low)
        size, norm = self.loss.features, float(np.linalg.norm(point))
        loose = (self.d + 2) * UNIT * size * norm  # of a margin
        off = self._dual_error(norm)
        if isinstance(self.domain, RealSpace):
            extra, apart = off * off, 0.0
        else:  # the true dual point's projection is within `off`: look at it instead
            extra, apart, loose = 0.0, off, loose + size * off
        touched = float(np.mean(((s > low) & (s < high)) | (np.abs(r) <= loose)))
        gap = float(gaps.mean()) * (1 + 1e-12) + (high - low) * loose * touched
        return point, math.sqrt(2 * gap / self.ridge + extra) + apart

    def _dual_error(self, norm: float) -> float:
        """Of a dual point in doubles, at a projection of this norm."""
        sums = (min(self.n, BLOCK + 4) + 8) * self.loss.lipschitz(norm)
        rest = 4 * float(np.linalg.norm(self.linear))
        return UNIT * ((sums + rest) / self.ridge + 8 * (norm + self._offset))


class Smoothed(LinearERM):
    """A `KinkedERM` with ramps for kinks: the Moreau envelope in the margin."""

    def __init__(self, kinked: KinkedERM, width: float) -> None:
        """Of the kinked objective; slopes rise by 1/width."""
        super().__init__(
            kinked.loss, kinked.rows, kinked.ridge, kinked.domain, kinked.centre, kinked.linear
        )
        self._kinked, self._width = kinked, positive("width", width)
        self.row_smoothness = kinked.loss.features**2 / width
        self.smoothness = self.row_smoothness + kinked.ridge

    def value_and_gradient(self, w: Floats, want_value: bool = True) -> tuple[float, Floats]:
        """s r - width s^2/2 at the slope s, and its gradient."""
        r, sign, low, high = self._kinked.residuals(w)
        s = np.clip(r / self._width, low, high)
        value = float((s * (r - self._width * s / 2)).mean()) + self._quadratic(w)
        mean = mean_of_rows(np.asarray(s * sign), self.features)
        return value, np.asarray(mean + self.regulariser_gradient(w))

    def value(self, w: Floats) -> float:
        """F(w)."""
        return self.value_and_gradient(w)[0]

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """Of the rows on their ramp alone, which are few."""
        r, _, low, high = self._kinked.residuals(w)
        on = (r > low * self._width) & (r < high * self._width)
        x = self.features[on]
        return np.asarray(x.T @ x / (self.n * self._width) + self.ridge * np.eye(self.d))


class SoftmaxERM(ERM):
    """`ERM` of `Softmax`: with the second derivative."""

    def gradient(self, w: Floats) -> Floats:
        """Class by class."""
        x, p = self._probabilities(w)
        chosen = self.rows[:, -1].astype(int)
        p[np.arange(self.n), chosen] -= 1
        mean = np.concatenate([mean_of_rows(np.ascontiguousarray(each), x) for each in p.T])
        return np.asarray(mean + self.regulariser_gradient(w))

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """Blocks p_k (1 - p_k) and -p_k p_l times x x'."""
        x, p = self._probabilities(w, stride)
        (n, columns), classes = x.shape, p.shape[1]
        found = np.zeros((classes, columns, classes, columns))
        for k in range(classes):
            for other in range(k + 1):
                weights = p[:, k] * ((k == other) - p[:, other])
                found[k, :, other] = (x * weights[:, None]).T @ x / n
                found[other, :, k] = found[k, :, other]
        square = found.reshape(self.d, self.d)
        return np.asarray(square + self.ridge * np.eye(self.d))

    def _probabilities(self, w: Floats, stride: int = 1) -> tuple[Floats, Floats]:
        x = self.rows[::stride, :-1]
        return x, scipy.special.softmax(x @ w.reshape(-1, x.shape[1]).T, axis=1)


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
    from protocols.problems.multiclass import Softmax

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
