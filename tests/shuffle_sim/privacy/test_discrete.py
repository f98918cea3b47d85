"""Discrete Laplace noise: the exact law, the grid's sensitivity by brute force, refusals."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.discrete import DiscreteLaplace, GridLaplace, draw, variance
from shuffle_sim.privacy.grid_noise import GridBinomial


def check_law(rate, drawn_at, seed=0, count=20_000, reach=12):
    """Refuse draws that are not of the law; false-alarm rate 1e-6."""
    z = np.array(draw(np.random.default_rng(seed), Fraction(drawn_at), count))
    places = np.clip(z, -reach, reach) + reach
    law = np.exp(-rate * np.abs(np.arange(-reach, reach + 1))) * math.tanh(rate / 2)
    law[0] = law[-1] = math.exp(-rate * reach) / (1 + math.exp(-rate))
    check_pmf(places, law)


@pytest.mark.full
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_draws_have_the_exact_law(rate):
    check_law(rate, rate)


def test_a_few_draws_have_the_exact_law_and_more_noise_has_not():
    check_law(1.0, 1.0, count=1000, reach=6)
    with pytest.raises(LawError):
        check_law(1.0, 0.5, count=1000, reach=6)


@pytest.mark.full
def test_noise_ten_per_cent_too_small_is_caught():
    with pytest.raises(LawError):
        check_law(0.3, 0.33)


def test_the_variance_is_that_of_the_law():
    for rate in (0.2, 1.0, 3.0):
        z = np.arange(-400, 401)
        law = np.exp(-rate * np.abs(z)) * math.tanh(rate / 2)
        assert variance(rate) == pytest.approx(float((z * z * law).sum()), rel=1e-9)


def test_no_neighbours_are_further_apart_on_the_grid():
    rng, d = np.random.default_rng(1), 5
    mechanism = GridLaplace(1.0, d)
    for sensitivity in (0.37, 1.0, 12.3):
        step, most = mechanism.step(sensitivity), 0
        assert sensitivity / 2000 < step <= sensitivity / 1000
        assert math.frexp(step)[0] == 0.5  # a power of two: scaling is exact
        for _ in range(3000):
            value, shift = rng.normal(size=(2, d)) * 10
            sharp = np.sign(shift) if rng.random() < 0.5 else shift
            other = value + sharp * sensitivity / np.linalg.norm(sharp)
            most = max(most, int(np.abs(np.rint(value / step) - np.rint(other / step)).sum()))
        assert 0.9 * mechanism.shift(sensitivity) < most <= mechanism.shift(sensitivity)


def test_a_floor_is_not_lost_to_rounding():
    assert GridLaplace(1.0, 1).shift(1.0) == 1025  # 1024 grid steps, and one for rounding
    exact = GridLaplace(1.0, 4).shift(1.0)
    assert exact == 2 * 1024 + 4


@pytest.mark.full
def test_releases_lie_on_the_grid_and_spread_as_stated():
    rng, d = np.random.default_rng(2), 4
    mechanism, value = GridLaplace(2.0, d), np.array([0.1, -3.0, 1e-9, 7.7])
    drawn = np.array([mechanism.sample(value, 0.5, rng) for _ in range(800)])
    step = mechanism.step(0.5)
    assert (drawn / step == np.rint(drawn / step)).all()
    rms = math.sqrt(((drawn - value) ** 2).sum(axis=1).mean())
    assert rms == pytest.approx(mechanism.error(0.5, d), rel=0.15)


@pytest.mark.parametrize("mechanism", [GridLaplace(1.0, 2), GridBinomial(64, 10_000, 2)])
@pytest.mark.parametrize(
    ("value", "sensitivity"), [(1e300, 1e-9), (1.0, 1e-310), (1.79e308, 1e307), (-1.79e308, 1e307)]
)
def test_no_value_ends_in_an_error_after_its_charge(mechanism, value, sensitivity):
    """Beyond the doubles a release is infinite: an error would tell of the value."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        found = mechanism.sample(np.array([value, 0.0]), sensitivity, rng)
        assert found.shape == (2,)
        assert found[0] * np.sign(value) > 0
        assert not np.isnan(found[1])


def test_bad_values_are_refused_before_any_draw():
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state["state"]["state"]
    for mechanism, value, size in (
        (DiscreteLaplace(1.0), np.array([0.5]), 2.0),
        (DiscreteLaplace(1.0), np.array([1.0]), 2.5),
        (GridLaplace(1.0, 2), np.zeros(3), 1.0),
        (GridLaplace(1.0, 2), np.array([math.nan, 0.0]), 1.0),
    ):
        with pytest.raises(ParameterError):
            mechanism.sample(value, size, rng)
    assert rng.bit_generator.state["state"]["state"] == before


def test_noise_beyond_doubles_tells_nothing_of_the_integer():
    """At epsilon 1e-16 a 1 was rounded to multiples of 4, where a 0 is even."""
    rng, mechanism, fours = np.random.default_rng(0), DiscreteLaplace(1e-16), []
    for whole in (0.0, 1.0):
        drawn = np.abs([mechanism.sample(np.array([whole]), 1.0, rng)[0] for _ in range(3000)])
        drawn = drawn[(drawn >= 2.0**53) & (drawn < 2.0**54)]
        assert drawn.size > 500
        fours.append(float((np.mod(drawn, 4) == 0).mean()))
    assert abs(fours[0] - fours[1]) < 0.15  # five standard errors; it was 0.27
