"""The l2-Laplace noise: its exact curve against independent integrals, draws and known values."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds import gamma, gaussian
from shuffle_sim.privacy.events import GammaEvent

DELTAS = [(1, 1.5, 10, 1.983458e-3), (1, 2, 20, 2.015367e-3), (1, 1.2, 2, 3.262780e-2)]
RATES = {
    1: 1.0000020,
    2: 1.0001812676,
    5: 1.0137635620,
    10: 1.0911912455,
    20: 1.2940151463,
    50: 1.8183708278,
    100: 2.4681073215,
    1000: 7.516845326,
}


@pytest.mark.parametrize(("epsilon", "rate", "d", "expected"), DELTAS)
def test_delta_meets_the_oracles(epsilon, rate, d, expected):
    assert gamma.delta(epsilon, rate, d) == pytest.approx(expected, rel=3e-7)


@pytest.mark.parametrize(("d", "expected"), RATES.items())
def test_rates_meet_the_oracles_and_are_rounded_down(d, expected):
    rate = gamma.rate_for(1.0, 1e-6, d)
    assert rate == pytest.approx(expected, rel=1e-9)
    assert gamma.delta(1.0, rate, d) <= 1e-6
    assert gamma.delta(1.0, rate * (1 + 1e-11), d) > 1e-6
    assert gamma.epsilon(1e-6, rate, d) == pytest.approx(1.0, rel=1e-10)


def over_the_ball(epsilon: float, rate: float, d: int) -> float:
    """delta from the definition: the gain over the norm and the cosine of the noise."""
    s, (nodes, weights) = epsilon / rate, np.polynomial.legendre.leggauss(200)
    nodes, weights = (nodes + 1) / 2, weights / 2
    edge, far = (1 - s) / 2, (d + 12 * math.sqrt(d) + 30) / rate
    total = 0.0
    # Nearer than `edge` every direction counts; beyond, the first angle begins like a square root.
    for start, length in ((0.0, math.sqrt(edge)), (edge, math.sqrt(far))):
        rho = (start + (length * nodes) ** 2)[:, None]
        density = stats.gamma(d, scale=1 / rate).pdf(rho) * 2 * length**2 * nodes[:, None]
        first = np.arccos(np.clip((1 - s * s - 2 * rho * s) / (2 * rho), -1, 1))
        angle = first + (np.pi - first) * nodes
        loss = rate * (np.sqrt(rho**2 - 2 * rho * np.cos(angle) + 1) - rho)
        gain = np.sin(angle) ** (d - 2) * -np.expm1(epsilon - np.maximum(loss, epsilon))
        total += float(weights @ (density * (np.pi - first) * gain) @ weights)
    return total / special.beta((d - 1) / 2, 0.5)


@pytest.mark.parametrize(
    ("epsilon", "rate", "d"),
    [(1.0, 1.5, 10), (0.5, 3.0, 3), (2.0, 6.0, 4), (1.0, 1.2, 2), (0.0, 4.0, 50), (1.0, 2.4, 100)],
)
def test_delta_is_the_double_integral_of_the_definition(epsilon, rate, d):
    expected = over_the_ball(epsilon, rate, d)
    assert gamma.delta(epsilon, rate, d) == pytest.approx(expected, rel=3e-9)


def exact(epsilon: float, rate: float, d: int) -> float:
    """log delta by the integral over eta, in 30 digits, with the whole recurrence of the ratio."""
    with mpmath.workdps(30):
        r = mpmath.mpf(rate)
        ratio = mpmath.mpf(1) if d % 2 else mpmath.besselk(1, r / 2) / mpmath.besselk(0, r / 2)
        for order in np.arange(0.5 if d % 2 else 1.0, d / 2 - 0.5).tolist():
            ratio = 4 * order / r + 1 / ratio
        rest, sin, cos = 2 * (d - 1) / r * ratio, mpmath.sin, mpmath.cos

        def log_f(t: mpmath.mpf) -> mpmath.mpf:
            powers = (d - 2) * mpmath.log(sin(t)) if d > 2 else 0
            return powers + mpmath.log(rest + sin(t) ** 2) - r * sin(t / 2) ** 2

        def log_integral(last: mpmath.mpf, cut: float) -> mpmath.mpf:
            mode = min(last, mpmath.acos(r / (d - 2 + mpmath.hypot(d - 2, r))))
            top = log_f(mode) if mode else mpmath.log(rest)
            width = 14 / mpmath.sqrt(d + r)
            slope = (d - 2) * mpmath.cot(last) - r / 2 * sin(last)
            below = min(width, 70 / slope) if slope > 0 else width  # the integrand ends in its tail
            low, high = max(mpmath.mpf(10) ** -25, mode - below), min(last, mode + width)

            def term(t: mpmath.mpf) -> mpmath.mpf:
                return mpmath.exp(log_f(t) - top) * -mpmath.expm1(cut - r * cos(t))

            return top + mpmath.log(mpmath.quad(term, mpmath.linspace(low, high, 31), maxdegree=4))

        end = mpmath.pi * (1 - mpmath.mpf(10) ** -25)
        delta = log_integral(mpmath.acos(mpmath.mpf(epsilon) / r), mpmath.mpf(epsilon))
        return float(delta - log_integral(end, -mpmath.inf))


@pytest.mark.parametrize(
    ("epsilon", "rate", "d"),
    [
        (0.0, 3.0, 2),
        (1.0, 1.0001, 2),
        (1.0, 40.0, 3),
        (1.0, 2.4, 100),
        (10.0, 30.0, 3000),
        (5.0, 300.0, 4001),
        (1.0, 23.0, 10_000),
        (1.0, 1.0 + 1e-9, 7),
        (100.0, 110.0, 300),
    ],
)
@pytest.mark.full
def test_delta_is_never_below_thirty_digits_and_barely_above(epsilon, rate, d):
    truth = exact(epsilon, rate, d)
    excess = math.log(gamma.delta(epsilon, rate, d)) - truth
    assert 0 < excess < 1.2e-9


@pytest.mark.full
def test_one_hundred_thousand_coordinates():
    rate = gamma.rate_for(1.0, 1e-6, 100_000)
    assert gamma.delta(1.0, rate, 100_000) <= 1e-6
    assert exact(1.0, rate, 100_000) == pytest.approx(math.log(1e-6), abs=1.3e-9)
    # Less noise than the analytic Gaussian, and close to it: the loss is nearly normal.
    ratio = math.sqrt(gamma.mean_square(rate, 100_000) / 100_000) / gaussian.sigma(1.0, 1e-6)
    assert 0.9999 < ratio < 1


def test_one_coordinate_is_the_laplace_mechanism():
    for epsilon, rate in ((0.0, 1.0), (1.0, 1.5), (3.0, 3.0 + 1e-9)):
        assert gamma.delta(epsilon, rate, 1) == pytest.approx(
            -math.expm1((epsilon - rate) / 2), rel=2e-9
        )


@pytest.mark.parametrize("d", [1, 2, 3, 50, 3001])
def test_the_curve_is_monotone_and_its_inverses_agree(d):
    rate = math.sqrt(d) / 4
    grid = np.linspace(0, rate, 30)
    found = [gamma.delta(e, rate, d) for e in grid.tolist()]
    assert all(a >= b for a, b in itertools.pairwise(found))
    assert found[-1] == 0 == gamma.delta(rate + 1, rate, d)
    # more noise, or a shorter shift, is never less private
    rates = np.linspace(0.05, 2, 30) * rate
    grown = [gamma.delta(rate / 4, r, d) for r in rates.tolist()]
    assert all(a <= b for a, b in itertools.pairwise(grown))
    for delta in (1e-12, 1e-6, 1e-2):
        epsilon = gamma.epsilon(delta, rate, d)
        assert gamma.delta(epsilon, rate, d) <= delta
        if epsilon:
            assert gamma.delta(epsilon * (1 - 1e-9), rate, d) > delta
            assert gamma.rate_for(epsilon, delta, d) == pytest.approx(rate, rel=1e-9)


def test_a_pure_guarantee_is_the_rate():
    assert gamma.rate_for(0.7, 0.0, 12) == 0.7
    assert gamma.epsilon(0.0, 0.7, 12) == 0.7
    assert gamma.rate_for(0.7, 1e-300, 12) == 0.7
    assert gamma.epsilon(0.9999, 1.0, 2) == 0.0


def test_pure_noise_beats_the_gaussian_in_few_coordinates():
    sigma = gaussian.sigma(1.0, 1e-6)
    assert math.sqrt(gamma.mean_square(1.0, 16)) < sigma * 4
    assert math.sqrt(gamma.mean_square(1.0, 17)) > sigma * math.sqrt(17)
    chi = stats.chi(17).mean(), stats.chi(18).mean()
    assert gamma.mean_norm(1.0, 17) < sigma * chi[0]
    assert gamma.mean_norm(1.0, 18) > sigma * chi[1]
    for d in (1, 2, 5, 10, 20, 50, 100, 1000):
        rate = gamma.rate_for(1.0, 1e-6, d)
        assert rate >= 1
        assert gamma.mean_square(rate, d) < sigma**2 * d
    assert math.sqrt(gamma.mean_square(gamma.rate_for(1.0, 1e-6, 10), 10)) == pytest.approx(
        9.61, abs=5e-3
    )


def uniform(u: np.ndarray, cells: int = 40) -> None:
    """Refuse numbers that are not uniform in [0, 1]; false-alarm rate 1e-6."""
    check_pmf(np.minimum((u * cells).astype(int), cells - 1), np.full(cells, 1 / cells))


def law(z: np.ndarray, rate: float) -> None:
    """Norm, direction along an axis and along a diagonal of draws; false-alarm rate 3e-6."""
    d = z.shape[1]
    norms = np.linalg.norm(z, axis=1)
    uniform(stats.gamma(d, scale=1 / rate).cdf(norms))
    for axis in (np.eye(d)[0], np.ones(d) / math.sqrt(d)):
        half = (d - 1) / 2
        uniform(stats.beta(half, half).cdf((1 + z @ axis / norms) / 2))


@pytest.mark.parametrize("d", [2, 3, 12])
@pytest.mark.full
def test_draws_have_the_law_and_its_check_sees_what_is_off(d):
    rng, rate = np.random.default_rng(d), 1.7
    z = np.array([gamma.draw(rng, rate, d) for _ in range(20_000)])
    law(z, rate)
    cube = rng.uniform(-1, 1, z.shape)  # directions that favour the corners
    defects = (
        0.9 * z,
        z / np.linalg.norm(z, axis=1, keepdims=True) * rng.exponential(1 / rate, (len(z), 1)),
        cube * (np.linalg.norm(z, axis=1) / np.linalg.norm(cube, axis=1))[:, None],
    )
    for bad in defects:
        with pytest.raises(LawError):
            law(bad, rate)


def test_draws_in_one_coordinate_are_laplace():
    rng = np.random.default_rng(1)
    z = np.array([gamma.draw(rng, 2.0, 1)[0] for _ in range(20_000)])
    uniform(stats.laplace(scale=0.5).cdf(z))
    with pytest.raises(LawError):
        uniform(stats.laplace(scale=0.5).cdf(0.9 * z))


@pytest.mark.parametrize(("epsilon", "rate", "d"), [(0.1, 1.5, 10), (0.1, 2.0, 20), (0.2, 1.2, 2)])
@pytest.mark.full
def test_the_draws_lose_the_delta_of_the_theorem(epsilon, rate, d):
    # delta is the mean of a gain in [0, 1]: within 4.9 standard errors but once in 10^6.
    rng, shift = np.random.default_rng(7), np.eye(d)[d // 2]
    z = np.array([gamma.draw(rng, rate, d) for _ in range(30_000)])

    def gains(z: np.ndarray) -> np.ndarray:
        losses = rate * (np.linalg.norm(z - shift, axis=1) - np.linalg.norm(z, axis=1))
        return np.maximum(-np.expm1(epsilon - losses), 0.0)

    def off(gains: np.ndarray) -> float:
        error = gains.std() / math.sqrt(gains.size)
        return abs(float(gains.mean()) - gamma.delta(epsilon, rate, d)) / float(error)

    assert off(gains(z)) < 4.9
    assert off(gains(0.8 * z)) > 4.9


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gamma.delta(-1.0, 1.0, 2), "epsilon"),
        (lambda: gamma.delta(1.0, 0.0, 2), "rate"),
        (lambda: gamma.delta(1.0, math.inf, 2), "rate"),
        (lambda: gamma.delta(1.0, 2.0, 0), "d"),
        (lambda: gamma.epsilon(1.0, 2.0, 3), "delta"),
        (lambda: gamma.rate_for(1.0, -1e-9, 3), "delta"),
        (lambda: gamma.rate_for(0.0, 1e-9, 3), "epsilon"),
        (lambda: gamma.draw(np.random.default_rng(), 2.0, 0), "d"),
    ],
)
def test_bad_parameters_are_refused(call, name):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("rate", "d", "named"), [(1e-7, 1, "rate"), (2e6, 1, "rate"), (1.0, 10**7, "d")]
)
def test_an_event_without_a_curve_is_refused_when_it_is_made(rate, d, named):
    """Not first by the ledger, after the release."""
    with pytest.raises(ParameterError) as caught:
        GammaEvent(rate, d)
    assert caught.value.parameter == named
