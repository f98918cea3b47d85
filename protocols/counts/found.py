"""A histogram over categories that nobody listed: heavy hitters find them, then all are counted."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.counts.heavy_hitters import HeavyHitters, HeavyItems, usual_levels
from protocols.counts.items import Items, items_of
from protocols.counts.one_view import View, interval_error
from protocols.counts.pollution import Categories
from protocols.optimisation.then import Then, ThenState
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.query import Query


@dataclass(frozen=True)
class Among(Query):
    """Asks for an item's place in a list; all others share one place behind it.

    Attributes:
        bits: of an item.
        items: ascending; the last one is repeated to a fixed length.
    """

    bits: int
    items: Items
    moves: ClassVar[tuple[str, ...]] = ("items",)

    def __post_init__(self) -> None:
        integer("bits", self.bits, 2, 64)

    def __call__(self, rows: Floats) -> Floats:
        found, known = items_of(rows, self.bits)
        at = np.minimum(np.searchsorted(self.items, found), self.items.size - 1)
        place = np.where(self.items[at] == found, at, self.items.size)
        return np.where(known, place, -2).astype(np.float64)


@dataclass(frozen=True)
class FoundCounts:
    """Counts of the items that were found, and of all others together.

    Attributes:
        items: found, ascending, (items,).
        counts: unbiased, the last one of all others, (items + 1,).
        low: certified ends, at 95 % all at once, (items + 1,).
        high: likewise.
        search: what the heavy hitters gave.
    """

    items: Items
    counts: Floats
    low: Floats
    high: Floats
    search: HeavyItems


class FoundHistogram(Then, Protocol[Any]):
    """The items that many users have, then how many users each has; all users at each round.

    The counts are of fresh noise: they do not read high, as those of a search do.

    Formal guarantee: exact pairs of noisy counts, composed over the levels of the search and the
    histogram, whose noise is fixed beforehand (docs: theory, Counts).

    Attributes:
        search: the rounds that find items.
        counting: of the last round.
    """

    def __init__(self, search: HeavyHitters, counting: Categories, delta: float) -> None:
        """A search, and counts of as many items as it may keep, and of all others.

        Raises:
            ParameterError: they do not fit.
        """
        if (counting.bins, counting.planned) != (search.kept + 1, search.honest):
            allowed = f"{search.kept + 1} categories, planned for {search.honest} users"
            raise ParameterError("counting", counting, allowed)
        self.search, self.counting, self._delta = search, counting, delta
        self.n, self.honest_fraction = search.n, search.honest_fraction

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        privacy: Privacy,
        bits: int = 32,
        kept: int = 100,
        honest_fraction: float = 1.0,
        rounds: int = 1,
    ) -> Self:
        """The least noise for the privacy of all releases together: one rate for all of them.

        Args:
            n: users.
            privacy: of the whole run, and of all `rounds` of it.
            bits: of an item.
            kept: items that are found at most.
            honest_fraction: of the users whose noise is counted on.
            rounds: such runs, as of weeks, that a user answers.
        """
        levels = usual_levels(integer("n", n, 2), integer("bits", bits, 2, 64))
        releases = (len(levels) + 1) * integer("rounds", rounds)
        search = HeavyHitters(
            n=n,
            levels=levels,
            rate=count_planner.one_sided(privacy, "error", releases).rate,
            kept=kept,
            privacy=privacy,
            honest_fraction=honest_fraction,
            releases=releases,
        )
        of = search.noise, (kept + 1,), search.honest, privacy
        counting = Categories.of_plan(*of, releases=releases)
        return cls(search, counting, privacy.delta)

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (*self.search.vocabulary, Among, Categories)

    @property
    def messages_per_user(self) -> float:
        """In all rounds together, on average."""
        return self.search.messages_per_user + self.counting.usual_messages

    def variance(self) -> float:
        """Of a count."""
        return self.counting.noise_variance(self.n)[0]

    def error_of(self, value: Floats) -> float:
        """Of each count."""
        return math.sqrt(self.variance())

    def check(self, rows: NDArray[Any]) -> None:
        self.search.check(rows)

    def stage(self, results: tuple[Any, ...]) -> Any:
        if not results:
            return self.search
        found = np.sort(results[0].items)
        if len(results) > 1 or not found.size:
            return None
        # Filled up to a fixed length, for which the noise was planned.
        listed = np.append(found, np.full(self.search.kept - found.size, found[-1]))
        query, users = Among(self.search.bits, listed), Cohort.of(0, self.n)
        event = self.counting.event(self.search.honest, query)
        least = self.search.minimum
        return RoundSpec(users, query, self.counting, event, self._viewed, least)

    def _viewed(self, tally: Any) -> View:
        return View(self.counting.estimate(tally), tally.reports)

    def result(self, state: ThenState) -> FoundCounts:
        """Where nothing was found, all who reported are others: that needs no round.

        Raises:
            ParameterError: the run is not over.
        """
        if state.stage is not None:
            raise ParameterError("state", state, "that of a finished run")
        search = state.results[0]
        if not search.items.size:
            # The number of reports is public: a range of no width.
            everybody = np.array([float(search.reports)])
            return FoundCounts(search.items, everybody, everybody, everybody, search)
        items, view = np.sort(search.items), state.results[1]
        # Behind the found ones lie places of the filling, where there is noise alone.
        kept = np.append(np.arange(items.size), self.search.kept)
        beta = interval_error(0.95, kept.size, self.counting.independent)
        honest = min(self.search.honest, view.reports)
        estimates = view.estimates[kept]
        low, high = self.counting.ranges(view.estimates, view.reports, honest, beta)
        return FoundCounts(items, estimates, low[kept], high[kept], search)
