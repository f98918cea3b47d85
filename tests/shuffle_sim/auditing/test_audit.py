"""The audit passes on what is shipped and catches every planted defect."""

from dataclasses import replace

import numpy as np
import pytest

from protocols import (
    L2Ball,
    Logistic,
    Problem,
    ScalarSum,
    ShuffleGD,
    SingleMessageSum,
    SplitAndMixSum,
    VectorSum,
)
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim import Guarantee, ParameterError, Privacy
from shuffle_sim.arrays import dense
from shuffle_sim.auditing.audit import audit
from shuffle_sim.auditing.checks import Checks
from shuffle_sim.auditing.empirical import canaries, gaussian_estimate
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds.gaussian import epsilon_gdp
from shuffle_sim.protocol.base import Datum
from shuffle_sim.roles import Shuffler, UserShard
from shuffle_sim.wire.frames import Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

PRIVACY = Privacy(1.0, 1e-6)


def scalar() -> ScalarSum:
    return ScalarSum.calibrate(n=1000, privacy=PRIVACY, noise_ratio=1.1)


def vector() -> VectorSum:
    return VectorSum.calibrate(n=1000, d=3, privacy=PRIVACY, noise_ratio=1.1)


@pytest.mark.full
@pytest.mark.parametrize(
    "protocol",
    [scalar(), vector(), VectorSum(n=50, d=2, g=3, b=9, p=0.2), ScalarSum(n=9, g=4, b=20)],
)
def test_what_is_shipped_passes(protocol):
    report = audit(protocol, repeats=1000, seed=1)
    assert report.passed, report.checks
    assert report.theorem * (1 + 1e-9) >= report.exact >= report.empirical >= 0


@pytest.mark.full
def test_the_empirical_bound_is_not_vacuous():
    report = audit(ScalarSum(n=200, g=20, b=5), repeats=4_000, seed=2)
    assert report.passed
    assert report.empirical > 0.5 * report.exact


@pytest.mark.full
@pytest.mark.parametrize(("scale", "least"), [(1.0, 0.5), (0.5, 1.1)])
def test_a_vector_sum_shows_half_of_what_is_proven_and_more_where_noise_is_missing(scale, least):
    """Power: with a quarter of the noise's variance the bound is broken."""
    protocol = VectorSum.calibrate(n=1000, d=3, privacy=PRIVACY, noise_ratio=1.1)
    proven = ShuffleAccountant().compose(protocol.randomizer.event(1000, Datum())).get_epsilon(1e-6)
    if scale < 1:
        defective(protocol, Quarter)
    assert canaries(protocol, seed=3).epsilon() > least * proven


@pytest.mark.full
def test_a_training_run_of_twenty_rounds_shows_half_of_what_is_proven():
    problem = Problem(Logistic(), L2Ball(3, 4.0))
    protocol = ShuffleGD.calibrated(
        n=500, problem=problem, privacy=PRIVACY, rounds=20, noise_ratio=1.1, encoding="unary"
    )
    assert canaries(protocol, runs=100, seed=4).epsilon() > 0.5 * PRIVACY.epsilon


@pytest.mark.full
def test_few_runs_of_many_rounds_show_half_too():
    """Twenty runs, as an audit makes of long ones. Of whole runs alone they show a third."""
    problem = Problem(Logistic(), L2Ball(1, 4.0))
    protocol = ShuffleGD.calibrated(
        n=100, problem=problem, privacy=PRIVACY, rounds=120, noise_ratio=1.1, encoding="unary"
    )
    assert canaries(protocol, runs=20, seed=4).epsilon() > 0.5 * PRIVACY.epsilon


@pytest.mark.parametrize(("parts", "scale"), [(1, 1.0), (16, 1.0), (16, 0.7)])
def test_a_gaussian_estimate_is_a_bound_as_often_as_it_says(parts, scale):
    """At confidence 0.9, so that failures can be counted. Power: noise that is 30 % short."""
    rng, mu, above = np.random.default_rng(1), 0.8, 0
    for _ in range(400):
        noise = scale * rng.normal(size=(20, parts)) * np.geomspace(1, 3, parts)
        width = np.linalg.norm(np.geomspace(1, 3, parts))
        low = noise - mu * width / 2 / parts
        found = gaussian_estimate(low, low + mu * width / parts, 1e-4, doubt=0.1)
        above += found > epsilon_gdp(1e-4, mu)
    assert (above > 200) if scale < 1 else (above < 70)  # 40 on average at most: 1e-6


@pytest.mark.full
def test_a_single_message_is_seen_by_its_symbol():
    protocol = SingleMessageSum.calibrate(n=1000, privacy=PRIVACY)
    assert 0.5 < canaries(protocol, seed=5).epsilon() <= 1


@pytest.mark.full
def test_sums_that_meet_modulo_a_number_pass():
    """With 200 users the noise of a sum of 48 is wider than the modulus."""
    protocol = SplitAndMixSum.calibrate(n=200, privacy=PRIVACY)
    spec = protocol.plan(protocol.init())
    assert spec is not None
    bench = Checks(protocol, spec, 1, 1000, 3e-8, UserShard, Shuffler)
    for way in bench.ways():
        bench.tallies(way)
    bench.whole()


def defective(protocol, kind):
    """The protocol with another implementation of its randomizer, which still claims the same
    law.
    """
    honest = protocol.randomizer
    protocol.randomizer = kind(*(getattr(honest, name) for name in honest.__dataclass_fields__))
    protocol.__class__ = type(
        "Defective", (type(protocol),), {"vocabulary": property(lambda _: (Datum, kind))}
    )
    return protocol


def failing(protocol, **implementation) -> list[str]:
    report = audit(protocol, repeats=1000, seed=3, **implementation)
    assert not report.passed
    return [check.name for check in report.checks if check.passed is False]


class LessNoise(BinomialRandomizer):
    """Draws its noise from (bits, chance) in place of (b, p)."""

    def noise(self):
        return self.b, self.p

    def randomize(self, x, rng):
        return Messages.from_ones(self.counts(np.atleast_1d(x)[None], rng), self.per_label)

    def counts(self, xs, rng):
        rounded = self._rounded(xs, rng)
        return rounded + rng.binomial(*self.noise(), rounded.shape)

    def tally(self, xs, rng):
        return self.counts(xs, rng).sum(axis=0)


class HalfP(LessNoise):
    def noise(self):
        return self.b, self.p / 2


class HalfB(LessNoise):
    def noise(self):
        return self.b // 2, self.p


class Quarter(LessNoise):
    def noise(self):
        return self.b // 4, self.p


class RoundsUp(LessNoise):
    def _rounded(self, xs, rng):
        return np.ceil(
            (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.g / self.width)
        ).astype(np.int64)


class OneWithoutNoise(LessNoise):
    def counts(self, xs, rng):
        counts = super().counts(xs, rng)
        counts[0] = self._rounded(dense(xs)[:1], rng)[0]
        return counts


@pytest.mark.full
@pytest.mark.parametrize("kind", [HalfP, HalfB, RoundsUp, OneWithoutNoise])
@pytest.mark.parametrize("make", [scalar, vector])
def test_wrong_noise_or_rounding_is_caught(kind, make):
    found = failing(defective(make(), kind))
    assert any("exact law" in name for name in found)


@pytest.mark.full
def test_the_double_of_a_defect_without_its_defect_passes():
    assert audit(defective(vector(), LessNoise), repeats=1000, seed=3).passed


class CountDependsOnDatum(UserShard):
    """A user whose bits are mostly ones leaves its last byte away."""

    def answer(self, broadcast, blocks=None):
        batch, record = super().answer(broadcast, blocks)
        frames = [parse(data) for data in split_frames(batch)]
        cut = [replace(f, payload=f.payload[:-1]) if f.kind is Kind.REPORTS else f for f in frames]
        return b"".join(f.tobytes() for f in cut), record


class NoiseReused(UserShard):
    """Draws the noise of every odd round from the stream of the round before."""

    def _answer_block(self, broadcast, block):
        before = replace(broadcast.context, round=broadcast.context.round // 2)
        pieces, record = super()._answer_block(replace(broadcast, context=before), block)
        return [
            replace(parse(data), context=broadcast.context).tobytes()
            for data in split_frames(b"".join(pieces))
        ], record


class KeepsOrder(Shuffler):
    """Hands the ones on before the zeros, as the users listed them."""

    def view(self, broadcast, start, stop):
        view, record = super().view(broadcast, start, stop)
        frame = parse(view)
        bits = np.unpackbits(np.frombuffer(frame.payload[8:], np.uint8).reshape(3, -1), axis=1)
        ordered = np.packbits(-np.sort(-bits.astype(np.int8), axis=1), axis=1)
        return replace(frame, payload=frame.payload[:8] + ordered.tobytes()).tobytes(), record


@pytest.mark.full
def test_a_message_count_that_depends_on_the_datum_is_caught():
    assert "every report has the same size, whatever the datum" in failing(
        vector(), shard=CountDependsOnDatum
    )


@pytest.mark.full
def test_noise_reused_across_two_rounds_is_caught():
    assert "two rounds over the same data draw independent noise" in failing(
        vector(), shard=NoiseReused
    )


@pytest.mark.full
def test_a_shuffler_that_keeps_order_is_caught():
    assert failing(vector(), shuffler=KeepsOrder) == ["the shuffler keeps no order"]


def test_an_epsilon_out_of_order_is_caught():
    # A claim of a tenth of the exact epsilon.
    protocol = scalar()
    protocol._claim = Guarantee(0.1, 1e-6, basis="a wrong theorem")
    assert failing(protocol) == ["theorem >= exact >= empirical lower bound"]


@pytest.mark.parametrize("repeats", [0, 999, 1.5])
def test_too_few_repeats_are_refused(repeats):
    with pytest.raises(ParameterError, match="repeats"):
        audit(scalar(), repeats=repeats)
