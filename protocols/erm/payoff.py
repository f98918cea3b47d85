"""Payoffs of rows: a loss h(w, v; row) with an opponent, who plays one v against all rows.

Docs: theory, Output perturbation, "Saddle problems".
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import UNIT, gradient_rounding, mean_of_rows
from protocols.problems.domains import Domain
from protocols.problems.held import SLACK, at_most, chord, of_length, pairs
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.errors import ParameterError


@dataclass(frozen=True)
class Steepness:
    """Constants of every row's payoff where ||w|| is bounded, for all v of the opponent.

    Attributes:
        own: l2 bound of the slope in w.
        other: of the slope in v.
        curved: Lipschitz constant of the slope in w as w moves.
        cross: of either slope as the other player moves.
        bent: of the slope in v as v moves; 0 where h is linear in v.
        apart: how far two rows' slopes in v are apart at one point; None: twice `other`.
    """

    own: float
    other: float
    curved: float
    cross: float
    bent: float = 0.0
    apart: float | None = None

    @property
    def differ(self) -> float:
        """`apart`, or what follows from `other`."""
        return 2 * self.other if self.apart is None else self.apart


class Payoff(Loss):
    """h(w, v; row): smooth, convex in w, concave in v. As a loss it is that of v at the centre."""

    @property
    @abstractmethod
    def opponent(self) -> Domain:
        """Where v may be: bounded, with exact projections."""

    @abstractmethod
    def payoffs(self, w: Floats, v: Floats, rows: Floats) -> Floats:
        """h of every row, shape (n,)."""

    @abstractmethod
    def row_slopes(self, w: Floats, v: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """Every row's gradients in w and in v, shapes (n, d) and (n, e)."""

    @abstractmethod
    def steepness(self, radius: float) -> Steepness:
        """The constants where ||w|| <= radius; privacy rests on `own`, `other` and `apart`."""

    def strong_concavity(self) -> float:
        """Of every row's payoff in v; `strong_convexity` is of w, for every v."""
        return 0.0

    def mean_slopes(self, w: Floats, v: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """The means of `row_slopes`."""
        ones = np.ones(len(rows))
        own, other = self.row_slopes(w, v, rows)
        return mean_of_rows(ones, own), mean_of_rows(ones, other)

    def mean_rise(self, w: Floats, v: Floats, rows: Floats) -> Floats:
        """The mean slope in v alone."""
        return self.mean_slopes(w, v, rows)[1]

    def rounding(
        self, n: int, d: int, norm: float, ridge: float, price: float
    ) -> tuple[float, float]:
        """Bounds of the l2 errors of `mean_slopes`, with the public terms' slopes added.

        They hold where a row's slopes are off by no more than those of a linear model.
        """
        steep, far, e = self.steepness(norm), self.opponent.radius, self.opponent.d
        own = gradient_rounding(n, d, steep.own, steep.curved, ridge, norm)
        other = gradient_rounding(n, e, steep.other, steep.bent, 2 * price, far)
        return own + UNIT * (e + 2) * steep.cross * far, other + UNIT * (d + 2) * steep.cross * norm

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return self.payoffs(theta, self.opponent.center, rows)

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        if smoothing is not None:
            raise ParameterError("smoothing", smoothing, "None: the payoff is smooth")
        return self.row_slopes(theta, self.opponent.center, rows)[0]

    def lipschitz(self, radius: float) -> float:
        return self.steepness(radius).own

    def smoothness(self) -> float | None:
        return self.steepness(np.inf).curved


def hold_to_slopes(game: Payoff, rows: NDArray[Any], d: int, radius: float) -> None:
    """Hold what a payoff states against its rows, at public points; no proof, as points are few.

    Args:
        game: the payoff.
        rows: as it takes them.
        d: parameters.
        radius: of w.

    Raises:
        ParameterError: `loss`, and what is not as stated.
    """
    rng, steep, opponent = np.random.default_rng(0), game.steepness(radius), game.opponent
    for w, after, share in pairs(rng, d, radius):
        v = opponent.project(of_length(rng, opponent.d, opponent.radius))
        up = v + share * (opponent.center - v)
        own, other = game.row_slopes(w, v, rows)
        if own.shape != (len(rows), len(w)) or other.shape != (len(rows), len(v)):
            shapes = f"of row_slopes of shapes (n, {len(w)}) and (n, {len(v)})"
            raise ParameterError("loss", game, f"{shapes}, not {own.shape} and {other.shape}")
        at_most(game, _norms(own), steep.own, "no steeper in w")
        at_most(game, _norms(other), steep.other, "no steeper in v")
        apart = _norms(other - np.roll(other, 1, axis=0))
        at_most(game, apart, steep.differ, "of slopes in v no farther apart")
        h = game.payoffs(w, v, rows)
        moved, crossed = game.row_slopes(after, v, rows)
        bounds = steep.curved, game.strong_convexity()
        end = game.payoffs(after, v, rows), moved
        chord(game, after - w, (h, own), end, bounds, "convex in w")
        _hold_crossed(game, steep, crossed - other, after - w)
        crossed, moved = game.row_slopes(w, up, rows)
        bounds = steep.bent, game.strong_concavity()
        end = -game.payoffs(w, up, rows), -moved
        chord(game, up - v, (-h, -other), end, bounds, "concave in v")
        _hold_crossed(game, steep, crossed - own, up - v)


def _norms(slopes: Floats) -> Floats:
    return np.asarray(np.linalg.norm(slopes, axis=1))


def _hold_crossed(game: Payoff, steep: Steepness, turned: Floats, moved: Floats) -> None:
    """One player's slopes, as the other moves."""
    if far := float(np.linalg.norm(moved)):
        slack = SLACK * (1 + max(steep.own, steep.other))
        words = "of slopes that the other player moves no more"
        at_most(game, _norms(turned) / far - slack, steep.cross, words)
