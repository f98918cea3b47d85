"""Randomizers with a planted defect: each is another implementation of a law, and one does not."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocols import VectorSum
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.one_round import OneRoundSum
from protocols.sums.single_message import SingleMessageRandomizer
from protocols.sums.split_mix import SplitMixRandomizer
from shuffle_sim.arrays import Scaled, dense
from shuffle_sim.privacy.events import BlanketEvent
from shuffle_sim.protocol.base import Datum
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.sampling import exact
from shuffle_sim.sampling.carries import carry_out
from shuffle_sim.sampling.chacha import ChaCha20
from shuffle_sim.sampling.kernels import compiling, half_binomial
from shuffle_sim.wire.messages import Alphabet, Messages

N, D = 240, 4


class Double(BinomialRandomizer):
    """Another implementation of the same law; subclasses plant a defect."""

    def noise(self, shape, rng):
        return rng.binomial(self.b, self.p, shape)

    def randomize(self, x, rng):
        return Messages.from_ones(self.counts(np.atleast_1d(x)[None], rng), self.per_label)

    def counts(self, xs, rng):
        return self._rounded(xs, rng) + self.noise((len(xs), self.labels), rng)

    def tally(self, xs, rng):
        return self.counts(xs, rng).sum(axis=0)


class HalfInOneCoordinate(Double):
    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        noise[:, -1] = rng.binomial(self.b, self.p / 2, shape[0])
        return noise


class OneDrawForAllCoordinates(Double):
    def noise(self, shape, rng):
        return np.repeat(super().noise((shape[0], 1), rng), shape[1], axis=1)


class AntitheticNeighbours(Double):
    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        noise[1::2] = self.b - noise[0 : 2 * (len(noise) // 2) : 2]
        return noise


class OneInHundredWithout(Double):
    """On the literal and counts path only."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        noise[50::100] = round(self.b * self.p)
        return noise

    def tally(self, xs, rng):
        return BinomialRandomizer.tally(self, xs, rng)


class NotClipped(Double):
    def admit(self, values):
        return dense(values), 0

    def _rounded(self, xs, rng):
        return np.clip(super()._rounded(np.clip(xs, -1e6, 1e6), rng), 0, self.g)


class TwiceTheBits(Double):
    def event(self, users, query):
        return replace(super().event(users, query), bits=2 * self.b)


class HalfTheSteps(Double):
    def event(self, users, query):
        return replace(super().event(users, query), steps=self.g // 2)


class HalfP(Double):
    def noise(self, shape, rng):
        return rng.binomial(self.b, self.p / 2, shape)


class HalfB(Double):
    def noise(self, shape, rng):
        return rng.binomial(self.b // 2, self.p, shape)


class RoundsUp(Double):
    def _rounded(self, xs, rng):
        scaled = (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.g / self.width)
        return np.clip(np.ceil(scaled), 0, self.g).astype(np.int64)


# Ten more


class OneDrawForABlock(Double):
    def noise(self, shape, rng):
        return np.repeat(super().noise((1, shape[1]), rng), shape[0], axis=0)


class OneCoinForAllRoundings(Double):
    def _rounded(self, xs, rng):
        scaled = (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.g / self.width)
        return np.clip(np.floor(scaled + rng.random()), 0, self.g).astype(np.int64)


class LessNoiseForLargeValues(Double):
    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        noise = self.noise(rounded.shape, rng)
        return rounded + np.where(rounded == self.g, self.b // 2, noise)


class SameNoiseInAllRounds(Double):
    def noise(self, shape, rng):
        return super().noise(shape, np.random.default_rng(7))


class ClippedByCoordinate(Double):
    """Longer vectors are clipped, not scaled: they stay outside the ball."""

    def admit(self, values):
        inside = np.clip(values, -self.norm_bound, self.norm_bound)
        return inside, 0


class LiteralOnly(Double):
    """A tenth more noise on the aggregate path."""

    def tally(self, xs, rng):
        rounded = self._rounded(xs, rng).sum(axis=0)
        return rounded + rng.binomial(self.b * len(xs), self.p / 2, self.labels)


class UniformNoise(Double):
    """Mean and range are right, the law is not."""

    def noise(self, shape, rng):
        return rng.integers(0, self.b + 1, shape)


class MoreHonest(Double):
    def event(self, users, query):
        return replace(super().event(users, query), honest=10 * users)


class CancellingCoordinates(Double):
    """The last coordinate's noise is what makes the sum over a user's noise constant."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        noise[:, -1] = self.b - noise[:, 0]
        return noise


# What only some rows, ways of drawing or messages show


class ClipByRank(Double):
    """Vectors are clipped to the 90th percentile of the lengths of those who are asked."""

    def admit(self, values):
        inside, clipped = super().admit(values)
        held = dense(inside)
        lengths = np.linalg.norm(held, axis=1)
        most = np.quantile(lengths, 0.9) if len(held) >= 20 else self.norm_bound
        return held * np.minimum(1.0, most / np.maximum(lengths, 1e-300))[:, None], clipped


class TwiceTheBall(Double):
    """Vectors a little outside stay there."""

    def admit(self, values):
        inside, clipped = super().admit(values)
        held, lengths = dense(inside).copy(), np.abs(values).sum(axis=1)
        near = lengths <= 2 * self.norm_bound
        held[near] = np.asarray(values)[near]
        return held, clipped


class OtherCoordinateSeen(Double):
    """Half the noise where coordinate 2 is large."""

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        noise = self.noise(rounded.shape, rng)
        large = dense(xs)[:, 2] > self.norm_bound / 2
        noise[large] = rng.binomial(self.b // 2, self.p, (int(large.sum()), self.labels))
        return rounded + noise


class LessNoiseCompiled(Double):
    def noise(self, shape, rng):
        halves = 2 if compiling() else 1
        return rng.binomial(self.b // halves, self.p, shape) + (self.b // 4) * (halves - 1)

    def tally(self, xs, rng):
        return BinomialRandomizer.tally(self, xs, rng)


class LessNoiseFromChaCha(Double):
    def noise(self, shape, rng):
        if isinstance(rng.bit_generator, ChaCha20):
            return rng.binomial(self.b // 2, self.p, shape) + self.b // 4
        return super().noise(shape, rng)


class DefinedWithoutNoise(Double):
    """Only what runs do not call."""

    def randomize(self, x, rng):
        rounded = self._rounded(np.atleast_1d(x)[None], rng)
        return Messages.from_ones(rounded + self.b // 2, self.per_label)


class CoinFromTheNoise(Double):
    """Rounds up where the noise is odd: mean and spread are almost right."""

    def counts(self, xs, rng):
        noise = self.noise((len(xs), self.labels), rng)
        scaled = (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.g / self.width)
        floor = np.clip(np.floor(scaled), 0, self.g - 1)
        coin = (noise % 2 + rng.random(scaled.shape)) / 2
        return (floor + (coin < scaled - floor)).astype(np.int64) + noise


def with_randomizer(protocol: Any, kind: type) -> Any:
    honest = protocol.randomizer
    protocol.randomizer = kind(*(getattr(honest, name) for name in honest.__dataclass_fields__))
    vocabulary = {"vocabulary": property(lambda _: (Datum, kind))}
    protocol.__class__ = type("Defective", (type(protocol),), vocabulary)
    return protocol


class NoCoins(CarryRandomizer):
    """Digits of the number itself, without carries."""

    def _quick(self, xs):
        return False

    def counts(self, xs, rng):
        class Zero:
            random, binomial, bit_generator = rng.random, rng.binomial, rng.bit_generator

            @staticmethod
            def integers(low, high, shape):
                return np.zeros(shape, np.int64)

        return super().counts(xs, Zero())


class OneUniform(CarryRandomizer):
    """Less rounding noise: one of the uniforms is its mean."""

    def _quick(self, xs):
        return False

    def _numbers(self, xs, rng):
        moved = self._scaled(xs) + 0.5
        whole = np.floor(moved)
        carried = carry_out((moved - whole).ravel(), self.r - 1, rng).reshape(whole.shape)
        return whole.astype(np.int64) + carried + half_binomial(self.b, whole.shape, rng)


class SharedCoins(CarryRandomizer):
    """A user's digits of all coordinates carry by the same coins: the signs of digits agree."""

    def _quick(self, xs):
        return False

    def counts(self, xs, rng):
        class Shared:
            random, binomial, bit_generator = rng.random, rng.binomial, rng.bit_generator

            @staticmethod
            def integers(low, high, shape):
                return np.broadcast_to(rng.integers(low, high, (shape[0], 1)), shape)

        return super().counts(xs, Shared())


class SmallCarries(OneRoundSum):
    """Sums with carries of fewer users than the theorem takes."""

    sensitivity = 2.0

    @classmethod
    def calibrated(cls):
        return cls(N, CarryRandomizer(2, 3.0, 2, 0, 2, -1.0, 2.0, 1.0), 1e-4, 1.0)


class Shares(SplitMixRandomizer):
    """Split and mix; subclasses choose shares that are not uniform."""

    def shares(self, shape, rng):
        return rng.integers(0, self.modulus, shape)

    def reports(self, xs, rng):
        noisy = self.counts(xs, rng)
        symbols = np.broadcast_to(
            self.shares((*noisy.shape, self.messages), rng), (*noisy.shape, self.messages)
        ).copy()
        symbols[..., -1] = (noisy - symbols[..., :-1].sum(axis=-1)) % self.modulus
        return Messages.from_symbols(self.alphabet, symbols)


class InTheClear(Shares):
    def shares(self, shape, rng):
        return np.zeros(shape, np.int64)


class HalfTheRange(Shares):
    def shares(self, shape, rng):
        return rng.integers(0, self.modulus // 2, shape)


class AllAlike(Shares):
    def shares(self, shape, rng):
        return rng.integers(0, self.modulus, (*shape[:-1], 1))


class OneFollows(Shares):
    """The second message is three times the first, and 1; no sum with signs shows that."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        drawn[..., 1] = (3 * drawn[..., 0] + 1) % self.modulus
        return drawn


class Short(SplitMixRandomizer):
    """Every share of noise is 15 % short."""

    def noise(self, users, shape, rng):
        law = 0.85 * users / self.planned, -np.expm1(-self.rate)
        return rng.negative_binomial(*law, shape) - rng.negative_binomial(*law, shape)


class SignsForDifferences(SplitMixRandomizer):
    """Of a cryptographic generator one number with a random sign, in place of two numbers."""

    def noise(self, users, shape, rng):
        if not isinstance(rng.bit_generator, ChaCha20):
            return super().noise(users, shape, rng)
        size = math.prod(shape)
        drawn = exact.negative_binomial(users, self.planned, self.rate, size, rng)
        return ((1 - 2 * exact.below(2, size, rng)) * drawn).reshape(shape)


class NearTheEnd(Double):
    """No noise where the first coordinate is a little below the end."""

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        noise = self.noise(rounded.shape, rng)
        share = np.abs(dense(xs)[:, 0]) / self.norm_bound
        noise[(share > 0.96) & (share < 0.9999)] = round(self.b * self.p)
        return rounded + noise


class LessForMultiples(Double):
    """Half the noise where a row is given as a multiple."""

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        scaled = isinstance(xs, Scaled) and (np.abs(xs.factors) > 1).any()
        bits = self.b // 2 if scaled else self.b
        return rounded + rng.binomial(bits, self.p, rounded.shape) + (self.b - bits) // 2


class ClippedByOthers(Double):
    """All rows are scaled by the longest."""

    def admit(self, values):
        inside, clipped = super().admit(values)
        rows = dense(inside)
        longest = max(1e-300, np.linalg.norm(rows, axis=1).max())
        return rows * (self.norm_bound / longest), clipped


class ShortReports(Double):
    """A report of many ones has a message less."""

    def randomize(self, x, rng):
        report = super().randomize(x, rng)
        if report.sums()[0] > self.per_label * 0.6:
            return Messages(report.alphabet, report.per_label, report.packed[:, :-1])
        return report


class RepeatsInLargeBlocks(Double):
    """From 20,000 users on the noise of the first comes again."""

    def noise(self, shape, rng):
        noise = super().noise(shape, rng)
        if shape[0] > 20_000:
            half = shape[0] // 2
            noise[half : 2 * half] = noise[:half]
        return noise

    def tally(self, xs, rng):
        return BinomialRandomizer.tally(self, xs, rng)


class RepeatsCompiled(RepeatsInLargeBlocks):
    """The same, in the compiled kernel."""

    def noise(self, shape, rng):
        if compiling():
            return super().noise(shape, rng)
        return Double.noise(self, shape, rng)


class FewerSymbols(SingleMessageRandomizer):
    """k + 1 symbols are charged as k."""

    def event(self, users, query):
        return BlanketEvent(users, self.gamma, self.steps)


class OneBlanket(SingleMessageRandomizer):
    """Whether a message is uniform is drawn once for all users of a block."""

    def counts(self, xs, rng):
        fixed = super()._scaled(xs)
        fixed = np.floor(fixed + rng.random(fixed.shape)).clip(0, self.steps).astype(np.int64)
        drawn = rng.integers(0, self.steps + 1, fixed.shape)
        return np.where(rng.random() < self.gamma, drawn, fixed)


class CancellingUsers(Shares):
    """The first share of a user is that of the one before, with the other sign."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        pairs = len(drawn) // 2
        drawn[1 : 2 * pairs : 2, ..., 0] = -drawn[0 : 2 * pairs : 2, ..., 0] % self.modulus
        return drawn


class RepeatingUsers(Shares):
    """Users of the second half of a block have shares of the first half."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        half = len(drawn) // 2
        drawn[half : 2 * half, ..., 1] = drawn[:half, ..., 1]
        return drawn


class OneFollowsTwo(Shares):
    """A share is the sum of two others, times large numbers."""

    def shares(self, shape, rng):
        drawn = rng.integers(0, self.modulus, shape)
        drawn[..., 1] = (12_345 * drawn[..., 0] + 777 * drawn[..., 2]) % self.modulus
        return drawn


class ThenLess(VectorSum):
    """Asks twice; the second round has another randomizer."""

    second = HalfP
    claims_sequential = False

    def init(self):
        return 0, None

    def plan(self, state):
        if state[0] == 2:
            return None
        spec = super().plan(super().init())
        if not state[0]:
            return spec
        one: Any = spec.randomizer
        other = self.second(*(getattr(one, name) for name in one.__dataclass_fields__))
        return replace(spec, randomizer=other)

    def update(self, state, estimate):
        return state[0] + 1, estimate

    vocabulary = property(lambda self: (Datum, BinomialRandomizer, self.second))


@dataclass(frozen=True)
class Lawless(Randomizer):
    """A third party's: it says nothing of its law."""

    alphabet = Alphabet(1, 2)
    per_label = 5

    def admit(self, values):
        return np.clip(values, 0.0, 1.0), 0

    def randomize(self, x, rng):
        return Messages.from_ones(rng.binomial(5, 0.3 + 0.4 * np.atleast_1d(x)[None]), 5)
