"""Neighbouring data from numbers: what a search turns, and the extremes that it begins with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.erm.groups import Grouped
from protocols.erm.payoff import Payoff
from protocols.problems.losses import MeanEstimation
from protocols.problems.multiclass import MultiClass
from protocols.problems.weighted import Weighted

WILD = (1e300, -1e300, np.inf, -np.inf, np.nan, 1e150, 1e-170, 5e-324, 0.0)
"""Numbers that overflow, vanish or are none."""
VANISHING = 1e-163
"""Its square is 0; times 1e153 it is long."""


def row(loss: Any, d: int, numbers: Any) -> Any:
    """A row that the loss takes, from `width` numbers of any size."""
    if isinstance(loss, Weighted):
        inner = row(loss.loss, d, numbers[:-1])
        return np.append(inner, loss.bound * np.clip(abs(numbers[-1]), 0, 1))
    if isinstance(loss, Grouped):
        inner = row(loss.loss, d, numbers[:-1])
        return np.append(inner, int(abs(numbers[-1]) * 1e3) % loss.groups)
    if isinstance(loss, MeanEstimation):
        return _in_ball(numbers[:d], loss.points)
    if isinstance(loss, Payoff):
        return np.append(_in_ball(numbers[:d], 1.0), np.where(numbers[d:] >= 0, 1.0, -1.0))
    x = _in_ball(numbers[: loss.columns(d) - 1], loss.features)
    return np.append(x, _label(loss, numbers[loss.columns(d) - 1]))


def _in_ball(x: Any, bound: float) -> Any:
    length = float(np.hypot.reduce(x))
    if not np.isfinite(bound):
        return x * 10.0 ** min(100.0, 3 * max(0.0, length - 1))
    return x * (bound * min(1.0, length) / length) if length > 0 else x


def _label(loss: Any, number: float) -> float:
    if isinstance(loss, MultiClass):
        return float(int(abs(number) * 1e3) % loss.classes)
    if loss.classification:
        return 1.0 if number >= 0 else -1.0
    bound = loss.label_bound
    return float(
        bound * np.clip(number, -1, 1)
        if np.isfinite(bound)
        else np.sinh(np.clip(9 * number, -700, 700))
    )


@dataclass(frozen=True)
class Records:
    """n rows of a loss: many copies of two rows, and the one row in which neighbours differ.

    Attributes:
        loss: of the rows; None: vectors of d numbers in a ball, or numbers (d = 0) in [0, bound].
        d: parameters.
        n: rows.
        bound: of vectors and numbers.
    """

    loss: Any
    d: int
    n: int
    bound: float = 1.0

    @property
    def columns(self) -> int:
        """Of a row."""
        return max(1, self.d) if self.loss is None else self.loss.columns(self.d)

    @property
    def size(self) -> int:
        """Numbers from which a pair is made."""
        return 4 * self.columns + 2

    def _row(self, numbers: Any) -> Any:
        if self.loss is not None:
            return row(self.loss, self.d, numbers)
        if self.d == 0:
            return self.bound * np.clip(abs(numbers), 0, 1)
        return _in_ball(numbers, self.bound)

    def pair(self, numbers: Any) -> tuple[Any, Any]:
        """Two tables, (n, columns) or (n,), that differ in one row."""
        own = np.reshape(numbers[:-2], (4, self.columns))
        rows = [self._row(each) for each in own]
        return self._around(rows, *numbers[-2:])

    def _around(self, rows: list[Any], share: float, place: float) -> tuple[Any, Any]:
        cut = int(np.clip(abs(share), 0, 1) * self.n)
        at = int(np.clip(abs(place), 0, 1) * (self.n - 1))
        first = np.array([rows[0] if each < cut else rows[1] for each in range(self.n)])
        second = first.copy()
        first[at], second[at] = rows[2], rows[3]
        if self.loss is None and self.d == 0:
            return first[:, 0], second[:, 0]
        return first, second

    def extremes(self, rng: np.random.Generator, count: int) -> list[tuple[Any, Any]]:
        """Pairs of rows at the ends of what is allowed, and far beyond it."""
        found = []
        for at in range(count):
            rows = self._extreme(rng, at, 4)
            found.append(self._around(rows, rng.choice([0.0, 0.5, 1.0]), rng.choice([0, 0.5, 1])))
        return found

    def _extreme(self, rng: np.random.Generator, at: int, count: int) -> list[Any]:
        """Rows: every other time ends, else in turn what no constant holds for."""
        kind = ("wild", "long", "wild", "vanishing", "far")[at // 2 % 5] if at % 2 else "ends"
        if kind == "vanishing":
            ends = np.array([*[VANISHING] * (self.columns - 1), 1e153])
            return [ends * rng.choice([-1.0, 1.0], self.columns) for _ in range(count)]
        if kind == "far":
            far = rng.uniform(0.5, 1.0, self.columns) * 1e300
            return [far * (1 + rng.choice([0.0, 0.0, 1e-12])) for _ in range(count)]
        longer = np.ones(self.columns)
        longer[:-1] += 29.0 * (kind == "long")
        return [self._end(rng, kind == "wild") * longer for _ in range(count)]

    def _end(self, rng: np.random.Generator, wild: bool) -> Any:
        numbers = rng.choice([-1.0, 0.0, 1.0], self.columns) * rng.choice([1.0, 1e3])
        made = np.atleast_1d(self._row(numbers))
        if wild:
            few = rng.random(len(made)) < rng.choice([0.3, 1.0])
            made[few] = rng.choice(WILD, int(few.sum()))
        return made


@dataclass(frozen=True)
class People:
    """n persons with records of a loss; neighbours differ in all records of one person.

    Attributes:
        loss: of the records.
        d: parameters.
        n: persons.
        m: records of the others.
        ragged: whether numbers of records differ, the replaced person's most of all.
    """

    loss: Any
    d: int
    n: int
    m: int
    ragged: bool = True

    @property
    def size(self) -> int:
        """Numbers from which a pair is made."""
        return 6 * self.loss.columns(self.d) + 5

    def pair(self, numbers: Any) -> tuple[Any, Any]:
        """Two lists of one array of records for each person."""
        own = np.reshape(numbers[:-5], (6, -1))
        rows = [row(self.loss, self.d, each) for each in own]
        return self._around(rows, *numbers[-5:])

    def _around(
        self, rows: list[Any], share: float, place: float, most: float, least: float, mix: float
    ) -> tuple[Any, Any]:
        cut = int(np.clip(abs(share), 0, 1) * self.n)
        at = int(np.clip(abs(place), 0, 1) * (self.n - 1))
        counts = [self.m] * 2
        if self.ragged:
            counts = [max(1, int(abs(each) * 4 * self.m) % (6 * self.m)) for each in (most, least)]
        other = [self.m + (each % 3 == 1) * self.ragged for each in range(self.n)]
        first = [np.array([rows[each >= cut]] * other[each]) for each in range(self.n)]
        second = list(first)
        first[at] = self._person(rows[2], rows[3], counts[0], mix)
        second[at] = self._person(rows[4], rows[5], counts[1], mix)
        return first, second

    @staticmethod
    def _person(one: Any, other: Any, count: int, mix: float) -> Any:
        ones = int(np.ceil(np.clip(abs(mix), 0, 1) * count))
        return np.array([one] * ones + [other] * (count - ones))

    def extremes(self, rng: np.random.Generator, count: int) -> list[tuple[Any, Any]]:
        """Records at the ends of what is allowed and beyond; a person with most of all records."""
        table = Records(self.loss, self.d, self.n)
        found = []
        for at in range(count):
            rows = table._extreme(rng, at, 6)
            found.append(self._around(rows, *rng.choice([0.0, 0.5, 1.0, 1.49], 5)))
        return found


@dataclass(frozen=True)
class Stacked(People):
    """Persons with m records each in one array (n, m, columns).

    Attributes:
        single: whether neighbours differ in one record alone.
    """

    ragged: bool = False
    single: bool = False

    def __init__(self, loss: Any, d: int, n: int, m: int, single: bool) -> None:
        """Nobody has another number of records."""
        super().__init__(loss, d, n, m, False)
        object.__setattr__(self, "single", single)

    def _around(self, rows: list[Any], *others: float) -> tuple[Any, Any]:
        first, second = (np.array(each) for each in super()._around(rows, *others))
        if self.single:
            at = (
                int(np.argmax((first != second).any(axis=(1, 2)))) if (first != second).any() else 0
            )
            changed = first.copy()
            changed[at, 0] = second[at, 0]
            second = changed
        return first, second
