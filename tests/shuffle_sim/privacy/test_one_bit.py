"""Theorem B: one bit a coordinate, in the middle of a step, against exact views."""

import math

import numpy as np
import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.bounds.gaussian import delta_gdp
from shuffle_sim.privacy.carry_planner import choose_carries
from shuffle_sim.privacy.events import CarrySumEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec

NU = 1e-10


def exact_delta(m, a, sides, epsilon):
    """Of one coordinate: one user moves from -a to a, m others hold `sides` in equal shares."""
    total = np.ones(1)
    for side in sides:
        share = 0.5 + side * a
        _, law = carry.sum_law(np.array([1 - share, share]), m // len(sides))
        total = np.convolve(total, law)
    low, high = (np.convolve(total, [0.5 + s * a, 0.5 - s * a]) for s in (1, -1))
    return max(
        float(np.maximum(one - math.exp(epsilon) * two, 0.0).sum())
        for one, two in ((low, high), (high, low))
    )


@pytest.mark.parametrize(
    ("m", "a", "nu", "expected"),
    [
        (9999, 0.2, 1e-11, 42.732424),
        (999_999, 0.25, 1e-13, 429.035106),
        (999, 0.1, 1e-9, 13.728174),
    ],
)
def test_sigma_of_the_sheet(m, a, nu, expected):
    assert carry.one_bit_sigma(m, a, nu) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("m", "a", "nu"), [(205, 0.01, 1e-8), (336, 0.2, 1e-8), (1049, 0.4, 1e-8)])
def test_fewer_users_than_the_theorem_needs_promise_nothing(m, a, nu):
    assert carry.one_bit_sigma(m, a, nu) == 0
    assert carry.one_bit_sigma(m + 1, a, nu) > 0


@pytest.mark.parametrize("a", [0.02, 0.1, 0.2, 0.3, 0.4])
@pytest.mark.parametrize("m", [1500, 3000])
def test_no_exact_view_is_above_the_bound_but_with_less_noise(m, a):
    """All others in corners and in the middle; for small a a tenth less noise is caught."""
    mu = 2 * a / carry.one_bit_sigma(m, a, NU)
    caught = False
    for factor in (0.5, 2.0, 4.0, 5.0):
        epsilon = factor * mu
        bound = float(delta_gdp(np.array(epsilon), np.array(mu))) + (1 + math.exp(epsilon)) * NU
        for sides in ((0.0,), (1.0,), (1.0, -1.0), (1.0, 1.0, -1.0), (0.5, -1.0)):
            assert exact_delta(m, a, sides, epsilon) <= bound
            caught |= exact_delta(round(0.81 * m), a, sides, epsilon) > bound
    assert caught or a > 0.1


@pytest.mark.parametrize(
    ("n", "d", "rounds", "expected"),
    [(10**4, 2**14, 1, 1.103716), (10**6, 2**20, 1, 1.085279), (1438, 128, 50, 1.123890)],
)
def test_plans_of_the_sheet(n, d, rounds, expected):
    """Within a thousandth: the sheet takes another nu."""
    plan = choose_carries(SumSpec(n, d, Privacy(1.0, 1e-6), rounds, rotation=1), max_bits=1)
    assert (plan.r, plan.levels, plan.bits) == (1, 0, 1)
    assert plan.noise_ratio == pytest.approx(expected, rel=5e-4)
    accountant = ShuffleAccountant().compose(plan.event, rounds)
    assert 0.9999 < accountant.get_epsilon(1e-6) <= 1.0


def test_the_fewest_bits_may_be_one():
    """With wide noise one bit is enough, and where it is not two are taken."""
    spec = SumSpec(10**4, 2**14, Privacy(1.0, 1e-6), rotation=1)
    plans = [choose_carries(spec, ratio) for ratio in (1.11, 1.09)]
    assert [(plan.r, plan.bits) for plan in plans] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "given", [{"bits": 1}, {"levels": 1}, {"sensitivity": 1.0}, {"span": 0.5, "sensitivity": 2.0}]
)
def test_one_bit_takes_neither_levels_nor_a_whole_step(given):
    with pytest.raises(ParameterError):
        CarrySumEvent(**({"honest": 1000, "sensitivity": 0.5, "uniforms": 1} | given))
