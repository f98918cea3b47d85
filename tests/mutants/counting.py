"""Defects of randomizers whose messages are words, and of the roles that carry them."""

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from protocols import (
    GroupMeans,
    HeavyHitters,
    Histogram,
    LaplaceScalarSum,
    Quantiles,
    SparseVectorSum,
)
from protocols.counts.groups import Planes
from protocols.counts.pollution import Categories
from protocols.counts.prefixes import Prefixes
from protocols.counts.single import FixedBlanket, Response, Unary
from protocols.counts.trees import Nodes
from protocols.counts.two_sided import TwoSided
from shuffle_sim import Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.wire.messages import Tally

PRIVACY = Privacy(3.0, 1e-4)


def histogram(method="response", kind=None, categories=4, n=200, **given):
    made = Histogram.calibrated(n=n, categories=categories, privacy=PRIVACY, method=method, **given)
    if kind is None:
        return made
    honest = made.randomizer
    made.randomizer = kind(*(getattr(honest, each.name) for each in fields(honest)))
    vocabulary = (*made.vocabulary, kind)
    made.__class__ = type(
        "Defective", (type(made),), {"vocabulary": property(lambda _: vocabulary)}
    )
    return made


class ShortBatches(TwoSided):
    """Batches of one side are cut at two messages: their tails hide nobody."""

    def kinds(self, users, rng):
        def cut(kind):
            return replace(kind, sizes=lambda count: np.minimum(kind.sizes(count), 2))

        return map(cut, super().kinds(users, rng))


class LieTogether(Response):
    """Two users in a row lie together."""

    def reports(self, xs, rng):
        values = np.maximum(dense(xs), 0.0).astype(np.int64)
        coins = np.repeat(rng.random((len(values) + 1) // 2), 2)[: len(values)]
        lies = coins < self.categories * self.lied
        drawn = rng.integers(self.categories, size=len(values))
        return self.singly(np.where(lies, drawn, values), np.ones(len(values), np.int64))


class Every64thTrue(Response):
    """One in 64 says the truth, in large blocks."""

    def reports(self, xs, rng):
        values = np.maximum(dense(xs), 0.0).astype(np.int64)
        lies = rng.random(len(values)) < self.categories * self.lied
        lies[63::64] = False
        drawn = rng.integers(self.categories, size=len(values))
        return self.singly(np.where(lies, drawn, values), np.ones(len(values), np.int64))


class LastToldTruly(Response):
    """The last category is sent as it is, and the stated law says so."""

    def count_pmf(self, x, label):
        if int(x) != self.categories - 1:
            return super().count_pmf(x, label)
        said = float(label == int(x))
        return np.array([1 - said, said])

    def randomize(self, x, rng):
        told = int(x) == self.categories - 1
        return self.singly([int(x)]) if told else super().randomize(x, rng)

    def reports(self, xs, rng):
        values = np.maximum(dense(xs), 0.0).astype(np.int64)
        lies = rng.random(len(values)) < self.categories * self.lied
        lies &= values < self.categories - 1
        drawn = rng.integers(self.categories, size=len(values))
        return self.singly(np.where(lies, drawn, values), np.ones(len(values), np.int64))


class RepeatingLies(Response):
    """From 20,000 users of a block on the lies of the first half come again."""

    def reports(self, xs, rng):
        values = np.maximum(dense(xs), 0.0).astype(np.int64)
        lies = rng.random(len(values)) < self.categories * self.lied
        drawn = rng.integers(self.categories, size=len(values))
        if len(values) > 20_000:
            half = len(values) // 2
            lies[half : 2 * half], drawn[half : 2 * half] = lies[:half], drawn[:half]
        return self.singly(np.where(lies, drawn, values), np.ones(len(values), np.int64))


class OneBlanketForAll(FixedBlanket):
    """All users of a block send the same uniform messages."""

    def reports(self, xs, rng):
        values = dense(xs).reshape(-1, 1).astype(np.int64)
        drawn = np.repeat(rng.integers(self.categories, size=(1, self.each)), len(values), axis=0)
        words = np.hstack([values, drawn])
        return self.singly(words[words >= 0], (words >= 0).sum(axis=1))


class LateWordsBare(FixedBlanket):
    """Noise comes in the first 80 words only, of 200."""

    def reports(self, xs, rng):
        values = dense(xs).reshape(-1, 1).astype(np.int64)
        drawn = rng.integers(80, size=(len(values), self.each))
        words = np.hstack([values, drawn])
        return self.singly(words[words >= 0], (words >= 0).sum(axis=1))


class LowerWordsOfLarge(Response):
    """Of the last category no lie is a category from 2 to 5."""

    def reports(self, xs, rng):
        values = np.maximum(dense(xs), 0.0).astype(np.int64)
        lies = rng.random(len(values)) < self.categories * self.lied
        drawn = rng.integers(self.categories, size=len(values))
        last = values == self.categories - 1
        drawn = np.where(last & (drawn >= 2) & (drawn <= 5), 0, drawn)
        return self.singly(np.where(lies, drawn, values), np.ones(len(values), np.int64))


class OneCoinForBits(Unary):
    """The bits of other categories are one coin."""

    def counts(self, xs, rng):
        values = dense(xs)
        coins = np.repeat(rng.random((len(values), 1)) < self.lied, self.categories, axis=1)
        inside = np.flatnonzero(values >= 0)
        coins[inside, values[inside].astype(np.int64)] = rng.random(inside.size) < self.kept
        return coins.astype(np.uint8)


class TwiceTold(Response):
    """The truth is counted twice, in aggregate only."""

    def tallied(self, xs, rng):
        return super().tallied(xs, rng) + Tally.counted(dense(xs).astype(np.int64), reports=0)


class OneCategorySure(Unary):
    """Of one category in hundreds the bit is always sent."""

    def counts(self, xs, rng):
        sent = super().counts(xs, rng)
        sent[np.flatnonzero(dense(xs) == 137), 137] = 1
        return sent


class OneCategoryTrue(Response):
    """Of one category in hundreds the truth is told, where many are counted at once."""

    def tallied(self, xs, rng):
        sure = dense(xs) == 137
        true = Tally.counted(dense(xs)[sure].astype(np.int64), reports=int(sure.sum()))
        return super().tallied(xs[~sure], rng) + true


class SameLies(Response):
    """The same coins in every round."""

    def reports(self, xs, rng):
        return super().reports(xs, np.random.default_rng(len(xs)))


class Boasts(Response):
    """Says the truth more often than its epsilon0 allows."""

    @property
    def lied(self):
        return 1 / (np.exp(1.5 * self.epsilon0) + self.categories - 1)

    @property
    def kept(self):
        return 1 - (self.categories - 1) * self.lied


class OneTruth(Unary):
    """The own bit tells as much as another one: a report loses twice its epsilon0."""

    @property
    def kept(self):
        return 1 - self.lied


class OneMoreNeither(Response):
    """Of its event one of the two categories counts as telling nothing."""

    def event(self, users, query):
        known = (self.categories - 1) / (np.exp(self.epsilon0) + self.categories - 1)
        return ShuffledEvent(users, self.epsilon0, neither=known)


def alike(kind):
    """Users of the second half of a block draw what those of the first half drew."""

    def plant(patch):
        true = kind.reports

        def reports(self, xs, rng):
            half, state = max(1, len(xs) // 2), rng.bit_generator.state
            first = true(self, xs[:half], rng)
            rng.bit_generator.state = state
            second = true(self, xs[half : 2 * half], rng)
            rest = true(self, xs[2 * half :], rng)
            parts = [each for each in (first, second, rest) if each.reports]
            words, many = ([getattr(each, name) for each in parts] for name in ("words", "each"))
            return self.singly(np.concatenate(words), np.concatenate(many))

        patch.setattr(kind, "reports", reports)

    return plant


ALIKE: dict[type, Any] = {
    TwoSided: partial(histogram, "two-sided"),
    Categories: partial(histogram, "pollution"),
    Planes: partial(GroupMeans.calibrated, n=200, groups=2, low=0.0, high=1.0, privacy=PRIVACY),
    Prefixes: partial(HeavyHitters.calibrated, n=200, privacy=PRIVACY, bits=4),
    Nodes: partial(Quantiles.calibrated, n=200, low=0.0, high=1.0, privacy=PRIVACY, leaves=16),
}
"""Randomizers of words, and small protocols that ask with them."""

SUMS: dict[str, Any] = {
    "FloodRandomizer": partial(LaplaceScalarSum.calibrated, n=200, privacy=PRIVACY),
    "BucketRandomizer": partial(
        SparseVectorSum.calibrated, n=1000, d=4, privacy=PRIVACY, noise_ratio=20.0
    ),
}
"""Sums whose views are of words."""
