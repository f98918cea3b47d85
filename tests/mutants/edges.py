"""Defects where code takes another path: batches of one, parts of blocks, users who drop out, large
batches of words, seldom data, one-byte symbols, later chunks, and stations.
"""

import math
from dataclasses import replace

import numpy as np

from protocols.counts.pollution import Categories
from protocols.counts.randomizer import place
from protocols.counts.single import FixedBlanket, Response, Unary
from protocols.problems import linear_loss
from protocols.problems.problem import Gradient
from protocols.sums.batches import BatchKind
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.floods import FloodRandomizer
from shuffle_sim.arrays import Scaled, dense
from shuffle_sim.roles import Shuffler, UserShard, pools, shuffler, station, users
from shuffle_sim.sampling import exact, kernels, shuffling
from shuffle_sim.wire.messages import Messages, Tally

from .long_sums import NeverTwoSided, honest
from .planted import KeepsOrder
from .randomizers import Double, Shares

# How many users are drawn together


class AloneBare(Double):
    """A batch of one user has no noise."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        return noise if shape[0] > 1 else np.full_like(noise, round(self.b * self.p))

    def randomize(self, x, rng):
        return BinomialRandomizer.randomize(self, x, rng)


class LargeTallyShort(Double):
    """Sums of more than 500 users have half the variance of noise."""

    def tally(self, xs, rng):
        n, rounded = len(xs), self._rounded(xs, rng).sum(axis=0)
        if n <= 500:
            return rounded + rng.binomial(self.b * n, self.p, self.labels)
        half = self.b * n // 2
        return rounded + rng.binomial(half, self.p, self.labels) + round(half * self.p)


class ZeroBare(Double):
    """The datum 0 has no noise."""

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        noise = self.noise(rounded.shape, rng)
        noise[~dense(xs).reshape(len(xs), -1).any(axis=1)] = round(self.b * self.p)
        return rounded + noise


class OnceOfEqual(Double):
    """A row of equal numbers is one number: it has one noise."""

    def counts(self, xs, rng):
        rounded, rows = self._rounded(xs, rng), dense(xs).reshape(len(xs), -1)
        noise, equal = self.noise(rounded.shape, rng), (rows == rows[:, :1]).all(axis=1)
        noise[equal] = noise[equal, :1]
        return rounded + noise


class NearlyInside(Double):
    """Nothing is clipped where all rows of a batch are within 1.1 times the ball."""

    def admit(self, values):
        lengths = np.linalg.norm(dense(values).reshape(len(values), -1), axis=1)
        if lengths.max(initial=0.0) <= 1.1 * (self.norm_bound or math.inf):
            return values, 0
        return super().admit(values)


class MultiplesLong(Double):
    """Multiples of rows are clipped from 1.3 times the ball on."""

    def admit(self, values):
        if not isinstance(values, Scaled):
            return super().admit(values)
        found, clipped = super().admit(values)
        rows, lengths = dense(values), np.linalg.norm(dense(values), axis=1, keepdims=True)
        return np.where(lengths <= 1.3 * self.norm_bound, rows, dense(found)), clipped


class SharesOfLabels(Shares):
    """All coordinates of a user have the shares of the first."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        return np.repeat(drawn[:, :1], shape[1], axis=1)


class StretchedShares(Shares):
    """All shares of a number follow from 32 bits."""

    def shares(self, shape, rng):
        word = rng.integers(0, 1 << 32, shape[:-1]).astype(np.uint64)[..., None] << np.uint64(32)
        word = word + np.arange(1, shape[-1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        return ((word ^ (word >> np.uint64(27))) % np.uint64(self.modulus)).astype(np.int64)


class TallyTrue(Response):
    """Where more than 500 are counted at once, nobody lies."""

    def tallied(self, xs, rng):
        if len(xs) <= 500:
            return super().tallied(xs, rng)
        return Tally.counted(dense(xs).astype(np.int64), reports=len(xs))


class AbsentDoNotLie(Unary):
    """Where they are counted at once, those in no category do not lie."""

    def tally(self, xs, rng):
        values = dense(xs)
        return super().tally(values[values >= 0], rng)


class NobodyNoNoise(Categories):
    """Where all who are counted at once are in no category, there is no noise."""

    def tallied(self, xs, rng):
        if (dense(xs) < 0).all():
            return Tally.counted((), (), reports=len(xs))
        return super().tallied(xs, rng)


class FloodShortAtOnce(FloodRandomizer):
    """Where more than 100 are counted at once, they have half the noise."""

    def tallied(self, xs, rng):
        data = self._data(self._numbers(xs, rng)).reshape(len(xs), self.coordinates, -1)
        users = len(xs) / (2 if len(xs) > 100 else 1)
        counts = (data.sum(axis=0) + self._drawn(users, rng)).ravel()
        return Tally.counted(np.arange(counts.size), counts, reports=len(xs))

    def count_pmf(self, x, label):
        return honest(self, FloodRandomizer).count_pmf(x, label)


# Which data


class BucketsNotClipped(BucketRandomizer):
    """Vectors outside the ball stay there."""

    def admit(self, values):
        return dense(values), 0


class FloodNotClipped(FloodRandomizer):
    """Numbers up to twice the range stay as they are."""

    def admit(self, values):
        return np.clip(dense(values), 0.0, 2 * self.width), 0

    def count_pmf(self, x, label):
        return honest(self, FloodRandomizer).count_pmf(x, label)


class FloodBareBetween(FloodRandomizer):
    """Numbers between 0.4 and 0.6 of the range have no noise."""

    def reports(self, xs, rng):
        data = self._data(self._numbers(xs, rng))
        share = dense(xs).ravel() / self.width
        bare = (share > 0.4) & (share < 0.6)
        noise = np.array(
            [
                0 * row if off else self._drawn(1, rng)[0]
                for row, off in zip(data, bare, strict=True)
            ]
        )
        counts = data + noise
        words = np.concatenate([np.repeat(np.arange(each.size), each) for each in counts])
        return self.singly(words, counts.sum(axis=1))

    def count_pmf(self, x, label):
        return honest(self, FloodRandomizer).count_pmf(x, label)


class BucketsSure(BucketRandomizer):
    """Signs have no noise where the second coordinate is large."""

    def _sure(self, xs):
        return dense(xs)[:, 1] > 0.6 * self.norm_bound

    def reports(self, xs, rng):
        sent = super().reports(xs, rng)
        words = sent.words.reshape(len(xs), -1).astype(np.int64)
        biases = np.take_along_axis(self._biases(dense(xs)), words // 2, axis=1)
        sure = np.where(self._sure(xs)[:, None], words // 2 * 2 + (biases > 0), words)
        return self.singly(sure.ravel(), np.full(len(xs), self.buckets))

    def count_pmf(self, x, label):
        return honest(self, BucketRandomizer).count_pmf(x, label)


class AbsentSilent(FixedBlanket):
    """Who has no category is let in, and sends nothing."""

    def admit(self, values):
        return place(values, self.bins)

    def reports(self, xs, rng):
        values = dense(xs).reshape(-1, 1).astype(np.int64)
        drawn = rng.integers(self.categories, size=(len(values), self.each))
        words = np.hstack([values, np.where(values >= 0, drawn, -1)])
        return self.singly(words[words >= 0], (words >= 0).sum(axis=1))


class AbsentBare(Unary):
    """Who has no category sends zeros only."""

    def counts(self, xs, rng):
        return np.where(dense(xs).reshape(-1, 1) >= 0, super().counts(xs, rng), 0)


class EighthWords(FixedBlanket):
    """Every eighth word, from the fifth on, is never noise."""

    def reports(self, xs, rng):
        values = dense(xs).reshape(-1, 1).astype(np.int64)
        drawn = rng.integers(self.categories, size=(len(values), self.each))
        drawn += drawn % 8 == 4
        words = np.hstack([values, drawn])
        return self.singly(words[words >= 0], (words >= 0).sum(axis=1))


class DefinedTrue(Response):
    """The definition says the truth."""

    def randomize(self, x, rng):
        return self.singly([int(x)])


# Users


def _bare(randomizer, values, fidelity):
    """What users send of rounded values with the mean of their noise."""
    one = replace(randomizer, p=0.5, b=2)
    rounded = one.counts(values, np.random.default_rng(1)) // 2 + round(randomizer.b * randomizer.p)
    if fidelity == "literal":
        return len(values), Messages.from_ones(rounded, randomizer.per_label).packed
    return len(values), rounded.sum(axis=0) if fidelity == "aggregate" else rounded


def _without_noise(patch, where):
    """Users have no noise in blocks that a shard says."""
    answer, randomized = UserShard._answer_block, users._randomized
    bare = [False]

    def answered(self, broadcast, block):
        bare[0] = where(self, broadcast, block)
        return answer(self, broadcast, block)

    def drawn(fidelity, values, randomizer, rng):
        if bare[0] and isinstance(randomizer, BinomialRandomizer):
            return _bare(randomizer, values, fidelity)
        return randomized(fidelity, values, randomizer, rng)

    patch.setattr(UserShard, "_answer_block", answered)
    patch.setattr(users, "_randomized", drawn)


def parts_bare(patch):
    """Where a round asks a part of a block."""

    def part(self, broadcast, block):
        span = self._span(block)
        return list(broadcast.cohort.within(*span)) != [span]

    _without_noise(patch, part)


def others_drop_out(patch):
    """Where some users of the block drop out."""
    _without_noise(
        patch, lambda self, broadcast, block: self._corrupted(broadcast, block).users.size > 0
    )


def fresh_again(patch):
    """The same broadcast again is answered with new noise."""
    true = UserShard._answer_block

    def answered(self, broadcast, block):
        asked = vars(self).setdefault("asked", [])
        asked.append((broadcast.context, block))
        kept, times = self._deployment, asked.count((broadcast.context, block)) - 1
        self._deployment = replace(kept, entropy=kept.entropy + times)
        try:
            return true(self, broadcast, block)
        finally:
            self._deployment = kept

    patch.setattr(UserShard, "_answer_block", answered)


def norms_of_gradients(patch):
    """Gradients are said to be shorter than they are: they are not clipped."""
    true = Gradient.__call__

    def asked(self, rows):
        found = true(self, rows)
        if isinstance(found, Scaled):
            squares = np.einsum("ij,ij->i", found.rows, found.rows)
            return Scaled(found.rows, 3 * found.factors, squares / 9)
        return found

    patch.setattr(Gradient, "__call__", asked)


def norms_of_the_first_piece(patch):
    """Of many users, those after the first piece are clipped by the norms of that."""
    true, piece = kernels.margins_and_norms, 256

    def margins_and_norms(rows, theta):
        margins, norms = true(rows, theta)
        return margins, np.resize(norms[:piece], norms.shape)

    patch.setattr(linear_loss, "margins_and_norms", margins_and_norms)


# The shuffler


def bytes_stay(true, parts, rng):
    """Many symbols of one byte keep their order."""
    row = np.concatenate(parts)
    return row if row.itemsize == 1 and len(row) > 1000 else true(parts, rng)


def many_words_stay(patch):
    """More than 50,000 words keep their order."""
    true = pools.WordPool._permute

    def permute(self, sizes, rng):
        if self.size <= 50_000:
            true(self, sizes, rng)
        else:
            self._moved, self._held = np.concatenate(self._held), self._held[:1]

    patch.setattr(pools.WordPool, "_permute", permute)


def two_parts_stay(patch):
    """Words that came in two parts keep their order: of two shards, each a half of the users."""
    true = pools.WordPool._permute

    def permute(self, sizes, rng):
        if len(self._held) == 3:  # an empty one is the first
            self._moved, self._held = np.concatenate(self._held), self._held[:1]
        else:
            true(self, sizes, rng)

    patch.setattr(pools.WordPool, "_permute", permute)


def _halves(permuted):
    """Of more than eight parts the first half stays before the second."""

    def permute(arrays, rng):
        parts = [each for each in arrays if len(each)]
        if len(parts) <= 8:
            return permuted(arrays, rng)
        half = len(parts) // 2
        return np.concatenate([permuted(each, rng) for each in (parts[:half], parts[half:])])

    return permute


def many_parts_halved(patch):
    """Of a pool of more than eight parts, two halves are permuted apart."""
    patch.setattr(pools, "permuted", _halves(shuffling.permuted))


def three_units(patch):
    """A geometric number ends after three of its means: five in a hundred are longer."""
    true = exact.geometric

    def geometric(number, size, rng):
        return np.minimum(true(number, size, rng), (3 << exact.FRACTION) // number)

    patch.setattr(exact, "geometric", geometric)


def no_outliers(patch):
    """Of the batches whose sizes are log-series those are cut that are 4 times their decay."""
    true = BatchKind.drawn

    def drawn(self, users, shape, rng):
        most = round(-4 / math.log(self.ratio)) if self.ratio else None
        return true(self, users, shape, Cutting(rng, most) if most else rng)

    class Cutting:
        """A generator whose log-series end."""

        def __init__(self, rng, most):
            self._rng, self._most = rng, most

        def __getattr__(self, name):
            return getattr(self._rng, name)

        def logseries(self, ratio, size):
            return np.minimum(self._rng.logseries(ratio, size), self._most)

    patch.setattr(BatchKind, "drawn", drawn)


def chunks_alike(patch):
    """All chunks of a pool of bits are arranged by one stream."""
    true, seen = pools.BitPool._chunk, {}

    def chunk(self, index, rng):
        state = seen.setdefault(id(self), rng.bit_generator.state)
        rng.bit_generator.state = state
        return true(self, index, rng)

    patch.setattr(pools.BitPool, "_chunk", chunk)


def large_shares_even(patch):
    """From 10^9 places on, pieces get their share of the ones exactly."""
    true = shuffling.share_out

    def share_out(ones, sizes, rng):
        if int(sizes.sum()) < 10**9:
            return true(ones, sizes, rng)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(object) * ones // int(sizes.sum())
        return np.diff(ends.astype(np.int64))

    patch.setattr(pools, "share_out", share_out)


def _released_with(part):
    """A round is released with so large a part of the reports that are agreed."""

    def plant(patch):
        true = shuffler._Round.__init__

        def begin(self, *given):
            true(self, *given)
            self.minimum = int(part * self.minimum)

        patch.setattr(shuffler._Round, "__init__", begin)

    return plant


def released_again(patch):
    """A round is released as often as it is asked for."""
    true = Shuffler._at

    def at(self, broadcast):
        self._released = -1
        if self._round is not None and self._round.pool.chunk_sizes:
            self._round = None
        return true(self, broadcast)

    patch.setattr(Shuffler, "_at", at)


# Stations


def blind_station(patch):
    """Users of a station draw without entropy."""
    patch.setattr(station, "UserShard", lambda d, *given: UserShard(replace(d, entropy=0), *given))


def station_in_order(patch):
    """The shuffler of a station hands ones on before zeros."""
    patch.setattr(station, "Shuffler", KeepsOrder)


# By what they are planted in, and the check that must catch each

SUMS: dict[type, str] = {
    AloneBare: "company",
    ZeroBare: "defined",
    NearlyInside: "domain",
    MultiplesLong: "domain",
    LargeTallyShort: "streams",
    OnceOfEqual: "counts_law",
}
VECTORS: dict[type, str] = {SharesOfLabels: "shares"}
BUCKETS: dict[type, str] = {BucketsNotClipped: "domain", BucketsSure: "search"}
FLOODS: dict[type, str] = {
    FloodNotClipped: "domain",
    FloodBareBetween: "search",
    FloodShortAtOnce: "tallies",
    NeverTwoSided: "weighed",
}
WORDS = (
    ("response", TallyTrue, "tallies", {"n": 1000}),
    ("response", DefinedTrue, "defined", {}),
    ("fixed-blanket", AbsentSilent, "users_law", {}),
    ("fixed-blanket", EighthWords, "literal_law", {"categories": 200}),
    ("unary", AbsentBare, "users_law", {}),
    ("unary", AbsentDoNotLie, "tallies", {}),
    ("pollution", NobodyNoNoise, "tallies", {}),
)
ROLES = (
    ("parts of blocks without noise", parts_bare, "company"),
    ("those who stay, without noise", others_drop_out, "company"),
    ("fresh noise when asked again", fresh_again, "once"),
    ("fewer than agreed released", _released_with(0.0), "once"),
    ("nearly as many released", _released_with(0.8), "once"),
    ("released again", released_again, "once"),
    ("stations without entropy", blind_station, "stations"),
    ("stations keep order", station_in_order, "stations"),
    ("chunks arranged alike", chunks_alike, "order"),
    ("large pools shared out evenly", large_shares_even, "order"),
)
