"""The permutation: exact counts always, and the uniform law with power controls. False-alarm rate
1e-6 per law test.
"""

from functools import cache, partial
from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from shuffle_sim.auditing import LawError, check_pmf, check_same_law
from shuffle_sim.auditing.laws.statistics import FALSE_ALARM
from shuffle_sim.sampling import shuffling
from shuffle_sim.sampling.shuffling import arrange, permute

relaxed = settings(deadline=None, max_examples=200)
DRAWS = 20_000


def unpacked(packed: np.ndarray, size: int) -> np.ndarray:
    bits = np.unpackbits(packed)
    assert packed.dtype == np.uint8
    assert bits.size == -(-size // 8) * 8
    assert not bits[size:].any()
    return bits[:size]


@relaxed
@given(
    arrays(np.int64, array_shapes(min_dims=3, max_dims=3, max_side=6), elements=st.integers(0, 9)),
    st.integers(0, 2**32),
)
def test_permute_keeps_every_labels_messages(symbols, seed):
    before = symbols.copy()
    permuted = permute(symbols, np.random.default_rng(seed))
    reports, labels, per_label = symbols.shape
    assert permuted.shape == (labels, reports * per_label)
    assert np.array_equal(
        np.sort(permuted, axis=1), np.sort(symbols.transpose(1, 0, 2).reshape(labels, -1), axis=1)
    )
    assert np.array_equal(symbols, before)


@relaxed
@given(st.integers(1, 3000), st.floats(0, 1), st.integers(0, 2**32))
def test_arrange_has_exactly_so_many_ones(size, share, seed):
    ones = round(share * size)
    assert unpacked(arrange(ones, size, np.random.default_rng(seed)), size).sum() == ones


@pytest.mark.parametrize(
    "size", [1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 127, 128, 129, 1000, 4096, 100_003]
)
def test_arrange_is_exact_at_the_edges(size):
    rng = np.random.default_rng(size)
    for ones in {0, 1, size // 3, size // 2, size - 1, size} & set(range(size + 1)):
        assert unpacked(arrange(ones, size, rng), size).sum() == ones


def test_arrange_is_exact_for_every_count_of_small_sizes():
    rng = np.random.default_rng(0)
    for size in range(1, 75):
        for ones in range(size + 1):
            assert unpacked(arrange(ones, size, rng), size).sum() == ones


def test_the_arrangement_is_the_generators():
    draws = [arrange(30, 70, np.random.default_rng(seed)).tobytes() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


# The law. Size 6: every arrangement is a cell. Larger sizes: one pair of ones, picked at random
# from each draw, is uniform over all pairs of places (a single one over all places); the picks of
# different draws are independent.


def sometimes_sorted(ones, size, rng):
    if rng.random() < 0.1:
        return np.packbits(np.arange(size) < ones)
    return arrange(ones, size, rng)


def repaired_from_below(ones, size, rng):
    bits = np.unpackbits(arrange(min(ones + 1, size), size, rng))
    bits[np.flatnonzero(bits)[: int(bits.sum()) - ones]] = 0
    return np.packbits(bits)


def permuted(ones, size, rng):
    (row,) = permute((np.arange(size) < ones).astype(np.uint8).reshape(size, 1, 1), rng)
    return np.packbits(row)


@cache
def cells(draw, ones, size, seed):
    """Independent draws of a cell that is uniform over `comb(size, k)` cells when arrangements are,
    and that number.
    """
    rng, picks = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    bits = np.unpackbits(np.stack([draw(ones, size, rng) for _ in range(DRAWS)]), axis=1)
    assert (bits.sum(axis=1) == ones).all()
    places = np.nonzero(bits)[1].reshape(DRAWS, ones)
    k = ones if size == 6 else min(2, ones)
    chosen = np.sort(picks.permuted(places, axis=1)[:, :k], axis=1)
    rank = {which: index for index, which in enumerate(combinations(range(size), k))}
    ranks = [rank[tuple(row)] for row in chosen.tolist()]
    return np.array(ranks), comb(size, k)


def check_uniform(draw, ones, size):
    ranks, number = cells(draw, ones, size, 0)
    check_pmf(ranks, np.full(number, 1 / number), false_alarm=FALSE_ALARM)


@pytest.mark.parametrize(("ones", "size"), [(1, 6), (3, 6), (3, 70), (35, 70), (1, 1500)])
@pytest.mark.full
def test_arrange_is_uniform(ones, size):
    check_uniform(arrange, ones, size)


@pytest.mark.parametrize(("start", "ones", "size"), [(0, 2, 6), (2**64 - 1, 2, 6), (0, 64, 70)])
@pytest.mark.full
def test_the_repair_alone_is_uniform(start, ones, size, monkeypatch):
    # Independent bits hide a fault in the repair, which has little left to do: let it do
    # everything.
    monkeypatch.setattr(
        shuffling,
        "_dyadic",
        lambda _numerator, _precision, words, _rng: np.full(words, start, np.uint64),
    )
    check_uniform(partial(arrange), ones, size)  # a function of its own: `cells` are cached


@pytest.mark.parametrize(("ones", "size"), [(1, 6), (3, 6), (35, 70)])
@pytest.mark.parametrize("bad", [sometimes_sorted, repaired_from_below])
@pytest.mark.long
def test_power_the_uniformity_test_rejects_planted_defects(bad, ones, size):
    with pytest.raises(LawError):
        check_uniform(bad, ones, size)


@pytest.mark.parametrize(("ones", "size"), [(3, 6), (35, 70)])
@pytest.mark.full
def test_arrange_has_the_law_of_permute(ones, size):
    reference, _ = cells(permuted, ones, size, 1)
    check_same_law(reference, cells(arrange, ones, size, 0)[0], false_alarm=FALSE_ALARM)
    for bad in (sometimes_sorted, repaired_from_below):  # power
        with pytest.raises(LawError):
            check_same_law(reference, cells(bad, ones, size, 0)[0], false_alarm=FALSE_ALARM)


def test_permute_is_uniform_inside_each_label():
    rng, symbols = np.random.default_rng(3), np.arange(6).reshape(3, 2, 1)
    orders = list(permutations(range(3)))
    drawn = []
    for _ in range(DRAWS):
        first, second = (permute(symbols, rng) // 2).tolist()
        drawn.append(6 * orders.index(tuple(first)) + orders.index(tuple(second)))
    check_pmf(drawn, np.full(36, 1 / 36), false_alarm=FALSE_ALARM)
    with pytest.raises(LawError):  # power: one order for both labels in a tenth of the draws
        check_pmf(
            [7 * (cell % 6) if i % 10 == 0 else cell for i, cell in enumerate(drawn)],
            np.full(36, 1 / 36),
        )
