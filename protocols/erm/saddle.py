"""Convex-concave saddle problems: an opponent moves one public vector against all rows.

G(w) = max over v in V of H(w, v), with H strongly convex in w and strongly concave in v by public
terms. Docs: theory, Output perturbation, "Saddle problems".
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import UNIT, Objective, gradient_rounding, mean_of_rows
from protocols.erm.risk import Risk
from protocols.problems.domains import Domain, RealSpace, Simplex
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import OfLoss, refuse_rows
from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.errors import ParameterError, integer, positive

_ASCENT, _STILL = 10_000, 1e-14


class Saddle(Objective):
    """G(w) = max over v of H(w, v); a subclass gives H's two slopes and its constants.

    Attributes:
        opponent: V, bounded.
        concavity: mu: H(w, .) is mu-strongly concave.
        cross: Lipschitz constant of the slope in w as v moves.
        steepness: of both slopes together, as (w, v) moves.
    """

    opponent: Domain
    concavity: float
    cross: float
    steepness: float

    @abstractmethod
    def slopes(self, w: Floats, v: Floats) -> tuple[Floats, Floats]:
        """Gradients of H in w and in v, shapes (d,) and (e,)."""

    @abstractmethod
    def payoff(self, w: Floats, v: Floats) -> float:
        """H(w, v)."""

    @abstractmethod
    def slope_rounding(self, w: Floats) -> tuple[float, float]:
        """Bounds of the l2 errors of the computed `slopes`, for any v."""

    def worst(self, w: Floats) -> Floats:
        """A v near the maximum of H(w, .), by projected ascent; no certificate rests on it."""
        v = self.opponent.center
        for _ in range(_ASCENT):
            after = self.opponent.project(v + self.slopes(w, v)[1] / self.steepness)
            if np.linalg.norm(after - v) <= _STILL * (1 + np.linalg.norm(v)):
                break
            v = after
        return v

    def gap(self, w: Floats, v: Floats) -> float:
        """Bound of max H(w, .) - min H(., v), rounding errors included, from the slopes alone.

        H(w, v') <= H(w, v) + <slope, v' - v> - mu/2 ||v' - v||^2, whose maximum is at a projection;
        and the same below for w.
        """
        slopes, errors = self.slopes(w, v), self.slope_rounding(w)
        sides = (
            (self.domain, w, -slopes[0], self.strong_convexity, errors[0]),
            (self.opponent, v, slopes[1], self.concavity, errors[1]),
        )
        total = 0.0
        for domain, at, up, curved, error in sides:
            # The paraboloid's maximum over the set: it is round, so the nearest point is the best.
            far = domain.project(at + up / curved) - at
            moved, size = float(np.linalg.norm(far)), float(np.linalg.norm(up))
            gain = max(0.0, float(up @ far) - curved / 2 * moved**2)
            lost = (8 + len(at)) * UNIT * (
                float(np.linalg.norm(at)) + size / curved
            ) + 4 * UNIT * moved
            if isinstance(domain, RealSpace):
                # Its maximum over all of R^d needs no projection, and loses no digits.
                gain, lost = size**2 / (2 * curved), 0.0
            # A slope off by e adds e times the way, and its end moves by e/curved.
            gain += error * (moved + error / curved) + lost * (size + curved * moved)
            total += gain * (1 + 1e-12)
        return total

    def value(self, w: Floats) -> float:
        return self.payoff(w, self.worst(w))

    def gradient(self, w: Floats) -> Floats:
        return self.slopes(w, self.worst(w))[0]

    def rounding(self, w: Floats) -> float:
        """Of the slope in w, and what the distance from the worst v adds.

        That is (2 + steepness/mu) times the length of a projected step at most.
        """
        own, other = self.slope_rounding(w)
        v = self.worst(w)
        up = self.slopes(w, v)[1]
        moved = np.linalg.norm(self.opponent.project(v + up / self.concavity) - v)
        return own + self._beside(float(moved), other, float(np.linalg.norm(up)))

    @property
    def least_radius(self) -> float:
        size = min(self.reach, self.domain.radius)
        own, other = self.slope_rounding(np.full(self.d, size / math.sqrt(self.d)))
        still = 2 * _STILL * (1 + self.opponent.radius) * self.steepness / self.concavity
        error = own + self._beside(still, other, self.payoff_slope)
        return error / self.strong_convexity

    def _beside(self, moved: float, error: float, slope: float) -> float:
        """Of the slope in w, at a v from which a projected step moves that far."""
        place = self.opponent.radius + slope / self.concavity
        moved += (8 + self.opponent.d) * UNIT * place
        far = (2 + self.steepness / self.concavity) * moved + error / self.concavity
        return self.cross * far

    @property
    @abstractmethod
    def reach(self) -> float:
        """No minimiser of G is longer."""

    @property
    @abstractmethod
    def payoff_slope(self) -> float:
        """Bound of the slope in v, where minimisers are."""


def saddle_sensitivity(ridge: float, concavity: float, own: float, other: float, n: int) -> float:
    """How far w* moves with one of n rows, at most; tight for a bilinear game of quadratics.

    With a = ||w - w'|| and b = ||v - v'||, monotone slopes give ridge a^2 + concavity b^2 <= (own a
    + other b)/n; b is eliminated.

    Args:
        ridge: lambda, in w.
        concavity: mu, in v.
        own: largest distance of two rows' slopes in w at one point.
        other: the same in v.
        n: rows.
    """
    return (own + math.sqrt(own**2 + ridge / concavity * other**2)) / (2 * ridge * n)


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

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return self.loss.values(theta, rows[:, :-1])

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        found: Scaled | Floats = self.loss.gradients(theta, rows[:, :-1], smoothing)
        return found

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        return self.loss.values_at(thetas, rows[:, :-1])

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        return self.loss.gradients_at(thetas, rows[:, :-1])

    def pull(self) -> float:
        return self.loss.pull()

    def verify(self, radius: float) -> None:
        self.loss.verify(radius)

    def check(self, rows: NDArray[Any], d: int) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.columns(d):
            raise ParameterError("data.shape", rows.shape, f"(n, {self.columns(d)})")
        self.loss.check(rows[:, :-1], d)
        known = np.isin(rows[:, -1], np.arange(self.groups))
        refuse_rows(~known, f"in a group 0, ..., {self.groups - 1} (last column)")


class GroupERM(Saddle):
    """The worst mixture v of groups: sum_g v_g weight_g (1/n) sum_{i in g} l_i, and public terms.

    (ridge/2) ||w||^2 is added, (concavity/2) ||v - uniform||^2 subtracted.
    """

    def __init__(
        self,
        loss: Grouped,
        rows: Floats,
        ridge: float,
        domain: Domain,
        concavity: float,
        weights: tuple[float, ...],
    ) -> None:
        """Of rows (x, y, group)."""
        self.loss, self.rows = loss.loss, np.ascontiguousarray(rows[:, :-1], np.float64)
        self.group, self.n = rows[:, -1].astype(int), len(rows)
        self.domain, self.opponent = domain, Simplex(loss.groups)
        self.ridge = self.strong_convexity = positive("ridge", ridge)
        self.concavity = positive("concavity", concavity)
        self.weights = np.array(weights)
        heavy, beta = max(weights), loss.smoothness() or 0.0
        self._slope = loss.lipschitz(domain.radius)
        self.cross = heavy * self._slope
        self._curved = heavy * beta
        # The worst v moves by cross/mu with w, and the slope in w by cross with v.
        self.smoothness = self._curved + ridge + self.cross**2 / concavity
        # Of the matrix of second derivatives: its blocks on the diagonal, and those beside it.
        self.steepness = max(self._curved + ridge, concavity) + self.cross

    @cached_property
    def reach(self) -> float:
        # No mixture weights a row by more than the largest weight.
        pulled = math.sqrt(float(self.weights.max()) * self.loss.pull() / self.ridge)
        return min(pulled, self.domain.radius)

    @cached_property
    def payoff_slope(self) -> float:
        return float(self.weights.max()) * _largest(self.loss, self.reach)

    def _group_losses(self, w: Floats) -> Floats:
        losses = self.loss.values(w, self.rows)
        sums = np.bincount(self.group, losses, minlength=len(self.weights))
        return np.asarray(self.weights * sums / self.n)

    def slopes(self, w: Floats, v: Floats) -> tuple[Floats, Floats]:
        x, y = self.rows[:, :-1], self.rows[:, -1]
        factors = (v * self.weights)[self.group] * self.loss.derivative(x @ w, y)
        own = mean_of_rows(factors, x) + self.ridge * w
        return own, self._group_losses(w) - self.concavity * (v - self.opponent.center)

    def payoff(self, w: Floats, v: Floats) -> float:
        apart = v - self.opponent.center
        public = self.ridge / 2 * float(w @ w) - self.concavity / 2 * float(apart @ apart)
        return float(self._group_losses(w) @ v) + public

    def worst(self, w: Floats) -> Floats:
        """The projection of uniform + losses/concavity onto the simplex."""
        far = self.opponent.center + self._group_losses(w) / self.concavity
        return self.opponent.project(far)

    def slope_rounding(self, w: Floats) -> tuple[float, float]:
        norm, heavy = float(np.linalg.norm(w)), float(self.weights.max())
        own = heavy * gradient_rounding(self.n, self.d, self._slope, 0.0, 0.0, norm)
        own += gradient_rounding(1, self.d, self._slope, self._curved, self.ridge, norm)
        largest = _largest(self.loss, norm)
        # n roundings of a sum, and what the margins are off by.
        losses = (self.n + 16) * largest + (self.d + 2) * self._slope * norm
        return own, 2 * UNIT * (heavy * losses + 4 * self.concavity)


def _largest(loss: LinearLoss, radius: float) -> float:
    """The largest loss of a row where ||w|| <= radius; labels -1 and +1."""
    reach = loss.features * radius
    return float(loss.value(np.array([-reach, reach]), np.ones(2)).max())


@dataclass(frozen=True)
class GroupRisk(Risk):
    """The risk of the worst mixture of groups.

    Attributes:
        concavity: mu, public, above 0: the opponent pays for leaving the uniform mixture.
        weights: of each group, public; empty: the number of groups for each, as of groups of equal
            size.
    """

    concavity: float = 1.0
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Grouped) or not self.loss.loss.classification:
            allowed = "Grouped(loss, groups) with a smooth loss of classes, such as Logistic()"
            raise ParameterError("loss", self.loss, allowed)
        if not self.concavity > 0:
            allowed = "above 0: else the opponent may jump, and with it the minimiser"
            raise ParameterError("concavity", self.concavity, allowed)
        positive("concavity", self.concavity)
        if self.weights and len(self.weights) != self.loss.groups:
            raise ParameterError("weights", self.weights, f"of {self.loss.groups} numbers")
        for each in self.weights:
            positive("weights", each)
        super().__post_init__()
        if not math.isfinite(self.smoothness):
            raise ParameterError("loss", self.loss, "smooth, such as Logistic()")
        if np.any(self.domain.project(np.zeros(self.d))):
            raise ParameterError("domain", self.shape[0], "one that holds 0, or RealSpace")

    @property
    def _grouped(self) -> Grouped:
        assert isinstance(self.loss, Grouped)
        return self.loss

    @property
    def shares(self) -> tuple[float, ...]:
        """The weight of each group."""
        return self.weights or (float(self._grouped.groups),) * self._grouped.groups

    @cached_property
    def reach(self) -> float:
        pulled = math.sqrt(max(self.shares) * self.loss.pull() / self.ridge)
        return min(pulled, self.domain.radius)

    def lipschitz_within(self, radius: float) -> float:
        return max(self.shares) * self.loss.lipschitz(radius)

    @property
    def smoothness(self) -> float:
        """Of the rows, and of the opponent's answer: L^2/mu."""
        beta = super().smoothness * max(self.shares)
        return beta + self.lipschitz_within(self.domain.radius) ** 2 / self.concavity

    def sensitivity(self, n: int) -> tuple[float, str]:
        own = 2 * self.lipschitz_within(self.reach)
        # Losses are not negative and stand in their groups' coordinates: two groups' cannot cancel.
        other = math.sqrt(2) * max(self.shares) * _largest(self._grouped.loss, self.reach)
        moved = saddle_sensitivity(self.ridge, self.concavity, own, other, n)
        proof = "both players' slopes are strongly monotone, and change by 1/n of a row's"
        return min(moved, self.domain.diameter, 2 * self.reach), proof

    def objective(self, rows: Floats) -> Objective:
        return GroupERM(self._grouped, rows, self.ridge, self.domain, self.concavity, self.shares)
