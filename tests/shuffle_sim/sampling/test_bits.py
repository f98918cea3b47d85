"""Loops over packed bits: compiled they give what numpy gives, and draw by the exact law.

False-alarm rate 1e-6 per law test, each with a power control.
"""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.sampling.bits import add_half_binomial
from shuffle_sim.sampling.compiled_bits import draw_bits, flip_bits
from shuffle_sim.sampling.kernels import KERNELS, lanes, using
from shuffle_sim.sampling.shuffling import arrange
from shuffle_sim.wire.messages import Alphabet, Messages

DRAWS = 20_000


@pytest.mark.parametrize(
    ("users", "labels", "per_label"),
    [
        (0, 2, 3),
        (1, 1, 1),
        (5, 3, 58),
        (70, 10, 58),
        (9, 2, 64),
        (7, 3, 65),
        (4, 2, 200),
        (3, 1, 9),
    ],
)
def test_both_kernels_pack_and_count_the_same_bits(users, labels, per_label):
    rng = np.random.default_rng(users + per_label)
    counts = rng.integers(0, per_label + 1, (labels, users)).astype(np.uint16).T
    counts[: users // 3] = per_label
    made = {}
    for kernel in KERNELS:
        with using(kernel):
            made[kernel] = Messages.from_ones(counts, per_label)
            assert made[kernel].sums().tolist() == counts.sum(axis=0).tolist()
            assert made[kernel].row_sums().tolist() == counts.sum(axis=1).tolist()
    assert made["compiled"].tobytes() == made["numpy"].tobytes()


@pytest.mark.parametrize("reports", [1, 2, 3, 64, 65, 300])
def test_fields_of_any_length_are_counted_alike(reports):
    rng = np.random.default_rng(reports)
    for columns in ((1,), (2, 5, 1), (2, 2, 2, 8, 2, 2, 2, 8), (63, 70, 1, 129)):
        alphabet = Alphabet(len(columns), columns=columns)
        symbols = rng.integers(0, 2, (reports, alphabet.width, 1), np.uint8)
        messages, sums = Messages.from_symbols(alphabet, symbols), {}
        for kernel in KERNELS:
            with using(kernel):
                sums[kernel] = messages.sums().tolist()
        brute = np.add.reduceat(symbols[:, :, 0].sum(axis=0, dtype=int), alphabet.edges[:-1])
        assert sums["compiled"] == sums["numpy"] == brute.tolist()


@pytest.mark.parametrize("b", [0, 1, 8, 14, 16, 20, 64, 70, 150])
def test_half_binomials_have_their_exact_law(b):
    rng, counts = np.random.default_rng(b), np.full((2, 6000), 7, np.uint16)
    with using("compiled"):
        add_half_binomial(counts, b, rng)
    check_pmf(counts.astype(int) - 7, binom.pmf(np.arange(b + 1), b, 0.5))
    if b > 1:  # power: one random bit too many
        assert abs(float(np.corrcoef(counts[0], counts[1])[0, 1])) < 0.08
        with pytest.raises(LawError):
            check_pmf(counts.astype(int) - 7, binom.pmf(np.arange(b + 2), b + 1, 0.5))


@pytest.mark.parametrize(("numerator", "precision"), [(1, 1), (3, 2), (11, 5), (96, 7), (1, 7)])
def test_random_words_have_their_dyadic_probability(numerator, precision):
    state, random = lanes(np.random.default_rng(numerator))
    words = np.empty((130, 16), np.uint64)  # more than fit the room for words at once
    draw_bits(numerator, precision, state, random, words)
    bits = np.unpackbits(words.reshape(-1).view(np.uint8)).reshape(-1, 2)
    share = numerator / 2**precision
    one = np.array([1 - share, share])
    check_pmf(bits @ [2, 1], np.outer(one, one).ravel())  # pairs: independent, too
    wrong = share + 0.012 * (1 if share < 0.9 else -1)
    with pytest.raises(LawError):  # power
        check_pmf(bits.ravel(), np.array([1 - wrong, wrong]))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 63, 64, 65, 1000, 4096, 100_003])
def test_a_compiled_arrangement_is_exact_at_the_edges(size):
    rng = np.random.default_rng(size)
    with using("compiled"):
        for ones in {0, 1, size // 3, size // 2, size - 1, size}:
            bits = np.unpackbits(arrange(ones, size, rng))
            assert bits.size == -(-size // 8) * 8
            assert bits.sum() == bits[:size].sum() == ones
        draws = [arrange(size // 2, size, np.random.default_rng(1)).tobytes() for _ in range(2)]
    assert draws[0] == draws[1]


def repaired(start, ones, size, rng):
    """From one arrangement to another by flips alone."""
    bits = np.packbits(np.arange(size) < start)
    flip_bits(bits, size, start > ones, abs(start - ones), *lanes(rng))
    return bits


def plain(ones, size, rng):
    return arrange(ones, size, rng)


def flipped_up(ones, size, rng):
    return repaired(0, ones, size, rng)


def flipped_down(ones, size, rng):
    return repaired(size, ones, size, rng)


def sometimes_sorted(ones, size, rng):
    return np.packbits(np.arange(size) < ones) if rng.random() < 0.1 else arrange(ones, size, rng)


@cache
def ranks(draw, ones, size):
    """Of independent draws: which of all arrangements of 6 places, or which two places are ones."""
    rng, picks = np.random.default_rng(ones), np.random.default_rng(5)
    with using("compiled"):
        bits = np.unpackbits(np.stack([draw(ones, size, rng) for _ in range(DRAWS)]), axis=1)
    places = np.nonzero(bits)[1].reshape(DRAWS, ones)
    k = ones if size == 6 else min(2, ones)
    chosen = np.sort(picks.permuted(places, axis=1)[:, :k], axis=1)
    rank = {which: index for index, which in enumerate(combinations(range(size), k))}
    return np.array([rank[tuple(row)] for row in chosen.tolist()]), len(rank)


@pytest.mark.full
@pytest.mark.parametrize(
    ("draw", "ones", "size"),
    [
        (plain, 3, 6),
        (plain, 30, 70),
        (plain, 1, 1500),
        (flipped_up, 3, 6),
        (flipped_down, 3, 6),
        (flipped_down, 30, 70),
    ],
)
def test_a_compiled_arrangement_is_uniform(draw, ones, size):
    found, cells = ranks(draw, ones, size)
    check_pmf(found, np.full(cells, 1 / cells))


def test_an_arrangement_that_is_sometimes_sorted_is_seen():
    found, cells = ranks(sometimes_sorted, 3, 6)
    with pytest.raises(LawError):
        check_pmf(found, np.full(cells, 1 / cells))
