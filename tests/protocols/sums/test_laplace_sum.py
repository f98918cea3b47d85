"""Sums under floods: what they are worth, errors as stated, one law at every fidelity, attacks."""

import math

import numpy as np
import pytest

from protocols import LaplaceScalarSum, LaplaceVectorSum
from protocols.sums.floods import FloodRandomizer
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.attacks.catalogue import attack
from shuffle_sim.auditing import LawError, check_same_law
from shuffle_sim.protocol.one_round import OneRound
from shuffle_sim.protocol.randomizer import Randomizer

SMALL = {"decay": 0.6, "smooth": 3.0, "flood": 6.0, "pairs": 6.0, "batch": 3, "pair_batch": 2}
DIGITS = [
    {"base": 3, "low": 1, "high": 1, "top": 2},
    {"base": 2, "low": 0, "high": 2, "top": 1},
    {"base": 4, "low": 1, "high": 1, "top": 3, "packed": True},
    {"base": 2, "low": 0, "high": 0, "top": 4},
]


def small(digits, n=40, **more):
    return LaplaceScalarSum(n=n, cap=500, delta=1e-2, **digits, **(SMALL | more))


@pytest.mark.parametrize("digits", DIGITS)
def test_digits_are_worth_the_number_and_noise_is_balanced(digits):
    randomizer = small(digits).randomizer
    steps = randomizer.digits.steps
    assert (randomizer._data(np.arange(steps + 1)) @ randomizer.worth == np.arange(steps + 1)).all()
    singles = randomizer.low + 2
    assert [int(kind.symbols @ randomizer.worth) for kind in randomizer.kinds[singles:]] == [0] * (
        len(randomizer.kinds) - singles
    )
    assert randomizer.alphabet.symbols == randomizer.worth.size


@pytest.mark.slow_parameters("digits1")
@pytest.mark.parametrize("digits", DIGITS[::2])
@pytest.mark.full
def test_errors_are_as_stated(digits):
    """Mean square within 2 %, rounding at its worst; no bias."""
    protocol, rng = small(digits), np.random.default_rng(1)
    xs = np.full(40, 0.5 / protocol.randomizer.digits.steps)  # rounding at its worst
    errors = (
        np.array(
            [
                float(protocol.randomizer.estimate(protocol.randomizer.tallied(xs, rng))[0])
                for _ in range(20_000)
            ]
        )
        - xs.sum()
    )
    assert np.mean(errors**2) == pytest.approx(protocol.standard_error**2, rel=0.02)
    assert abs(errors.mean()) < 5 * protocol.standard_error / math.sqrt(errors.size)


@pytest.mark.parametrize("digits", DIGITS[:3])
@pytest.mark.full
def test_users_one_by_one_and_together_have_one_law(digits):
    """Of every symbol's count; half of a flood is caught. False-alarm rate 1e-6 each."""
    randomizer, rng = small(digits, 6).randomizer, np.random.default_rng(2)
    xs, size = np.linspace(0, 1, 6), randomizer.worth.size
    one_by_one, at_once = (
        np.array([how(randomizer, xs, rng).tally().dense(size) for _ in range(600)])
        for how in (Randomizer.reports, FloodRandomizer.reports)
    )
    together = np.array([randomizer.tallied(xs, rng).dense(size) for _ in range(600)])
    for symbol in range(size):
        check_same_law(one_by_one[:, symbol], together[:, symbol])
        check_same_law(one_by_one[:, symbol], at_once[:, symbol])
    less = small(digits, 6, flood=3.0, pairs=3.0).randomizer
    fewer = np.array([less.tallied(xs, rng).dense(size) for _ in range(600)])
    with pytest.raises(LawError):
        check_same_law(one_by_one.sum(axis=1), fewer.sum(axis=1))


def test_runs_count_messages_and_abort_below_planned_users():
    protocol = small(DIGITS[0], 200)
    xs = np.linspace(0, 1, 200)
    result = run(protocol, xs, fidelity="literal", seed=3)
    assert abs(result.value - xs.sum()) < 6 * protocol.standard_error
    usual = protocol.randomizer.usual_messages
    assert result.costs.messages_per_user == pytest.approx(usual, rel=0.3)
    assert result.costs.payload_bits_per_user == 3 * result.costs.messages_per_user
    again = run(protocol, xs, fidelity="literal", seed=3, workers=2)
    assert again.value == result.value
    assert protocol.minimum == 200


def test_noise_of_more_users_than_are_asked_is_not_counted_on():
    """A twentieth of the users has a twentieth of the noise: the run is refused before a charge."""
    randomizer = small(DIGITS[0], 200).randomizer
    with pytest.raises(ParameterError, match=r"event = .*that of the randomizer"):
        run(OneRound(10, randomizer, 1e-2), np.ones((10, 1)), seed=1)
    assert run(OneRound(200, randomizer, 1e-2), np.ones((200, 1)), seed=1).rounds == 1


def test_a_malicious_user_moves_the_sum_by_the_cap_at_most():
    protocol = LaplaceScalarSum(
        n=200, cap=500, delta=1e-2, honest_fraction=0.8, **DIGITS[0], **SMALL
    )
    randomizer = protocol.randomizer
    assert randomizer.manipulation(1, 200) == 500 / 2
    result = run(
        protocol,
        np.zeros(200),
        adversary=attack("extra-bits:fraction=0.02"),
        fidelity="literal",
        seed=1,
    )
    assert abs(result.value) < 6 * protocol.standard_error + randomizer.manipulation(4, 200)


def test_a_calibrated_sum_has_the_error_that_was_asked_for():
    protocol = LaplaceScalarSum.calibrated(n=5000, privacy=Privacy(1.0, 1e-6), upper=2.0, error=1.3)
    assert protocol.standard_error == pytest.approx(2 * 1.3 * math.sqrt(2), rel=1e-9)
    result = run(protocol, np.ones(5000), fidelity="aggregate", seed=1)
    assert 0.99 < result.privacy.epsilon <= 1.0
    assert abs(result.value - 5000) < 6 * protocol.standard_error


@pytest.mark.parametrize("error", [1.0, 0.0, -1.0, math.nan, "a"])
@pytest.mark.parametrize(
    ("kind", "sizes"), [(LaplaceScalarSum, {"n": 5000}), (LaplaceVectorSum, {"n": 5000, "d": 2})]
)
def test_an_error_that_cannot_be_had_is_refused_by_its_name(kind, sizes, error):
    with pytest.raises(ParameterError) as refused:
        kind.calibrated(privacy=Privacy(1.0, 1e-6), error=error, **sizes)
    assert refused.value.parameter == "error"


def test_one_wish_at_a_time():
    given = {"n": 5000, "privacy": Privacy(1.0, 1e-6)}
    for name in ("noise_ratio", "max_bits"):
        with pytest.raises(ParameterError, match=r"error = 1\.3: must be left out"):
            LaplaceScalarSum.calibrated(error=1.3, **{name: 20.0}, **given)
    with pytest.raises(ParameterError, match=r"noise_ratio = 0\.1: must be larger"):
        LaplaceScalarSum.calibrated(noise_ratio=0.1, **given)


def test_several_numbers_of_a_user():
    """Coordinates are independent; epsilon is that of all of them together."""
    protocol = LaplaceVectorSum.calibrated(n=5000, d=2, privacy=Privacy(2.0, 1e-6), error=1.3)
    assert protocol.standard_error == pytest.approx(1.3 * math.sqrt(2), rel=1e-9)
    xs = np.tile([0.25, 1.0], (5000, 1))
    result = run(protocol, xs, fidelity="aggregate", seed=2)
    assert np.abs(result.value - xs.sum(axis=0)).max() < 6 * protocol.standard_error
    assert 1.9 < result.privacy.epsilon <= 2.0


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"n": 1}, "n"),
        ({"base": 1}, "base"),
        ({"top": 0}, "top"),
        ({"decay": 0.0}, "decay"),
        ({"batch": 0}, "batch"),
        ({"cap": 2}, "cap"),
        ({"upper": math.nan}, "upper"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
    ],
)
def test_bad_parameters_are_refused(given, name):
    with pytest.raises(ParameterError) as refused:
        LaplaceScalarSum(**({"n": 40, "cap": 500} | DIGITS[0] | SMALL | given))
    assert refused.value.parameter == name
