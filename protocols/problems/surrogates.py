"""Clipped surrogates: convex functions whose gradient is the clipped gradient of a loss.

A monotone function that is clipped is monotone. So where the gradient of a loss lies on one line,
the clipped gradient is the gradient of a convex function (docs: theory, Heavy tails). Losses
declare it (`Loss.clipping_is_convex`); for others clipping is no gradient field.
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import MeanEstimation
from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import ParameterError, positive

LARGEST = 1e100
"""Longer rows are shortened to it, so that no square overflows."""


@dataclass(frozen=True)
class Surrogate:
    """h(., z): convex, `clip`-Lipschitz, and beta-smooth with `smoothing` beta, whatever the row.

    It is the loss's Moreau envelope with clipped gradients. f - h is Lipschitz with constant
    (A(z) - clip)_+. Rows that are not finite have h = 0.

    Attributes:
        loss: one that declares `clipping_is_convex`.
        clip: C.
        smoothing: beta of the envelope; None: no envelope, and h may have kinks.

    Raises:
        ParameterError: the loss does not declare it, or a number is not finite and above 0.
    """

    loss: Loss
    clip: float
    smoothing: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        demand_convex(self.loss)
        positive("clip", self.clip)
        if self.smoothing is not None:
            positive("smoothing", self.smoothing)

    def gradients(self, theta: Floats, rows: Floats) -> Values:
        """One gradient of norm at most `clip` for each row, shape (users, d)."""
        if isinstance(self.loss, LinearLoss):
            return self._scaled(self.loss, theta, rows)
        return self._radial(theta, rows)

    def gradient(self, theta: Floats, rows: Floats) -> Floats:
        """The sum of the rows' gradients, shape (d,)."""
        values = self.gradients(theta, rows)
        if isinstance(values, Scaled):
            return np.asarray(values.factors @ values.rows)
        return np.asarray(values.sum(axis=0))

    def _scaled(self, loss: LinearLoss, theta: Floats, rows: Floats) -> Scaled:
        rows = bounded(rows)
        x, labels = rows[:, :-1], rows[:, -1]
        squares = np.einsum("ij,ij->i", x, x)
        norms, margins = np.sqrt(squares), x @ theta
        caps = self.clip / np.maximum(norms, 1e-300)
        if self.smoothing is None:
            factors = np.clip(loss.derivative(margins, labels), -caps, caps)
        else:
            factors = loss.clipped_prox(margins, labels, norms, self.smoothing, self.clip)
        return Scaled(x, factors, squares)

    def _radial(self, theta: Floats, rows: Floats) -> Floats:
        known = np.isfinite(rows).all(axis=1)
        shrink = 1.0 if self.smoothing is None else self.smoothing / (1 + self.smoothing)
        offsets = shrink * (theta - bounded(rows))
        norms = np.sqrt(np.einsum("ij,ij->i", offsets, offsets))
        factors = np.where(known, np.minimum(1.0, self.clip / np.maximum(norms, 1e-300)), 0.0)
        return np.asarray(offsets * factors[:, None])


def demand_convex(loss: Loss) -> None:
    """Refuse a loss whose clipped gradient need not be a gradient.

    Raises:
        ParameterError: saying what would do.
    """
    if not isinstance(loss, LinearLoss | MeanEstimation) or not loss.clipping_is_convex:
        allowed = (
            "one that declares clipping_is_convex: a LinearLoss or MeanEstimation. For others take "
            "ExponentialGrid (d <= 2), or clip each round's gradients in the shuffle model"
        )
        raise ParameterError("loss", type(loss).__name__, allowed)


def bounded(rows: Floats) -> Floats:
    """The rows; those that are not finite become 0, and long ones are shortened to LARGEST.

    Each row is changed by itself, so neighbours stay neighbours.
    """
    rows = np.asarray(rows, np.float64)
    if np.abs(rows).max(initial=0.0) * math.sqrt(rows.shape[1]) <= LARGEST:  # False for NaN
        return rows
    kept = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    kept = np.clip(kept, -1e300, 1e300)
    norms = np.hypot.reduce(kept, axis=1, keepdims=True)
    return np.asarray(kept * (LARGEST / np.maximum(norms, LARGEST)))


def clipped_gradients(
    loss: Loss, clip: float, points: Floats, rows: Floats, smoothing: float | None = None
) -> Floats:
    """The sum of the rows' clipped gradients at each point, (points, d), of any loss.

    Where clipping is not convex it is no gradient. Rows that are not finite add nothing. With
    `smoothing` they are those of the Moreau envelope.
    """
    known, rows = np.isfinite(rows).all(axis=1), bounded(rows)
    found = []
    for point in points:
        with np.errstate(over="ignore", invalid="ignore"):
            each = dense(loss.gradients(point, rows, smoothing))
            norms = np.hypot.reduce(each, axis=1)
            factors = np.where(known, clip / np.maximum(norms, clip), 0.0)
        each = np.where(np.isfinite(norms)[:, None], each, 0.0)
        found.append(np.nan_to_num(factors) @ each)
    return np.array(found)
