"""Clipped and scaled losses: the one way from a user's rows to a curator's algorithm.

A sensitivity takes its L from the clip that is applied. For a convex proof a monotone function that
is clipped is monotone. So where the gradient of a loss lies on one line, the clipped gradient is
the gradient of a convex function (docs: theory, Heavy tails). Losses declare it
(`Loss.clipping_is_convex`); for others clipping is no gradient field.

A convex function times a number is convex, so scaling needs no gradient along one line. The number
rests on a bound of the row's gradients (`row_slopes`). With kinks the Moreau envelope is scaled.
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.problems.held import SLACK
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.losses import MeanEstimation
from protocols.problems.public_rows import public_rows
from protocols.problems.row_slopes import PROVEN, bounded, row_slopes
from shuffle_sim.arrays import Floats, Scaled, Values, dense, lengths
from shuffle_sim.errors import ParameterError, positive

_NUMBERS = 1 << 16  # margins that are held at once
WIDTH = 4.0
"""kappa = 4 beta/C^2 at least, where phases are planned: the bias is 1.072 times as large."""
STATED = "convex, and as smooth as it states: its author says so"
STATED_ENVELOPE = (
    "convex, and its gradients with smoothing those of its envelope: its author says so"
)


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
            found = self._raw(points, rows, self.smoothing)
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
        loss = self.loss
        if not (isinstance(loss, LinearLoss) and type(loss).gradients is LinearLoss.gradients):
            return np.array([self.gradient(point, rows) for point in points])
        x, labels, norms = self._columns(rows)
        found, many = [], max(1, _NUMBERS // max(1, len(x)))
        for part in (points[at : at + many] for at in range(0, len(points), many)):
            alike = (np.tile(each, len(part)) for each in (labels, norms))
            factors = self._factors(loss, (part @ x.T).ravel(), *alike)
            found.append(factors.reshape(len(part), len(x)) @ x)
        return np.concatenate(found)

    def _scaled(self, loss: LinearLoss, points: Floats, rows: Floats) -> Scaled:
        x, labels, norms = self._columns(rows)
        margins = x @ points if points.ndim == 1 else np.einsum("ij,ij->i", x, points)
        return Scaled(x, self._factors(loss, margins, labels, norms), norms * norms)

    @staticmethod
    def _columns(rows: Floats) -> tuple[Floats, Floats, Floats]:
        """Features, labels, and the features' norms."""
        rows = bounded(rows)
        return rows[:, :-1], rows[:, -1], lengths(rows[:, :-1])

    def _factors(self, loss: LinearLoss, margins: Floats, labels: Floats, norms: Floats) -> Floats:
        if self.smoothing is not None:
            factors = loss.clipped_prox(margins, labels, norms, self.smoothing, self.clip)
        else:
            caps = self.clip / np.maximum(norms, 1e-300)
            factors = np.clip(loss.derivative(margins, labels), -caps, caps)
        # NaN is what a loss gives where infinities cancel; a row that has it must not spoil the
        # sum.
        return np.where(np.isnan(factors), 0.0, factors)

    def _raw(self, points: Floats, rows: Floats, smoothing: float | None) -> Floats:
        if points.ndim == 1:
            return dense(self.loss.gradients(points, rows, smoothing))
        if smoothing is None:
            return dense(self.loss.gradients_at(points, rows))
        pairs = zip(points, rows, strict=True)
        found = [self.loss.gradients(point, row[None], smoothing) for point, row in pairs]
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


@dataclass(frozen=True)
class ScaledSurrogate(Clipped):
    """h = s f, s = min(1, clip/slope, beta/beta(z)): convex, clip-Lipschitz and beta-smooth.

    With kinks h = s f_beta, s = min(1, clip/slope), of the envelope, which is beta-smooth for any
    row. f - h is Lipschitz with constant (1 - s) times the row's slope (`row_slopes`), the envelope
    apart. Rows that are not finite, or whose values refute convexity where they are asked, have
    h = 0. Gradients are clipped, too: where f is convex, the clip is never met.

    Attributes:
        loss: f, convex over R^d; it states `row_smoothness`, or has an envelope.
        clip: C.
        smoothing: beta; given.
        radius: of a ball around 0 that contains the domain.

    Raises:
        ParameterError: the loss states neither, or a number is out of range.
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
        smoothing = self.smoothing if self.loss.has_envelope else None
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._raw(points, rows, smoothing)
            found = found * self.factors(points.shape[-1], rows)[:, None]
            norms = np.hypot.reduce(found, axis=1)
        known &= np.isfinite(norms)
        factors = self.clip / np.maximum(np.where(known, norms, 0.0), self.clip)
        return np.where(known[:, None], found, 0.0) * factors[:, None]

    def factors(self, d: int, rows: Floats) -> Floats:
        """s of each row, (users,); 0 where there is no bound."""
        assert self.smoothing is not None
        slopes = row_slopes(self.loss, d, rows, self.radius)
        factors = self.clip / np.maximum(slopes, self.clip)
        if self.loss.has_envelope:
            return np.where(np.isfinite(slopes), factors, 0.0)
        bends = np.asarray(self.loss.row_smoothness(rows), np.float64)
        factors = np.minimum(factors, self.smoothing / np.maximum(bends, self.smoothing))
        return np.where(np.isfinite(slopes) & np.isfinite(bends), factors, 0.0)


def row_norms(loss: Loss, d: int, rows: Floats, radius: float) -> Floats:
    """A(z), (users,): what the moments are of, by which phases are planned.

    Of a loss that is clipped, or has an envelope, the largest gradient. Of others max(slope,
    2 sqrt(beta(z))); that of `Softmax` is sqrt(2) ||x|| by both.
    """
    if clips_to_convex(loss):
        return loss.reach_norms(rows, radius)
    rows = bounded(rows)
    if loss.has_envelope:
        return row_slopes(loss, d, rows, radius)
    bends = np.asarray(loss.row_smoothness(rows), np.float64)
    return np.asarray(np.maximum(row_slopes(loss, d, rows, radius), 2 * np.sqrt(bends)))


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
    rows = None if d is None else public_rows(loss, d, lambda made: loss.check(made, d))
    if loss.has_envelope:
        if d is not None and rows is not None:
            _demand_envelope(loss, d, rows)
        return
    allowed = (
        "one that declares clipping_is_convex (a LinearLoss or MeanEstimation) or has_envelope, or "
        "states a finite row_smoothness or smoothness. Else take PureSGD, or ExponentialGrid for d "
        "up to 2"
    )
    if type(loss).row_smoothness is Loss.row_smoothness and loss.smoothness() is None:
        raise ParameterError("loss", type(loss).__name__, allowed)
    # With an infinite beta(z) every row has the factor 0, and nothing is learnt.
    if rows is not None and not np.isfinite(loss.row_smoothness(rows)).any():
        raise ParameterError("loss", type(loss).__name__, allowed)


def _demand_envelope(loss: Loss, d: int, rows: Floats) -> None:
    """Refuse what is seen to be no envelope, at a few public points."""
    rng = np.random.default_rng(0)
    for beta in (0.1, 1.0, 10.0):
        here, there = rng.normal(size=(2, d))
        steepest = np.hypot.reduce(dense(loss.gradients(here, rows)), axis=1)
        try:
            first, last = (dense(loss.gradients(at, rows, beta)) for at in (here, there))
        except NotImplementedError:  # a loss of one's own without an envelope may say so by this
            first = last = np.zeros(0)
        allowed = "of an envelope, whose gradients `gradients` gives with smoothing"
        if not first.shape == last.shape == (len(rows), d):
            raise ParameterError("loss", loss, f"{allowed}, (n, {d})")
        moved, turned, slack = there - here, last - first, SLACK * (1 + steepest.max())
        for held, why in (
            (np.hypot.reduce(first, axis=1) <= steepest + slack, "no longer than its slopes"),
            (turned @ moved >= -slack, "that do not fall"),
            (
                np.hypot.reduce(turned, axis=1) <= beta * np.linalg.norm(moved) + slack,
                "that turn by beta at most",
            ),
        ):
            if not held.all():
                raise ParameterError("loss", loss, f"{allowed}, {why}")


def stated(loss: Loss) -> tuple[str, ...]:
    """What privacy takes from the author of a scaled loss, in words; () where it is proven.

    A false smoothness can end a run in an error, which depends on rows. Convexity is refuted where
    values do, and else believed.
    """
    if type(loss) in PROVEN:
        return ()
    if clips_to_convex(loss):
        return loss.believed()
    return (f"{type(loss).__name__} is {STATED_ENVELOPE if loss.has_envelope else STATED}",)


def scaled_by_bends(loss: Loss) -> bool:
    """Whether a row's number rests on its smoothness, too: no clip and no envelope."""
    return not (clips_to_convex(loss) or loss.has_envelope)


def least_smoothing(loss: Loss, clip: float) -> float:
    """beta from which on `bias_factor` is `widening(WIDTH)` at most; 0 where none is needed."""
    return WIDTH * clip**2 / 4 if scaled_by_bends(loss) else 0.0


def widening(kappa: float) -> float:
    """The largest of E (1 - s) A over E (A - C)_+ at beta = kappa C^2/4, kappa at least 1.

    (t^2 - kappa)/(t^2 - t) is largest at A = t C, t = kappa + sqrt(kappa^2 - kappa): 2 t/(2 t - 1).
    """
    far = kappa + math.sqrt(kappa * kappa - kappa)
    return 2 * far / (2 * far - 1)


def bias_factor(loss: Loss, clip: float, smoothing: float | None) -> float:
    """The bias of a surrogate over the bound of E (A - clip)_+ at most; infinite without a proof.

    1 of a clipped loss and of an envelope: (1 - s) A = (A - clip)_+.
    """
    if not scaled_by_bends(loss):
        return 1.0
    kappa = 0.0 if smoothing is None else 4 * smoothing / clip**2
    return widening(kappa) if kappa >= 1 else math.inf
