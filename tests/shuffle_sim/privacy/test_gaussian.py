import math

import mpmath
import numpy as np
import pytest

from shuffle_sim.privacy.bounds.gaussian import delta_gdp, epsilon_gdp, mu_of, sigma

# Field oracles for sensitivity 2.
ORACLES = [
    (1.0, 1e-6, 8.4493577786536706),
    (0.5, 1e-6, 16.115236961450089),
    (4.0, 1e-8, 2.7911653678226042),
]


@pytest.mark.parametrize(("epsilon", "delta", "expected"), ORACLES)
def test_gaussian_sigma_meets_the_oracles_and_is_never_below(epsilon, delta, expected):
    found = sigma(epsilon, delta, 2.0)
    assert expected * (1 - 1e-15) <= found <= expected * (1 + 1e-12)


def test_composition_of_100_gaussians_meets_the_oracle():
    # sigma 5, 100 rounds, sensitivity 1: mu = sqrt(100) / 5
    assert epsilon_gdp(1e-6, 2.0) == pytest.approx(10.997151214220651, abs=1e-10)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
def test_delta_agrees_with_50_digits(epsilon, mu):
    with mpmath.workdps(50):
        phi = mpmath.ncdf
        truth = phi(mpmath.mpf(mu) / 2 - epsilon / mpmath.mpf(mu)) - mpmath.exp(epsilon) * phi(
            -mpmath.mpf(mu) / 2 - epsilon / mpmath.mpf(mu)
        )
        assert delta_gdp(epsilon, mu) == pytest.approx(float(truth), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("mu", [9.99e-3, 1e-3, 1e-5, 1e-8, 1e-12])
def test_much_noise_keeps_its_digits(mu):
    for steps in (-30.0, -1.0, 0.0, 1e-6, 1.0, 6.0, 8.0, 30.0):
        epsilon = steps * mu
        with mpmath.workdps(60):
            at = -mpmath.mpf(epsilon) / mpmath.mpf(mu)
            half = mpmath.mpf(mu) / 2
            truth = mpmath.ncdf(at + half) - mpmath.exp(epsilon) * mpmath.ncdf(at - half)
        assert delta_gdp(epsilon, mu) == pytest.approx(float(truth), rel=1e-11, abs=1e-300)
    for delta in (1e-3 * mu, 1e-8 * mu):
        assert delta_gdp(epsilon_gdp(delta, mu), mu) <= delta


def test_epsilon_delta_and_mu_invert_each_other():
    for epsilon in (0.01, 0.3, 1.0, 5.0):
        for delta in (1e-10, 1e-6, 1e-2):
            mu = mu_of(epsilon, delta)
            assert delta_gdp(epsilon, mu) <= delta
            assert epsilon_gdp(delta, mu) == pytest.approx(epsilon, rel=1e-9)


def test_array_and_scalar_agree():
    mus = np.array([0.1, 0.5, 2.0])
    assert delta_gdp(1.0, mus).tolist() == [delta_gdp(1.0, float(mu)) for mu in mus]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-20), (1e-14, 1e-13), (1e-13, 1e-13)])
def test_the_largest_mu_of_a_tiny_privacy_is_found(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_gdp(epsilon, mu) <= delta < delta_gdp(epsilon, mu * (1 + 1e-9))
    # delta_GDP(0; mu) = 2 Phi(mu/2) - 1 is mu/sqrt(2 pi) but for its third power.
    assert mu >= math.sqrt(2 * math.pi) * delta * (1 - 1e-9)
