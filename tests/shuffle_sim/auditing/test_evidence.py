"""Bounds of the false alarm, exactly: over all that can be drawn; and defects that are caught."""

import math
import tracemalloc
from itertools import product

import numpy as np
import pytest
from scipy import stats

from shuffle_sim.auditing import LawError, check_pmf, check_same_law
from shuffle_sim.auditing.laws.arrangements import check_bits
from shuffle_sim.auditing.laws.evidence import (
    against_each_other,
    against_law,
    against_laws,
    against_spread,
)
from shuffle_sim.auditing.laws.orders import _ranks
from shuffle_sim.auditing.laws.scores import summed
from shuffle_sim.auditing.shuffle.pooling import _hypergeometric


def compositions(size, cells):
    """All counts of so many draws in so many cells."""
    for head in product(range(size + 1), repeat=cells - 1):
        if sum(head) <= size:
            yield np.array([*head, size - sum(head)])


def test_a_cell_that_expects_ten_keeps_the_alarm_where_chi_square_did_not():
    size, law = 1000, np.array([0.99, 0.01])
    ones = np.arange(100)  # more have no chance that a float could tell from 0
    chances = stats.binom.pmf(ones, size, law[1])
    counts = [np.array([size - many, many]) for many in ones.tolist()]
    off = [((each - size * law) ** 2 / (size * law)).sum() for each in counts]
    assert chances[np.array(off) > stats.chi2.isf(1e-6, 1)].sum() > 1e-5  # as it was
    alarms = np.array([against_law(each, law, 1e-6) for each in counts])
    assert 1e-8 < chances[alarms].sum() <= 1e-6
    assert alarms[30:].all()
    assert not alarms[:25].any()


@pytest.mark.parametrize("law", [(0.2, 0.3, 0.5), (0.02, 0.08, 0.9)])
@pytest.mark.parametrize("alarm", [0.05, 1e-3])
def test_false_alarms_over_all_counts_are_below_the_bound(law, alarm):
    size, law = 24, np.array(law)
    every = list(compositions(size, 3))
    chances = stats.multinomial.pmf(every, size, law)
    said = np.array([against_law(each, law, alarm) for each in every])
    assert 0 < chances[said].sum() <= alarm


@pytest.mark.parametrize("alarm", [0.05, 1e-3])
def test_false_alarms_over_all_splits_of_two_samples_are_below_the_bound(alarm):
    both, mine = np.array([4, 12, 20]), 15
    every = [each for each in compositions(mine, 3) if (each <= both).all()]
    chances = stats.multivariate_hypergeom.pmf(every, both, mine)
    said = np.array([against_each_other(each, both - each, alarm) for each in every])
    assert math.isclose(chances.sum(), 1, rel_tol=1e-9)
    assert 0 < chances[said].sum() <= alarm


def test_false_alarms_of_a_spread_over_all_outcomes_are_below_the_bound():
    law, alarm = np.array([0.05, 0.2, 0.5, 0.2, 0.05]), 0.05
    every = np.array(list(product(range(5), repeat=4)))
    said = np.array([against_spread([(each, law)], alarm) for each in every])
    assert 0 < law[every].prod(axis=1)[said].sum() <= alarm


def test_a_spread_that_is_too_large_or_too_small_is_caught():
    rng = np.random.default_rng(1)
    first, law = _hypergeometric(10**9 - 7, (10**9 - 7) // 2, (10**9 - 7) // 4)
    mean, deviation = 0.125 * (10**9 - 7), math.sqrt(10**9 / 4 * 0.25 * 0.75)
    for factor, caught in ((1.0, False), (3.0, True), (0.3, True)):
        seen = np.rint(mean + factor * deviation * rng.normal(size=60)).astype(np.int64) - first
        assert against_spread([(np.clip(seen, 0, len(law) - 1), law)], 1e-9) is caught


def test_laws_of_long_sums_and_of_large_pools():
    first, law = _hypergeometric(10_000, 5000, 2500)
    known = stats.hypergeom.pmf(first + np.arange(len(law)), 10_000, 5000, 2500)
    np.testing.assert_allclose(law, known, rtol=0, atol=1e-12)
    whole = stats.binom.pmf(np.arange(101), 100, 0.3)
    folded = np.bincount(np.arange(101) % 16, weights=whole, minlength=16)
    np.testing.assert_allclose(summed([(np.array([0.7, 0.3]), 100)], 16), folded, atol=1e-12)


def test_ranks_of_orders_are_independent_and_a_place_that_is_preferred_is_caught():
    rng = np.random.default_rng(2)
    orders = np.array([rng.permutation(6) for _ in range(2000)])
    assert not against_laws(_ranks(orders), 1e-6)
    assert [len(found) for found, _ in _ranks(orders)] == [6, 5, 4, 3, 2, 1]
    lazy = np.where(rng.random((2000, 1)) < 0.1, np.arange(6), orders)
    assert against_laws(_ranks(lazy), 1e-6)


def test_planted_laws_are_caught():
    rng = np.random.default_rng(3)
    law, wrong = (stats.binom.pmf(np.arange(31), many, 0.5) for many in (30, 28))
    drawn, other = rng.binomial(30, 0.5, 3000), rng.binomial(28, 0.5, 3000)
    check_pmf(drawn, law)
    check_same_law(drawn, rng.binomial(30, 0.5, 2000))
    with pytest.raises(LawError, match="differs from the pmf"):
        check_pmf(drawn, wrong[:29] if drawn.max() < 29 else wrong)
    with pytest.raises(LawError, match="two laws differ"):
        check_same_law(drawn, other)
    with pytest.raises(ValueError, match="add up"):
        check_pmf(drawn, law * 0.9)


def test_views_of_many_labels_are_compared_in_little_memory():
    rng, rounds, labels = np.random.default_rng(4), 100, 400
    views = rng.permuted(np.tile(np.arange(16, dtype=np.uint8) % 2, (rounds * labels, 1)), axis=1)
    tracemalloc.start()
    check_bits(views, [8] * len(views), 1e-6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e8  # all pairs would take 13 GB


@pytest.mark.parametrize("labels", [1, 400])
def test_orders_that_come_twice_are_caught_with_one_label_and_with_many(labels):
    rng, rounds = np.random.default_rng(5), 200
    drawn = rng.permuted(np.tile(np.arange(64) % 2, (rounds // 2 * labels, 1)), axis=1)
    twice = np.repeat(drawn.reshape(-1, labels, 64), 2, axis=0).reshape(-1, 64).astype(np.uint8)
    with pytest.raises(LawError):
        check_bits(twice, [32] * len(twice), 1e-6)
