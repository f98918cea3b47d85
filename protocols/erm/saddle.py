"""Convex-concave saddle problems: an opponent moves one public vector against all rows.

G(w) = max over v in V of H(w, v), with H strongly convex in w and strongly concave in v by public
terms. Docs: theory, Output perturbation, "Saddle problems".
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import UNIT, Objective
from protocols.erm.payoff import Payoff, hold_to_slopes
from protocols.erm.risk import Risk
from protocols.problems.domains import Domain, RealSpace
from protocols.problems.problem import minimiser_norm
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, real

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

    @property
    def bent(self) -> float:
        """Lipschitz constant of the slope in v as v moves."""
        return self.steepness

    def answer_slope(self, w: Floats, v: Floats) -> Floats:
        """The gradient in v alone."""
        return self.slopes(w, v)[1]

    def worst(self, w: Floats) -> Floats:
        """A v near the maximum of H(w, .), by projected ascent; no certificate rests on it.

        Where H(w, .) is as curved as it is concave, the first step ends there.
        """
        v = self.opponent.center
        for _ in range(_ASCENT):
            after = self.opponent.project(v + self.answer_slope(w, v) / self.bent)
            if self.bent == self.concavity:
                return after
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


class GameERM(Saddle):
    """The mean payoff of rows, with the ridge and the opponent's public price of a `SaddleRisk`."""

    def __init__(self, risk: "SaddleRisk", rows: Floats) -> None:
        """Of rows as the loss takes them."""
        self.game, self.rows, self.n = risk.game, np.asarray(rows, np.float64), len(rows)
        self.domain, self.opponent = risk.domain, risk.game.opponent
        self.ridge, self.price = risk.ridge, risk.concavity
        self.strong_convexity, self.concavity = risk.strong_convexity, risk.strong_concavity
        steep = self.game.steepness(risk.domain.radius)
        self.cross, self.smoothness = steep.cross, risk.smoothness + risk.ridge
        # Of the matrix of second derivatives: its blocks on the diagonal, and those beside it.
        self._bent = steep.bent + self.price
        self.steepness = max(steep.curved + self.ridge, self._bent) + self.cross
        self._reach = risk.reach

    def slopes(self, w: Floats, v: Floats) -> tuple[Floats, Floats]:
        own, other = self.game.mean_slopes(w, v, self.rows)
        return own + self.ridge * w, other - self.price * (v - self.opponent.center)

    @property
    def bent(self) -> float:
        return self._bent

    def answer_slope(self, w: Floats, v: Floats) -> Floats:
        rise = self.game.mean_rise(w, v, self.rows)
        return np.asarray(rise - self.price * (v - self.opponent.center))

    def payoff(self, w: Floats, v: Floats) -> float:
        apart = v - self.opponent.center
        public = self.ridge / 2 * float(w @ w) - self.price / 2 * float(apart @ apart)
        return float(self.game.payoffs(w, v, self.rows).mean()) + public

    def slope_rounding(self, w: Floats) -> tuple[float, float]:
        norm = float(np.linalg.norm(w))
        return self.game.rounding(self.n, self.d, norm, self.ridge, self.price)

    @property
    def reach(self) -> float:
        return self._reach

    @property
    def payoff_slope(self) -> float:
        return self.game.steepness(self._reach).other


@dataclass(frozen=True)
class SaddleRisk(Risk):
    """The risk max over v of mean_i h(w, v; z_i) - (concavity/2) ||v - centre||^2, and the ridge.

    Attributes:
        concavity: public: the opponent pays for leaving the centre of its set.
        weights: of groups; for `Grouped` alone.
    """

    concavity: float = 1.0
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Payoff) and type(self) is SaddleRisk:
            raise ParameterError("loss", self.loss, "a Payoff")
        if self.weights and type(self) is SaddleRisk:
            raise ParameterError("weights", self.weights, "empty: they are of `Grouped` rows")
        real("concavity", self.concavity, 0.0, math.inf, closed=(True, False))
        if not self.strong_concavity > 0:
            allowed = "above 0: else the opponent may jump, and with it the minimiser"
            raise ParameterError("concavity", self.concavity, allowed)
        if not self.game.opponent.bounded or self.game.opponent.slack(1.0):
            allowed = "whose opponent is bounded: L2Ball, Box or Simplex"
            raise ParameterError("loss", self.loss, allowed)
        super().__post_init__()
        if not math.isfinite(self.smoothness):
            raise ParameterError("loss", self.loss, "smooth, such as Logistic()")
        if np.any(self.domain.project(np.zeros(self.d))):
            raise ParameterError("domain", self.shape[0], "one that holds 0, or RealSpace")

    @property
    def game(self) -> Payoff:
        """What is played."""
        assert isinstance(self.loss, Payoff)
        return self.loss

    @property
    def strong_concavity(self) -> float:
        """mu: with the payoff's own."""
        return self.concavity + self.game.strong_concavity()

    @cached_property
    def reach(self) -> float:
        return minimiser_norm(self.game, self.strong_convexity, self.domain)

    def lipschitz_within(self, radius: float) -> float:
        return self.game.steepness(radius).own

    @property
    def smoothness(self) -> float:
        """Of the rows, and of the opponent's answer: cross^2/mu."""
        # The worst v moves by cross/mu with w, and the slope in w by cross with v.
        steep = self.game.steepness(self.domain.radius)
        return steep.curved + steep.cross**2 / self.strong_concavity

    def sensitivity(self, n: int) -> tuple[float, str]:
        steep = self.game.steepness(self.reach)
        curved = self.strong_convexity, self.strong_concavity
        moved = saddle_sensitivity(*curved, 2 * steep.own, steep.differ, n)
        proof = "both players' slopes are strongly monotone, and change by 1/n of a row's"
        return min(moved, self.domain.diameter, 2 * self.reach), proof

    def objective(self, rows: Floats) -> Objective:
        return GameERM(self, rows)

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows for which the constants do not hold, or are seen not to."""
        self.loss.check(rows, self.d)
        hold_to_slopes(self.game, rows, self.d, self.reach)
