"""What all randomizers of counts share: bins, estimates with certified ranges, noise in batches."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.sampling.exact import FRACTION, poisson
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

Words = NDArray[np.int64]
MAX_BINS = 2**53
"""Values are doubles: they tell no more bins apart."""


class Counting(Randomizer):
    """Makes the counts of some bins; bins are numbers from 0 on."""

    absent: ClassVar[float] = -1.0
    independent: ClassVar[bool] = True
    """Whether bins' errors are independent: then they hold together at no price."""

    categories: int

    @property
    def bins(self) -> int:
        """How many there are."""
        return self.categories

    @cached_property
    def alphabet(self) -> Alphabet:
        """A word for each bin."""
        return Alphabet(1, self.bins)

    def admit(self, values: Values) -> tuple[Values, int]:
        """Numbers of bins, and -1 for what is none."""
        return place(values, self.bins)

    @abstractmethod
    def estimate(self, tally: Tally) -> Floats:
        """Unbiased counts, (bins,)."""

    @abstractmethod
    def variance(self, reports: int, counts: Floats) -> Floats:
        """Of the estimates where so many users are in each bin, (bins,)."""

    @abstractmethod
    def ranges(
        self, estimates: Floats, reports: int, honest: int, beta: float
    ) -> tuple[Floats, Floats]:
        """Ends, (bins,) each, between which each count lies except with probability `beta`.

        Noise is that of all `reports` for one end and of the `honest` ones alone for the other.
        """

    @property
    @abstractmethod
    def reach(self) -> tuple[float, float]:
        """How far a user moves an estimate up at most, and how far an honest one does."""

    @abstractmethod
    def event(self, users: int, query: Query | None) -> PrivacyEvent:
        """As of all randomizers; of counts it follows from these fields alone."""

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Data of neighbours, for audits: users in two bins."""
        return np.zeros(1), np.ones(1)

    @abstractmethod
    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of how often one user on `x` sends a word, for audits."""

    def manipulation(self, attackers: int) -> float:
        """The largest shift of an estimate by so many corrupted users."""
        return attackers * self.reach[0]


_MANY = 2**22
"""Batches that are no longer drawn one by one, where nobody asks who made them."""


@dataclass(frozen=True)
class Kind:
    """Batches of noise of one kind, a Poisson number; each is in a place of its own choice.

    Attributes:
        number: of batches on average, times 2^40.
        places: to choose among.
        words: first and step: place p of each stands for the word first + p step.
        sizes: draws so many sizes.
        largest: where sizes are uniform on 1 .. largest; else None.
    """

    number: int
    places: int
    words: tuple[tuple[int, int], ...]
    sizes: Callable[[int], Words]
    largest: int | None = None

    def drawn(self, users: int, rng: np.random.Generator) -> Iterator[tuple[Words, Words, Words]]:
        """Makers, words and sizes of all batches."""
        count = poisson(self.number, rng)
        makers, places = (rng.integers(high, size=count) for high in (users, self.places))
        sizes = self.sizes(count)
        for first, step in self.words:
            yield makers, first + step * places, sizes

    def counted(self, users: int, rng: np.random.Generator) -> Iterator[tuple[Words, Words]]:
        """Words, and how often each comes; nobody asks who made it."""
        mean, largest = self.number / (1 << FRACTION), self.largest
        if largest is None or mean <= max(_MANY, largest * self.places):
            yield from ((words, sizes) for _, words, sizes in self.drawn(users, rng))
            return
        # Numbers of each size in each place are independent Poisson numbers.
        often, mean = np.zeros(self.places, np.int64), mean / (largest * self.places)
        for size in range(1, largest + 1):
            often += size * rng.poisson(mean, self.places)
        for first, step in self.words:
            yield first + step * np.arange(self.places), often


class Noisy(Counting):
    """Own words, and noise in batches: `most` messages of a user at most, noise beyond again."""

    view: ClassVar[str] = "counts"
    planned: int
    most: int
    batch: int

    @property
    @abstractmethod
    def own_most(self) -> int:
        """Own messages of a user at most."""

    @abstractmethod
    def sent(self, values: Floats, rng: np.random.Generator) -> tuple[Words, Words]:
        """Own messages: users and words."""

    @abstractmethod
    def kinds(self, users: int, rng: np.random.Generator) -> Iterator[Kind]:
        """Batches of so many users."""

    def batches(self, users: int, rng: np.random.Generator) -> tuple[Words, Words, Words]:
        """Makers, words and sizes of all kinds."""
        found = (each for kind in self.kinds(users, rng) for each in kind.drawn(users, rng))
        makers, words, sizes = map(np.concatenate, zip(*found, strict=True))
        return makers, words, sizes

    def shares(self, users: int) -> dict[str, Any]:
        """What every event of noise in shares states."""
        # Whoever comes beyond the plan only adds independent noise: post-processing.
        honest, redrawn = min(users, self.planned), min(1.0, self.planned * self.beyond)
        return {"honest": honest, "planned": self.planned, "redrawn": redrawn}

    @property
    @abstractmethod
    def sizes_law(self) -> Floats:
        """Of one user's noise messages, (values,)."""

    @property
    def per_label(self) -> int:
        return self.most

    @property
    def beyond(self) -> float:
        """The chance that one user's noise is drawn again."""
        room = self.most - self.own_most
        # A law may end where e^-46 of it is left.
        return float(self.sizes_law[room + 1 :].sum()) + math.exp(-46.0)

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        values = dense(xs)
        users, room = len(values), self.most - self.own_most
        owners, words = self.sent(values, rng)
        makers, noise = self._noise(users, rng)
        # All noise of these users anew, not only the surplus: each has its law, given the room.
        while (again := np.flatnonzero(np.bincount(makers, minlength=users) > room)).size:
            left = ~np.isin(makers, again)
            more, other = self._noise(again.size, rng)
            makers = np.concatenate([makers[left], again[more]])
            noise = np.concatenate([noise[left], other])
        owners, words = np.concatenate([owners, makers]), np.concatenate([words, noise])
        # Messages of a user must lie together for the wire; the shuffler parts them.
        order = np.argsort(owners, kind="stable")
        return self.singly(words[order], np.bincount(owners, minlength=users))

    def _noise(self, users: int, rng: np.random.Generator) -> tuple[Words, Words]:
        makers, words, sizes = self.batches(users, rng)
        return np.repeat(makers, sizes), np.repeat(words, sizes)

    def tallied(self, xs: Values, rng: np.random.Generator) -> Tally:
        """Nobody's noise is drawn again: what that changes is charged, and far below a sample."""
        values = dense(xs)
        own, users = self.sent(values, rng)[1], len(values)
        noise = (each for kind in self.kinds(users, rng) for each in kind.counted(users, rng))
        words, often = zip((own, np.ones(own.size, np.int64)), *noise, strict=True)
        return Tally.counted(np.concatenate(words), np.concatenate(often), reports=users)

    def usual_draws(self, users: int) -> float:
        return min(users * self.usual_messages, _MANY + users + self.batch * self.bins)

    def noiseless(self, x: Floats, rng: np.random.Generator) -> Messages:
        """The user's own messages only."""
        return self.singly(self.sent(np.asarray(x, np.float64)[None], rng)[1])


def place(values: Values, bins: int) -> tuple[Floats, int]:
    """Whole numbers from 0 to bins - 1, and -1 for others than -1, which are counted."""
    given = np.asarray(dense(values), np.float64)
    inside = (given >= 0) & (given < bins) & (given == np.floor(given))
    return np.where(inside, given, -1.0), int((~inside & (given != -1)).sum())


def central_range(law: Floats, beta: float) -> tuple[int, int]:
    """The shortest that leaves at most beta/2 on each side; beyond the law is at most e^-46."""
    below, above = np.cumsum(law), np.cumsum(law[::-1])[::-1]
    # The first place with more than beta/2 up to it: strictly below it there is no more.
    low = int(np.searchsorted(below, beta / 2, side="right"))
    high = law.size - 1 - int(np.searchsorted(above[::-1], beta / 2, side="right"))
    return low, max(high, low)
