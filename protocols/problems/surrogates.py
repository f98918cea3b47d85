"""Clipped gradients: the one way from a user's rows to a curator's algorithm.

A sensitivity takes its L from the clip that is applied. For a convex proof a monotone function that
is clipped is monotone. So where the gradient of a loss lies on one line, the clipped gradient is
the gradient of a convex function (docs: theory, Heavy tails). Losses declare it
(`Loss.clipping_is_convex`); for others clipping is no gradient field.
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import MeanEstimation
from shuffle_sim.arrays import Floats, Scaled, Values, dense, lengths
from shuffle_sim.errors import ParameterError, positive

LARGEST = 1e100
"""Longer rows are shortened to it, so that no square overflows."""


@dataclass(frozen=True)
class Clipped:
    """A loss's gradients, each no longer than `clip`; of rows that are not finite they are 0.

    Where the loss declares `clipping_is_convex`, or no row that it checked reaches the clip, they
    are gradients of convex functions.

    Attributes:
        loss: any.
        clip: C; what a sensitivity may take for L.
        smoothing: beta of the Moreau envelope in place of the loss; None: the loss itself.

    Raises:
        ParameterError: a number is not finite and above 0.
    """

    loss: Loss
    clip: float
    smoothing: float | None = None

    def __post_init__(self) -> None:
        positive("clip", self.clip)
        if self.smoothing is not None:
            positive("smoothing", self.smoothing)

    @property
    def smoothness(self) -> float:
        """beta of the convex functions, by the loss's own constant; infinite with kinks.

        A clip is 1-Lipschitz, so it keeps that of the gradients.
        """
        bounds = (self.loss.smoothness(), self.smoothing)
        return min((each for each in bounds if each is not None), default=math.inf)

    def each(self, points: Floats, rows: Floats) -> Values:
        """One gradient for each row, at one point (d,) or at points of their own (users, d)."""
        loss = self.loss
        if isinstance(loss, LinearLoss) and type(loss).gradients is LinearLoss.gradients:
            return self._scaled(loss, points, rows)
        known, rows = np.isfinite(rows).all(axis=1), bounded(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._raw(points, rows)
            norms = np.hypot.reduce(found, axis=1)
        known &= np.isfinite(norms)
        factors = np.where(known, self.clip / np.maximum(norms, self.clip), 0.0)
        return np.asarray(np.where(known[:, None], found, 0.0) * factors[:, None])

    def gradient(self, point: Floats, rows: Floats) -> Floats:
        """The sum of the rows' gradients at a point, shape (d,)."""
        values = self.each(point, rows)
        if isinstance(values, Scaled):
            # One product, without a matrix of scaled rows.
            return np.asarray(values.factors @ values.rows)
        return np.asarray(values.sum(axis=0))

    def gradients_of(self, points: Floats, rows: Floats) -> Floats:
        """The sum of the rows' gradients at each point, shape (points, d)."""
        return np.array([self.gradient(point, rows) for point in points])

    def _scaled(self, loss: LinearLoss, points: Floats, rows: Floats) -> Scaled:
        rows = bounded(rows)
        x, labels = rows[:, :-1], rows[:, -1]
        norms = lengths(x)
        margins = x @ points if points.ndim == 1 else np.einsum("ij,ij->i", x, points)
        if self.smoothing is not None:
            factors = loss.clipped_prox(margins, labels, norms, self.smoothing, self.clip)
        else:
            caps = self.clip / np.maximum(norms, 1e-300)
            factors = np.clip(loss.derivative(margins, labels), -caps, caps)
        # NaN is what a loss gives where infinities cancel; a row that has it must not spoil the
        # sum.
        return Scaled(x, np.where(np.isnan(factors), 0.0, factors), norms * norms)

    def _raw(self, points: Floats, rows: Floats) -> Floats:
        if points.ndim == 1:
            return dense(self.loss.gradients(points, rows, self.smoothing))
        if self.smoothing is None:
            return dense(self.loss.gradients_at(points, rows))
        pairs = zip(points, rows, strict=True)
        found = [self.loss.gradients(point, row[None], self.smoothing) for point, row in pairs]
        return np.concatenate([dense(each) for each in found])


@dataclass(frozen=True)
class Surrogate(Clipped):
    """h(., z): convex, `clip`-Lipschitz, and beta-smooth with `smoothing` beta, whatever the row.

    It is the loss's Moreau envelope with clipped gradients. f - h is Lipschitz with constant
    (A(z) - clip)_+. Rows that are not finite have h = 0; h may have kinks without an envelope.

    Raises:
        ParameterError: the loss does not declare `clipping_is_convex`, or as of `Clipped`.
    """

    def __post_init__(self) -> None:
        demand_convex(self.loss)
        super().__post_init__()


def clips_to_convex(loss: Loss) -> bool:
    """Whether a clipped gradient of the loss is one of a convex function."""
    kinds = (LinearLoss.gradients, MeanEstimation.gradients)
    return type(loss).gradients in kinds and loss.clipping_is_convex


def demand_convex(loss: Loss) -> None:
    """Refuse a loss whose clipped gradient need not be a gradient.

    Raises:
        ParameterError: saying what would do.
    """
    if not clips_to_convex(loss):
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
    if np.abs(rows).max(initial=0.0) <= LARGEST / math.sqrt(rows.shape[1]):  # False for NaN
        return rows
    kept = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    # The length of several numbers of 10^308 is no double.
    kept = np.clip(kept, -1e300, 1e300)
    norms = np.hypot.reduce(kept, axis=1, keepdims=True)
    return np.asarray(kept * (LARGEST / np.maximum(norms, LARGEST)))
