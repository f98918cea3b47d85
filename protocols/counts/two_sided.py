"""Messages for and against every bin: nearly the discrete Laplace noise of a trusted curator."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial

import numpy as np
import scipy

from protocols.counts.randomizer import MAX_BINS, Kind, Noisy, Words, central_range
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer
from shuffle_sim.privacy.bounds import cells
from shuffle_sim.privacy.bounds.floods import heights, more_odds
from shuffle_sim.privacy.count_planner import TwoSidedNoise
from shuffle_sim.privacy.counts import TwoSidedEvent
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.sampling.exact import FRACTION, log_series, poisson
from shuffle_sim.wire.messages import Alphabet, Messages, Tally


@dataclass(frozen=True)
class TwoSided(Noisy):
    """Messages for and against each bin: own ones for, geometric noise both ways, and a flood.

    The word of bin j is 2 j for it, and 2 j + 1 against it. Noise both ways is negative binomial
    of shape 1/planned: Poisson many batches of log-series sizes.

    Attributes:
        categories: k.
        decay: rho of the noise.
        rate: batches of the flood that each bin gets from all planned users together.
        planned: users, each of whom makes 1/planned of the noise.
        most: messages of a user at most; noise beyond is drawn again.
        batch: sizes of the flood are uniform on 1 .. batch.
    """

    categories: int
    decay: float
    rate: float
    planned: int
    most: int
    batch: int

    def __post_init__(self) -> None:
        integer("categories", self.categories, 2, MAX_BINS // 2)
        integer("most", self.most, 2, 2**24)
        self.event(self.planned, None)

    @cached_property
    def alphabet(self) -> Alphabet:
        """Two words for each bin."""
        return Alphabet(1, 2 * self.categories)

    @property
    def own_most(self) -> int:
        return 1

    @property
    def _plan(self) -> TwoSidedNoise:
        return TwoSidedNoise(self.decay, self.rate, self.batch)

    @property
    def usual_messages(self) -> float:
        return 1 + self._plan.messages * self.categories / self.planned

    def event(self, users: int, query: Query | None) -> PrivacyEvent:
        return TwoSidedEvent(
            **self.shares(users), decay=self.decay, rate=self.rate, batch=self.batch
        )

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        own = [2 * int(x)] * (float(x) >= 0)
        while True:
            noise: list[int] = []
            for sides, number in self._numbers(1):
                for _ in range(poisson(number, rng)):
                    at = int(rng.integers(self.categories))
                    size = (
                        int(rng.integers(1, self.batch + 1))
                        if len(sides) == 2
                        else int(log_series(-math.log(self.decay), 1, rng)[0])
                    )
                    noise += [2 * at + side for side in sides] * size
            # One of `most` is for the own message, sent or not: the cap must not tell which.
            if len(noise) < self.most:
                return self.singly(np.array(own + noise, np.int64))

    def _numbers(self, users: int) -> list[tuple[tuple[int, ...], int]]:
        """Sides that a batch is sent for, and how many there are on average, times 2^40."""
        # Exact fractions, rounded up: more batches are independent noise, which is post-processing.
        share = Fraction(self.categories * users, self.planned) * (1 << FRACTION)
        # -ln(1 - rho) batches of log-series sizes are one geometric number (as in floods.md).
        noise = math.ceil(share * Fraction(-math.log1p(-self.decay)))
        return [((0,), noise), ((1,), noise), ((0, 1), math.ceil(share * Fraction(self.rate)))]

    def sent(self, values: Floats, rng: np.random.Generator) -> tuple[Words, Words]:
        owners = np.flatnonzero(values >= 0)
        return owners, 2 * values[owners].astype(np.int64)

    def kinds(self, users: int, rng: np.random.Generator) -> Iterator[Kind]:
        even = partial(rng.integers, 1, self.batch + 1)
        alone = partial(log_series, -math.log(self.decay), rng=rng)
        for sides, number in self._numbers(users):
            own = (even, self.batch) if len(sides) == 2 else (alone, None)
            yield Kind(number, self.categories, tuple((side, 2) for side in sides), *own)

    def count_pmf(self, x: Floats, label: int) -> Floats:
        # rho^reach is e^-46: no more is left out.
        reach = math.ceil(46 / -math.log(self.decay)) + 2
        noise = scipy.stats.nbinom.pmf(np.arange(reach), 1 / self.planned, 1 - self.decay)
        flood = cells.compound(self.rate / self.planned, cells.batches(self.batch))
        law = np.convolve(noise, flood)
        return np.append(0.0, law) if label == 2 * int(x) else law

    def drawn_with(self, word: int) -> int:
        """Words of different bins are independent, given the data; for audits."""
        return word // 2

    def contrast(self, word: int, users: int) -> tuple[int, Floats]:
        """For audits: the word of the other side, and the law of for less against without own ones.

        Batches of both sides cancel, so the noise that is left alone hides which bin a user left.
        The law is of so many users, of -reach .. reach.
        """
        reach = math.ceil(46 / -math.log(self.decay)) + 2
        noise = scipy.stats.nbinom.pmf(np.arange(reach + 1), users / self.planned, 1 - self.decay)
        return word ^ 1, np.convolve(noise, noise[::-1])

    def pair_odds(self, tally: Tally) -> float:
        """ln of how much likelier a tally is if one user holds the second of the worst pair, where
        all others hold the first: it leaves one bin, and comes to another.
        """
        assert tally.words is not None
        decay, others = -math.log(self.decay), tally.reports - 1
        plus, minus = (
            np.array([tally.sums[tally.words == 2 * each + side].sum() for each in (0, 1)])
            for side in (0, 1)
        )
        left, came = more_odds(decay, self._heights, plus - [others, 0], minus, 1)
        return float(came - left)

    @cached_property
    def _heights(self) -> Floats:
        return heights(-math.log(self.decay), cells.compound(self.rate, cells.batches(self.batch)))

    @property
    def sizes_law(self) -> Floats:
        return _law(self._plan, self.categories / self.planned)

    def estimate(self, tally: Tally) -> Floats:
        """Those for a bin less those against it."""
        sides = tally.dense(2 * self.categories).reshape(-1, 2)
        return np.asarray(sides[:, 0] - sides[:, 1], np.float64)

    def variance(self, reports: int, counts: Floats) -> Floats:
        return np.full(self.categories, self._plan.variance() * reports / self.planned)

    def ranges(
        self, estimates: Floats, reports: int, honest: int, beta: float
    ) -> tuple[Floats, Floats]:
        reach = math.ceil(46 / -math.log(self.decay)) + 2
        # All reports for both ends: noise that is symmetric
        # with one peak only widens with more of it.
        shape = reports / self.planned
        noise = scipy.stats.nbinom.pmf(np.arange(reach * math.ceil(shape)), shape, 1 - self.decay)
        law = np.convolve(noise, noise[::-1])
        low, high = central_range(law, beta)
        middle = noise.size - 1
        return (
            np.maximum(estimates - (high - middle), 0.0),
            np.maximum(estimates - (low - middle), 0.0),
        )

    @property
    def reach(self) -> tuple[float, float]:
        return float(self.most), 1.0


@lru_cache(maxsize=64)
def _law(plan: TwoSidedNoise, part: float) -> Floats:
    return plan.law(part)
