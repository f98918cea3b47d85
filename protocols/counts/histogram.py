"""How many users are in each category: histograms, and tables of several columns."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.counts.methods import METHODS, AskedCounts
from protocols.counts.one_view import OneView, View, interval_error
from protocols.counts.randomizer import Counting
from protocols.counts.single import Obliged
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import WITHHELD, ParameterError, integer, one_of, real
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.base import check_rows
from shuffle_sim.protocol.query import Query


@dataclass(frozen=True)
class CountIntervals:
    """Certified ranges of counts.

    Attributes:
        low: (categories,).
        high: (categories,).
        confidence: with which each holds, or with `together` all of them.
        together: whether all hold at once.
    """

    low: Floats
    high: Floats
    confidence: float
    together: bool


_MOST_BINS = 2**26
_CHEAP = 0.05  # messages of a user: for less no error is taken that is many times as large


@dataclass(frozen=True)
class Cells(Query):
    """The number of the cell of a table that a row is in; -2: in none.

    Attributes:
        sizes: categories of each column.
    """

    sizes: tuple[int, ...]

    def __call__(self, rows: Floats) -> Floats:
        columns = np.asarray(rows, np.float64).reshape(len(rows), -1)
        whole = (columns >= 0) & (columns < np.array(self.sizes)) & (columns == np.floor(columns))
        cell = np.zeros(len(rows))
        for size, column in zip(self.sizes, columns.T, strict=True):
            cell = cell * size + column
        return np.where(whole.all(axis=1), cell, -2.0)


def _sizes(categories: int | tuple[int, ...]) -> tuple[int, ...]:
    return categories if isinstance(categories, tuple) else (categories,)


def _bins(categories: int | tuple[int, ...]) -> int:
    bins = math.prod(integer("categories", each, 1, _MOST_BINS) for each in _sizes(categories))
    if not 2 <= bins <= _MOST_BINS:
        allowed = f"from 2 to {_MOST_BINS} in all; for more there are heavy hitters"
        raise ParameterError("categories", categories, allowed)
    return bins


class Histogram(OneView[Counting]):
    """The number of users in each category; data of shape (n,), numbers of categories from 0 on.

    With several columns categories are a tuple, and data are of shape (n, columns). Data outside
    the domain are dropped and counted; where every user must send one message they are refused.

    Formal guarantee: exact pairs of noisy counts (docs: theory, Counts); of single messages
    amplification by shuffling.

    Attributes:
        categories: how many, or how many of each column.
        value: of a run: unbiased estimates, of shape (categories,).
    """

    task: ClassVar[str] = "histogram"

    def __init__(
        self,
        *,
        n: int,
        randomizer: Counting,
        categories: int | tuple[int, ...] | None = None,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        super().__init__(n, randomizer, delta, honest_fraction)
        self.categories = randomizer.bins if categories is None else categories
        if _bins(self.categories) != randomizer.bins:
            raise ParameterError("categories", categories, f"{randomizer.bins} in all")

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        categories: int | tuple[int, ...],
        privacy: Privacy,
        objective: str = "messages",
        max_messages: float | None = None,
        method: str | None = None,
        count: float | None = None,
        batch: int | None = None,
        kept_back: float | None = None,
        flood: float | None = None,
        honest_fraction: float = 1.0,
        rounds: int = 1,
    ) -> Self:
        """The least messages, or the least error, for the privacy.

        Args:
            n: users.
            categories: k; or those of each column of a table.
            privacy: of the view; delta above 0.
            objective: "messages": the fewest, or the least variance near them; "error": the least
                variance.
            max_messages: of a user, on average.
            method: one of METHODS; None: pollution, and with max_messages below what that takes the
                one message of randomised response. "two-sided" is near what a trusted curator has;
                see docs/counts.md for its prior art.
            count: of a bin in which the error is to be least; None: n/k.
            batch: largest batch of pollution's noise; None: searched.
            kept_back: probability with which pollution keeps the truth back; None: searched from
                epsilon 3 on.
            flood: part of epsilon that the two-sided flood takes; None: searched.
            honest_fraction: of the users whose noise is counted on.
            rounds: such reports, as of days, that a user answers; the privacy is of all.
        """
        honest, bins = honest_users(honest_fraction, integer("n", n, 2)), _bins(categories)
        one_of("objective", objective, count_planner.OBJECTIVES)
        most = math.inf
        if max_messages is not None:
            most = real("max_messages", max_messages, 1.0, 2.0**24, closed=(True, True))
        one_of("method", method, METHODS, None)
        usual = n / bins if count is None else real("count", count, 0.0, n, closed=(True, True))
        given = {"batch": batch, "kept_back": kept_back, "flood": flood}
        for name in given.keys() - METHODS[method or "pollution"]:
            if given[name] is not None:
                allowed = f"left out: method {method or 'pollution'} has none"
                raise ParameterError(name, given[name], allowed)
        told = batch, kept_back, flood, integer("rounds", rounds)
        asked = AskedCounts(honest, bins, privacy, most, objective == "error", *told)
        # One message, whose error is larger, is for those who have no room for more.
        methods = (method,) if method else ("pollution", *["response"] * (rounds == 1))
        for each in methods:
            offers = list(asked.offers(each))
            fitting = [made for made in offers if made.usual_messages <= most]
            if fitting:
                break
        else:
            least = min(made.usual_messages for made in offers)
            raise ParameterError("max_messages", max_messages, f"at least {least:.6g}")

        def error(made: Counting) -> float:
            return float(made.variance(n, np.full(bins, usual)).max())

        if objective == "messages":
            # Without the own message, which all methods send.
            fewest = min(made.usual_messages for made in fitting) - 1
            near = max(count_planner.NEAR * fewest, fewest + _CHEAP)
            fitting = [made for made in fitting if made.usual_messages - 1 <= near]
        # Errors first: messages part only those that are equally good.
        best = min(fitting, key=lambda made: (error(made), made.usual_messages))
        return cls(
            n=n,
            randomizer=best,
            categories=categories,
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )

    @classmethod
    def best(
        cls,
        *,
        n: int,
        categories: int | tuple[int, ...],
        privacy: Privacy,
        max_messages: float | None = None,
        count: float | None = None,
        two_sided: bool = False,
        honest_fraction: float = 1.0,
    ) -> Self:
        """The least error of all methods within a budget of messages (table of docs/counts.md).

        Args:
            n: users.
            categories: as of `calibrated`.
            privacy: as there.
            max_messages: of a user, on average.
            count: of a bin in which the error is to be least.
            two_sided: whether the two-sided method may be chosen.
            honest_fraction: as there.
        """
        found: list[Self] = []
        refused: list[ParameterError] = []
        usual = n / _bins(categories) if count is None else count
        for method in METHODS:
            if method == "two-sided" and not two_sided:
                continue
            try:
                made = cls.calibrated(
                    n=n,
                    categories=categories,
                    privacy=privacy,
                    objective="error",
                    max_messages=max_messages,
                    method=method,
                    count=count,
                    honest_fraction=honest_fraction,
                )
            except ParameterError as error:
                refused.append(error)
            else:
                found.append(made)
        if not found:
            raise refused[0]
        return min(found, key=lambda made: (made.variance(usual), made.messages_per_user))

    @classmethod
    def size(cls, n: int, domain: int, privacy: Privacy) -> dict[str, Any]:
        return {"n": n, "categories": domain, "privacy": privacy}

    @classmethod
    def settings(cls, n: int, domain: int, privacy: Privacy) -> Mapping[str, Callable[..., Self]]:
        make = partial(cls.calibrated, **cls.size(n, domain, privacy))
        found = {
            f"pollution, {name}": each
            for name, each in super().settings(n, domain, privacy).items()
        }
        for share in (0.1, 0.3):
            name = f"two-sided, {share:g} of epsilon for the flood"
            found[name] = partial(make, method="two-sided", flood=share)
        others = [method for method in METHODS if method not in ("pollution", "two-sided")]
        return found | {method: partial(make, method=method) for method in others}

    @property
    def error(self) -> float:
        """Standard error of a bin that an average number of users is in."""
        return math.sqrt(self.variance(self.n / self.randomizer.bins))

    def variance(self, count: float = 0.0) -> float:
        """Of the estimate of a bin that so many users are in."""
        each = self.randomizer.variance(self.n, np.full(self.randomizer.bins, count))
        return float(each.max())

    def error_of(self, value: Floats) -> float:
        """The largest of estimates, at the counts that they say."""
        inside = np.clip(np.ravel(value), 0.0, self.n)
        return math.sqrt(float(self.randomizer.variance(self.n, inside).max()))

    def interval(
        self,
        value: Floats,
        confidence: float = 0.95,
        *,
        together: bool = False,
        reports: int | None = None,
        corrupted: int = 0,
    ) -> CountIntervals:
        """Certified ranges of the true counts.

        Args:
            value: the estimates of a run.
            confidence: with which each range holds, in (0, 1).
            together: whether all hold at once with it.
            reports: that were received; None: n.
            corrupted: users who may send what they like: ranges are wider by their reach.

        Raises:
            ParameterError: a number out of range, or estimates of other categories.
        """
        received = self.n if reports is None else integer("reports", reports, 1, self.n)
        bins = self.randomizer.bins if together else 1
        beta = interval_error(confidence, bins, self.randomizer.independent)
        estimates = np.asarray(value, np.float64)
        if estimates.size != self.randomizer.bins:
            allowed = f"{self.randomizer.bins} estimates, one of each category"
            raise ParameterError("value.shape", estimates.shape, allowed)
        # The corrupted may be any of those whose noise was counted on.
        honest = min(self.honest, received) - integer("corrupted", corrupted, 0, received)
        low, high = self.randomizer.ranges(estimates.ravel(), received, max(honest, 0), beta)
        shift = self.randomizer.manipulation(corrupted)
        # No category has fewer than none of the n users, or more than all.
        low, high = (np.clip(each, 0.0, self.n) for each in (low - shift, high + shift))
        shape = estimates.shape
        return CountIntervals(low.reshape(shape), high.reshape(shape), confidence, together)

    @property
    def query(self) -> Query:
        return Cells(_sizes(self.categories))

    def check(self, rows: NDArray[Any]) -> None:
        several = isinstance(self.categories, tuple)
        check_rows(rows, (self.n, len(_sizes(self.categories))) if several else (self.n,))
        if isinstance(self.randomizer, Obliged) and (dense(self.query(rows)) < 0).any():
            allowed = f"whole numbers below {self.categories}: each user has to send a category"
            raise ParameterError("data", WITHHELD, allowed)

    def answer(self, view: View) -> Floats:
        shape = self.categories
        return view.estimates.reshape(shape) if isinstance(shape, tuple) else view.estimates
