"""Convex losses of linear models, phi(<x, theta>, y), and the quadratic of mean estimation.

Losses are frozen dataclasses of plain numbers, so that a round can broadcast them. A loss states
its constants; `check` holds the users' rows against what they rest on. Rows are (users, d + 1): the
features x, then the label y.

A loss of one's own: subclass `LinearLoss` as a frozen dataclass and write value, derivative, slope
and curvature.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.errors import WITHHELD, ParameterError, positive
from shuffle_sim.protocol.base import check_rows
from shuffle_sim.sampling.kernels import margins_and_norms

_ROUNDING = 1 + 1e-9  # rows scaled to the bound may exceed it by a rounding error
_NEWTON, _TOLERANCE = 60, 1e-14
_GRID = 257
PULL = 0.2784645427610738
"""W(1/e), of Lambert's function: the largest m sigmoid(-m)."""
_ANGLES = 20_001
_FAR = 1e3  # margins beyond are not tried where the domain is not bounded


PROX_ERROR = 1e-12
"""Of a clipped gradient of an envelope, as a share of the clip."""


class Loss(ABC):
    """A convex loss l(theta; row), with the constants the theorems need."""

    clipping_is_convex: ClassVar[bool] = False
    """Whether its clipped gradient is the gradient of a convex function (theory, Heavy tails).

    True where the gradient is a monotone function along one line; not so for several classes.
    """

    @abstractmethod
    def columns(self, d: int) -> int:
        """Columns of the users' rows for a model with d parameters."""

    @abstractmethod
    def values(self, theta: Floats, rows: Floats) -> Floats:
        """The loss of every row."""

    @abstractmethod
    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        """A subgradient for every row.

        With `smoothing` beta it is the gradient of the Moreau envelope l_beta over R^d.

        At theta the envelope's gradient is never longer than any subgradient of l, so the same L
        bounds it.
        """

    @abstractmethod
    def lipschitz(self, radius: float) -> float:
        """L: bound of the subgradients' norms where ||theta|| <= radius; infinite without one."""

    @abstractmethod
    def smoothness(self) -> float | None:
        """beta: Lipschitz constant of the gradient; None for a loss that is not smooth."""

    def strong_convexity(self) -> float:
        """lambda; 0 for the loss of a linear model, which is flat across x."""
        return 0.0

    def gradient_diameter(self, radius: float) -> float:
        """How far apart two rows' subgradients are at one theta, ||theta|| <= radius, at most."""
        return 2 * self.lipschitz(radius)

    def pull(self) -> float:
        """sup of -<gradient, theta> over theta and rows; infinite where it is not known."""
        return math.inf

    def minimiser_norm(self, ridge: float) -> float:
        """No minimiser of the mean loss + ridge/2 ||theta||^2 is longer, whatever the rows.

        At a minimiser ridge ||theta||^2 <= pull; and monotone gradients bound it by those at 0.
        """
        by_pull = math.sqrt(self.pull() / ridge) if ridge > 0 else math.inf
        curved = ridge + self.strong_convexity()
        return min(by_pull, self.lipschitz(0.0) / curved if curved > 0 else math.inf)

    def verify(self, radius: float) -> None:
        """Refuse a loss that is not what it states where ||theta|| <= radius; all pass here."""

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        """A(z): a bound of each row's gradients where ||theta|| <= radius, from the row alone.

        Raises:
            ParameterError: the loss states none.
        """
        raise ParameterError("loss", self, "one that states `reach_norms`, as linear models do")

    @abstractmethod
    def check(self, rows: NDArray[Any], d: int) -> None:
        """Refuse users' rows the constants do not hold for.

        Raises:
            ParameterError: naming what is wrong, and the first row.
        """


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
        """Check the bound."""
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
        c = end / (1 + step * (self.curvature() or 0.0))
        for attempt in range(attempts):
            excess = c - self.derivative(margins - step * c, labels)  # grows with c
            low, high = np.where(excess < 0, c, low), np.where(excess > 0, c, high)
            done = np.abs(excess) <= tolerance
            if np.all(done | (high - low <= tolerance)):
                break
            bend = None if attempt % 4 == 3 else self.second(margins - step * c, labels)
            newton = c - excess / (1 + step * bend) if bend is not None else low
            c = np.where(
                done, c, np.where((newton > low) & (newton < high), newton, (low + high) / 2)
            )
        return np.asarray(c)

    def verify(self, radius: float) -> None:
        """Hold the stated constants against the loss itself, on a grid of margins.

        The margins are those that ||theta|| <= radius allows.

        Raises:
            ParameterError: if it is not convex, or steeper or more curved than it states.
        """
        reach = min(self.features * radius, _FAR)
        margins, bound = (
            np.linspace(-reach, reach, _GRID),
            1.0 if math.isinf(self.label_bound) else self.label_bound,
        )
        slope, curvature = self.slope(reach), self.curvature()
        for label in (-1.0, 1.0) if self.classification else (-bound, 0.0, bound):
            slopes = np.asarray(self.derivative(margins, np.full(_GRID, label)), np.float64)
            rises = np.diff(slopes) / (margins[1] - margins[0])
            slack = 1e-6 * (1 + float(np.abs(slopes).max(initial=0.0))) / reach
            for bad, allowed in (
                (~np.isfinite(slopes), "of finite derivative"),
                (rises < -slack, "convex: its derivative must not fall"),
                (np.abs(slopes) > slope * _ROUNDING, f"no steeper than its slope, {slope:g}"),
                (
                    rises > (math.inf if curvature is None else curvature + slack),
                    f"no more curved than {curvature}",
                ),
            ):
                if bad.any():
                    raise ParameterError(
                        "loss",
                        self,
                        f"{allowed} (margin {margins[np.argmax(bad)]:g}, label {label:g})",
                    )

    def columns(self, d: int) -> int:
        """d features and the label."""
        return d + 1

    def values(self, theta: Floats, rows: Floats) -> Floats:
        """The loss of every row."""
        return self.value(rows[:, :-1] @ theta, rows[:, -1])

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        """Multiples of the features."""
        x, y = rows[:, :-1], rows[:, -1]
        margins, norms = margins_and_norms(x, theta)
        factors = (
            self.derivative(margins, y)
            if smoothing is None
            else self.prox(margins, y, norms, smoothing)
        )
        return Scaled(x, factors, norms)

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
        norms = np.hypot.reduce(rows[:, :-1], axis=1)
        steepest = self.slope(math.inf)
        if not math.isinf(steepest):
            return np.asarray(norms * steepest)
        return np.asarray(norms * np.array([self.slope(each * radius) for each in norms]))

    def check(self, rows: NDArray[Any], d: int) -> None:
        """Refuse features above the bound and labels of the wrong kind."""
        check_rows(rows, (len(rows), self.columns(d)))
        x, y = rows[:, :-1], rows[:, -1]
        norms = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))
        _refuse(
            norms > self.features * _ROUNDING,
            rows,
            f"features of l2 norm at most {self.features:g}",
        )
        if self.classification:
            _refuse((y != 1) & (y != -1), rows, "labelled -1 or +1 (last column)")
        _refuse(
            np.abs(y) > self.label_bound * _ROUNDING,
            rows,
            f"labelled in [-{self.label_bound:g}, {self.label_bound:g}]",
        )


def _refuse(bad: NDArray[np.bool_], rows: NDArray[Any], allowed: str) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        raise ParameterError(f"data[{first}]", WITHHELD, allowed)


@dataclass(frozen=True)
class Linear(LinearLoss):
    """phi = margin, whatever the label; on a ball the hard instance of stochastic descent."""

    twice_differentiable: ClassVar[bool] = True

    def value(self, margins: Floats, labels: Floats) -> Floats:
        """The margin."""
        return margins

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        """One."""
        return np.ones_like(margins)

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        """0."""
        return np.zeros_like(margins)

    def slope(self, reach: float) -> float:
        """One."""
        return 1.0

    def curvature(self) -> float | None:
        """None at all: 0."""
        return 0.0


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """ln(1 + e^(-y margin)), labels -1 and +1."""

    classification: ClassVar[bool] = True
    twice_differentiable: ClassVar[bool] = True

    def value(self, margins: Floats, labels: Floats) -> Floats:
        """ln(1 + e^(-y margin)) without overflow."""
        return np.asarray(np.logaddexp(0.0, -labels * margins))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        """-y sigmoid(-y margin); numpy's exponential is four times as fast as expit."""
        with np.errstate(over="ignore"):  # 1/infinity is the limit
            odds = np.exp(labels * margins)
        odds += 1
        return np.asarray(-labels / odds)

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        """sigmoid(margin) sigmoid(-margin)."""
        return np.asarray(scipy.special.expit(margins) * scipy.special.expit(-margins))

    def pull(self) -> float:
        """sup of m sigmoid(-m) = W(1/e), at m = 1 + W(1/e) (Lambert)."""
        return PULL

    def minimiser_norm(self, ridge: float) -> float:
        """The largest rho with ridge rho^2 <= m sigmoid(-m), m <= B rho; equal rows attain it.

        The right side rises up to m = 1 + W(1/e).
        """
        far = math.sqrt(PULL / ridge) if ridge > 0 else math.inf
        if not ridge > 0 or self.features * far >= 1 + PULL:
            return far
        root: float = scipy.optimize.brentq(
            lambda rho: ridge * rho - self.features * scipy.special.expit(-self.features * rho),
            0.0,
            self.features / ridge,
            xtol=1e-300,
            rtol=1e-14,
        )
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
        """max(0, 1 - y margin)."""
        return np.asarray(np.maximum(0.0, 1 - labels * margins))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        """-y short of the margin, else 0."""
        return np.where(labels * margins < 1, -labels, 0.0)

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        """The kink becomes a ramp of width ||x||^2/beta below it."""
        return labels * ramp(labels * margins - 1, squared_norms / beta, -1.0, 0.0)

    def kink(self, labels: Floats) -> tuple[Floats, Floats, float, float] | None:
        """At margin 1 on the label's side."""
        return labels, np.ones_like(labels), -1.0, 0.0

    def pull(self) -> float:
        """One: at the kink."""
        return 1.0

    def slope(self, reach: float) -> float:
        """One."""
        return 1.0

    def curvature(self) -> float | None:
        """A kink."""
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
        """Check the bound."""
        if self.points != math.inf:
            positive("points", self.points)

    def columns(self, d: int) -> int:
        """The point."""
        return d

    def values(self, theta: Floats, rows: Floats) -> Floats:
        """Half the squared distance."""
        return np.asarray(((theta - rows) ** 2).sum(axis=1) / 2)

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        """theta - x, shrunk by beta/(1 + beta) in the envelope."""
        gradients = theta - rows
        return gradients if smoothing is None else gradients * (smoothing / (1 + smoothing))

    def lipschitz(self, radius: float) -> float:
        """The largest distance."""
        return radius + self.points

    def gradient_diameter(self, radius: float) -> float:
        """Of the points: theta cancels."""
        return 2 * self.points

    def pull(self) -> float:
        """<x - theta, theta> is at most ||x||^2/4."""
        return self.points**2 / 4

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        """||x|| + radius."""
        return np.asarray(np.hypot.reduce(rows, axis=1) + radius)

    def smoothness(self) -> float | None:
        """One."""
        return 1.0

    def strong_convexity(self) -> float:
        """One."""
        return 1.0

    def check(self, rows: NDArray[Any], d: int) -> None:
        """Refuse points outside the ball."""
        check_rows(rows, (len(rows), d))
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        _refuse(norms > self.points * _ROUNDING, rows, f"of l2 norm at most {self.points:g}")
