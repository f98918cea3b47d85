"""A tiny delta over many rounds and coordinates: what is given up is a share of it."""

import math
from itertools import pairwise

import numpy as np
import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.binomial_planner import fewest_bits
from shuffle_sim.privacy.bounds import binomial, carry
from shuffle_sim.privacy.bounds.domination import NUS, dominating_sigma
from shuffle_sim.privacy.bounds.gaussian import delta_gdp
from shuffle_sim.privacy.carry_planner import choose_carries
from shuffle_sim.privacy.events import BinomialSumEvent, CarrySumEvent, GaussianEvent
from shuffle_sim.privacy.grid_noise import GridBinomial
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec


@pytest.mark.parametrize(
    ("n", "d", "rounds", "delta", "carried", "better", "bits"),
    [
        (10**7, 8, 365, 1e-8, (9, 1.000504), (9, 1.000504), 71),
        (10**6, 1000, 1, 1e-9, (14, 1.025410), (15, 1.016516), 312),
        (10**8, 100, 365, 1e-10, (11, 1.0005), (11, 1.0005), 166),
        (10**5, 10**5, 1, 1e-7, (34, 1.024081), (35, 1.006146), None),
        (10**7, 8, 365, 1e-12, (8, 1.000838), (8, 1.000838), None),
        (10**7, 8, 365, 1e-15, (7, 1.004899), (7, 1.004899), None),
    ],
)
@pytest.mark.full
def test_plans_over_long_horizons(n, d, rounds, delta, carried, better, bits):
    """At 1.05 and 1.02 times the central Gaussian; computed before the accountant was written."""
    spec = SumSpec(n, d, Privacy(1.0, delta), rounds)
    for ratio, (most, reached) in ((1.05, carried), (1.02, better)):
        plan = choose_carries(spec, ratio)
        assert plan.bits == most
        assert plan.noise_ratio == pytest.approx(reached, abs=3e-4)
        spent = ShuffleAccountant().compose(plan.event, rounds)
        assert spent.get_epsilon(delta) <= 1.0
        assert spent.get_delta(1.0) <= delta * (1 + 1e-9)
    if bits is not None:
        few = fewest_bits(spec, 1.05)
        assert few.bits == bits
        assert ShuffleAccountant().compose(few.event, rounds).get_epsilon(delta) <= 1.0


def test_the_smallest_delta_over_the_most_coordinates():
    """d T = 1e14 at delta 1e-15: what is given up in each is 1e-31."""
    spec = SumSpec(10**8, 10**8, Privacy(1.0, 1e-15), 10**6)
    plan = choose_carries(spec, 1.05)
    assert plan.bits == 2
    assert ShuffleAccountant().compose(plan.event, 10**6).get_delta(1.0) <= 1e-15 * (1 + 1e-9)
    with pytest.raises(ParameterError, match="delta = 1e-37: must be at least 1e-36"):
        SumSpec(10**8, 10**8, Privacy(1.0, 1e-37), 10**6)


def test_what_the_theorems_of_carries_give_at_a_small_nu():
    nus = 1e-12, 1e-20, 1e-30
    assert [carry.sigma(9999, 2, 0, nu) for nu in nus] == pytest.approx(
        [48.933353, 48.520327, 48.048509], rel=1e-7
    )
    assert [carry.sigma(999_999, 2, 0, nu) for nu in nus] == pytest.approx(
        [499.234756, 499.010972, 498.781450], rel=1e-7
    )
    assert [carry.step(10**4, 20, nu) for nu in nus] == pytest.approx(
        [7.32490, 9.56178, 11.81692], abs=1e-5
    )
    assert [carry.step(10**6, 20, nu) for nu in nus] == pytest.approx(
        [7.23879, 9.42524, 11.60271], abs=1e-5
    )
    for nu, least, odd in zip(nus, (398, 651, 967), (100, 100, 141), strict=True):
        assert carry.sigma(least, 2, 0, nu) > 0 == carry.sigma(least - 1, 2, 0, nu)
        assert carry.step(odd, 1, nu) < math.inf == carry.step(odd - 1, 1, nu)


@pytest.mark.parametrize("nu", [1e-8, 1e-30, 1e-45, 1e-60])
@pytest.mark.parametrize(("m", "level"), [(150, 0), (1000, 0), (1000, 3), (10**6, 5), (10**9, 8)])
def test_odd_users_are_the_quantile(m, level, nu):
    """Wherever the search starts."""
    share, found = carry.odd_share(2, level), carry.odd_users(m, 2, level, nu)
    below, at = binomial.lower_tail(np.array([found - 1, found]), m, share).tolist()
    assert below <= nu < at


@pytest.mark.full
def test_binomial_noise_at_a_small_nu():
    """Between lower tails of nu and 1e-16 are places that 1 - nu in doubles leaves out.

    Then sigma was 8.969255, and the exact delta up to 272 times what it promises.
    """
    sigma = dominating_sigma(1500, 0.1, 5, 1e-20)
    assert sigma == pytest.approx(8.757908, abs=1e-6)
    prices = [
        (m, g, m / 4 - dominating_sigma(m, 0.5, g, nu) ** 2)
        for m, g in ((40_000, 20), (4_000_000, 100))
        for nu in (1e-12, 1e-20, 1e-30)
    ]
    assert [price for _, _, price in prices] == pytest.approx(
        [3.315, 7.990, 13.810, 16.065, 25.424, 37.105], abs=1e-3
    )
    worst = {}
    for claimed in (sigma, 8.969255):
        worst[claimed] = max(
            binomial.delta(1500, 0.1, k, epsilon) / (delta_gdp(epsilon, k / claimed) + 1e-20)
            for k in range(1, 6)
            for epsilon in np.linspace(0.0, 8.0, 81).tolist()
        )
    assert worst[sigma] <= 1 < worst[8.969255]


@pytest.mark.parametrize("p", [0.5, 0.1, 0.9, 0.02])
@pytest.mark.parametrize("nu", [1e-6, 1e-12, 1e-18, 1e-25])
@pytest.mark.full
def test_domination_holds_for_every_nu(p, nu):
    """One coordinate, all shifts, against exact arithmetic."""
    m, g = round(150 / p / (1 - p)), 4
    sigma = dominating_sigma(m, p, g, nu)
    for k in range(1, g + 1):
        for epsilon in np.linspace(0.0, 8.0, 33).tolist():
            bound = delta_gdp(epsilon, k / sigma) + nu if sigma else 1.0
            assert binomial.delta(m, p, k, epsilon) <= bound * (1 + 1e-9)


@pytest.mark.parametrize(
    "event",
    [
        BinomialSumEvent(10**6, 20, 0.5, 60, 10),
        CarrySumEvent(10**6, 40.0, 2, 0, 2, 10),
        GridBinomial.calibrated(Privacy(1.0, 1e-20), 3).event,
    ],
)
@pytest.mark.full
def test_delta_goes_far_below_what_was_given_up_before(event):
    """delta and epsilon are inverse to each other, alone and beside a release of another kind."""
    for delta in (1e-15, 1e-25, 1e-35):
        alone = ShuffleAccountant().compose(event, 3)
        assert alone.get_delta(alone.get_epsilon(delta)) == pytest.approx(delta, rel=0.1)
    mixed = ShuffleAccountant().compose(event, 3).compose(GaussianEvent(30.0))
    epsilon, least = mixed.get_epsilon(1e-25), alone.compose(event).get_epsilon(1e-25)
    assert least / 2 < epsilon < 1.2 * least + 1.0
    assert mixed.get_delta(epsilon) <= 1.5e-25


def test_grid_noise_at_a_tiny_delta():
    privacy = Privacy(1.0, 1e-20)
    noise = GridBinomial.calibrated(privacy, 3)
    assert ShuffleAccountant().compose(noise.event).get_epsilon(1e-20) <= 1.0
    with pytest.raises(ParameterError, match="at least 3e-50 for binomial noise"):
        GridBinomial.calibrated(Privacy(1.0, 1e-51), 3)


def test_what_is_tried_reaches_far_and_is_dense():
    assert NUS[0] == pytest.approx(1e-3)
    assert NUS[-1] == pytest.approx(1e-60)
    assert max(first / second for first, second in pairwise(NUS)) < 4
