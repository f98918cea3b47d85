"""How numbers become integers: shifted to [0, width], scaled to steps, rounded at random."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.sampling.kernels import shorten
from shuffle_sim.wire.messages import Tally

MAGNITUDES = (1e-100, 1e100)
"""Bounds of data between which squares neither vanish nor overflow."""


@dataclass(frozen=True)
class Box:
    """Where a user's numbers lie: each in a range, or all in a ball in the middle of a cube.

    Attributes:
        labels: how many there are.
        lower: least value of each.
        width: length of its range.
        norm_bound: radius of the ball, to which longer vectors are scaled; None: numbers are
            clipped to the range.
    """

    labels: int
    lower: float
    width: float
    norm_bound: float | None = None

    def check(self) -> None:
        """Refuse a range or ball that floats do not hold, and a ball outside the range.

        Kernels do not clip coordinates of a ball again: what a broadcast says of it must hold.

        Raises:
            ParameterError: naming what is out of range.
        """
        real("width", self.width, MAGNITUDES[0], 2 * MAGNITUDES[1], closed=(True, True))
        real("lower", self.lower, -MAGNITUDES[1], MAGNITUDES[1], closed=(True, True))
        if self.norm_bound is not None:
            real("norm_bound", self.norm_bound, *MAGNITUDES, closed=(True, True))
            room = min(-self.lower, self.lower + self.width)
            # 1e-9 is for ranges that were computed: their ends are rounded.
            if self.norm_bound > room + 1e-9 * self.width:
                allowed = f"at most {room:g}, inside the range: the ball whose event is charged"
                raise ParameterError("norm_bound", self.norm_bound, allowed)

    def check_ball(self) -> None:
        """Refuse vectors whose l2 distance may be above a coordinate's width: events state that.

        Raises:
            ParameterError: more than one coordinate, and no norm bound of at most half the width.
        """
        bound, most = self.norm_bound, self.width * (1 + 1e-12)
        if self.labels > 1 and (bound is None or 2 * bound > most):
            allowed = f"at most {self.width / 2:g}, half the width: the ball whose event is charged"
            raise ParameterError("norm_bound", self.norm_bound, allowed)

    def admit(self, values: Values) -> tuple[Values, int]:
        """Scale longer vectors to the bound, or clip numbers to the range; and how many were.

        Raises:
            ParameterError: if there are not `labels` numbers for each user.
        """
        bound, rows = self.norm_bound, values.rows if isinstance(values, Scaled) else values
        if rows.size != len(rows) * self.labels:
            raise ParameterError("data.shape", rows.shape, f"{self.labels} number(s) for each user")
        if isinstance(values, Scaled) and bound is not None:
            squares = values.norms_squared
            # 1e-12 is more than the rounding of a norm, and less than the margins of accountants.
            if squares.max(initial=0.0) <= bound**2 * (1 + 1e-12):  # as most gradients are
                return values, 0
            # Rows stay where they are: the kernels multiply, round and add in one pass.
            factors = values.factors.copy()
            long = shorten(squares, bound, factors)
            return Scaled(values.rows, factors, values.squared_norms), long
        values = dense(values)
        if bound is None:
            inside = np.clip(values, self.lower, self.lower + self.width)
            return inside, int((inside != values).reshape(len(values), -1).any(axis=1).sum())
        with np.errstate(over="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", values, values))
        over = np.flatnonzero(~(norms <= bound))  # an overflow to infinity is long, too
        # Its largest number comes first: squares of 1e200 would overflow, and of 1e-200 vanish.
        unit = values[over] / np.abs(values[over]).max(axis=1, keepdims=True)
        inside = values.copy()
        inside[over] = unit * (bound / np.sqrt(np.einsum("ij,ij->i", unit, unit)))[:, None]
        # A norm above the bound by less than rounding shows is not worth a report; the accountant's
        # margin covers it.
        return inside, int((norms > bound * (1 + 1e-12)).sum())

    def opposite_ends(self) -> tuple[Floats, Floats]:
        """Two data at opposite ends of coordinate 0, both multiples of a rounding step."""
        # A vector of the ball that reaches the end of one coordinate is 0 in all others: mid-range.
        middle = 0.0 if self.norm_bound is None else self.lower + self.width / 2
        first = np.full(self.labels, middle)
        second = first.copy()
        first[0], second[0] = self.lower, self.lower + self.width
        return first, second


class SumRandomizer(Randomizer):
    """A randomizer whose messages the analyzer turns into a sum over the users.

    Attributes:
        norm_bound: l2 bound of the vectors, to which longer ones are scaled; None: numbers are
            clipped to a range.
    """

    norm_bound: float | None
    moves: ClassVar[tuple[str, ...]] = ("lower", "width", "norm_bound")

    @abstractmethod
    def estimate(self, tally: Tally) -> Floats:
        """The analyzer: the sum over the reports received, shape (labels,)."""

    @abstractmethod
    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """Variance of each coordinate, shape (labels,): on the values `xs`, or at its largest."""

    @abstractmethod
    def manipulation(self, attackers: int, reports: int) -> float:
        """How far (l2) malicious users with the datum 0 can move a sum over `reports` users."""

    @abstractmethod
    def event(self, users: int, query: Query) -> PrivacyEvent:
        """The release of the view, with the noise of `users` honest users.

        Raises:
            ParameterError: vectors without a norm bound that keeps them in the event's ball.
        """


class Rounding(SumRandomizer):
    """One that rounds the numbers of a `Box` to steps; the analyzer takes sums of its symbols."""

    @property
    @abstractmethod
    def box(self) -> Box:
        """Where data lie."""

    def admit(self, values: Values) -> tuple[Values, int]:
        return self.box.admit(values)

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Two data at opposite ends of coordinate 0, where neither is rounded at random."""
        return self.box.opposite_ends()

    def count_index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        """The sum itself: of bits the number of ones."""
        return sums


def rounded_law(scaled: float, steps: int, noise: Floats) -> Floats:
    """Law of a number in [0, steps], rounded at random, plus noise from 0 on."""
    # At the upper end the last step, all of whose mass is at its top.
    floor = min(int(scaled), steps - 1)
    pmf = np.zeros(steps + noise.size)
    pmf[floor : floor + noise.size] += (1 - (scaled - floor)) * noise
    pmf[floor + 1 : floor + 1 + noise.size] += (scaled - floor) * noise
    return pmf


def round_at_random(scaled: Floats, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Values in steps, rounded down or up at random so that the mean is right; in [0, steps]."""
    scaled = np.clip(scaled, 0.0, steps)
    floor = np.floor(scaled)
    # Comparing with the fraction is exact; floor(w + u) is not: at w near the top it can give one
    # step too many.
    return (floor + (rng.random(scaled.shape) < scaled - floor)).astype(np.int64)
