"""Defects of sums by buckets and under floods: noise left out, secrets told, wrong batches."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from protocols import LaplaceScalarSum, SparseVectorSum
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.floods import FloodRandomizer
from shuffle_sim.arrays import dense


def buckets() -> Any:
    return SparseVectorSum(n=200, d=16, bucket=4, a=0.2, delta=1e-2)


def floods() -> Any:
    rates = {"decay": 0.3, "smooth": 3.0, "flood": 2.0, "pairs": 2.0, "batch": 3, "pair_batch": 2}
    return LaplaceScalarSum(n=10, base=3, low=1, high=1, top=2, cap=500, delta=1e-2, **rates)


def honest(randomizer, kind):
    return kind(*(getattr(randomizer, name) for name in randomizer.__dataclass_fields__))


class Drawn(BucketRandomizer):
    """Another implementation of the same law; subclasses plant a defect."""

    def places(self, shape, rng):
        return rng.integers(self.bucket, size=shape)

    def chances(self, v):
        return 0.5 + v

    def reports(self, xs, rng):
        biases = self._biases(dense(xs))
        shape = len(biases), self.buckets
        places = np.arange(0, self.sent, self.bucket) + self.places(shape, rng)
        signs = rng.random(shape) < self.chances(np.take_along_axis(biases, places, axis=1))
        return self.singly((2 * places + signs).reshape(-1), np.full(len(biases), self.buckets))

    def count_pmf(self, x, label):
        return honest(self, BucketRandomizer).count_pmf(x, label)


class SignsWithoutNoise(Drawn):
    def chances(self, v):
        return v >= 0


class SignsHalfAsFair(Drawn):
    def chances(self, v):
        return 0.5 + 1.5 * v


class FirstOfBucket(Drawn):
    """The secret coordinate is none."""

    def places(self, shape, rng):
        return np.zeros(shape, np.int64)


class LastSeldom(Drawn):
    """The last coordinate of a bucket is drawn half as often."""

    def places(self, shape, rng):
        places = super().places(shape, rng)
        again = (places == self.bucket - 1) & (rng.random(shape) < 0.5)
        return np.where(again, 0, places)


class SecretsOfNeighbours(Drawn):
    """Two users in a row draw the same places."""

    def places(self, shape, rng):
        return np.repeat(super().places(((shape[0] + 1) // 2, shape[1]), rng), 2, axis=0)[
            : shape[0]
        ]


class NotFlat(Drawn):
    """Rotated coordinates are not clipped."""

    def _biases(self, rows):
        return super()._biases(rows) * 1.3


class TwiceTheCrowd(Drawn):
    """The event counts on ten times the users."""

    def _event(self, users):
        return super()._event(10 * users)


class Flood(FloodRandomizer):
    """Other kinds of noise; subclasses say which."""

    @cached_property
    def kinds(self):
        return tuple(self.changed(list(super().kinds)))

    def changed(self, kinds):
        return kinds

    def count_pmf(self, x, label):
        return honest(self, FloodRandomizer).count_pmf(x, label)


def without(*, low=1, two_sided=2, pairs=1):
    """The first kinds, in their order, with some of them left out."""
    keep = low, two_sided > 0, two_sided > 1, pairs

    def changed(_, kinds):
        return [kind for kind, kept in zip(kinds, keep, strict=False) if kept] + kinds[4:]

    return {"changed": changed}


NoLowNoise = type("NoLowNoise", (Flood,), without(low=0))
OneSided = type("OneSided", (Flood,), without(two_sided=1))
NoTwoSidedNoise = type("NoTwoSidedNoise", (Flood,), without(two_sided=0))
NoPairs = type("NoPairs", (Flood,), without(pairs=0))


class NoFlood(Flood):
    """The first kind of carries is left out."""

    def changed(self, kinds):
        return [*kinds[:4], *kinds[5:]]


class NeverTwoSided(FloodRandomizer):
    """Neither what is drawn nor what is stated of it has the two-sided noise."""

    @cached_property
    def kinds(self):
        return tuple(kind for kind in super().kinds if not kind.ratio)


class HalfTheFlood(Flood):
    def changed(self, kinds):
        return [*kinds[:4], *(replace(kind, rate=kind.rate / 2) for kind in kinds[4:])]


class CarryOfTheBaseBelow(Flood):
    """A carry takes base - 1 units of the plane below."""

    def changed(self, kinds):
        wrong = kinds[4].symbols.copy()
        wrong[0] -= 1
        return [*kinds[:4], replace(kinds[4], symbols=wrong), *kinds[5:]]


class BatchesOfOne(Flood):
    """As many messages, none of them together."""

    def changed(self, kinds):
        alone = (replace(k, rate=k.rate * (k.batch + 1) / 2, batch=1) for k in kinds[4:])
        return [*kinds[:4], *alone]


class DigitsSwapped(FloodRandomizer):
    """Units of the two lowest planes are exchanged."""

    def _data(self, numbers):
        counts = super()._data(numbers)
        return counts[:, [1, 0, *range(2, counts.shape[1])]]

    def count_pmf(self, x, label):
        return honest(self, FloodRandomizer).count_pmf(x, label)


class RoundsDown(FloodRandomizer):
    def _numbers(self, xs, rng):
        return super()._numbers(np.floor(dense(xs) * self.digits.steps) / self.digits.steps, rng)


class OneShareForAll(FloodRandomizer):
    """Users of a block have the first one's noise."""

    def reports(self, xs, rng):
        noise = self._drawn(1, rng)
        data = self._data(self._numbers(xs, rng))
        counts = data + noise
        words = np.concatenate([np.repeat(np.arange(each.size), each) for each in counts])
        return self.singly(words, counts.sum(axis=1))


class WithoutShares(FloodRandomizer):
    """Noise is added where users are counted at once only."""

    def reports(self, xs, rng):
        counts = self._data(self._numbers(xs, rng))
        words = np.repeat(np.arange(counts.size) % counts.shape[1], counts.ravel())
        return self.singly(words, counts.sum(axis=1))


class TwiceTheShareAtOnce(FloodRandomizer):
    """Where users are counted at once, each has two shares."""

    def tallied(self, xs, rng):
        tally = super().tallied(xs, rng)
        more = self._drawn(len(xs), rng).ravel()
        return replace(tally, sums=tally.sums + more[tally.words])


class FewMessages(FloodRandomizer):
    """A user sends a tenth of the cap at most, and leaves out the rest of its noise."""

    def reports(self, xs, rng):
        sent = super().reports(xs, rng)
        ends = np.cumsum(sent.each)
        kept = np.arange(len(sent.words)) - np.repeat(ends - sent.each, sent.each) < 2
        return self.singly(sent.words[kept].astype(np.int64), np.minimum(sent.each, 2))


BUCKETS: dict[type, str] = {
    SignsWithoutNoise: "literal_law",
    SignsHalfAsFair: "users_law",
    FirstOfBucket: "users_law",
    LastSeldom: "users_law",
    SecretsOfNeighbours: "users_law",
    NotFlat: "users_law",
    TwiceTheCrowd: "bound",
}
FLOODS: dict[type, str] = {
    NoLowNoise: "aggregate_law",
    OneSided: "users_law",
    NoTwoSidedNoise: "users_law",
    NoPairs: "aggregate_law",
    NoFlood: "literal_law",
    HalfTheFlood: "aggregate_law",
    CarryOfTheBaseBelow: "aggregate_law",
    BatchesOfOne: "aggregate_law",
    DigitsSwapped: "users_law",
    RoundsDown: "users_law",
    OneShareForAll: "users_law",
    WithoutShares: "literal_law",
    TwiceTheShareAtOnce: "aggregate_law",
    FewMessages: "users_law",
}
PLANTED = (
    (buckets, "BucketRandomizer", BUCKETS),
    (floods, "FloodRandomizer", FLOODS),
)
"""How the honest sum is made, what is broken, and by which check each defect must be caught."""
