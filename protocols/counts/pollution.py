"""Own messages under batches of noise in every bin: pollution."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, Self

import numpy as np
import scipy

from protocols.counts.one_view import capped
from protocols.counts.randomizer import MAX_BINS, Kind, Noisy, Words, central_range
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds import cells
from shuffle_sim.privacy.count_planner import OneSided
from shuffle_sim.privacy.counts import PollutionEvent
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.query import Query
from shuffle_sim.sampling.exact import FRACTION, poisson
from shuffle_sim.wire.messages import Messages, Tally


@lru_cache(maxsize=256)
def _law(rate: float, batch: int) -> Floats:
    return cells.compound(rate, cells.batches(batch))


@lru_cache(maxsize=16)
def _pair_laws(made: "Polluting", users: int) -> dict[int, Floats]:
    """By bin in which the worst pair differs: the logarithms of a count's odds, (counts,)."""
    rng, sent = np.random.default_rng(0), 1 - made.kept_back
    first, second = (made.own(x[None], rng)[0] for x in made.worst_pair())
    found = {}
    for index, edge in enumerate(made.edges[:-1]):
        noise = made.noise_law(index, users)
        for place in {int(first[index]), int(second[index])} - {-1}:
            held = first[index] == place, second[index] == place
            if held[0] == held[1]:
                continue
            others = scipy.stats.binom.pmf(np.arange(users), (users - 1) * held[0], sent)
            rest, own = np.convolve(noise, others), np.array([1 - sent, sent])
            here, there = (np.convolve(rest, own if each else [1.0, 0.0]) for each in held)
            # e^-700: what neither law can give speaks for neither.
            found[edge + place] = np.log(there + 1e-304) - np.log(here + 1e-304)
    return found


@dataclass(frozen=True)
class Polluting(Noisy):
    """Own words in some sets of bins, one a set at most, and batches of noise in each set.

    Attributes:
        sizes: bins of each set.
        rates: batches that each bin of a set gets from all planned users together.
        planned: users, each of whom makes 1/planned of that.
        most: messages of a user at most; noise beyond is drawn again.
        batch: sizes are uniform on 1 .. batch.
        kept_back: probability with which a user's own message is not sent.
    """

    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    planned: int
    most: int
    batch: int = 1
    kept_back: float = 0.0

    def __post_init__(self) -> None:
        for size in self.sizes:
            integer("categories", size, 1, MAX_BINS)
        integer("categories", self.bins, 2, MAX_BINS)
        if len(self.rates) != len(self.sizes):
            raise ParameterError("rates", self.rates, f"one for each of {len(self.sizes)} sets")
        integer("most", self.most, len(self.sizes) + 1, 2**24)
        self.event(self.planned, None)

    @classmethod
    def of_plan(
        cls,
        plan: OneSided,
        sizes: tuple[int, ...],
        honest: int,
        privacy: Privacy,
        *,
        weights: tuple[float, ...] = (),
        releases: int = 1,
        **own: Any,
    ) -> Self:
        """With a plan's noise, set i with weights[i] times its rate, and a cap hardly ever met."""
        weights = weights or (1.0,) * len(sizes)
        # One user's share in all bins together: that is what the cap cuts.
        shares = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
        most = capped(len(sizes), plan.law(shares / honest), honest, privacy, releases)
        rates = tuple(plan.rate * weight for weight in weights)
        return cls(sizes, rates, honest, most, plan.batch, plan.kept_back, **own)

    @abstractmethod
    def own(self, xs: Floats, rng: np.random.Generator) -> Words:
        """Places in each set, (users, sets); -1: none."""

    @property
    def bins(self) -> int:
        return sum(self.sizes)

    @cached_property
    def edges(self) -> list[int]:
        """Where each set begins, and where the last one ends."""
        # Python integers: sums of sets of 2^53 bins might not fit 64 bits.
        return [0, *np.cumsum(np.array(self.sizes, object)).tolist()]

    @property
    def own_most(self) -> int:
        return len(self.sizes)

    @cached_property
    def each_rate(self) -> float:
        """Batches of one user."""
        totals = (size * rate for size, rate in zip(self.sizes, self.rates, strict=True))
        return math.fsum(totals) / self.planned

    @property
    def usual_messages(self) -> float:
        return len(self.sizes) + self.each_rate * (self.batch + 1) / 2

    def event(self, users: int, query: Query | None) -> PrivacyEvent:
        noise, kept_back = self.shares(users), self.kept_back
        return PollutionEvent(**noise, rates=self.rates, batch=self.batch, kept_back=kept_back)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        own = self.own(np.asarray(x, np.float64)[None], rng)[0]
        words = [
            first + int(at)
            for first, at in zip(self.edges, own, strict=False)
            if at >= 0 and rng.random() >= self.kept_back
        ]
        while True:
            noise: list[int] = []
            for index, (first, size) in enumerate(zip(self.edges, self.sizes, strict=False)):
                for _ in range(poisson(self._number(index, 1), rng)):
                    word = first + int(rng.integers(size))
                    noise += [word] * int(rng.integers(1, self.batch + 1))
            # Room for all own messages is left free, sent or not: the cap must not tell which.
            if len(noise) <= self.most - len(self.sizes):
                return self.singly(np.array(words + noise, np.int64))

    def sent(self, values: Floats, rng: np.random.Generator) -> tuple[Words, Words]:
        own = self.own(values, rng)
        there = own >= 0
        if self.kept_back:
            there &= rng.random(own.shape) >= self.kept_back
        owners, sets = np.nonzero(there)
        return owners, own[there] + np.array(self.edges[:-1], np.int64)[sets]

    def kinds(self, users: int, rng: np.random.Generator) -> Iterator[Kind]:
        sizes: Any = partial(rng.integers, 1, self.batch + 1)
        for index, (first, size) in enumerate(zip(self.edges, self.sizes, strict=False)):
            yield Kind(self._number(index, users), size, ((first, 1),), sizes, self.batch)

    def _number(self, index: int, users: int) -> int:
        """Mean number of batches of so many users in a set, in units of 2^-40; rounded up."""
        # Rounded up: what is too much is independent noise, which is post-processing.
        mean = Fraction(self.rates[index]) * self.sizes[index] * users / self.planned
        return math.ceil(mean * (1 << FRACTION))

    @property
    def sizes_law(self) -> Floats:
        return _law(self.each_rate, self.batch)

    def count_pmf(self, x: Floats, label: int) -> Floats:
        index = int(np.searchsorted(self.edges, label, side="right")) - 1
        own = self.own(np.asarray(x, np.float64)[None], np.random.default_rng(0))[0, index]
        noise, s = self.noise_law(index, 1), self.kept_back
        return np.convolve(noise, [s, 1 - s]) if own == label - self.edges[index] else noise

    def drawn_with(self, word: int) -> int:
        """Words of different numbers are independent, given the data; for audits."""
        return word

    def pair_odds(self, tally: Tally) -> float:
        """ln of how much likelier a tally is if one user holds the second of the worst pair, where
        all others hold the first: bins are independent, and few of them differ.
        """
        assert tally.words is not None
        odds = 0.0
        for word, law in _pair_laws(self, tally.reports).items():
            count = int(tally.sums[tally.words == word].sum())
            odds += float(law[min(count, law.size - 1)])
        return odds

    def _by_bin(self, values: list[float]) -> Floats:
        return np.repeat(values, self.sizes)

    @property
    def mean(self) -> list[float]:
        """Noise messages of one user in each bin of a set, (sets,)."""
        return [rate * (self.batch + 1) / 2 / self.planned for rate in self.rates]

    def estimate(self, tally: Tally) -> Floats:
        """(count - R mean)/(1 - s)."""
        noise = tally.reports * self._by_bin(self.mean)
        return np.asarray((tally.dense(self.bins) - noise) / (1 - self.kept_back))

    def noise_variance(self, reports: int) -> list[float]:
        """Of the count of a bin of each set, without users' own messages."""
        # Of a compound Poisson number rate E J^2; sizes
        # uniform on 1 .. J have E J^2/E J = (2 J + 1)/3.
        return [reports * mean * (2 * self.batch + 1) / 3 for mean in self.mean]

    def variance(self, reports: int, counts: Floats) -> Floats:
        s = self.kept_back
        noise = self._by_bin(self.noise_variance(reports))
        return np.asarray(noise / (1 - s) ** 2 + np.asarray(counts) * s / (1 - s))

    def noise_law(self, index: int, users: int) -> Floats:
        """Of what so many users add to the count of a bin of a set."""
        return cells.compound(self.rates[index] * users / self.planned, cells.batches(self.batch))

    def ranges(
        self, estimates: Floats, reports: int, honest: int, beta: float
    ) -> tuple[Floats, Floats]:
        parts = np.split(estimates, self.edges[1:-1])
        found = [
            self.ranges_of(each, reports, honest, beta, index) for index, each in enumerate(parts)
        ]
        low, high = (np.concatenate(each) for each in zip(*found, strict=True))
        return low, high

    def ranges_of(
        self, estimates: Floats, reports: int, honest: int, beta: float, index: int = 0
    ) -> tuple[Floats, Floats]:
        """`ranges` of some bins of one set."""
        # Half of beta is for the noise, and half for who kept the truth back.
        s, part = self.kept_back, beta / 2 if self.kept_back else beta
        least = central_range(self.noise_law(index, honest), part)[0]
        most = central_range(self.noise_law(index, reports), part)[1]
        # What was counted: an estimate is it less the mean; rint takes the rounding of that back.
        counts = np.rint(estimates * (1 - s) + reports * self.mean[index])
        low, high = np.maximum(counts - most, 0.0), np.maximum(counts - least, 0.0)
        if not s:
            return low, high
        # Those who sent theirs were Bin(count, 1 - s): Clopper and Pearson (1934).
        fewer = scipy.stats.nbinom.ppf(part / 2, np.maximum(low, 1), 1 - s) * (low > 0)
        more = scipy.stats.nbinom.ppf(1 - part / 2, high + 1, 1 - s)
        return low + fewer, high + more

    @property
    def reach(self) -> tuple[float, float]:
        return self.most / (1 - self.kept_back), 1 / (1 - self.kept_back)


@dataclass(frozen=True)
class Categories(Polluting):
    """The number of the category itself, under noise in all of them."""

    def own(self, xs: Floats, rng: np.random.Generator) -> Words:
        return xs.reshape(len(xs), 1).astype(np.int64)
