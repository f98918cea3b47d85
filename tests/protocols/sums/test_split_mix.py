"""Split and mix and the single-message sum: parameters, laws with planted defects, accuracy, the
same on every path.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from mutants.running import make

from protocols.sums.single_message import SingleMessageRandomizer, SingleMessageSum
from protocols.sums.split_mix import SplitMixRandomizer, messages_for
from protocols.sums.split_mix_sum import SplitAndMixSum, SplitAndMixVectorSum
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.auditing import (
    LawError,
    check_pmf,
    check_randomizer,
    check_same_law,
    check_variance,
)
from shuffle_sim.auditing.audit import audit
from shuffle_sim.privacy.bounds import laplace
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.protocol.adversary import Dropout
from shuffle_sim.protocol.base import Datum
from shuffle_sim.wire.messages import Tally

POINT = Privacy(1.0, 1e-6)
SMALL = SplitMixRandomizer(2, 6, 128, 4, 30, 0.5, -1.0, 2.0, 1.0)
XS = np.array([[0.1, -0.7], [0.9, 0.2], [-1.0, 0.0]])


def test_the_point_of_the_paper():
    protocol = SplitAndMixSum.calibrated(n=10_000, privacy=POINT)
    randomizer = protocol.randomizer
    assert (randomizer.messages, randomizer.alphabet.symbol_bits, randomizer.report_bits) == (
        10,
        24,
        240,
    )
    assert protocol.standard_error**2 == pytest.approx(2.0, rel=1e-3)
    assert protocol.security >= 40
    result = run(protocol, np.full(10_000, 0.3), fidelity="aggregate", seed=1)
    assert result.privacy.epsilon <= 1.0
    assert result.costs.messages_per_user == 10


@pytest.mark.full
def test_the_error_is_that_of_discrete_laplace_noise():
    """False-alarm rate 1e-6 (normal limit of 6,000 squares); 30 % less or more noise is caught."""
    rng = np.random.default_rng(5)
    protocol = SplitAndMixSum.calibrated(n=10_000, privacy=POINT)
    xs, randomizer, draws = rng.random(10_000), protocol.randomizer, 6000
    errors = np.array(
        [
            randomizer.estimate(Tally(randomizer.tally(xs, rng), 10_000))[0] - xs.sum()
            for _ in range(draws)
        ]
    )
    # Laplace: the square has variance 5 times its mean squared.
    z = (np.mean(errors**2) / 2.0 - 1) / math.sqrt(5 / draws)
    assert abs(z) < 4.9
    for scale in (0.7, 1.3):
        assert abs((np.mean((scale * errors) ** 2) / 2.0 - 1) / math.sqrt(5 / draws)) > 4.9


@pytest.mark.parametrize("n", [50, 1000, 100_000])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.full
def test_calibrated_sums_are_private_and_hold_the_sum(n, epsilon):
    privacy = Privacy(epsilon, 1e-8)
    protocol = SplitAndMixSum.calibrated(n=n, privacy=privacy, upper=3.0)
    r = protocol.randomizer
    spec = protocol.plan(protocol.init())
    assert r.event(n, Datum()).security >= 40
    from shuffle_sim.privacy.accountant import ShuffleAccountant

    assert ShuffleAccountant().compose(spec.event).get_epsilon(1e-8) <= epsilon
    room = (r.modulus - n * r.steps) / 2  # for the noise on each side
    assert 2 * math.exp(-r.rate * room) < 2**-40
    assert protocol.standard_error == pytest.approx(3.0 * math.sqrt(2) / epsilon, rel=0.02)


@pytest.mark.parametrize("d", [2, 10, 100])
def test_vectors_are_private_and_close_to_the_central_gaussian(d):
    protocol = SplitAndMixVectorSum.calibrated(n=10_000, d=d, privacy=POINT)
    result = run(protocol, np.zeros((10_000, d)), fidelity="aggregate", seed=1)
    assert result.privacy.epsilon <= 1.0
    # d independent Laplace coordinates lose a factor of at most sqrt(2) against the Gaussian, and
    # the conversion 10 %.
    assert protocol.standard_error <= 1.56 * sigma(1.0, 1e-6, 2.0)
    assert result.value.shape == (d,)


def test_fewer_honest_users_are_planned_for_or_stated():
    planned = SplitAndMixSum.calibrated(n=1000, privacy=POINT, honest_fraction=0.8)
    careful = run(planned, np.zeros(1000), adversary=Dropout(0.1), fidelity="counts", seed=1)
    assert careful.privacy.epsilon <= 1.0
    plain = run(
        SplitAndMixSum.calibrated(n=1000, privacy=POINT),
        np.zeros(1000),
        adversary=Dropout(0.1),
        fidelity="counts",
        seed=1,
    )
    assert 1.1 < plain.privacy.epsilon < 2.0
    assert plain.promised.epsilon <= 1.0


def test_the_number_of_messages_is_that_of_the_formula():
    assert messages_for(40, 2**24, 10_000) == 10
    assert messages_for(40, 2**32, 10_000) == 11
    assert messages_for(1, 2, 10**9) == 3
    with pytest.raises(ParameterError, match="at least 19 honest"):
        messages_for(40, 2**24, 18)


@pytest.mark.full
def test_split_and_mix_keeps_its_contract():
    """False-alarm rate at most 1e-6 per label, sampler and value."""
    check_randomizer(SMALL, XS)


@dataclass(frozen=True)
class Wrong(SplitMixRandomizer):
    def noise(self, users, shape, rng):
        # What a public implementation did: the probability of going on where the library wants that
        # of stopping.
        law = users / self.planned, math.exp(-self.rate)
        return rng.negative_binomial(*law, shape) - rng.negative_binomial(*law, shape)


@dataclass(frozen=True)
class Forgetful(SplitMixRandomizer):
    def counts(self, xs, rng):
        return (super().counts(xs, rng) - self.noise(1, (len(xs), self.labels), rng)) % self.modulus


def test_the_planted_defects_of_the_noise_are_caught():
    rng = np.random.default_rng(1)
    fields = 1, 6, 128, 4, 30, 0.5, 0.0, 1.0
    law = laplace.pmf(1 / 30, 0.5, 63)
    pmf = np.concatenate([law[:0:-1], law])
    draws = SplitMixRandomizer(*fields).noise(1, (60_000,), rng)
    check_pmf(draws + 63, pmf / pmf.sum())
    with pytest.raises(LawError):
        check_pmf(Wrong(*fields).noise(1, (60_000,), rng) + 63, pmf / pmf.sum())
    with pytest.raises(LawError):
        check_randomizer(Forgetful(2, 6, 128, 4, 3, 0.5, -1.0, 2.0, 1.0), XS)


@dataclass(frozen=True)
class HalfTheShares(SplitMixRandomizer):
    def noise(self, users, shape, rng):
        success = -math.expm1(-self.rate)
        law = users / self.planned / 2, success
        return rng.negative_binomial(*law, shape) - rng.negative_binomial(*law, shape)


def made(kind, n):
    protocol = SplitAndMixSum.calibrated(n=n, privacy=POINT)
    fields = protocol.randomizer.__dataclass_fields__
    protocol.randomizer = kind(*(getattr(protocol.randomizer, name) for name in fields))
    return protocol


@pytest.mark.slow
def test_the_audit_passes_at_the_point():
    report = audit(made(SplitMixRandomizer, 600), repeats=1000, seed=1)
    assert report.passed, report.checks
    assert 0.7 < report.empirical <= report.exact <= report.theorem <= 1.0


@pytest.mark.full
@pytest.mark.parametrize("kind", [Wrong, HalfTheShares])
def test_the_audit_catches_wrong_shares(kind):
    """By its check of the noise of all users together; the control is the audit that passes."""
    with pytest.raises(LawError):
        make("together", made(kind, 600), {}, {})


@pytest.mark.slow
def test_the_audit_passes_on_vectors():
    assert audit(
        SplitAndMixVectorSum.calibrated(n=150, d=2, privacy=POINT), repeats=1000, seed=2
    ).passed


def test_the_shares_add_up_to_discrete_laplace_noise():
    """False-alarm rate 1e-6; the planted defect gives an effective epsilon hundreds of times the
    promised one.
    """
    rng = np.random.default_rng(2)
    fields = 1, 6, 128, 4, 30, 0.5, 0.0, 1.0
    whole = math.tanh(0.25) * np.exp(-0.5 * np.abs(np.arange(-63, 64)))
    draws = np.clip(SplitMixRandomizer(*fields).noise(1, (30_000, 30), rng).sum(axis=1), -63, 63)
    check_pmf(draws + 63, whole / whole.sum())
    with pytest.raises(LawError):
        check_pmf(
            np.clip(Wrong(*fields).noise(1, (30_000, 30), rng).sum(axis=1), -63, 63) + 63,
            whole / whole.sum(),
        )
    # At the point: noise of rate -ln(1 - e^-rate) in place of rate.
    rate = SplitAndMixSum.calibrated(n=10_000, privacy=POINT).randomizer.rate
    assert -math.log(-math.expm1(-rate)) / rate > 461


@pytest.mark.full
def test_the_messages_of_a_report_are_uniform_but_for_their_sum():
    """False-alarm rate 1e-6 each: any m - 1 of the m messages, and pairs of them; a split that is
    not uniform is caught.
    """
    rng = np.random.default_rng(3)
    tiny = SplitMixRandomizer(1, 2, 8, 3, 30, 2.0, 0.0, 1.0)
    for sample in (
        np.concatenate([tiny.randomize(np.array(0.4), rng).symbols[0] for _ in range(20_000)]),
        tiny.reports(np.full(20_000, 0.4), rng).symbols[:, 0],
    ):
        for a, b in ((0, 1), (0, 2), (1, 2)):
            check_pmf(8 * sample[:, a] + sample[:, b].astype(np.int64), np.full(64, 1 / 64))
    lazy = rng.integers(0, 7, 20_000)
    with pytest.raises(LawError):
        check_pmf(lazy, np.full(8, 1 / 8))


@pytest.mark.slow_parameters("single message")
@pytest.mark.full
@pytest.mark.parametrize("kind", ["split and mix", "single message"])
def test_all_fidelities_give_one_law(kind):
    """Through users, shuffler and analyzer; false-alarm rate 1e-6 a pair, and a shift of one step
    is caught.
    """
    n, draws = 24, 300
    protocol: SingleMessageSum | SplitAndMixSum
    if kind == "single message":
        protocol = SingleMessageSum(n=n, steps=4, gamma=0.4)
        step = 0.25 / 0.6
    else:
        protocol = SplitAndMixSum(
            n=n, randomizer=SplitMixRandomizer(1, 4, 512, 3, n, 0.4, 0.0, 1.0)
        )
        step = 0.25
    xs = np.linspace(0.05, 0.95, n)
    seen = {
        fidelity: np.round(
            np.array(
                [run(protocol, xs, fidelity=fidelity, seed=index).value for index in range(draws)]
            )
            / step
        ).astype(int)
        for fidelity in ("literal", "counts", "aggregate")
    }
    check_same_law(seen["literal"], seen["counts"])
    check_same_law(seen["literal"], seen["aggregate"])
    with pytest.raises(LawError):
        check_same_law(seen["literal"], 2 * seen["counts"] - int(np.mean(seen["counts"])))


def test_the_sum_wraps_around_and_comes_back():
    r = SplitMixRandomizer(1, 10, 64, 3, 5, 1.0, 0.0, 1.0)
    for steps in (-6, -1, 0, 25, 50, 56):
        assert r.estimate(Tally(np.array([steps % 64]), 5)) == pytest.approx(steps / 10)
        assert r.estimate(Tally(np.array([steps % 64 + 3 * 64]), 5)) == pytest.approx(steps / 10)


def test_single_message_keeps_its_contract():
    """False-alarm rate at most 1e-6 per label, sampler and value."""
    randomizer = SingleMessageRandomizer(4, 0.3, 2.0)
    check_randomizer(randomizer, np.array([0.3, 1.7]))

    class NoBlanket(SingleMessageRandomizer):
        def counts(self, xs, rng):
            return SingleMessageRandomizer(4, 0.2, 2.0).counts(xs, rng)

    with pytest.raises(LawError):
        check_randomizer(NoBlanket(4, 0.3, 2.0), np.array([0.3, 1.7]))


@pytest.mark.parametrize(
    "randomizer",
    [SingleMessageRandomizer(4, 0.3, 2.0), SplitMixRandomizer(1, 6, 4096, 3, 400, 0.05, 0.0, 2.0)],
)
@pytest.mark.full
def test_estimates_have_the_stated_mean_and_variance(randomizer):
    """False-alarm rate 1e-6; 20 % more variance is caught."""
    rng = np.random.default_rng(7)
    xs = rng.random(400) * 2
    found = (
        np.array(
            [randomizer.estimate(Tally(randomizer.tally(xs, rng), 400))[0] for _ in range(8000)]
        )
        - xs.sum()
    )
    expected = randomizer.variance(400, xs)[0]
    normal = SingleMessageRandomizer is type(randomizer)
    if normal:
        check_variance(found, np.full(8000, expected))
        with pytest.raises(LawError):
            check_variance(found, np.full(8000, 1.2 * expected))
    assert abs(found.mean()) < 4.9 * math.sqrt(expected / 8000)
    assert abs(np.mean(found**2) / expected - 1) < 4.9 * math.sqrt(5 / 8000)
    grid = np.linspace(0, 2, 4001)
    assert max(randomizer.variance(1, np.array([x]))[0] for x in grid) <= randomizer.variance(1)[
        0
    ] * (1 + 1e-12)


@pytest.mark.full
def test_single_message_at_the_same_point():
    exact = SingleMessageSum.calibrated(n=10_000, privacy=POINT)
    by_theorem = SingleMessageSum.paper(n=10_000, privacy=POINT)
    assert exact.standard_error**2 == pytest.approx(153, abs=1)
    assert by_theorem.standard_error**2 == pytest.approx(508, abs=1)
    assert run(exact, np.full(10_000, 0.5), seed=1).privacy.epsilon <= 1.0
    stated = run(by_theorem, np.full(10_000, 0.5), seed=1)
    assert "Theorem 3.1" in stated.privacy.basis
    assert stated.ledger.guarantee(1e-6).epsilon < 1.0


@pytest.mark.parametrize(("n", "d"), [(1000, 1), (1000, 100), (1000, 10_000), (10_000, 1000)])
def test_the_modulus_holds_sum_and_noise(n, d):
    """But for 2^-40 in a coordinate; a sum beyond would come back at the other end."""
    kind, size = (SplitAndMixVectorSum, {"d": d}) if d > 1 else (SplitAndMixSum, {})
    made = kind.calibrated(n=n, privacy=POINT, **size).randomizer
    beyond = (made.modulus - n * made.steps) // 2
    assert 2 * math.exp(-made.rate * beyond) <= 2.0**-40


def test_one_user_moves_the_estimate_as_far_as_is_stated():
    single = SingleMessageRandomizer(4, 0.3, 2.0)
    gain = single.estimate(Tally(np.array([4]), 1))[0]
    assert single.manipulation(3, 100) == pytest.approx(3 * gain)
    r = SplitMixRandomizer(1, 10, 64, 3, 5, 1.0, 0.0, 1.0)
    for honest, far in ((0, 1.0), (25, 64 / 114), (50, 1.0)):  # the sum of five, in steps
        reached = [
            r.estimate(Tally(np.array([honest + any_number]), 5))[0] - honest / 10
            for any_number in range(64)
        ]
        most = max(map(abs, reached))
        assert most == pytest.approx(far * r.manipulation(1, 5), abs=1.01 * r.width / r.steps)
    assert r.manipulation(0, 5) == 0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: SplitAndMixSum.calibrated(n=18, privacy=POINT), "n"),
        (lambda: SplitAndMixSum.calibrated(n=10**8, privacy=POINT), "rounding"),
        (lambda: SplitAndMixSum.calibrated(n=100, privacy=POINT, rounding=0.0), "rounding"),
        (lambda: SplitAndMixSum.calibrated(n=100, privacy=POINT, security=0), "security"),
        (lambda: SplitAndMixSum.calibrated(n=100, privacy=POINT, upper=math.inf), "upper"),
        (
            lambda: SplitAndMixSum.calibrated(n=100, privacy=POINT, honest_fraction=1.5),
            "honest_fraction",
        ),
        (lambda: SplitAndMixSum.calibrated(n=100, privacy=Privacy(100.0, 1e-6)), "epsilon"),
        (lambda: SplitAndMixVectorSum.calibrated(n=100, d=0, privacy=POINT), "d"),
        (lambda: SplitMixRandomizer(1, 10, 10, 3, 5, 1.0, 0.0, 1.0), "modulus"),
        (lambda: SplitMixRandomizer(1, 10, 64, 2, 5, 1.0, 0.0, 1.0), "messages"),
        (lambda: SingleMessageSum(n=10, steps=0, gamma=0.1), "steps"),
        (lambda: SingleMessageSum(n=10, steps=3, gamma=1.0), "gamma"),
        (lambda: SingleMessageSum.calibrated(n=20, privacy=Privacy(0.1, 1e-6)), "n"),
        (lambda: SingleMessageSum.paper(n=10_000, privacy=Privacy(2.0, 1e-6)), "epsilon"),
    ],
)
def test_bad_parameters_are_named(make, name):
    with pytest.raises(ParameterError) as caught:
        make()
    assert caught.value.parameter == name
