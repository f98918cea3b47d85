"""Counts as in the literature: randomised response, unary encoding, fixed blankets."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.counts.randomizer import Counting, place
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.privacy.bounds.clones import MAX_EPSILON0, Corners
from shuffle_sim.privacy.counts import FixedBlanketEvent
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.wire.messages import Alphabet, Messages, Tally


class Obliged(Counting):
    """Every user sends a message of its own.

    What is no category counts as the first: where noise is none in number, silence would tell.
    """

    def admit(self, values: Values) -> tuple[Values, int]:
        found, outside = place(values, self.bins)
        return np.maximum(dense(found), 0.0), outside


class _Bernoulli(Counting):
    """A count is Bin(in the bin, `kept`) + Bin(not in it, `lied`)."""

    independent: ClassVar[bool] = False
    epsilon0: float

    @property
    def per_label(self) -> int:
        return 1

    @property
    @abstractmethod
    def kept(self) -> float:
        """P."""

    @property
    @abstractmethod
    def lied(self) -> float:
        """q."""

    def _counts(self, tally: Tally) -> Floats:
        return np.asarray(tally.dense(self.categories), np.float64)

    def estimate(self, tally: Tally) -> Floats:
        """(count - R q)/(P - q)."""
        return np.asarray((self._counts(tally) - tally.reports * self.lied) / self._spread)

    @property
    def _spread(self) -> float:
        return self.kept - self.lied

    def variance(self, reports: int, counts: Floats) -> Floats:
        lied, kept = (p * (1 - p) for p in (self.lied, self.kept))
        return (reports * lied + np.asarray(counts) * (kept - lied)) / self._spread**2

    def ranges(
        self, estimates: Floats, reports: int, honest: int, beta: float
    ) -> tuple[Floats, Floats]:
        """By Bernstein's bound of a sum of coins: a little wider than need be.

        Of c users of a bin |seen - E| <= x/3 + sqrt(x^2/9 + 2 x V) but for `beta`, x = ln(2/beta).
        E and V are linear in c: its least and its largest value are roots of quadratics.
        """
        x, lied, kept = math.log(2 / beta), self.lied, self.kept
        spread, bent = self._spread, kept * (1 - kept) - lied * (1 - lied)
        still = x * x / 9 + 2 * x * reports * lied * (1 - lied)

        def root(sign: float) -> Floats:
            # (spread c - beyond)^2 = still + 2 x bent c, where spread c is beyond, or short of it.
            beyond = estimates * spread + sign * x / 3
            half = spread * beyond + x * bent
            inner = np.maximum(half**2 - spread**2 * (beyond**2 - still), 0.0)
            return np.clip((half + sign * np.sqrt(inner)) / spread**2, 0.0, reports)

        return root(-1.0), root(1.0)

    def count_pmf(self, x: Floats, label: int) -> Floats:
        said = self.kept if int(x) == label else self.lied
        return np.array([1 - said, said])

    @property
    def reach(self) -> tuple[float, float]:
        largest = (1 - self.lied) / self._spread
        return largest, largest


@dataclass(frozen=True)
class Response(Obliged, _Bernoulli):
    """k-ary randomised response: the category, or with probability k q a uniform one.

    Attributes:
        categories: k.
        epsilon0: of one report.
    """

    categories: int
    epsilon0: float
    view: ClassVar[str] = "counts"

    def __post_init__(self) -> None:
        integer("categories", self.categories, 2, 2**53)
        real("epsilon0", self.epsilon0, 0.0, MAX_EPSILON0)

    @property
    def kept(self) -> float:
        return math.exp(self.epsilon0) * self.lied

    @property
    def lied(self) -> float:
        return 1 / (math.exp(self.epsilon0) + self.categories - 1)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        # A uniform category is at times the own one: 1 - k q + q = P.
        lies = rng.random() < self.categories * self.lied
        return self.singly([int(rng.integers(self.categories)) if lies else int(x)])

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        values = np.maximum(dense(xs), 0.0).astype(np.int64)
        lies = rng.random(len(values)) < self.categories * self.lied
        drawn = rng.integers(self.categories, size=len(values))
        return self.singly(np.where(lies, drawn, values), np.ones(len(values), np.int64))

    def pair_odds(self, tally: Tally) -> float:
        """ln of how much likelier a tally is if one user holds the second of the worst pair, where
        all others hold the first.
        """
        assert tally.words is not None
        first, second = (tally.sums[tally.words == int(x[0])].sum() for x in self.worst_pair())
        # One message, none knows which, has the other law: the mean of all ratios.
        more = second * math.expm1(self.epsilon0) + first * math.expm1(-self.epsilon0)
        return math.log1p(float(more) / tally.reports)

    def event(self, users: int, query: Query | None) -> PrivacyEvent:
        known = Corners.of_response(self.epsilon0, self.categories)
        return ShuffledEvent(users, self.epsilon0, known.both, known.neither)


@dataclass(frozen=True)
class Unary(_Bernoulli):
    """A bit for each category: the own one a coin, others 1 with probability 1/(e^epsilon0 + 1).

    Optimised unary encoding (Wang, Blocki, Li and Jha 2017). All bits are one message of a pure
    randomiser; to shuffle them label by label tells less.

    Attributes:
        categories: k.
        epsilon0: of one report.
    """

    categories: int
    epsilon0: float

    def __post_init__(self) -> None:
        integer("categories", self.categories, 2, 2**20)
        real("epsilon0", self.epsilon0, 0.0, MAX_EPSILON0)

    @cached_property
    def alphabet(self) -> Alphabet:
        """A label for each category."""
        return Alphabet(self.categories)

    @property
    def kept(self) -> float:
        return 0.5

    @property
    def lied(self) -> float:
        return 1 / (math.exp(self.epsilon0) + 1)

    def _counts(self, tally: Tally) -> Floats:
        return np.asarray(tally.sums, np.float64)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        return self.reports(np.asarray(x)[None], rng)

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        return Messages.from_ones(self.counts(xs, rng), 1)

    def counts(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        values = dense(xs)
        found = rng.random((len(values), self.categories)) < self.lied
        inside = np.flatnonzero(values >= 0)
        found[inside, values[inside].astype(np.int64)] = rng.random(inside.size) < self.kept
        return found.astype(np.uint8)

    def tally(self, xs: Values, rng: np.random.Generator) -> NDArray[np.int64]:
        values = dense(xs)
        # Bits of all users are independent: a bin has two binomials, of its own and of all others.
        own = np.bincount(values[values >= 0].astype(np.int64), minlength=self.categories)
        lies = rng.binomial(len(values) - own, self.lied)
        return np.asarray(rng.binomial(own, self.kept) + lies, np.int64)

    def event(self, users: int, query: Query | None) -> PrivacyEvent:
        # Two bits differ: (1/2)/q times (1 - q)/(1/2) is e^epsilon0.
        return ShuffledEvent(users, self.epsilon0)

    def count_index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        """The number of ones itself."""
        return sums


@dataclass(frozen=True)
class FixedBlanket(Obliged):
    """The category, and a fixed number of uniform ones (Luo, Wang and Yi 2022, and others).

    Attributes:
        categories: k.
        each: uniform messages of a user.
    """

    categories: int
    each: int
    view: ClassVar[str] = "counts"
    independent: ClassVar[bool] = False

    def __post_init__(self) -> None:
        integer("categories", self.categories, 2, 2**53)
        integer("each", self.each, 1, 2**20)

    @property
    def per_label(self) -> int:
        return self.each + 1

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        return self.singly([int(x), *rng.integers(self.categories, size=self.each).tolist()])

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        values = dense(xs).reshape(-1, 1).astype(np.int64)
        drawn = rng.integers(self.categories, size=(len(values), self.each))
        words = np.hstack([values, drawn])
        return self.singly(words.ravel(), np.full(len(words), self.per_label))

    def noiseless(self, x: Floats, rng: np.random.Generator) -> Messages:
        """The user's own message only."""
        return self.singly([int(x)])

    def pair_odds(self, tally: Tally) -> float:
        """ln of how much likelier a tally is if one user holds the second of the worst pair, where
        all others hold the first.
        """
        assert tally.words is not None
        first, second = (int(tally.sums[tally.words == x[0]].sum()) for x in self.worst_pair())
        # Of as many messages as are uniform, and one: how many are at either end.
        first -= tally.reports - 1
        return math.log(max(second, 1e-300)) - math.log(max(first, 1e-300))

    def count_pmf(self, x: Floats, label: int) -> Floats:
        # The uniform ones may hit the own category, too.
        law = scipy.stats.binom.pmf(np.arange(self.each + 1), self.each, 1 / self.categories)
        return np.append(0.0, law) if int(x) == label else law

    def event(self, users: int, query: Query | None) -> PrivacyEvent:
        return FixedBlanketEvent(honest=users, each=self.each, bins=self.categories)

    def estimate(self, tally: Tally) -> Floats:
        """count - R s/k."""
        mean = tally.reports * self.each / self.categories
        return np.asarray(tally.dense(self.categories) - mean)

    def variance(self, reports: int, counts: Floats) -> Floats:
        p = 1 / self.categories
        return np.full(self.categories, reports * self.each * p * (1 - p))

    def ranges(
        self, estimates: Floats, reports: int, honest: int, beta: float
    ) -> tuple[Floats, Floats]:
        p = 1 / self.categories
        least, most = (
            scipy.stats.binom.ppf(at, users * self.each, p)
            for at, users in ((beta / 2, honest), (1 - beta / 2, reports))
        )
        counts = estimates + reports * self.each * p
        return np.maximum(counts - most, 0.0), np.maximum(counts - least, 0.0)

    @property
    def reach(self) -> tuple[float, float]:
        return self.each + 1.0, 1.0
