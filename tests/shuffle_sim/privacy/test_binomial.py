import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds import binomial

ORACLES = [
    (2000, 0.5, 10, 1e-6, 1.999812827592603883),
    (1_000_000, 0.01, 50, 1e-6, 2.304345261424465138),
    (20_000, 0.5, 100, 1e-8, 8.538171343211098020),
]


@pytest.mark.parametrize(("m", "p", "shift", "delta", "expected"), ORACLES)
def test_epsilon_meets_the_oracles_to_1e9_and_is_never_below(m, p, shift, delta, expected):
    assert expected <= binomial.epsilon(m, p, shift, delta) <= expected + 1e-9


def test_the_reverse_direction_alone_would_understate():
    m, p, shift, delta, expected = ORACLES[1]
    directions = [binomial._epsilon_one_way(tail, shift, delta) for tail in binomial._tails(m, p)]
    assert max(directions) == pytest.approx(expected, abs=1e-9)
    assert min(directions) == pytest.approx(2.230510187609464, abs=1e-9)


def test_a_gaussian_of_the_same_variance_understates():
    from shuffle_sim.privacy.bounds.gaussian import epsilon_gdp

    assert epsilon_gdp(1e-6, 10 / math.sqrt(500)) < binomial.epsilon(2000, 0.5, 10, 1e-6) - 1e-4


def exact_pmf(m: int, p: float) -> list[mpmath.mpf]:
    q = mpmath.mpf(p)
    return [mpmath.binomial(m, k) * q**k * (1 - q) ** (m - k) for k in range(m + 1)]


def exact_delta(m: int, p: float, shift: int, epsilon: float) -> mpmath.mpf:
    """Both directions, by the definition: the sum of the positive part of P - e^epsilon Q."""
    pmf, pad = exact_pmf(m, p), [mpmath.mpf(0)] * shift
    here, there, factor = pmf + pad, pad + pmf, mpmath.exp(epsilon)
    directions = [
        sum(max(a - factor * b, 0) for a, b in zip(x, y, strict=True))
        for x, y in ((here, there), (there, here))
    ]
    return max(directions)


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 80),
    p=st.floats(0.02, 0.98),
    shift=st.integers(1, 20),
    epsilon=st.floats(0.0, 6.0),
)
def test_delta_is_the_definition_rounded_outward(m, p, shift, epsilon):
    with mpmath.workdps(40):
        # Forty digits may add up to a little more than one.
        truth = min(exact_delta(m, p, shift, epsilon), mpmath.mpf(1))
        found = binomial.delta(m, p, shift, epsilon)
        assert truth <= found <= truth + mpmath.mpf(1e-10)


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(5, 80),
    p=st.floats(0.05, 0.95),
    shift=st.integers(1, 10),
    delta=st.floats(1e-6, 0.3),
)
def test_epsilon_is_the_least_one_whose_delta_is_enough(m, p, shift, delta):
    found = binomial.epsilon(m, p, shift, delta)
    with mpmath.workdps(40):
        if math.isinf(found):
            assert exact_delta(m, p, shift, 50.0) > delta * (1 - 1e-9)
            return
        assert exact_delta(m, p, shift, found) <= delta
        if found > 1e-6:
            assert exact_delta(m, p, shift, found - 1e-6) > delta * (1 - 1e-9)


@pytest.mark.slow_parameters("5-10000000000-0.25", "-5-10000000000-0.25")
@pytest.mark.full
@pytest.mark.parametrize(
    ("m", "p"),
    [(2000, 0.5), (20_000, 0.5), (10**6, 0.01), (10**6, 0.3), (10**8, 0.5), (10**10, 0.25)],
)
@pytest.mark.parametrize("z", [-8, -5, 5, 8])
def test_tails_stay_three_times_inside_the_error_granted(m, p, z):
    k = int(m * p + z * math.sqrt(m * p * (1 - p)))
    with mpmath.workdps(40):
        q = mpmath.mpf(p)
        term = mpmath.exp(
            mpmath.loggamma(m + 1)
            - mpmath.loggamma(k + 1)
            - mpmath.loggamma(m - k + 1)
            + k * mpmath.log(q)
            + (m - k) * mpmath.log(1 - q)
        )
        truth, step = mpmath.mpf(0), -1 if z < 0 else 1
        while term > truth * mpmath.mpf(10) ** -22:
            truth += term
            ratio = (
                k * (1 - q) / ((m - k + 1) * q) if step < 0 else (m - k) * q / ((k + 1) * (1 - q))
            )
            term, k = term * ratio, k + step
        start = int(m * p + z * math.sqrt(m * p * (1 - p)))
        found = (binomial.lower_tail if z < 0 else binomial.upper_tail)(np.array(start), m, p)
        assert abs(mpmath.mpf(float(found)) - truth) <= truth * binomial._error(m) / 3


@pytest.mark.parametrize(
    ("m", "p", "shift", "delta"),
    [(2583, 0.3, 277, 1e-100), (1115, 0.5, 13, 1e-298), (2000, 0.6, 20, 1e-150)],
)
@pytest.mark.full
def test_nothing_is_understated_where_delta_underflows(m, p, shift, delta):
    found = binomial.epsilon(m, p, shift, delta)
    with mpmath.workdps(40):
        assert exact_delta(m, p, shift, found) <= delta
        assert exact_delta(m, p, shift, found * (1 - 1e-9)) > delta
        at = exact_delta(m, p, shift, found)
        assert at <= binomial.delta(m, p, shift, found) <= at * (1 + 1e-8)


def test_delta_is_never_reported_as_zero():
    assert 0 < binomial.delta(5000, 0.5, 1, 300.0) < 1e-300
    with mpmath.workdps(40):
        assert exact_delta(1200, 0.5, 1, 300.0) > 0


@pytest.mark.parametrize(
    ("m", "p", "k"),
    [
        (3000, 0.3, 0),
        (3000, 0.3, 3),
        (3000, 0.9, 4),
        (10**6, 0.5, 470_000),
        (10**8, 0.3, 29_725_045),
    ],
)
def test_logarithms_of_far_tails_meet_forty_digits(m, p, k):
    with mpmath.workdps(40):
        q = mpmath.mpf(p)
        log = mpmath.loggamma(m + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(m - k + 1)
        log += k * mpmath.log(q) + (m - k) * mpmath.log(1 - q)
        total = term = mpmath.mpf(1)
        for j in range(k, 0, -1):
            term *= j * (1 - q) / ((m - j + 1) * q)
            total += term
            if term < total * mpmath.mpf(10) ** -20:
                break
        truth = log + mpmath.log(total)
    found = float(binomial._log_far_tail(np.array([float(k)]), m, p, 1 - p)[0])
    granted = float(binomial._outward(np.array(found), binomial._error(m))) - found
    assert abs(found - float(truth)) <= granted / 3


def test_a_quadrillion_trials_are_quick_and_finite():
    assert 0 < binomial.epsilon(10**15, 0.5, 10**7, 1e-6) < 10
    assert 0 < binomial.delta(10**15, 0.5, 10**7, 1.0) < 1


@pytest.mark.parametrize(
    ("m", "p", "shift", "delta"),
    [
        (0, 0.5, 1, 0.1),
        (10, 0.0, 1, 0.1),
        (10, 1.0, 1, 0.1),
        (10, 0.5, -1, 0.1),
        (10, 0.5, 1, 0.0),
        (10, 0.5, 1, 1.0),
    ],
)
def test_parameters_out_of_range_are_refused(m, p, shift, delta):
    with pytest.raises(ParameterError):
        binomial.epsilon(m, p, shift, delta)


def test_edges():
    assert binomial.epsilon(10, 0.5, 0, 0.1) == 0.0
    assert math.isinf(binomial.epsilon(10, 0.5, 11, 0.1))
    assert math.isinf(binomial.epsilon(10, 0.5, 1, 1e-4))  # 2^-10 of the mass is revealed
    assert binomial.delta(10, 0.5, 11, 3.0) == 1.0


def test_a_quick_proof_of_too_little_noise_is_never_wrong():
    """It spares the exact bound most of what a search looks at; power: a proof from twice the
    noise would be wrong.
    """
    rng, proven, refused, wrong = np.random.default_rng(5), 0, 0, 0
    for _ in range(150):
        m, p = int(rng.integers(2, 4000)), float(rng.choice([0.5, 0.1, 0.9]))
        shift, delta = int(rng.integers(1, max(2, min(m, m // 20)))), 10.0 ** -rng.uniform(2, 12)
        exact = binomial.epsilon(m, p, shift, delta)
        wanted = min(exact, 20.0) * float(rng.choice([0.8, 0.999, 1.001, 1.2]))
        found = wanted > 0 and binomial.exceeds(m, p, shift, wanted, delta)
        assert not (found and exact <= wanted)
        proven, refused = proven + found, refused + (wanted < exact)
        half = max(1, m // 2)
        wrong += (
            shift <= half and wanted > exact and binomial.exceeds(half, p, shift, wanted, delta)
        )
    assert proven > refused / 2
    assert wrong > 10
