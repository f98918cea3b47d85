import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.bounds.pass_curve import cutoff, pass_curve

ORACLES = [(0.5, 5e-7, 53), (0.3, 5e-7, 85), (0.3, 2e-7, 91), (1.0, 1e-6, 27)]
RANGE = [
    (1.0, 0.05),
    (0.3, 2e-7),
    (1e-3, 1e-9),
    (5.0, 1e-12),
    (40.0, 1e-12),
    (800.0, 0.3),
    (1e-4, 0.9),
    (0.7, 0.5),
]


def slack(curve: np.ndarray, epsilon: float, delta: float) -> mpmath.mpf:
    """The least of e^epsilon P(neighbour) + delta - P over both outcomes and directions."""
    with mpmath.workdps(60):
        factor, more = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta)
        law = [mpmath.mpf(p) for p in curve.tolist()]
        return min(
            factor * y + more - x
            for a, b in itertools.pairwise(law)
            for x, y in ((a, b), (b, a), (1 - a, 1 - b), (1 - b, 1 - a))
        )


@pytest.mark.parametrize(("epsilon", "delta", "largest"), ORACLES)
def test_the_largest_passing_score_meets_the_oracles(epsilon, delta, largest):
    assert cutoff(epsilon, delta) == largest


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"),
    [
        (1.0, 0.05, [1, 0.9650, 0.8548, 0.5554, 0.1859, 0.05, 0]),
        (1.5, 0.25, [1, 0.8884, 0.25, 0]),
        (0.7, 0.5, [1, 0.5, 0]),
    ],
)
def test_the_curve_meets_the_oracles(epsilon, delta, expected):
    assert pass_curve(epsilon, delta) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("epsilon", "delta"), RANGE)
@pytest.mark.full
def test_all_four_inequalities_hold_exactly_as_sampled(epsilon, delta):
    curve = pass_curve(epsilon, delta)
    assert (curve[0], curve[-1]) == (1, 0)
    assert (np.diff(curve) <= 0).all()
    assert slack(curve, epsilon, delta) >= 0
    # rng.random() is a multiple of 2^-53: below p with probability p exactly
    assert all((Fraction(p) * 2**53).denominator == 1 for p in curve.tolist())


@pytest.mark.parametrize(("epsilon", "delta", "largest"), ORACLES)
def test_no_curve_that_fails_earlier_is_private(epsilon, delta, largest):
    # The largest curve from p(K) = 0 on, in 60 digits, is still below 1 at score 0.
    with mpmath.workdps(60):
        p, e, d = mpmath.mpf(0), mpmath.mpf(epsilon), mpmath.mpf(delta)
        for _ in range(largest):
            p = min(mpmath.exp(e) * p + d, 1 - mpmath.exp(-e) * (1 - p - d), 1)
        assert p < 1


def test_a_probability_one_unit_too_high_is_caught():
    curve = pass_curve(1.0, 1e-6).copy()
    assert slack(curve, 1.0, 1e-6) >= 0
    curve[-2] += 2.0**-53
    assert slack(curve, 1.0, 1e-6) < 0


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [
        (0.0, 1e-6, "epsilon"),
        (math.inf, 1e-6, "epsilon"),
        (1e-5, 1e-6, "epsilon"),
        (1.0, 0.0, "delta"),
        (1.0, 1.0, "delta"),
        (1.0, 1e-13, "delta"),
    ],
)
def test_what_has_no_curve_is_refused(epsilon, delta, name):
    with pytest.raises(ParameterError) as caught:
        pass_curve(epsilon, delta)
    assert caught.value.parameter == name
