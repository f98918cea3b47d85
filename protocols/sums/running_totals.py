"""Running totals over days, each as private and as exact as a few sums: continual counting.

Day t releases one sum, of the users of its last b days, where b is the largest power of two that
divides t. The total until t is that sum and the total until t - b (Fenwick 1994: a binary tree of
sums, of which a prefix needs no other nodes). A user's datum is in at most log2(days) + 1 sums, and
a total is made of as many at most (Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song
2011). docs/theory/running-totals.md has the theorem.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.sums.planned import PlannedSum
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec, honest_users
from shuffle_sim.protocol.base import Datum, Protocol, RoundSpec, check_rows
from shuffle_sim.protocol.encodings import NOISE_RATIO, choose
from shuffle_sim.registry import registered

YEAR = 365
_TIGHTER, _TRIES = 0.998, 12
"""Sums of several sizes compose to a little more than equal ones: they are planned for less."""


@dataclass(frozen=True)
class Totals:
    """The totals until each day that is over; the first, of no day, is zero."""

    until: tuple[Floats, ...]


class RunningTotals(Protocol[Totals]):
    """The sum of all data until each of many days; data of shape (n days,) or (n days, d).

    The first n rows are those of the first day. On day t the users of its last days answer, as many
    days as the largest power of two that divides t. The result has a row for each day. Privacy is
    of one row: what one person contributes on one day.

    Attributes:
        n: users of a day.
        rounds: how many days there are.
        sums: of 1, 2, 4, ... days.
    """

    def __init__(self, *, n: int, rounds: int, sums: tuple[PlannedSum, ...], delta: float) -> None:
        """Take one sum for each number of days that is a power of two and at most `rounds`.

        Raises:
            ParameterError: they are not of as many users, or more or fewer.
        """
        self.n, self.rounds = integer("n", n), integer("rounds", rounds)
        self.sums, self._delta = sums, delta
        # Theorem (running totals), 2: a datum is in one sum
        # of each size, floor(log2 days) + 1 in all.
        asked = [n << level for level in range(rounds.bit_length())]
        if (given := [each.users for each in sums]) != asked:
            raise ParameterError("sums", given, f"of {asked} users")
        self.honest_fraction = sums[0].honest_fraction

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        rounds: int = YEAR,
        privacy: Privacy,
        d: int = 1,
        bound: float = 1.0,
        noise_ratio: float | None = None,
        max_bits: int | None = None,
        encoding: str | None = None,
        honest_fraction: float = 1.0,
    ) -> Self:
        """All sums alike: for each the fewest bits at a noise ratio, or the least noise in bits.

        Args:
            n: users of a day.
            rounds: how many days there are; one round each.
            privacy: of a row, in all totals together.
            d: coordinates; 1: numbers in [0, bound], more: vectors in the ball of this radius.
            bound: of the data.
            noise_ratio: over that of central Gaussians, composed over log2(days) + 1 sums; or
            max_bits: per user, coordinate and sum. By default the noise ratio is 1.05.
            encoding: None: the best of all.
            honest_fraction: of users who add their noise, assumed in advance.

        Raises:
            ParameterError: what is asked for cannot be had.
        """
        levels = integer("rounds", rounds, 1, 2**20).bit_length()
        honest = honest_users(honest_fraction, integer("n", n))
        if noise_ratio is None and max_bits is None:
            # Honest users' shares alone must do: with all
            # others' the variance is n/honest times theirs.
            noise_ratio = NOISE_RATIO * math.sqrt(n / honest)
        epsilon = privacy.epsilon
        for _ in range(_TRIES):
            sums = []
            for level in range(levels):
                asked = Privacy(epsilon, privacy.delta)
                # As if all sums were of this size: `levels` rounds of it.
                spec = SumSpec(n << level, d, asked, levels, honest_fraction)
                name, plan = choose(spec, noise_ratio, max_bits, encoding, d == 1)
                sums.append(registered("protocol", name).planned(plan, bound))
            made = cls(n=n, rounds=rounds, sums=tuple(sums), delta=privacy.delta)
            if made.epsilon <= privacy.epsilon:
                return made
            epsilon *= _TIGHTER
        raise ParameterError("privacy", privacy, "with room for sums of several sizes")

    @classmethod
    def size(cls, n: int, d: int, privacy: Privacy) -> dict[str, Any]:
        """What `calibrated` must be given."""
        return {"n": n, "d": d, "privacy": privacy}

    @property
    def epsilon(self) -> float:
        """Of a row that is in a sum of every size, at `delta`."""
        accountant = ShuffleAccountant()
        for each in self.sums:
            accountant.compose(each.randomizer.event(each.honest, Datum()))
        return accountant.get_epsilon(self._delta)

    @property
    def users(self) -> int:
        return self.n * self.rounds

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (Datum, *dict.fromkeys(type(each.randomizer) for each in self.sums))

    def check(self, rows: NDArray[Any]) -> None:
        first = self.sums[0]
        width = () if first.scalar else (first.randomizer.variance(1).size,)
        check_rows(rows, (self.users, *width))

    def span(self, day: int) -> int:
        """How many days the sum of a day is of, from 1 on: the last power of two in its binary."""
        return integer("day", day, 1, self.rounds) & -day

    def sum_of(self, day: int) -> PlannedSum:
        """What is released on a day, on its own: the sum over the rows of its last `span` days.

        A run of it is charged to a budget as a report whose first user is n (day - span).
        """
        return self.sums[self.span(day).bit_length() - 1]

    @property
    def standard_error(self) -> Floats:
        """Predicted standard deviation of each coordinate of the total until each day, (days,)."""
        errors = {each: self.sum_of(each).standard_error for each in range(1, self.rounds + 1)}
        paths = map(self._path, errors)
        return np.array([math.hypot(*(errors[each] for each in path)) for path in paths])

    def _path(self, day: int) -> Iterator[int]:
        """The days whose sums make the total until a day: one for each one of its binary."""
        while day:
            yield day
            day -= self.span(day)

    def init(self) -> Totals:
        first = self.sums[0]
        return Totals((np.zeros(1 if first.scalar else first.randomizer.variance(1).size),))

    def plan(self, state: Totals) -> RoundSpec | None:
        day = len(state.until)
        if day > self.rounds:
            return None
        # Its last `span` days: users before them have answered in sums that stand for them.
        made, first = self.sum_of(day), (day - self.span(day)) * self.n
        query, randomizer = Datum(), made.randomizer
        return RoundSpec(
            Cohort.of(first, day * self.n),
            query,
            randomizer,
            randomizer.event(made.honest, query),
            partial(self._total, state.until[day - self.span(day)], randomizer),
            made.minimum,
        )

    @staticmethod
    def _total(before: Floats, randomizer: Any, tally: Any) -> Floats:
        return np.asarray(before + randomizer.estimate(tally), np.float64)

    def update(self, state: Totals, estimate: Any) -> Totals:
        return Totals((*state.until, estimate))

    def result(self, state: Totals) -> Floats:
        """The totals until each day, of shape (days,) or (days, d)."""
        totals = np.array(state.until[1:])
        return totals[:, 0] if self.sums[0].scalar else totals
