"""The worst mixture of groups: a saddle problem whose opponent weights them."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import UNIT, gradient_rounding, mean_of_rows
from protocols.erm.payoff import Payoff, Steepness
from protocols.erm.risk import Risk
from protocols.erm.saddle import SaddleRisk
from protocols.problems.domains import Domain, Simplex
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import OfLoss, refuse_rows
from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.errors import ParameterError, integer, positive

_GRID = 1001  # margins of a loss


@dataclass(frozen=True)
class Grouped(OfLoss):
    """The loss of a linear model on rows with a group in the last column: 0, ..., groups - 1.

    Attributes:
        loss: smooth, of rows without the group.
        groups: K, public.
    """

    loss: LinearLoss
    groups: int
    more: ClassVar[int] = 1

    def __post_init__(self) -> None:
        integer("groups", self.groups, 2, 10_000)

    def plain(self, rows: NDArray[Any]) -> Floats:
        """The rows that `loss` takes."""
        return rows[:, :-1]

    def parted(self, rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """These, and the group of each, shape (n,)."""
        return rows[:, :-1], rows[:, -1].astype(np.int64)

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return self.loss.values(theta, self.plain(rows))

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        found: Scaled | Floats = self.loss.gradients(theta, self.plain(rows), smoothing)
        return found

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        return self.loss.values_at(thetas, self.plain(rows))

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        return self.loss.gradients_at(thetas, self.plain(rows))

    def pull(self) -> float:
        return self.loss.pull()

    def verify(self, radius: float) -> None:
        self.loss.verify(radius)

    def check(self, rows: NDArray[Any], d: int) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.columns(d):
            raise ParameterError("data.shape", rows.shape, f"(n, {self.columns(d)})")
        self.loss.check(self.plain(rows), d)
        known = np.isin(rows[:, -1], np.arange(self.groups))
        refuse_rows(~known, f"in a group 0, ..., {self.groups - 1} (last column)")


@dataclass(frozen=True)
class ByClass(Grouped):
    """The loss of a linear model of two classes, with the classes -1 and +1 as groups 0 and 1.

    Attributes:
        loss: smooth, of classes.
    """

    groups: int = 2
    more: ClassVar[int] = 0

    def plain(self, rows: NDArray[Any]) -> Floats:
        return rows

    def parted(self, rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
        return rows, (rows[:, -1] > 0).astype(np.int64)

    def check(self, rows: NDArray[Any], d: int) -> None:
        self.loss.check(rows, d)


@dataclass(frozen=True)
class Mixture(Payoff):
    """h(w, v; (x, y, g)) = v_g weight_g l(w; x, y), with v a mixture of the groups.

    Attributes:
        loss: with the groups.
        weights: of each group.
    """

    loss: Grouped
    weights: tuple[float, ...]

    @property
    def opponent(self) -> Domain:
        return Simplex(self.loss.groups)

    def columns(self, d: int) -> int:
        return self.loss.columns(d)

    def check(self, rows: NDArray[Any], d: int) -> None:
        self.loss.check(rows, d)

    def pull(self) -> float:
        # No mixture weights a row by more than the largest weight.
        return max(self.weights) * self.loss.pull()

    def steepness(self, radius: float) -> Steepness:
        heavy, inner = max(self.weights), self.loss.loss
        own, (low, high) = heavy * inner.lipschitz(radius), _extremes(inner, radius)
        # Losses stand in their groups' coordinates: of one group their difference counts, of two
        # both sizes.
        other = heavy * max(-low, high)
        apart = heavy * max(high - low, math.sqrt(2) * max(-low, high))
        return Steepness(own, other, heavy * (inner.smoothness() or 0.0), own, 0.0, apart)

    def payoffs(self, w: Floats, v: Floats, rows: Floats) -> Floats:
        plain, group = self.loss.parted(rows)
        return self._factors(v, group) * self.loss.loss.values(w, plain)

    def row_slopes(self, w: Floats, v: Floats, rows: Floats) -> tuple[Floats, Floats]:
        plain, group = self.loss.parted(rows)
        other = np.zeros((len(rows), len(v)))
        weights = np.array(self.weights)[group]
        other[np.arange(len(rows)), group] = weights * self.loss.loss.values(w, plain)
        return self._slopes(w, v, plain, group)[:, None] * plain[:, :-1], other

    def mean_slopes(self, w: Floats, v: Floats, rows: Floats) -> tuple[Floats, Floats]:
        plain, group = self.loss.parted(rows)
        factors = self._slopes(w, v, plain, group)
        return mean_of_rows(factors, plain[:, :-1]), self.mean_rise(w, v, rows)

    def mean_rise(self, w: Floats, v: Floats, rows: Floats) -> Floats:
        plain, group = self.loss.parted(rows)
        sums = np.bincount(group, self.loss.loss.values(w, plain), minlength=len(self.weights))
        return np.asarray(np.array(self.weights) * sums / len(rows))

    def rounding(
        self, n: int, d: int, norm: float, ridge: float, price: float
    ) -> tuple[float, float]:
        heavy, inner = max(self.weights), self.loss.loss
        slope, beta = inner.lipschitz(np.inf), inner.smoothness() or 0.0
        own = heavy * gradient_rounding(n, d, slope, 0.0, 0.0, norm)
        own += gradient_rounding(1, d, slope, heavy * beta, ridge, norm)
        # n roundings of a sum, and what the margins are off by.
        losses = (n + 16) * max(map(abs, _extremes(inner, norm))) + (d + 2) * slope * norm
        return own, 2 * UNIT * (heavy * losses + 4 * price)

    def _factors(self, v: Floats, group: NDArray[np.int64]) -> Floats:
        return np.asarray((v * np.array(self.weights))[group])

    def _slopes(self, w: Floats, v: Floats, plain: Floats, group: NDArray[np.int64]) -> Floats:
        """Of each row's weighted loss by its margin."""
        margins, labels = plain[:, :-1] @ w, plain[:, -1]
        return self._factors(v, group) * self.loss.loss.derivative(margins, labels)


def _extremes(loss: LinearLoss, radius: float) -> tuple[float, float]:
    """Bounds of a row's loss where ||w|| <= radius; labels -1 and +1."""
    reach, low, high = loss.features * radius, math.inf, -math.inf
    if math.isinf(reach):
        return -math.inf, math.inf
    margins, step = np.linspace(-reach, reach, _GRID, retstep=True)
    for label in (-1.0, 1.0):
        labels = np.full(_GRID, label)
        values, slopes = loss.value(margins, labels), loss.derivative(margins, labels)
        # Convex: the largest is at an end, and none is below the tangents. Where all slopes have
        # one sign the least is at an end, too.
        turns = slopes.min() < 0 < slopes.max()
        below = values - step * np.abs(slopes) if turns else values
        low, high = min(low, float(below.min())), max(high, float(values.max()))
    return low, high


@dataclass(frozen=True)
class GroupRisk(SaddleRisk):
    """The risk of the worst mixture of groups; the opponent's centre is the uniform mixture.

    Attributes:
        weights: of each group, public; empty: the number of groups for each, as of groups of equal
            size.
    """

    def __post_init__(self) -> None:
        inner = self.loss.loss if isinstance(self.loss, Grouped) else self.loss
        if not isinstance(inner, LinearLoss) or not inner.classification:
            allowed = "a smooth loss of two classes, such as Logistic(), or Grouped(loss, groups)"
            raise ParameterError("loss", self.loss, f"{allowed}; or a Payoff of your own")
        if self.weights and len(self.weights) != self.grouped.groups:
            raise ParameterError("weights", self.weights, f"of {self.grouped.groups} numbers")
        for each in self.weights:
            positive("weights", each)
        super().__post_init__()

    @property
    def grouped(self) -> Grouped:
        """The loss with its groups: those of a plain loss are its classes."""
        if isinstance(self.loss, Grouped):
            return self.loss
        assert isinstance(self.loss, LinearLoss)
        return ByClass(self.loss)

    @property
    def game(self) -> Payoff:
        groups = self.grouped.groups
        return Mixture(self.grouped, self.weights or (float(groups),) * groups)

    def check(self, rows: NDArray[Any]) -> None:
        Risk.check(self, rows)  # its constants are proven
