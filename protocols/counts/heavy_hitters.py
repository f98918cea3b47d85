"""The items that many users have, of a domain far too large to count each: prefix trees."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.counts.items import Items, hash_of
from protocols.counts.one_view import interval_error
from protocols.counts.prefixes import MAX_LEVEL, Children, Prefixes
from protocols.counts.task import CountsTask
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import WITHHELD, ParameterError, integer, real
from shuffle_sim.privacy import count_planner
from shuffle_sim.privacy.bounds.binomial import first
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.base import Protocol, RoundSpec, check_rows
from shuffle_sim.wire.messages import Tally

_NONE = ~np.uint64(0)  # fills up what is kept; no prefix, which has fewer bits
_EXACT = 53  # bits of an item in one column; more are in two columns of 32
_MOST_BINS = 2**26  # of a level


@dataclass(frozen=True)
class HeavyItems:
    """Items that many users have.

    Attributes:
        items: largest count first, uint64.
        counts: estimates; those near the threshold read high, as they were selected.
        low: certified ends of the counts, at 95 % all at once.
        high: likewise.
        threshold: an estimate below is not reported.
        least_count: an item of this count is missed with probability `missed` at most.
        false_items: the probability that an item which nobody has is reported, at most.
        missed: see `least_count`.
        reports: received in the last round.
    """

    items: Items
    counts: Floats
    low: Floats
    high: Floats
    threshold: float
    least_count: int
    false_items: float
    missed: float
    reports: int

    def named(self, candidates: Iterable[str]) -> list[tuple[str | None, float]]:
        """The texts of items that `hash_of` made, of those that are known, with their counts."""
        names = {hash_of(each): each for each in candidates}
        counts = self.counts.tolist()
        return [(names.get(int(i)), count) for i, count in zip(self.items, counts, strict=True)]


@dataclass(frozen=True)
class Search:
    """What is known after some levels.

    Attributes:
        level: levels done.
        kept: prefixes, ascending.
        found: the answer, once there is one.
    """

    level: int = 0
    kept: Items | None = None
    found: HeavyItems | None = None


class HeavyHitters(Protocol[Search], CountsTask):
    """Items of 2^bits that many users have, level by level of a prefix tree; all users at each.

    Data are whole numbers, of shape (n,), or of more than 53 bits (n, 2) (`columns_of`). Texts
    become items by `prefix_of` or `hash_of`.

    Formal guarantee: exact pairs of noisy counts, composed over all levels (docs: theory, Counts).

    Attributes:
        levels: bits of each.
        kept: prefixes that a level keeps at most; those of the largest counts.
        noise: of each bin.
        false_items: an item that nobody has is reported with this probability at most.
        missed: an item of `least_count` users is missed with this probability at most.
        releases: that the privacy is of, those of other runs among them.
    """

    task: ClassVar[str] = "heavy-hitters"
    usual_size: ClassVar[int] = 512

    def __init__(
        self,
        *,
        n: int,
        levels: Sequence[int],
        rate: float,
        batch: int = 1,
        kept: int = 100,
        privacy: Privacy,
        false_items: float = 1e-3,
        missed: float = 1e-3,
        honest_fraction: float = 1.0,
        releases: int | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses the noise. `releases` None: one a level."""
        self.n = integer("n", n, 2)
        self.levels = tuple(integer("levels", each, 1, MAX_LEVEL) for each in levels)
        self.bits = sum(self.levels)
        if not 2 <= self.bits <= 64:
            raise ParameterError("levels", self.levels, "of 2 to 64 bits in all")
        # Only the first level has one parent; all others have `kept` of them.
        largest = max(self.levels[1:], default=0)
        self.kept = integer("kept", kept, 1, _MOST_BINS >> largest)
        self.honest = honest_users(honest_fraction, self.n)
        self.honest_fraction = honest_fraction
        self.false_items = real("false_items", false_items, 0.0, 1.0, closed=(False, False))
        self.missed = real("missed", missed, 0.0, 1.0, closed=(False, False))
        self.noise = count_planner.OneSided(rate, batch)
        self._privacy, self._delta = privacy, privacy.delta
        self.releases = len(self.levels)
        if releases is not None:
            self.releases = integer("releases", releases, len(self.levels))

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        privacy: Privacy,
        bits: int | None = None,
        levels: Sequence[int] | None = None,
        kept: int = 100,
        objective: str = "error",
        false_items: float = 1e-3,
        missed: float = 1e-3,
        honest_fraction: float = 1.0,
        rounds: int = 1,
    ) -> Self:
        """The least noise, or the fewest messages, for the privacy of all levels together.

        Args:
            n: users.
            privacy: of all levels, in all `rounds`.
            bits: of an item; None: 32, or those of `levels`.
            levels: bits that each round asks for; None: about log2 n - 4 first, then 8 each.
            kept: prefixes that a level keeps at most.
            objective: "error": the smallest counts are found; "messages": few are sent.
            false_items: the chance of an item that nobody has.
            missed: the chance that an item of `least_count` users is missed.
            honest_fraction: of the users whose noise is counted on.
            rounds: such runs, as of weeks, that a user answers.
        """
        integer("n", n, 2)
        if levels is not None and bits not in (None, sum(levels)):
            raise ParameterError("levels", levels, f"{bits} bits in all")
        parts = (
            usual_levels(n, 32 if bits is None else integer("bits", bits, 2, 64))
            if levels is None
            else tuple(levels)
        )
        releases = len(parts) * integer("rounds", rounds)
        plan = count_planner.one_sided(privacy, objective, releases)
        return cls(
            n=n,
            levels=parts,
            rate=plan.rate,
            batch=plan.batch,
            kept=kept,
            privacy=privacy,
            false_items=false_items,
            missed=missed,
            honest_fraction=honest_fraction,
            releases=releases,
        )

    @property
    def minimum(self) -> int:
        """Reports without which no view is released, where an honest fraction was agreed on."""
        return self.honest if self.honest_fraction < 1 else 1

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (Children, Prefixes)

    def bins(self, level: int) -> int:
        """Of a level: the children of all that the one before may keep."""
        return (self.kept if level else 1) << self.levels[level]

    @cached_property
    def randomizers(self) -> tuple[Prefixes, ...]:
        """Of each level."""
        of = self.honest, self._privacy
        return tuple(
            Prefixes.of_plan(self.noise, (self.bins(level),), *of, releases=self.releases)
            for level in range(len(self.levels))
        )

    @property
    def parts(self) -> tuple[Prefixes, ...]:
        return self.randomizers

    @classmethod
    def size(cls, n: int, domain: int, privacy: Privacy) -> dict[str, Any]:
        return {"n": n, "privacy": privacy, "bits": max(2, (domain - 1).bit_length())}

    @property
    def error(self) -> float:
        """The count from which items are found."""
        return float(self.least_count)

    def attacked(self, attackers: int) -> float:
        """Nothing is sure to be found once they can fill all places with items that nobody has."""
        last = self.randomizers[-1]
        # Messages of corrupted users that make one false item:
        # what is missing from the mean noise to the threshold.
        room = self.threshold(len(self.levels) - 1, self.n) - last.mean[0] * self.n
        filled = last.manipulation(attackers) >= self.kept * room
        return math.inf if filled else self.error + attackers * last.mean[0]

    def check(self, rows: NDArray[Any]) -> None:
        wide = rows.ndim == 2 or self.bits > _EXACT
        check_rows(rows, (self.n, 2) if wide else (self.n,))
        if rows.ndim == 2 and self.bits <= 32:
            raise ParameterError("data", WITHHELD, "of one column: items have 32 bits or fewer")

    def threshold(self, level: int, reports: int) -> int:
        """Least noise count t with bins P(noise >= t) <= what the level may let through.

        Inner levels let a tenth of what is kept through on average, the last one `false_items`.
        """
        allowed = self.false_items if level + 1 == len(self.levels) else self.kept / 10
        law = self.randomizers[level].noise_law(0, reports)
        # A law may end where e^-46 of it is left.
        above = np.cumsum(law[::-1])[::-1] + math.exp(-46.0)
        passing = np.flatnonzero(self.bins(level) * above <= allowed)
        return int(passing[0]) if passing.size else law.size

    @cached_property
    def least_count(self) -> int:
        """Users of an item from which it is missed with probability `missed` at most."""
        return self._least(self.n)

    def _least(self, reports: int) -> int:
        """Missed where noise is below t - c at some level; it is that of the honest users alone."""
        last = len(self.levels)
        thresholds = [self.threshold(level, reports) for level in range(last)]
        # Fewer shares lift fewer counts over a threshold: the honest ones alone are the worst.
        laws = [
            np.cumsum(each.noise_law(0, min(self.honest, reports))) for each in self.randomizers
        ]

        def misses(count: int) -> float:
            return sum(
                float(law[min(t - 1 - count, law.size - 1)]) if t - 1 >= count else 0.0
                for t, law in zip(thresholds, laws, strict=True)
            )

        return first(lambda count: misses(count) <= self.missed, 0, max(thresholds))

    def init(self) -> Search:
        return Search()

    def plan(self, state: Search) -> RoundSpec | None:
        if state.found is not None:
            return None
        level = state.level
        kept = np.zeros(1, np.uint64) if state.kept is None else state.kept
        # Always of one length: how many were kept must not change what the round is planned for.
        filled = np.full(self.kept if level else 1, _NONE)
        filled[: kept.size] = kept
        query = Children(self.bits, sum(self.levels[:level]), self.levels[level], filled)
        randomizer = self.randomizers[level]
        event = randomizer.event(self.honest, query)
        return RoundSpec(
            Cohort.of(0, self.n), query, randomizer, event, lambda tally: tally, self.minimum
        )

    def update(self, state: Search, estimate: Any) -> Search:
        tally: Tally = estimate
        level, kept = state.level, state.kept
        kept = np.zeros(1, np.uint64) if kept is None else kept
        randomizer, bits = self.randomizers[level], self.levels[level]
        bins = randomizer.bins
        # The turn of `Children` undone; behind the kept prefixes there is noise alone.
        counts = np.roll(tally.dense(bins), -(bins // 2))[: kept.size << bits]
        # A bin of no messages is never heavy.
        threshold = max(1, self.threshold(level, tally.reports))
        heavy = np.flatnonzero(counts >= threshold)
        heavy = heavy[np.argsort(-counts[heavy], kind="stable")][: self.kept]
        children = (kept[heavy >> bits] << np.uint64(bits)) | (heavy & ((1 << bits) - 1)).astype(
            np.uint64
        )
        if level + 1 < len(self.levels) and children.size:
            return replace(state, level=level + 1, kept=np.sort(children))
        noise = tally.reports * randomizer.mean[0]
        last = level + 1 == len(self.levels)
        estimates = (counts[heavy] - noise).astype(np.float64)
        if not last:  # nothing was kept: nothing is found
            children, estimates = children[:0], estimates[:0]
        # Noise has a part in which items are here: ranges of all bins must hold, not of these.
        beta = interval_error(0.95, bins, randomizer.independent)
        honest = min(self.honest, tally.reports)
        low, high = randomizer.ranges_of(estimates, tally.reports, honest, beta)
        found = HeavyItems(
            children,
            estimates,
            low,
            high,
            float(threshold - noise),
            self._least(tally.reports),
            self.false_items,
            self.missed,
            tally.reports,
        )
        return Search(level + 1, children, found)

    def result(self, state: Search) -> HeavyItems:
        if state.found is None:
            raise ParameterError("state", state, "that of a finished run")
        return state.found


def usual_levels(n: int, bits: int) -> tuple[int, ...]:
    """The first as large as noise in its bins is cheap, then 8 bits each."""
    first = min(bits, MAX_LEVEL, max(8, round(math.log2(n)) - 4))
    rest = bits - first
    # In parts as equal as can be: the largest decides over the bins.
    parts = -(-rest // 8)
    more = [rest // parts + (at < rest % parts) for at in range(parts)] if parts else []
    return (first, *more)
