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
from protocols.problems.loss import ROUNDING, Loss
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.errors import ParameterError

_PAIRS, _FAR = 8, 1e3
_SLACK = 1e-6  # of what quotients of doubles lose, which must not refute a true payoff


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


def hold_to_constants(game: Payoff, rows: NDArray[Any], d: int, radius: float) -> None:
    """Hold what a payoff states against its rows, at public points; no proof, as points are few.

    Args:
        game: the payoff.
        rows: as it takes them.
        d: parameters.
        radius: of w.

    Raises:
        ParameterError: `loss`, and what is not as stated.
    """
    rng = np.random.default_rng(0)
    for pair in range(_PAIRS):
        # Far pairs show slopes, near ones curvature.
        apart = (1.0, 1e-2)[pair % 2]
        w, step = (_of_length(rng, d, min(radius, _FAR)) for _ in range(2))
        v = game.opponent.project(_of_length(rng, game.opponent.d, game.opponent.radius))
        w_near = w + apart * (step - w)
        v_near = v + apart * (game.opponent.center - v)
        _hold_between(game, rows, (w, v), (w_near, v_near), min(radius, _FAR))


def _of_length(rng: np.random.Generator, d: int, most: float) -> Floats:
    """A random direction; half of them as long as they may be."""
    drawn = rng.normal(size=d)
    length = most if rng.random() < 0.5 else most * rng.random()
    return np.asarray(drawn * (length / np.linalg.norm(drawn)))


def _hold_between(
    game: Payoff,
    rows: NDArray[Any],
    here: tuple[Floats, Floats],
    there: tuple[Floats, Floats],
    radius: float,
) -> None:
    """Of two points: w moves, then v."""
    steep, (w, v), (after, up) = game.steepness(radius), here, there
    (own, other), h = game.row_slopes(w, v, rows), game.payoffs(w, v, rows)
    if own.shape != (len(rows), len(w)) or other.shape != (len(rows), len(v)):
        shapes = f"of row_slopes of shapes (n, {len(w)}) and (n, {len(v)})"
        raise ParameterError("loss", game, f"{shapes}, not {own.shape} and {other.shape}")
    differ = np.linalg.norm(other - np.roll(other, 1, axis=0), axis=1)
    most = [
        (np.linalg.norm(own, axis=1), steep.own, "no steeper in w"),
        (np.linalg.norm(other, axis=1), steep.other, "no steeper in v"),
        (differ, steep.differ, "of slopes in v no farther apart"),
    ]
    for moved, signed, at, curved, strong, words in (
        (after - w, 1.0, (after, v), steep.curved, game.strong_convexity(), "convex in w"),
        (up - v, -1.0, (w, up), steep.bent, game.strong_concavity(), "concave in v"),
    ):
        far = float(np.linalg.norm(moved))
        if not far:
            continue
        slopes, values = game.row_slopes(*at, rows), game.payoffs(*at, rows)
        mine, others = (0, 1) if signed > 0 else (1, 0)
        first, last = (own, other)[mine], slopes[mine]
        turned, crossed = last - first, slopes[others] - (own, other)[others]
        size = 1 + float(max(np.abs(first).max(), np.abs(last).max()))
        slack = _SLACK * (size * far + np.abs(h) + np.abs(values))
        most += [
            (
                np.linalg.norm(turned, axis=1) / far - _SLACK * size,
                curved,
                f"where {words} no more curved",
            ),
            (
                np.linalg.norm(crossed, axis=1) / far - _SLACK * size,
                steep.cross,
                "of slopes that the other player moves no more",
            ),
        ]
        # Convex: no chord's slope is below that at its start, or above that at its end.
        rise, gain = signed * (values - h), strong / 2 * far**2
        start, end = signed * (first @ moved) + gain, signed * (last @ moved) - gain
        if not np.all((rise >= start - slack) & (rise <= end + slack)):
            raise ParameterError("loss", game, f"{words}, with row_slopes those of payoffs")
    for found, stated, words in most:
        if not np.all(found <= stated * ROUNDING):
            raise ParameterError("loss", game, f"{words} than `steepness` states, {stated:g}")
