"""Convex losses of linear models, phi(<x, theta>, y); rows are the features x, then the label y.

A loss of one's own: subclass `LinearLoss` as a frozen dataclass and write value, derivative, slope
and curvature.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.problems.loss import ROUNDING, Loss, refuse_rows
from shuffle_sim.arrays import Floats, Scaled, Values, dense, lengths
from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.protocol.base import check_rows
from shuffle_sim.sampling.kernels import margins_and_norms

PROX_ERROR = 1e-12
"""Of a clipped gradient of an envelope, as a share of the clip."""
_Refuted = tuple[NDArray[np.bool_], str]
_NEWTON, _TOLERANCE = 60, 1e-14
_GRID = 257
_FAR = 1e3  # margins beyond are not tried where the domain is not bounded


@dataclass(frozen=True)
class LinearLoss(Loss):
    """phi(<x, theta>, y) with ||x||_2 <= features.

    All methods take arrays of margins <x, theta> and labels.

    Attributes:
        features: l2 bound of the features; infinite: none.
    """

    features: float = 1.0
    classification: ClassVar[bool] = False
    """Whether labels are -1 and +1; else they are real."""
    twice_differentiable: ClassVar[bool] = False
    """Whether phi has a second derivative everywhere, and `second` gives it."""
    clipping_is_convex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.features != math.inf:
            positive("features", self.features)

    @abstractmethod
    def value(self, margins: Floats, labels: Floats) -> Floats:
        """phi."""

    @abstractmethod
    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        """A subgradient of phi in the margin."""

    @abstractmethod
    def slope(self, reach: float) -> float:
        """The largest |derivative| over margins in [-reach, reach]; infinite if there is none."""

    @abstractmethod
    def curvature(self) -> float | None:
        """The largest second derivative of phi; None if phi has kinks."""

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        """The second derivative of phi, where known: it makes `prox` faster."""
        return None

    def kink(self, labels: Floats) -> tuple[Floats, Floats, float, float] | None:
        """(sign, place, low, high) where phi is max(low r, high r), r = sign margin - place.

        None where it is not of that form; its minimisers can then not be certified, if it has
        kinks.
        """
        return None

    @property
    def label_bound(self) -> float:
        """Largest |y| allowed."""
        return math.inf

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        """The factor c of x in the gradient of the Moreau envelope l_beta.

        l_beta(theta) = min over theta' of l(theta') + (beta/2) ||theta' - theta||^2 is attained
        along x, at theta - (c/beta) x with c in the subdifferential of phi at margin - c
        ||x||^2/beta. c lies between 0 and the derivative at the margin. Newton's method inside that
        bracket; bisection where phi has no second derivative or Newton would leave it.
        """
        step, end = squared_norms / beta, self.derivative(margins, labels)
        return self._root(margins, labels, step, end, _TOLERANCE, _NEWTON)

    def clipped_prox(
        self, margins: Floats, labels: Floats, norms: Floats, beta: float, clip: float
    ) -> Floats:
        """The factor of `prox` clipped to +-clip/||x||, for rows of any length.

        Sought inside the clip: absolute errors of `prox` would matter for long rows.
        """
        # A row of zeros has the gradient 0 whatever its factor is.
        caps, squared = clip / np.maximum(norms, 1e-300), norms * norms
        if type(self).prox is not LinearLoss.prox:
            with np.errstate(over="ignore"):  # a ramp that is steep beyond doubles is a step
                return np.clip(self.prox(margins, labels, squared, beta), -caps, caps)
        step, c = squared / beta, np.clip(self.derivative(margins, labels), -caps, caps)
        # Where the derivative is beyond the clip even after the step, the clip is the answer.
        after = self.derivative(margins - step * c, labels)
        inside = np.flatnonzero(after * np.sign(c) < np.abs(c))
        tolerance = PROX_ERROR * np.minimum(caps, 1.0)
        c[inside] = self._root(
            margins[inside],
            labels[inside],
            step[inside],
            c[inside],
            tolerance[inside],
            4 * _NEWTON,
        )
        return np.asarray(c)

    def _root(
        self,
        margins: Floats,
        labels: Floats,
        step: Floats,
        end: Floats,
        tolerance: Floats | float,
        attempts: int,
    ) -> Floats:
        """The c between 0 and `end` nearest to c = derivative(margin - step c)."""
        low, high = np.minimum(end, 0.0), np.maximum(end, 0.0)
        # With a curvature the root is at least so large: the derivative falls by curvature step c
        # at most.
        c = end / (1 + step * (self.curvature() or 0.0))
        for attempt in range(attempts):
            excess = c - self.derivative(margins - step * c, labels)  # grows with c
            low, high = np.where(excess < 0, c, low), np.where(excess > 0, c, high)
            done = np.abs(excess) <= tolerance
            if np.all(done | (high - low <= tolerance)):
                break
            # Every fourth try halves the bracket, whatever Newton's steps do.
            bend = None if attempt % 4 == 3 else self.second(margins - step * c, labels)
            # The excess rises with c by 1 + step phi''.
            newton = c - excess / (1 + step * bend) if bend is not None else low
            c = np.where(
                done, c, np.where((newton > low) & (newton < high), newton, (low + high) / 2)
            )
        return np.asarray(c)

    def verify(self, radius: float) -> None:
        """Hold the stated constants and forms against the loss itself, on a grid of margins.

        The margins are those that ||theta|| <= radius allows, up to 1000 and by decades where none
        is the largest.

        Raises:
            ParameterError: if it is not convex, steeper or more curved than it states, or its
                `value`, `kink` or `prox` is not that of its derivative.
        """
        if math.isinf(radius):
            for decade in (1.0, 10.0, 100.0, _FAR):
                self._hold(decade, self.slope(math.inf))
        else:
            reach = min(self.features * radius, _FAR)
            self._hold(reach, self.slope(reach))

    def _hold(self, reach: float, slope: float) -> None:
        margins, bound = (
            np.linspace(-reach, reach, _GRID),
            1.0 if math.isinf(self.label_bound) else self.label_bound,
        )
        curvature = self.curvature()
        for label in (-1.0, 1.0) if self.classification else (-bound, 0.0, bound):
            labels = np.full(_GRID, label)
            slopes = np.asarray(self.derivative(margins, labels), np.float64)
            rises = np.diff(slopes) / (margins[1] - margins[0])
            # What quotients of doubles round must not refute a true loss.
            slack = 1e-6 * (1 + float(np.abs(slopes).max(initial=0.0))) / reach
            for bad, allowed in (
                (~np.isfinite(slopes), "of finite derivative"),
                (rises < -slack, "convex: its derivative must not fall"),
                (np.abs(slopes) > slope * ROUNDING, f"no steeper than its slope, {slope:g}"),
                (
                    rises > (math.inf if curvature is None else curvature + slack),
                    f"no more curved than {curvature}",
                ),
                *self._forms(margins, labels, slopes),
            ):
                if bad.any():
                    raise ParameterError(
                        "loss",
                        self,
                        f"{allowed} (margin {margins[np.argmax(bad)]:g}, label {label:g})",
                    )

    def _forms(self, margins: Floats, labels: Floats, slopes: Floats) -> Iterator[_Refuted]:
        """Where what is computed in place of the derivative is not of it."""
        values, step = np.asarray(self.value(margins, labels), np.float64), margins[1] - margins[0]
        steepest, largest = float(np.abs(slopes).max()), float(np.abs(values).max())
        few = slice(_GRID // 3)  # beside other rows than before
        for asked, known in ((self.derivative, slopes), (self.value, values)):
            apart = np.abs(asked(margins[few], labels[few]) - known[few])
            close = 1e-9 * (1 + np.abs(known).max())
            yield ~(apart <= close), "of each row alone, and not of chance"
        # Values of this size lose 2^-48 of it, and the step divides.
        slack = 1e-6 * (1 + steepest) + 2.0**-48 * largest / step
        rises = np.diff(values) / step
        kept = (slopes[:-1] - slack <= rises) & (rises <= slopes[1:] + slack)
        yield ~kept, "of a value that rises as its derivative says"
        if (kink := self.kink(labels)) is not None:
            sign, place, low, high = kink
            r = sign * margins - place
            apart = np.abs(np.maximum(low * r, high * r) - values)
            yield ~(apart <= 1e-9 * (1 + largest)), "max(low r, high r), as its kink says"
        if type(self).prox is not LinearLoss.prox:
            for width in margins[-1] * np.array([0.1, 10.0]):
                given = margins, labels, np.full(_GRID, width), 1.0
                apart = np.abs(self.prox(*given) - LinearLoss.prox(self, *given))
                yield ~(apart <= 1e-9 * (1 + steepest)), "of a prox that solves its equation"
        yield from self._of_rows(margins, labels, slopes, values)

    def _of_rows(
        self, margins: Floats, labels: Floats, slopes: Floats, values: Floats
    ) -> Iterator[_Refuted]:
        """Where what is computed of rows of one feature is not of their margins."""
        rows = np.column_stack([margins / margins[-1] * min(self.features, 1.0), labels])
        theta, near = margins[-1:] / rows[-1, 0], 1e-9 * margins[-1]
        before, after = (self.derivative(margins + each, labels) for each in (-near, near))
        kinks = after - before > 1e-6 * (1 + np.abs(slopes).max())  # there margins are rounded
        thetas = np.tile(theta, (len(rows), 1))
        for found in (self.gradients(theta, rows), self.gradients_at(thetas, rows)):
            apart = np.abs(dense(found)[:, 0] - slopes * rows[:, 0])
            close = kinks | (apart <= 1e-6 * (1 + np.abs(slopes).max()))
            yield ~close, "of gradients that are its derivative times the features"
        for each in (self.values(theta, rows), self.values_at(thetas, rows)):
            apart = np.abs(each - values)
            yield ~(apart <= 1e-6 * (1 + np.abs(values).max())), "of values that are of the margins"

    def columns(self, d: int) -> int:
        return d + 1

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return self.value(rows[:, :-1] @ theta, rows[:, -1])

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        x, y = rows[:, :-1], rows[:, -1]
        margins, norms = margins_and_norms(x, theta)
        factors = (
            self.derivative(margins, y)
            if smoothing is None
            else self.prox(margins, y, norms, smoothing)
        )
        return Scaled(x, factors, norms)

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        if type(self).values is not LinearLoss.values:
            return super().values_at(thetas, rows)
        return self.value(np.einsum("ij,ij->i", rows[:, :-1], thetas), rows[:, -1])

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        if type(self).gradients is not LinearLoss.gradients:
            return super().gradients_at(thetas, rows)
        x = rows[:, :-1]
        return Scaled(x, self.derivative(np.einsum("ij,ij->i", x, thetas), rows[:, -1]))

    def lipschitz(self, radius: float) -> float:
        """||x|| times the slope over the margins that ||theta|| <= radius allows."""
        return self.features * self.slope(self.features * radius)

    def smoothness(self) -> float | None:
        """||x||^2 times the curvature."""
        curvature = self.curvature()
        if curvature is None or (curvature and math.isinf(self.features)):
            return None
        return self.features**2 * curvature if curvature else 0.0

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        """||x|| times the slope over the margins that the row allows."""
        # hypot: squares of long rows would overflow.
        norms = np.hypot.reduce(rows[:, :-1], axis=1)
        steepest = self.slope(math.inf)
        if not math.isinf(steepest):
            return np.asarray(norms * steepest)
        return np.asarray(norms * np.array([self.slope(each * radius) for each in norms]))

    def check(self, rows: NDArray[Any], d: int) -> None:
        check_rows(rows, (len(rows), self.columns(d)))
        x, y = rows[:, :-1], rows[:, -1]
        refuse_rows(
            lengths(x) > self.features * ROUNDING,
            f"features of l2 norm at most {self.features:g}",
        )
        if self.classification:
            refuse_rows((y != 1) & (y != -1), "labelled -1 or +1 (last column)")
        refuse_rows(
            np.abs(y) > self.label_bound * ROUNDING,
            f"labelled in [-{self.label_bound:g}, {self.label_bound:g}]",
        )
