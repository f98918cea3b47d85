"""Clipped and scaled losses: the one way from a user's rows to a curator's algorithm.

A sensitivity takes its L from the clip that is applied. For a convex proof a monotone function that
is clipped is monotone. So where the gradient of a loss lies on one line, the clipped gradient is
the gradient of a convex function (docs: theory, Heavy tails). Losses declare it
(`Loss.clipping_is_convex`); for others clipping is no gradient field.

A convex function times a number is convex, so scaling needs no gradient along one line. The number
rests on a bound of the row's gradients. `Softmax` has a proven one; that of any other loss is
computed from its values, by convexity alone.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import MeanEstimation
from protocols.problems.multiclass import Softmax
from protocols.problems.public_rows import public_rows
from shuffle_sim.arrays import Floats, Scaled, Values, dense, lengths
from shuffle_sim.errors import ParameterError, positive

LARGEST = 1e100
"""Longer rows are shortened to it, so that no square overflows."""
WIDTH = 4.0
"""kappa = 4 beta/C^2 at least, where phases are planned: the bias is 1.072 times as large."""
STATED = "convex, and as smooth as it states: its author says so"
_FAR = 1024.0
_ROUNDING = 1e-9


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


@dataclass(frozen=True)
class ScaledSurrogate(Clipped):
    """h = s f, s = min(1, clip/slope, beta/beta(z)): convex, clip-Lipschitz and beta-smooth.

    f - h is Lipschitz with constant (1 - s) times the row's slope (`row_slopes`). Rows that are not
    finite, or whose values refute convexity where they are asked, have h = 0. Gradients are
    clipped, too: where f is convex, the clip is never met.

    Attributes:
        loss: f, convex over R^d; it states `row_smoothness`.
        clip: C.
        smoothing: beta; given.
        radius: of a ball around 0 that contains the domain.

    Raises:
        ParameterError: the loss states no smoothness of a row, or a number is out of range.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("radius", self.radius)
        if self.smoothing is None:
            raise ParameterError("smoothing", None, "given: a scaled loss has it for beta")
        demand_surrogate(self.loss)

    def each(self, points: Floats, rows: Floats) -> Floats:
        known, rows = np.isfinite(rows).all(axis=1), bounded(rows)
        asked = self.loss.gradients if points.ndim == 1 else self.loss.gradients_at
        with np.errstate(over="ignore", invalid="ignore"):
            found = dense(asked(points, rows)) * self.factors(points.shape[-1], rows)[:, None]
            norms = np.hypot.reduce(found, axis=1)
        known &= np.isfinite(norms)
        factors = self.clip / np.maximum(np.where(known, norms, 0.0), self.clip)
        return np.where(known[:, None], found, 0.0) * factors[:, None]

    def factors(self, d: int, rows: Floats) -> Floats:
        """s of each row, (users,); 0 where there is no bound."""
        assert self.smoothing is not None
        slopes = row_slopes(self.loss, d, rows, self.radius)
        bends = np.asarray(self.loss.row_smoothness(rows), np.float64)
        factors = self.clip / np.maximum(slopes, self.clip)
        factors = np.minimum(factors, self.smoothing / np.maximum(bends, self.smoothing))
        return np.where(np.isfinite(slopes) & np.isfinite(bends), factors, 0.0)


def row_norms(loss: Loss, d: int, rows: Floats, radius: float) -> Floats:
    """A(z), (users,): what the moments are of, by which phases are planned.

    Of a clipped loss the largest gradient. Of a scaled one max(slope, 2 sqrt(beta(z))); that of
    `Softmax` is sqrt(2) ||x|| by both.
    """
    if clips_to_convex(loss):
        return loss.reach_norms(rows, radius)
    rows = bounded(rows)
    bends = np.asarray(loss.row_smoothness(rows), np.float64)
    return np.asarray(np.maximum(row_slopes(loss, d, rows, radius), 2 * np.sqrt(bends)))


def row_slopes(loss: Loss, d: int, rows: Floats, radius: float) -> Floats:
    """No gradient of a row is longer where ||theta|| <= radius, (users,).

    That of `Softmax` is proven. Of another loss f it is sqrt(sum_j a_j^2), by convexity alone:
    with M the largest value at the points +-2 sqrt(d) r e_j, and m = f(0) - r ||grad f(0)||,

        a_j = max over signs of (M + f(+-L e_j) - 2 m)/L   for any L > 0.

    Infinite where values refute convexity, or are no numbers. It takes 4 d + 1 values of a row.
    """
    if type(loss) is Softmax:
        return loss.reach_norms(rows, radius)
    # ||2 w||_1 <= 2 sqrt(d) r: the cross-polytope with these corners holds 2 w.
    near, origin = 2 * math.sqrt(d) * radius, np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = dense(loss.gradients(origin, rows))
        middle = np.asarray(loss.values(origin, rows), np.float64)
        # The tangent at 0 is below f on the ball, and this is its least value there.
        low = middle - radius * np.hypot.reduce(slopes, axis=1)

        def at(length: float) -> Floats:  # (2, d, users)
            points = [[s * length * e for e in np.eye(d)] for s in (1, -1)]
            return np.array([[loss.values(point, rows) for point in line] for line in points])

        def convex(length: float, values: Floats) -> NDArray[np.bool_]:  # (users,): not refuted
            rises = length * np.stack([slopes.T, -slopes.T])
            sizes = np.abs(values) + np.abs(middle) + np.abs(rises)
            held: NDArray[np.bool_] = values - middle - rises >= -_ROUNDING * sizes
            return np.asarray(held.all(axis=(0, 1)))

        # Any L > 0 bounds; the far one leaves 1/1024 of M - 2 m in a loss that grows linearly.
        inner, outer = at(near), at(_FAR * near)
        top = inner.max(axis=(0, 1))
        held = convex(near, inner) & convex(_FAR * near, outer)
        steep = [
            (np.abs(top + values - 2 * low)
             + _ROUNDING * (np.abs(top) + np.abs(values) + 2 * np.abs(low))).max(axis=0) / length
            for length, values in ((near, inner), (_FAR * near, outer))
        ]  # fmt: skip
        norms = np.hypot.reduce(np.minimum(*steep), axis=0)
    return np.where(held & np.isfinite(norms), norms, math.inf)


def surrogate_of(
    loss: Loss, clip: float, smoothing: float | None, radius: float
) -> Surrogate | ScaledSurrogate:
    """The clipped loss where clipping keeps convexity, else the scaled one.

    Raises:
        ParameterError: there is neither.
    """
    if clips_to_convex(loss):
        return Surrogate(loss, clip, smoothing)
    return ScaledSurrogate(loss, clip, smoothing, radius)


def demand_surrogate(loss: Loss, d: int | None = None) -> None:
    """Refuse a loss that can neither be clipped nor scaled, by rows made up where d is given.

    Raises:
        ParameterError: saying what would do.
    """
    if clips_to_convex(loss):
        return
    allowed = (
        "one that declares clipping_is_convex (a LinearLoss or MeanEstimation), or states a finite "
        "row_smoothness, as Softmax does. For others take PureSGD, or ExponentialGrid (d <= 2)"
    )
    if type(loss).row_smoothness is Loss.row_smoothness:
        raise ParameterError("loss", type(loss).__name__, allowed)
    rows = None if d is None else public_rows(loss, d, lambda made: loss.check(made, d))
    # With an infinite beta(z) every row has the factor 0, and nothing is learnt.
    if rows is not None and not np.isfinite(loss.row_smoothness(rows)).any():
        raise ParameterError("loss", type(loss).__name__, allowed)


def stated(loss: Loss) -> tuple[str, ...]:
    """What privacy takes from the author of a scaled loss, in words; () where it is proven.

    A false smoothness can end a run in an error, which depends on rows. Convexity is refuted where
    values do, and else believed. Losses that are clipped are held to theirs by `Loss.verify`.
    """
    if clips_to_convex(loss) or type(loss) is Softmax:
        return ()
    return (f"{type(loss).__name__} is {STATED}",)


def least_smoothing(loss: Loss, clip: float) -> float:
    """beta from which on `bias_factor` is `widening(WIDTH)` at most; 0 for a clipped loss."""
    return 0.0 if clips_to_convex(loss) else WIDTH * clip**2 / 4


def widening(kappa: float) -> float:
    """The largest of E (1 - s) A over E (A - C)_+ at beta = kappa C^2/4, kappa at least 1.

    (t^2 - kappa)/(t^2 - t) is largest at A = t C, t = kappa + sqrt(kappa^2 - kappa): 2 t/(2 t - 1).
    """
    far = kappa + math.sqrt(kappa * kappa - kappa)
    return 2 * far / (2 * far - 1)


def bias_factor(loss: Loss, clip: float, smoothing: float | None) -> float:
    """The bias of a surrogate over the bound of E (A - clip)_+ at most: 1 for a clipped loss.

    Infinite where beta is too small for a proof.
    """
    if clips_to_convex(loss):
        return 1.0
    kappa = 0.0 if smoothing is None else 4 * smoothing / clip**2
    return widening(kappa) if kappa >= 1 else math.inf
