"""Empirical risk with a public ridge: the objectives of rows, without kinks."""

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.erm.objective import (
    UNIT,
    FiniteSum,
    gradient_rounding,
    mean_of_rows,
)
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import positive, real


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
        return float(self.loss.values(w, self.rows).mean()) + self._quadratic(w)

    def gradient(self, w: Floats) -> Floats:
        gradients = dense(self.loss.gradients(w, self.rows, None))
        mean = mean_of_rows(np.ones(self.n), gradients)
        return np.asarray(mean + self.regulariser_gradient(w))

    def rounding(self, w: Floats) -> float:
        linear = float(np.linalg.norm(self.linear))
        return self._error(float(np.linalg.norm(w))) + 4 * UNIT * linear

    @property
    def least_radius(self) -> float:
        return self._error(self.reach) / self.strong_convexity

    def _error(self, norm: float) -> float:
        lipschitz, far = self.loss.lipschitz(norm), norm + self._offset
        return gradient_rounding(self.n, self.d, lipschitz, self.row_smoothness, self.ridge, far)

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
        return dense(self.loss.gradients(w, self.rows[rows], None))

    def regulariser_gradient(self, w: Floats) -> Floats:
        return np.asarray(self.ridge * (w - self.centre) + self.linear)

    def regulariser_step(self, w: Floats, step: float) -> Floats:
        """The proximal step; the projection of the one over R^d, as both terms are round."""
        # Both terms are round, so the point of the domain nearest to their minimiser is theirs
        # there.
        far = (w + step * (self.ridge * self.centre - self.linear)) / (1 + step * self.ridge)
        return self.domain.project(far)

    def bregman(self, near: Floats, points: Floats) -> Floats:
        """Mean of the rows' f(w) - f(w0) - <grad f(w0), w - w0> at each point, without the ridge.

        Row by row, where no digits of F are lost; w0 is `near`; shape (points,).
        """
        # Without the ridge, which proposals have already.
        slope = self.gradient(near) - self.regulariser_gradient(near)
        first = self.loss.values(near, self.rows)
        found = [
            float((self.loss.values(each, self.rows) - first).mean()) - float(slope @ (each - near))
            for each in points
        ]
        return np.asarray(np.maximum(np.array(found), 0.0))

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
        return self.value_and_gradient(w, want_value=False)[1]

    def value_and_gradient(self, w: Floats, want_value: bool = True) -> tuple[float, Floats]:
        margins, labels = self.features @ w, self.labels
        slopes = self.loss.derivative(margins, labels)
        value = math.nan
        if want_value:
            value = float(self.loss.value(margins, labels).mean()) + self._quadratic(w)
        mean = mean_of_rows(slopes, self.features)
        return value, np.asarray(mean + self.regulariser_gradient(w))

    def bregman(self, near: Floats, points: Floats) -> Floats:
        x, y = self.features, self.labels[:, None]
        before = (x @ near)[:, None]
        margins = x @ points.T
        rises = self.loss.value(margins, y) - self.loss.value(before, y)
        rises -= self.loss.derivative(before, y) * (margins - before)
        return np.asarray(np.maximum(rises, 0.0).mean(axis=0))

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        """mean of phi'' x x' + lambda."""
        x, y = self.features[::stride], self.labels[::stride]
        bends = self.loss.second(x @ w, y)
        if bends is None:
            return None
        found, step = np.zeros((self.d, self.d)), max(1, _WORTH // self.d)
        # A weighted copy of all rows at once would take their memory again.
        for low in range(0, len(x), step):
            part = x[low : low + step]
            found += (part * bends[low : low + step, None]).T @ part
        return np.asarray(found / len(x) + self.ridge * np.eye(self.d))


class SoftmaxERM(ERM):
    """`ERM` of `Softmax`: with the second derivative."""

    def gradient(self, w: Floats) -> Floats:
        x, p = self._probabilities(w)
        chosen = self.rows[:, -1].astype(int)
        p[np.arange(self.n), chosen] -= 1
        mean = np.concatenate([mean_of_rows(np.ascontiguousarray(each), x) for each in p.T])
        return np.asarray(mean + self.regulariser_gradient(w))

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        x, p = self._probabilities(w, stride)
        return softmax_bend(x, p, np.full(len(x), 1 / len(x))) + self.ridge * np.eye(self.d)

    def _probabilities(self, w: Floats, stride: int = 1) -> tuple[Floats, Floats]:
        x = self.rows[::stride, :-1]
        return x, probabilities(x, w)


def probabilities(x: Floats, w: Floats) -> Floats:
    """Of each class under `Softmax`, shape (n, K), for features x and parameters w."""
    return np.asarray(scipy.special.softmax(x @ w.reshape(-1, x.shape[1]).T, axis=1))


def softmax_bend(x: Floats, p: Floats, weights: Floats) -> Floats:
    """The rows' second derivatives, weighted and added: blocks p_k (1 - p_k), -p_k p_l of x x'."""
    columns, classes = x.shape[1], p.shape[1]
    found = np.zeros((classes, columns, classes, columns))
    for k in range(classes):
        for other in range(k + 1):
            each = weights * p[:, k] * ((k == other) - p[:, other])
            found[k, :, other] = (x * each[:, None]).T @ x
            found[other, :, k] = found[k, :, other]
    return found.reshape(classes * columns, classes * columns)


_WORTH = 1 << 22  # numbers that a Hessian's block of rows holds
