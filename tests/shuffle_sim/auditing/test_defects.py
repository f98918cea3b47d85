"""Planted defects, one by one: the audit catches each, and passes the doubles without a defect.

False alarms: at most 1e-6 an audit.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from protocols import (
    L2Ball,
    Logistic,
    Problem,
    ScalarSum,
    ShuffleSGD,
    SingleMessageSum,
    SplitAndMixSum,
    VectorSum,
)
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.one_round import OneRoundSum
from protocols.sums.split_mix import SplitMixRandomizer
from shuffle_sim import Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.auditing.audit import FALSE_ALARM, audit
from shuffle_sim.auditing.checks import Checks
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.planned import others
from shuffle_sim.protocol.base import Datum
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.sampling.chacha import ChaCha20
from shuffle_sim.sampling.kernels import compiling
from shuffle_sim.wire.frames import Kind, parse, split_frames
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
        return values, 0

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


RANDOMIZERS = [
    TwiceTheBall,
    OtherCoordinateSeen,
    LessNoiseCompiled,
    LessNoiseFromChaCha,
    DefinedWithoutNoise,
    CoinFromTheNoise,
    HalfInOneCoordinate,
    OneDrawForAllCoordinates,
    AntitheticNeighbours,
    OneInHundredWithout,
    NotClipped,
    TwiceTheBits,
    HalfTheSteps,
    HalfP,
    HalfB,
    RoundsUp,
    OneDrawForABlock,
    OneCoinForAllRoundings,
    LessNoiseForLargeValues,
    SameNoiseInAllRounds,
    ClippedByCoordinate,
    LiteralOnly,
    UniformNoise,
    MoreHonest,
    CancellingCoordinates,
]


def with_randomizer(protocol: Any, kind: type) -> Any:
    honest = protocol.randomizer
    protocol.randomizer = kind(*(getattr(honest, name) for name in honest.__dataclass_fields__))
    vocabulary = {"vocabulary": property(lambda _: (Datum, kind))}
    protocol.__class__ = type("Defective", (type(protocol),), vocabulary)
    return protocol


def vector() -> VectorSum:
    return VectorSum(n=N, d=D, g=4, b=12)


def caught(protocol: Any, shard: Any = UserShard, shuffler: Any = Shuffler) -> bool:
    """Whether an audit of 1,000 repeats fails: ended at the first check that does."""
    spec = protocol.plan(protocol.init())
    bench = Checks(protocol, spec, 5, 1000, FALSE_ALARM / 32, shard, shuffler)
    for _, check in bench.checks():
        try:
            check()
        except Exception:  # as the audit does
            return True
    return not audit(protocol, repeats=1000, seed=5, shard=shard, shuffler=shuffler).passed


@pytest.mark.full
@pytest.mark.parametrize("kind", RANDOMIZERS)
def test_every_planted_defect_of_a_randomizer_is_caught(kind):
    assert caught(with_randomizer(vector(), kind))


@pytest.mark.full
def test_an_audit_names_what_failed():
    report = audit(with_randomizer(vector(), HalfP), repeats=1000, seed=5)
    assert not report.passed
    assert any(check.detail for check in report.checks if check.passed is False)


@pytest.mark.full
def test_the_double_without_a_defect_passes():
    report = audit(with_randomizer(vector(), Double), repeats=1000, seed=5)
    assert report.passed, [check for check in report.checks if check.passed is False]


class NoCoins(CarryRandomizer):
    """Digits of the number itself, without carries."""

    def _quick(self, xs):
        return False

    def counts(self, xs, rng):
        class Zero:
            random = rng.random
            binomial = rng.binomial

            @staticmethod
            def integers(low, high, shape):
                return np.zeros(shape, np.int64)

        return super().counts(xs, Zero())


class OneUniform(CarryRandomizer):
    """Less rounding noise: one of the uniforms is its mean."""

    def _quick(self, xs):
        return False

    def counts(self, xs, rng):
        class Half:
            binomial, integers = rng.binomial, rng.integers
            drawn = 0

            def random(self, shape):
                self.drawn += 1
                return rng.random(shape) if self.drawn > 1 else np.full(shape, 0.5)

        return super().counts(xs, Half())


class SharedCoins(CarryRandomizer):
    """A user's digits of all coordinates carry by the same coins: the signs of digits agree."""

    def _quick(self, xs):
        return False

    def counts(self, xs, rng):
        class Shared:
            binomial, random = rng.binomial, rng.random

            @staticmethod
            def integers(low, high, shape):
                return np.broadcast_to(rng.integers(low, high, (shape[0], 1)), shape)

        return super().counts(xs, Shared())


class SmallCarries(OneRoundSum):
    """Sums with carries of fewer users than the theorem takes."""

    sensitivity = 2.0

    @classmethod
    def calibrate(cls):
        return cls(N, CarryRandomizer(2, 3.0, 2, 0, 2, -1.0, 2.0, 1.0), 1e-4, 1.0)


def carry() -> Any:
    return SmallCarries.calibrate()


@pytest.mark.full
def test_a_sum_with_carries_passes():
    assert audit(carry(), repeats=1000, seed=5).passed


@pytest.mark.full
@pytest.mark.parametrize("kind", [NoCoins, OneUniform, SharedCoins])
def test_defects_of_sums_with_carries_are_caught(kind):
    assert caught(with_randomizer(carry(), kind))


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


def split() -> Any:
    return SplitAndMixSum.calibrate(n=60, privacy=FEW, rounding=0.3)


@pytest.mark.parametrize("kind", [InTheClear, HalfTheRange, AllAlike, OneFollows])
def test_shares_that_show_the_number_are_caught(kind):
    """Their sums have the right law: the messages themselves are looked at."""
    protocol = with_randomizer(split(), kind)
    spec = protocol.plan(protocol.init())
    assert spec is not None
    with pytest.raises(LawError):
        Checks(protocol, spec, 5, 1000, FALSE_ALARM / 32, UserShard, Shuffler).uniform()


@pytest.mark.full
def test_the_double_of_split_and_mix_passes():
    assert audit(with_randomizer(split(), Shares), repeats=1000, seed=5).passed


class StreamsOfHalfTheBlocks(UserShard):
    """Two blocks draw from one stream."""

    def _answer_block(self, broadcast, block):
        frames, record = super()._answer_block(broadcast, block // 2 * 2)
        if block % 2 and frames:
            pieces = [parse(data) for data in split_frames(b"".join(frames))]
            frames = [replace(each, index=block).tobytes() for each in pieces]
        return frames, record


class LosesTheLast(UserShard):
    """The last report of a block is that of the first."""

    def answer(self, broadcast, blocks=None):
        batch, record = super().answer(broadcast, blocks)
        frames = []
        for frame in map(parse, split_frames(batch)):
            size = len(frame.payload) // frame.reports
            payload = frame.payload[:-size] + frame.payload[:size]
            frames.append(replace(frame, payload=payload) if frame.kind is Kind.REPORTS else frame)
        return b"".join(each.tobytes() for each in frames), record


class AddsOnes(Shuffler):
    """The view has more ones than were sent."""

    def view(self, broadcast, start, stop):
        view, record = super().view(broadcast, start, stop)
        frame = parse(view)
        payload = frame.payload[:8] + b"\xff" + frame.payload[9:]
        return replace(frame, payload=payload).tobytes(), record


class OrderUnderOtherLabels(Shuffler):
    """Mixes label 0 only."""

    def view(self, broadcast, start, stop):
        view, record = super().view(broadcast, start, stop)
        frame = parse(view)
        rows = np.frombuffer(frame.payload[8:], np.uint8).reshape(D, -1).copy()
        rows[1:].sort(axis=1)
        return replace(frame, payload=frame.payload[:8] + rows.tobytes()).tobytes(), record


class OrderOfShards(Shuffler):
    """Several shards keep what came to them."""

    def collect(self, broadcast, batches):
        shards = self._deployment.shuffler_shards
        if shards == 1:
            return super().collect(broadcast, batches)
        now = self._at(broadcast)
        record = now.inbox.take(batches, now.pool)
        return *[b""] * shards, replace(record, shares=Counter({self._shard: now.pool.size}))


@pytest.mark.full
@pytest.mark.parametrize(
    "implementation",
    [
        {"shard": StreamsOfHalfTheBlocks},
        {"shard": LosesTheLast},
        {"shuffler": AddsOnes},
        {"shuffler": OrderUnderOtherLabels},
        {"shuffler": OrderOfShards},
    ],
)
def test_defects_of_roles_are_caught(implementation):
    assert caught(vector(), **implementation)


@pytest.mark.full
def test_what_cannot_be_checked_is_said():
    class Silent(Double):
        def event(self, users, query):
            return None

    protocol = with_randomizer(ScalarSum(n=N, g=4, b=12), Silent)
    honest = ScalarSum(n=N, g=4, b=12).randomizer.event(N, Datum())
    plan = type(protocol).plan

    def planned(self, state):
        self.randomizer.__class__ = Double
        spec = plan(self, state)
        self.randomizer.__class__ = Silent
        return spec and replace(spec, event=honest)

    type(protocol).plan = planned
    report = audit(protocol, repeats=1000, seed=5)
    assert report.passed
    assert report.checks[0].passed is None
    assert "not checked" in report.checks[0].detail


@dataclass(frozen=True)
class Lawless(Randomizer):
    """A third party's: it says nothing of its law."""

    alphabet = Alphabet(1, 2)
    per_label = 5

    def admit(self, values):
        return np.clip(values, 0.0, 1.0), 0

    def randomize(self, x, rng):
        return Messages.from_ones(rng.binomial(5, 0.3 + 0.4 * np.atleast_1d(x)[None]), 5)


def test_where_no_law_is_known_the_audit_says_what_it_could_check_and_what_not():
    class Foreign(ScalarSum):
        def plan(self, state):
            planned = super().plan(state)
            return planned and replace(planned, randomizer=Lawless())

    report = audit(Foreign(n=40, g=5, b=9), repeats=1000, seed=1)
    by_name = {check.name: check for check in report.checks}
    assert report.passed
    assert not report.complete
    assert by_name["the shuffler keeps no order"].passed
    assert by_name["each user's report has its exact law"].passed is None
    assert "count_pmf" in by_name["each user's report has its exact law"].detail
    assert np.isnan(report.empirical)


def _trained() -> Any:
    problem = Problem(Logistic(), L2Ball(2, 1.0))
    return ShuffleSGD.calibrated(n=40, problem=problem, privacy=FEW, batch=20, encoding="unary")


FEW = Privacy(3.0, 1e-4)
CLEAN: tuple[Callable[[], Any], ...] = (
    lambda: VectorSum(n=40, d=2, g=4, b=12),
    lambda: ScalarSum(n=40, g=5, b=9, p=0.2),
    lambda: SingleMessageSum.calibrate(n=60, privacy=FEW),
    lambda: SplitAndMixSum.calibrate(n=30, privacy=FEW, rounding=0.3),
    carry,
    _trained,
)
"""Each audit looks at every fidelity, and at both kernels where they are installed."""


@pytest.mark.slow
def test_two_hundred_clean_audits_raise_no_alarm():
    """False alarms of at most 1e-6 each: 200 without one. Three seconds each."""
    for seed in range(200):
        report = audit(CLEAN[seed % len(CLEAN)](), repeats=1000, seed=seed)
        assert report.passed, (seed, [each for each in report.checks if each.passed is False])


class Short(SplitMixRandomizer):
    """Every share of noise is 15 % short."""

    def noise(self, users, shape, rng):
        law = 0.85 * users / self.planned, -np.expm1(-self.rate)
        return rng.negative_binomial(*law, shape) - rng.negative_binomial(*law, shape)


@pytest.mark.parametrize("method", ["often", "together"])
def test_a_little_less_noise_in_every_share_is_caught(method):
    """In one user's report, and in what all users make together."""
    protocol = split()

    def bench():
        spec = protocol.plan(protocol.init())
        assert spec is not None
        return Checks(protocol, spec, 5, 1000, 3e-8, UserShard, Shuffler)

    getattr(bench(), method)()
    with_randomizer(protocol, Short)
    with pytest.raises(LawError):
        getattr(bench(), method)()


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


@pytest.mark.full
def test_a_randomizer_that_only_later_rounds_have_is_looked_at():
    report = audit(ThenLess(n=60, d=2, g=4, b=12), repeats=1000, seed=5)
    failed = [check.name for check in report.checks if check.passed is False]
    assert failed
    assert all(name.startswith("round 2: ") for name in failed)


def test_where_more_randomizers_are_planned_than_are_looked_at_it_is_said():
    class Many(ThenLess):
        def plan(self, state):
            if state[0] == 9:
                return None
            spec = VectorSum.plan(self, VectorSum.init(self))
            one: Any = spec.randomizer
            return replace(spec, randomizer=replace(one, p=(1 + state[0]) / 20))

    protocol = Many(n=60, d=2, g=4, b=12)
    spec = protocol.plan(protocol.init())
    rounds, left = others(protocol, spec)
    assert ([index for index, _ in rounds], left) == ([2, 3, 4, 9], 4)
