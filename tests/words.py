"""Randomizers whose messages are words, and a protocol of one round that asks with them."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.privacy.events import NonPrivateEvent
from shuffle_sim.protocol.one_round import OneRound
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Alphabet, Tally


@dataclass(frozen=True)
class Categories(Randomizer):
    """Values are categories 0, 1, ..., or -1: none."""

    categories: int
    view = "counts"
    absent = -1.0

    @property
    def alphabet(self):
        return Alphabet(1, self.categories)

    def admit(self, values):
        known = (values >= 0) & (values < self.categories) & (values == np.rint(values))
        inside = np.where(known, values, -1.0)
        return inside, int((inside != values).sum())


@dataclass(frozen=True)
class Response(Categories):
    """k-ary randomised response; no category: a uniform one."""

    epsilon0: float
    per_label: ClassVar[int] = 1

    @property
    def least(self):
        return 1 / (math.exp(self.epsilon0) + self.categories - 1)

    def randomize(self, x, rng):
        lies = x < 0 or rng.random() < self.categories * self.least
        return self.singly([rng.integers(self.categories) if lies else int(x)])

    def reports(self, xs, rng):
        lies = (xs < 0) | (rng.random(len(xs)) < self.categories * self.least)
        words = rng.integers(self.categories, size=len(xs), dtype=np.uint16)
        np.copyto(words, xs, where=~lies, casting="unsafe")
        return self.singly(words, np.ones(len(xs), np.int64))

    def worst_pair(self):
        return np.array([0.0]), np.array([1.0])

    def count_pmf(self, x, label):
        said = self.least * (math.exp(self.epsilon0) if x == label else 1)
        return np.array([1 - said, said])

    def event(self, users, query):
        return ShuffledEvent(users, self.epsilon0)


@dataclass(frozen=True)
class Pollution(Categories):
    """The own category, and each category once more with probability q: of independent cells."""

    q: float

    @property
    def per_label(self):
        return 1 + self.categories

    @property
    def usual_messages(self):
        return 1 + self.q * self.categories

    def randomize(self, x, rng):
        noise = np.flatnonzero(rng.random(self.categories) < self.q)
        return self.singly(np.concatenate([np.full(int(x >= 0), int(x)), noise]).astype(int))

    def tallied(self, xs, rng):
        own = np.bincount(xs[xs >= 0].astype(int), minlength=self.categories)
        noise = rng.binomial(len(xs), self.q, self.categories)
        return Tally.counted(np.arange(self.categories), own + noise, reports=len(xs))

    def worst_pair(self):
        return np.array([0.0]), np.array([1.0])

    def count_pmf(self, x, label):
        noise = np.array([1 - self.q, self.q])
        return np.append(0.0, noise) if x == label else noise

    def event(self, users, query):
        return NonPrivateEvent()


@dataclass(frozen=True)
class Wide(Categories):
    """Each value twice, from the top of a large domain, or none: -1. No noise, no privacy."""

    bits: int
    per_label: ClassVar[int] = 300

    @property
    def alphabet(self):
        return Alphabet(1, 1 << self.bits)

    def randomize(self, x, rng):
        top = (1 << self.bits) - 1
        return self.singly(np.full(2 * int(x >= 0), top - max(0, int(x)), np.uint64))

    def event(self, users, query):
        return NonPrivateEvent()


@dataclass(frozen=True)
class InOrder(Wide):
    """The same, not tallied."""

    view = "messages"


class Asked(OneRound):
    """One round over all users; its result is the tally."""

    def __init__(self, users: int, randomizer: Randomizer):
        super().__init__(users, randomizer, 1e-7)
