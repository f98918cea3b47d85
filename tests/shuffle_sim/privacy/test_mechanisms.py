"""Mechanisms: exact laws, exact privacy of what is drawn, errors, refusals before any draw."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy import events
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import gamma, gaussian
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import (
    EXPONENTIAL,
    Exponential,
    Gaussian,
    L2Laplace,
    Laplace,
    LocalGaussian,
    RelaxedGamma,
    WithoutNoise,
)

D = 4
NOISES = [
    Gaussian(1.3),
    LocalGaussian(0.4, 25),
    Laplace(0.7),
    L2Laplace(0.8, D),
    RelaxedGamma.calibrated(Privacy(1.0, 1e-2), D),
]
VALUE = np.array([[3.0, -1.0], [0.5, 1e3]])


def residuals(mechanism, sensitivity, draws=20_000, seed=0):
    """(release - value) / 2.5 of releases at a sensitivity, an array (draws, D)."""
    rng = np.random.default_rng(seed)
    noisy = [mechanism.sample(VALUE, sensitivity, rng) - VALUE for _ in range(draws)]
    return np.array(noisy).reshape(draws, D) / 2.5


def check_uniform(u, cells=40):
    """Refuse numbers that are not uniform in [0, 1]; false-alarm rate 1e-6."""
    check_pmf(np.minimum((np.asarray(u) * cells).astype(int), cells - 1), np.full(cells, 1 / cells))


def check_law(mechanism, z):
    """The noise of sensitivity 1 in one coordinate, or by norm and direction for l2-Laplace."""
    if isinstance(mechanism, L2Laplace):
        norms = np.linalg.norm(z, axis=1)
        check_uniform(stats.gamma(D, scale=1 / mechanism.rate).cdf(norms))
        for axis in (np.eye(D)[1], np.ones(D) / math.sqrt(D)):
            check_uniform(stats.beta(1.5, 1.5).cdf((1 + z @ axis / norms) / 2))
        return
    laws: dict[type, Any] = {
        Gaussian: stats.norm(scale=1.3),
        LocalGaussian: stats.norm(scale=2.0),
        Laplace: stats.laplace(scale=1 / 0.7),
    }
    check_uniform(laws[type(mechanism)].cdf(z))
    signs = (z[:, 0] > 0) * 2 + (z[:, -1] > 0)  # noise of each coordinate is its own
    check_pmf(signs, np.full(4, 0.25))


@pytest.mark.parametrize("mechanism", NOISES, ids=lambda m: type(m).__name__)
@pytest.mark.full
def test_noise_has_its_law_and_a_tenth_less_is_seen(mechanism):
    z = residuals(mechanism, 2.5)
    check_law(mechanism, z)
    for bad in (residuals(mechanism, 0.9 * 2.5, seed=1), np.repeat(z[:, :1], D, axis=1)):
        with pytest.raises(LawError):
            check_law(mechanism, bad)


@pytest.mark.parametrize("mechanism", [*NOISES, WithoutNoise()], ids=lambda m: type(m).__name__)
@pytest.mark.full
def test_the_error_is_the_root_mean_square_of_the_releases(mechanism):
    squares = ((2.5 * residuals(mechanism, 2.5)) ** 2).sum(axis=1)
    # within 4.9 standard errors but once in 10^6; a tenth more would be caught
    margin = 4.9 * squares.std() / math.sqrt(squares.size)
    predicted = mechanism.error(2.5, D) ** 2
    assert abs(squares.mean() - predicted) <= margin
    assert margin <= 0.1 * predicted


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_the_release_has_the_shape_of_the_value(shape):
    for mechanism in (Gaussian(1.0), Laplace(1.0), WithoutNoise(), LocalGaussian(1.0, 3)):
        released = mechanism.sample(np.ones(shape), 1.0, np.random.default_rng(0))
        assert np.shape(released) == shape
    assert L2Laplace(1.0, 1).sample(2.0, 1.0, np.random.default_rng(0)).shape == ()


def losses(mechanism, y, sensitivity):
    """The privacy loss at outputs y of value 0 against value `sensitivity` on the first axis."""
    other = y - sensitivity * np.eye(D)[0]
    if isinstance(mechanism, Gaussian):
        deviation = sensitivity * mechanism.noise_multiplier
        return ((other**2).sum(axis=1) - (y**2).sum(axis=1)) / (2 * deviation**2)
    if isinstance(mechanism, Laplace):
        apart = np.abs(other).sum(axis=1) - np.abs(y).sum(axis=1)
        return apart * mechanism.epsilon / sensitivity
    apart = np.linalg.norm(other, axis=1) - np.linalg.norm(y, axis=1)
    return apart * mechanism.rate / sensitivity


def curve(mechanism, epsilon):
    """The theorem's delta of a shift by the sensitivity along one axis."""
    if isinstance(mechanism, Gaussian):
        return gaussian.delta_gdp(epsilon, 1 / mechanism.noise_multiplier)
    if isinstance(mechanism, Laplace):
        return -math.expm1((epsilon - mechanism.epsilon) / 2)
    return gamma.delta(epsilon, mechanism.rate, D)


@pytest.mark.parametrize("mechanism", [NOISES[0], *NOISES[2:]], ids=lambda m: type(m).__name__)
@pytest.mark.full
def test_releases_of_neighbours_are_apart_as_the_theorem_says(mechanism):
    sensitivity, epsilon, draws = 2.5, 0.2, 20_000
    shift = sensitivity * np.eye(D)[0]

    def gap(given: float) -> float:
        """P(A) - e^epsilon P'(A) of the best test A, less delta, in standard errors."""
        rng = np.random.default_rng(3)
        first, second = (
            losses(
                mechanism,
                np.array([mechanism.sample(x, given, rng) for _ in range(draws)]),
                sensitivity,
            )
            > epsilon
            for x in (np.zeros(D), shift)
        )
        found = first.mean() - math.exp(epsilon) * second.mean()
        error = math.sqrt((first.var() + math.exp(2 * epsilon) * second.var()) / draws)
        return (found - curve(mechanism, epsilon)) / error

    assert abs(gap(sensitivity)) < 4.9  # but once in 10^6
    assert gap(0.8 * sensitivity) > 4.9


@pytest.mark.parametrize("mechanism", [Gaussian(1.3), Laplace(0.7)], ids=lambda m: type(m).__name__)
def test_the_accountant_states_the_curve_of_the_draws(mechanism):
    accountant = ShuffleAccountant().compose(mechanism.event)
    for epsilon in (0.0, 0.2, 0.6):
        assert accountant.get_delta(epsilon) == pytest.approx(curve(mechanism, epsilon), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_curves_are_those_of_the_densities(epsilon):
    for law, found in (
        (stats.norm(scale=1.3), gaussian.delta_gdp(epsilon, 1 / 1.3)),
        (stats.laplace(scale=1 / 2.1), -math.expm1((epsilon - 2.1) / 2)),
    ):
        expected, _ = integrate.quad(
            lambda z, law=law: max(0.0, law.pdf(z) - math.exp(epsilon) * law.pdf(z - 1)),
            -30,
            30,
            points=[-1.0, 0.0, 0.25, 0.5, 1.0],
            limit=500,
        )
        assert max(found, 0.0) == pytest.approx(expected, abs=1e-8)


def pmf(utilities, epsilon, sensitivity):
    weights = np.exp(epsilon / sensitivity * (utilities - utilities.max()))
    return weights / weights.sum()


UTILITIES = np.array([0.0, 4.0, -3.0, 4.0, 7.5, 1.0])


@pytest.mark.full
def test_the_exponential_has_its_law_and_a_tenth_less_is_seen():
    rng, mechanism = np.random.default_rng(5), Exponential(1.2)

    def draws(sensitivity: float) -> list[int]:
        return [mechanism.sample(UTILITIES + 1e6, sensitivity, rng) for _ in range(30_000)]

    law = pmf(UTILITIES, 1.2, 2.0)
    check_pmf(draws(2.0), law)
    with pytest.raises(LawError):
        check_pmf(draws(1.8), law)


def test_the_exponential_has_its_law_at_tiny_sensitivities():
    """1/S is infinite for S of 1e-309; the better of two choices was drawn each time."""
    rng, mechanism = np.random.default_rng(3), Exponential(1.0)
    for scale in (1.0, 1e-300, 1e-309, 1e-320):
        drawn = sum(mechanism.sample([0.0, scale], scale, rng) for _ in range(2000))
        assert abs(drawn / 2000 - 1 / (1 + math.exp(-1))) < 0.05  # 5 standard errors


def test_the_exponential_loses_at_most_epsilon():
    epsilon, sensitivity = 1.2, 2.0
    stated = ShuffleAccountant().compose(Exponential(epsilon).event)
    here, widest = np.log(pmf(UTILITIES, epsilon, sensitivity)), 0.0
    for signs in itertools.product((-1, 0, 1), repeat=UTILITIES.size):
        moved = UTILITIES + sensitivity / 2 * np.array(signs)
        loss = here - np.log(pmf(moved, epsilon, sensitivity))
        widest = max(widest, float(loss.max() - loss.min()))
        assert np.abs(loss).max() <= epsilon
        for at in (0.0, 0.3, 0.9):
            gain = np.exp(here) @ np.maximum(-np.expm1(at - loss), 0)
            assert gain <= stated.get_delta(at)
    assert widest == pytest.approx(epsilon, rel=1e-12)


def test_utilities_far_apart_do_not_overflow():
    rng = np.random.default_rng(0)
    assert Exponential(1.0).sample([-1e308, 1e308, 0.0], 1e-300, rng) == 1
    assert Exponential(1.0).sample([4.0], 1.0, rng) == 0


@pytest.mark.parametrize("sensitivity", [1.0, 1e-309])
def test_a_tiny_sensitivity_is_drawn_for_as_any(sensitivity):
    """1/1e-309 is no double: the best choice was taken always, not by its odds of 0.576."""
    rng, values = np.random.default_rng(0), np.array([0.0, sensitivity, 0.0])
    best = sum(Exponential(1.0).sample(values, sensitivity, rng) == 1 for _ in range(400))
    odds = math.e / (math.e + 2)
    assert stats.binomtest(best, 400, odds).pvalue > 1e-6
    assert stats.binomtest(400, 400, odds).pvalue < 1e-6  # the control


def test_calibrated_noise_meets_the_oracles():
    assert Gaussian.calibrated(Privacy(1.0, 1e-6)).noise_multiplier == pytest.approx(
        4.224678889326857, rel=1e-12
    )
    assert Gaussian.calibrated(Privacy(1.0, 1e-6), 9).noise_multiplier == pytest.approx(
        3 * 4.224678889326857, rel=1e-12
    )
    local = LocalGaussian.calibrated(Privacy(1.0, 1e-6), 4, 100)
    assert local.error(2.0, 3) == pytest.approx(4.224678889326857 * 2 * 10 * 2 * math.sqrt(3))
    relaxed = RelaxedGamma.calibrated(Privacy(1.0, 1e-5), 31)
    assert relaxed.rate == pytest.approx(1.6535960922, rel=1e-9)
    for d, least, normal in ((10, 9.61, 13.36), (100, 40.72, 42.25), (1000, 133.10, 133.60)):
        privacy = Privacy(1.0, 1e-6)
        assert RelaxedGamma.calibrated(privacy, d).error(1.0, d) == pytest.approx(least, abs=5e-3)
        assert Gaussian.calibrated(privacy).error(1.0, d) == pytest.approx(normal, abs=5e-3)


def test_a_pure_guarantee_is_refused_to_a_gaussian():
    assert RelaxedGamma.calibrated(Privacy(0.7, 0.0), 5).rate == 0.7
    for kind in (Gaussian, LocalGaussian):
        with pytest.raises(ParameterError, match="a pure guarantee asked of a Gaussian"):
            kind.calibrated(Privacy(1.0, 0.0))


def test_every_mechanism_has_its_event():
    assert Gaussian(2.0).event == LocalGaussian(2.0, 9).event == events.GaussianEvent(2.0)
    assert L2Laplace(0.5, 3).event == RelaxedGamma(0.5, 3).event == events.GammaEvent(0.5, 3)
    assert Laplace(0.5).event == events.LaplaceEvent(0.5)
    assert Exponential(0.5).event == events.RangeEvent(0.5, EXPONENTIAL)
    assert WithoutNoise().event == events.NonPrivateEvent()
    norms = {m: m.norm for m in (Gaussian, LocalGaussian, L2Laplace, RelaxedGamma)}
    assert set(norms.values()) == {"l2"}
    assert (Laplace.norm, Exponential.norm) == ("l1", "range")


@pytest.mark.parametrize(
    "mechanism", [*NOISES, WithoutNoise(), Exponential(1.0)], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize(
    ("value", "sensitivity", "name"),
    [
        ([1.0, math.nan, 0.0, 0.0], 1.0, "value"),
        ([1.0, math.inf, 0.0, 0.0], 1.0, "value"),
        ([1.0, 2.0, 0.0, 0.0], None, "sensitivity"),
        ([1.0, 2.0, 0.0, 0.0], 0.0, "sensitivity"),
        ([1.0, 2.0, 0.0, 0.0], math.inf, "sensitivity"),
        ([1.0, 2.0, 0.0, 0.0], math.nan, "sensitivity"),
    ],
)
def test_what_cannot_be_released_is_refused_before_any_draw(mechanism, value, sensitivity, name):
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(ParameterError) as caught:
        mechanism.sample(value, sensitivity, rng)
    assert caught.value.parameter == name
    assert rng.bit_generator.state == before


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Gaussian(0.0), "noise_multiplier"),
        (lambda: LocalGaussian(0.0, 1), "noise_multiplier"),
        (lambda: LocalGaussian(1.0, 0), "users"),
        (lambda: Gaussian.calibrated(Privacy(1.0, 1e-6), 0), "releases"),
        (lambda: L2Laplace(0.0, 2), "rate"),
        (lambda: L2Laplace(1.0, 0), "d"),
        (lambda: L2Laplace(1.0, 2).error(1.0, 3), "d"),
        (lambda: L2Laplace(1.0, 2).sample(np.ones(3), 1.0, np.random.default_rng()), "d"),
        (lambda: Laplace(math.inf), "epsilon"),
        (lambda: Exponential(-1.0), "epsilon"),
        (lambda: Exponential(1.0).sample([], 1.0, np.random.default_rng()), "value"),
        (lambda: Exponential(1.0).sample(np.ones((2, 2)), 1.0, np.random.default_rng()), "value"),
    ],
)
def test_bad_mechanisms_are_refused(call, name):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.parameter == name
