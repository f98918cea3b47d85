"""Shares of discrete Laplace noise: the law, its exact privacy, and what the accountant makes of
it.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest

from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import MIXED, ShuffleAccountant
from shuffle_sim.privacy.bounds import laplace
from shuffle_sim.privacy.bounds.gaussian import mu_of
from shuffle_sim.privacy.central_theorems import NonPrivate
from shuffle_sim.privacy.events import (
    BinomialSumEvent,
    GaussianEvent,
    NonPrivateEvent,
    SplitMixEvent,
)

AT_THE_POINT = SplitMixEvent(10_000, 10_000, 1 / 1668, 1668, 10, 2**24)


def true_pmf(shape: float, rate: float, w: int) -> mpmath.mpf:
    """(1 - a)^{2r} a^|w| (r)_|w| / |w|! 2F1(r, r + |w|; |w| + 1; a^2), to 30 digits."""
    r, a, w = mpmath.mpf(shape), mpmath.exp(-mpmath.mpf(rate)), abs(w)
    return (
        (1 - a) ** (2 * r)
        * a**w
        * mpmath.rf(r, w)
        / mpmath.factorial(w)
        * mpmath.hyp2f1(r, r + w, w + 1, a * a)
    )


@pytest.mark.parametrize(
    ("shape", "rate"), [(1.0, 0.01), (0.7, 0.01), (0.99, 1e-3), (0.1, 0.05), (0.5, 1.0)]
)
def test_the_law_of_the_shares_is_exact(shape, rate):
    law = laplace.pmf(shape, rate, 300)
    with mpmath.workdps(30):
        for w in (0, 1, 2, 17, 300):
            assert abs(law[w] - true_pmf(shape, rate, w)) < 2e-15 * law[0]
    if shape == 1:
        assert law == pytest.approx(math.tanh(rate / 2) * np.exp(-rate * np.arange(301)), rel=1e-12)
    assert (np.diff(law[law > 1e-12 * law[0]]) < 0).all()


@pytest.mark.parametrize(
    ("shape", "rate", "shift", "epsilon"),
    [(1.0, 0.1, 10, 0.8), (0.7, 0.1, 10, 1.2), (0.3, 0.2, 5, 2.0)],
)
@pytest.mark.full
def test_delta_is_the_sum_over_the_integers_and_never_below_it(shape, rate, shift, epsilon):
    with mpmath.workdps(30):
        reach = int(35 / rate)
        law = [true_pmf(shape, rate, w) for w in range(reach + shift + 1)]
        gains = (
            law[abs(w)] - mpmath.exp(epsilon) * law[abs(w - shift)] for w in range(-reach, shift)
        )
        truth = float(sum(gain for gain in gains if gain > 0))
    found = laplace.delta(shape, rate, shift, epsilon)
    assert truth <= found <= truth * (1 + 1e-9) + 1e-13
    assert laplace.epsilon(shape, rate, shift, found) == pytest.approx(epsilon, rel=1e-6)
    assert laplace.delta(shape, rate, shift, laplace.epsilon(shape, rate, shift, 1e-5)) <= 1e-5


@pytest.mark.parametrize("shape", [1.0, 0.95, 0.4])
def test_the_largest_shift_is_worst_and_below_the_pure_loss(shape):
    rate, reach = 0.05, 150  # within it the law has ten digits
    law = laplace.pmf(shape, rate, reach + 20)
    w = np.arange(-reach, reach + 1)
    for shift in (1, 7, 20):
        losses = np.log(law[np.abs(w)] / law[np.abs(w - shift)])
        assert laplace.pure_epsilon(shape, rate, shift) == pytest.approx(losses.max(), rel=1e-8)
        assert laplace.pure_epsilon(shape, rate, shift) <= shift * laplace.pure_epsilon(
            shape, rate, 1
        ) * (1 + 1e-8)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        deltas = [laplace.delta(shape, rate, shift, epsilon) for shift in range(21)]
        assert all(a <= b + 1e-13 for a, b in itertools.pairwise(deltas))


def test_the_pure_loss_far_out_is_bounded_despite_rounding():
    with mpmath.workdps(30):
        truth = float(mpmath.log(true_pmf(0.5, 0.5, 0) / true_pmf(0.5, 0.5, 200)))
    assert truth <= laplace.pure_epsilon(0.5, 0.5, 200) <= 1.1 * truth


def test_zcdp_against_the_gaussian_it_bounds():
    # A Gaussian of mean shift mu is mu^2/2-zCDP: the conversion must not promise more than the
    # exact Gaussian, nor much less.
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (4.0, 1e-8)):
        exact = mu_of(epsilon, delta)
        rho = laplace.rho_zcdp(epsilon, delta)
        assert 0.85 * exact < math.sqrt(2 * rho) < exact
        assert laplace.epsilon_zcdp(rho, delta) == pytest.approx(epsilon, rel=1e-4)
        assert laplace.epsilon_zcdp(rho, delta) <= epsilon
        assert laplace.delta_zcdp(rho, epsilon) <= delta


def test_one_release_is_pure_but_for_the_statistical_security():
    accountant = ShuffleAccountant().compose(AT_THE_POINT)
    assert AT_THE_POINT.security == pytest.approx((9 * math.log2(10_000 / math.e) - 24) / 2)
    assert accountant.get_epsilon(1e-6) <= 1.0
    assert accountant.get_delta(1.0 + 1e-12) == pytest.approx(
        (1 + math.e) * 2**-AT_THE_POINT.security, rel=1e-6
    )
    # Below what the messages may tell beside their sum.
    assert accountant.get_epsilon(1e-12) == math.inf
    assert "security 2^-41.3" in accountant.basis


def test_fewer_honest_users_protect_less_and_too_few_not_at_all():
    found = [
        ShuffleAccountant().compose(AT_THE_POINT.with_honest(h)).get_epsilon(1e-6)
        for h in (10_000, 9_900, 9_000, 5_000)
    ]
    assert all(a < b for a, b in itertools.pairwise(found))
    assert found[1] < 1.02 < found[2] < 1.2
    assert ShuffleAccountant().compose(AT_THE_POINT.with_honest(18)).get_epsilon(1e-6) == math.inf
    assert isinstance(AT_THE_POINT.with_honest(0), NonPrivateEvent)
    assert AT_THE_POINT.with_honest(20_000) == AT_THE_POINT
    more = SplitMixEvent(20_000, 10_000, 1 / 1668, 1668, 10, 2**24)
    assert ShuffleAccountant().compose(more).get_epsilon(1e-6) <= 1.0


def exact_product_epsilon(rate: float, shifts: list[int], delta: float) -> float:
    """Of independent discrete Laplace coordinates, by the whole distribution of the loss (two
    values and a line between).
    """
    losses: np.ndarray = np.zeros(1)
    masses: np.ndarray = np.ones(1)
    for shift in shifts:
        w = np.arange(-2000, 2001)
        law = math.tanh(rate / 2) * np.exp(-rate * np.abs(w))
        loss = np.abs(w - shift) - np.abs(w)  # in units of the rate
        values, places = np.unique(loss, return_inverse=True)
        mass = np.bincount(places, law)
        sums = (losses[:, None] + values).ravel()
        losses, places = np.unique(sums, return_inverse=True)
        masses = np.bincount(places, (masses[:, None] * mass).ravel())
    low, high = 0.0, float(rate * sum(shifts))
    for _ in range(60):
        middle = (low + high) / 2
        enough = float((masses * np.maximum(-np.expm1(middle - rate * losses), 0)).sum()) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


def test_the_vector_bound_is_above_exact_epsilons():
    d, steps, rate = 4, 20, 0.02
    event = SplitMixEvent(10_000, 10_000, rate, steps, 12, 2**22, d)
    stated = ShuffleAccountant().compose(event).get_epsilon(1e-4)
    exact = [
        exact_product_epsilon(rate, shifts, 1e-4)
        for shifts in ([20, 0, 0, 0], [10, 10, 10, 10], [14, 14, 0, 0], [17, 9, 4, 4])
    ]
    # Shifts rounded at their worst and the conversion cost the rest.
    assert max(exact) <= stated <= 1.3 * max(exact)


@pytest.mark.full
def test_many_rounds_and_other_kinds_compose():
    event = SplitMixEvent(10_000, 10_000, 1e-3, 100, 12, 2**22, 3)
    once, often = (ShuffleAccountant().compose(event, count) for count in (1, 30))
    assert once.get_epsilon(1e-6) < often.get_epsilon(1e-6) < 0.7 * 30 * once.get_epsilon(1e-6 / 30)
    mixed = (
        ShuffleAccountant()
        .compose(event)
        .compose(GaussianEvent(10.0))
        .compose(BinomialSumEvent(1000, 20, 0.5, 10))
    )
    assert mixed.basis.startswith(MIXED)
    rest = (
        ShuffleAccountant()
        .compose(GaussianEvent(10.0))
        .compose(BinomialSumEvent(1000, 20, 0.5, 10))
    )
    split = once.get_epsilon(5e-7) + rest.get_epsilon(5e-7)
    assert 0.9 * split < mixed.get_epsilon(1e-6) < split
    assert mixed.get_delta(2.0) < once.get_delta(1.0) + rest.get_delta(1.0)
    nothing = ShuffleAccountant().compose(event).compose(NonPrivateEvent())
    assert NonPrivate.source in nothing.basis
    assert nothing.get_epsilon(1e-6) == math.inf
    assert nothing.get_delta(1.0) == 1.0


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": 1e-6}, "rate"),
        ({"steps": 0}, "steps"),
        ({"messages": 2}, "messages"),
        ({"modulus": 1}, "modulus"),
        ({"honest": 0}, "honest"),
        ({"planned": 0}, "planned"),
        ({"coordinates": 0}, "d"),
    ],
)
def test_bad_events_are_refused(changed, name):
    fields = {
        "honest": 100,
        "planned": 100,
        "rate": 0.1,
        "steps": 10,
        "messages": 10,
        "modulus": 1024,
        "coordinates": 1,
    }
    with pytest.raises(ParameterError) as caught:
        SplitMixEvent(**{**fields, **changed})
    assert caught.value.parameter == name
