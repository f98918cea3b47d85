"""Binomial noise on a grid: exact laws against the event's bound, draws against their law."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffle_sim import ParameterError, Privacy
from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.grid_noise import BinomialShiftEvent, GridBinomial, ones


def law(place, trials, room):
    """Of floor(place + U) + Bin(trials, 1/2), from -room on."""
    floor = math.floor(place)
    part = place - floor
    found = np.zeros(trials + 2 * room)
    for at, weight in ((floor, 1 - part), (floor + 1, part)):
        found[room + at : room + at + trials + 1] += weight * stats.binom.pmf(
            np.arange(trials + 1), trials, 0.5
        )
    return found


def exact_delta(first, second, trials, epsilon):
    """Of two vectors in steps, both directions, by the whole joint law."""
    room = 3 + math.ceil(max(np.abs(first).max(), np.abs(second).max()))
    laws = []
    for vector in (first, second):
        joint = law(vector[0], trials, room)
        for place in vector[1:]:
            joint = np.multiply.outer(joint, law(place, trials, room)).ravel()
        laws.append(joint)
    p, q = laws
    factor = math.exp(epsilon)
    return max(
        float(np.maximum(p - factor * q, 0).sum()), float(np.maximum(q - factor * p, 0).sum())
    )


def stated(trials, shift, d, epsilon):
    event = BinomialShiftEvent(1, trials, 0.5, shift, d)
    return ShuffleAccountant().compose(event).get_delta(epsilon)


@pytest.mark.parametrize(("d", "trials", "shift"), [(1, 6000, 12.3), (1, 900, 2.5), (2, 900, 8.4)])
def test_exact_deltas_are_never_above_the_stated_one(d, trials, shift):
    """Any place on the grid, any direction: rounding is part of the law."""
    rng, worst, bound = np.random.default_rng(0), 0.0, stated(trials, shift, d, 0.5)
    for case in range(12):
        first = rng.uniform(-1, 1, d) * (case > 0)
        direction = np.eye(d)[0] if case < 3 else rng.normal(size=d)
        second = first + shift * direction / np.linalg.norm(direction)
        worst = max(worst, exact_delta(first, second, trials, 0.5))
    assert 0.1 * bound < worst <= bound


def test_a_tenth_too_little_noise_breaks_the_claim():
    """On a fine grid the bound is so tight that 10 % less noise, or more shift, is caught."""
    privacy = Privacy(1.0, 1e-6)
    made = GridBinomial.calibrated(privacy, 1)
    pair = np.zeros(1), np.array([float(made.steps)])
    assert exact_delta(*pair, made.trials, 1.0) <= 1e-6
    assert exact_delta(*pair, int(0.81 * made.trials), 1.0) > 1e-6


@pytest.mark.parametrize("d", [1, 10, 100])
@pytest.mark.full
def test_the_least_noise_is_that_of_the_central_gaussian(d):
    privacy = Privacy(1.0, 1e-6)
    made = GridBinomial.calibrated(privacy, d)
    ratio = made.spread(d) / math.sqrt(d) / gaussian.sigma(1.0, 1e-6)
    assert 1 < ratio < 1.002
    spent = ShuffleAccountant().compose(made.event)
    assert spent.get_epsilon(1e-6) <= 1.0
    assert spent.get_epsilon(1e-6) > 0.995


def test_several_releases_compose_as_gaussians():
    made = GridBinomial.calibrated(Privacy(1.0, 1e-6), 3)
    four = ShuffleAccountant().compose(made.event, 4).get_epsilon(1e-5)
    mu = 2 / gaussian.sigma(1.0, 1e-6)
    assert gaussian.epsilon_gdp(1e-5, mu) < four < 1.25 * gaussian.epsilon_gdp(1e-5, mu)
    assert made.event.with_honest(0) != made.event


def test_draws_have_their_law():
    """A false alarm has probability 1e-6; other numbers of trials, and other places, are caught."""
    made, rng = GridBinomial(steps=4, trials=21, coordinates=4000), np.random.default_rng(3)
    value = np.full(4000, 0.33)  # 1.32 steps of 1/4
    found = made.sample(value, 1.0, rng)
    whole = np.rint(found * 8 + 21) / 2
    assert (whole == np.rint(whole)).all()
    assert (found * 8 == np.rint(found * 8)).all()

    def check(place, trials):
        check_pmf(whole.astype(int) + 3, law(place, trials, 3))

    check(1.32, 21)
    for place, trials in ((1.32, 14), (1.32, 30), (0.9, 21), (1.8, 21)):
        with pytest.raises(LawError):
            check(place, trials)


def test_random_bits_are_counted_to_the_last():
    assert ones(np.random.default_rng(0), 3) <= 3
    rng = np.random.default_rng(1)
    found = np.array([ones(rng, 11) for _ in range(4000)])
    check_pmf(found, stats.binom.pmf(np.arange(12), 11, 0.5))
    with pytest.raises(LawError):
        check_pmf(found, stats.binom.pmf(np.arange(12), 11, 0.55))


def test_the_step_is_a_share_and_nothing_is_rounded_before():
    """Values of which doubles lose digits when they are divided keep their place on the grid."""
    made = GridBinomial(steps=64, trials=100, coordinates=1)
    rng = np.random.default_rng(0)
    value, sensitivity = 1.0e9 + 1 / 3, 1e-3
    step = Fraction(sensitivity) / 64
    found = Fraction(float(made.sample([value], sensitivity, rng)[0]))
    places = (found - Fraction(value)) / step
    assert abs(places) < 60
    assert made.sample([0.0], sensitivity, rng)[0] % float(step / 2) == pytest.approx(0, abs=1e-18)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: GridBinomial(0, 100, 1), "steps"),
        (lambda: GridBinomial(10, 0, 1), "trials"),
        (lambda: GridBinomial(10, 100, 0), "coordinates"),
        (lambda: GridBinomial.calibrated(Privacy(1.0), 2), "delta"),
        (lambda: GridBinomial(10, 100, 2).sample(np.zeros(3), 1.0, np.random.default_rng()), "d"),
        (
            lambda: GridBinomial(10, 100, 1).sample([math.nan], 1.0, np.random.default_rng()),
            "value",
        ),
        (lambda: BinomialShiftEvent(1, 100, 0.5, 0.0, 1), "shift"),
        (lambda: BinomialShiftEvent(1, 100, 0.6, 1.0, 1), "p"),
    ],
)
def test_bad_input_is_refused_by_name(make, parameter):
    with pytest.raises(ParameterError) as caught:
        make()
    assert caught.value.parameter == parameter


def test_noise_too_little_for_the_lemma_has_no_epsilon():
    """The Gaussian pair is too far apart for doubles: infinite, in place of no answer."""
    assert (
        ShuffleAccountant().compose(BinomialShiftEvent(10, 4, 0.5, 1.5, 2)).get_epsilon(1e-6)
        == math.inf
    )
    enough = ShuffleAccountant().compose(BinomialShiftEvent(100, 4, 0.5, 1.5, 2))
    assert 0 < enough.get_epsilon(1e-6) < 2
