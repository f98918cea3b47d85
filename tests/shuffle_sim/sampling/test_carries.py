"""The kernels of sums with carries: against exact arithmetic, bit for bit, and their laws."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.sampling import compiled, kernels
from shuffle_sim.sampling.carries import (
    MAX_LEVELS,
    MAX_NUMBER,
    carry_out,
    digit_counts,
    digit_sums,
    pack_reports,
    split_numbers,
)
from shuffle_sim.sampling.kernels import KERNELS, using

ONE, UNIT = 1 << 16, 1 << 52


class Replay:
    """A generator whose first raw words are given, call by call; the others are of one stream."""

    def __init__(self, *raw: np.ndarray, word: int | None = None) -> None:
        self.bit_generator, self._raw, self._word = self, list(raw), word
        self._stream = np.random.SFC64(7)

    def random_raw(self, size):
        if self._word is not None:
            return np.full(size, self._word, np.uint64)
        words = self._raw.pop(0) if self._raw else self._stream.random_raw(size)
        assert words.size == size
        return words.copy()


class Tying:
    """A generator that ties nearly half of all sums of r uniforms to f, word after word.

    `seen` are the sums of the fractions with all words so far, exact; `drawn` counts the words.
    """

    def __init__(self, units: np.ndarray, r: int) -> None:
        self.bit_generator, self.r, self._rng = self, r, np.random.default_rng(r)
        self.seen, self.drawn = [Fraction(f, UNIT) for f in units.tolist()], [0] * units.size
        self._open, self._last = list(range(units.size)), units.copy()

    def random_raw(self, size):
        words = self._rng.integers(0, UNIT, (self.r, size // self.r))
        assert words.shape[1] == len(self._open)
        tied = self._rng.random(words.shape[1]) < 0.9
        inside = range(1, self.r)
        short = self._rng.choice([0, *inside, *inside, self.r], words.shape[1])  # and both edges
        words[-1][tied] = ((-short - self._last - words[:-1].sum(axis=0)) % UNIT)[tied]
        for i, each in zip(self._open, words.T.tolist(), strict=True):
            self.drawn[i] += 1
            self.seen[i] += Fraction(sum(each), UNIT ** self.drawn[i])
        low = (self._last + words.sum(axis=0)) % UNIT
        self._open = [i for i, each in zip(self._open, low, strict=True) if each + self.r > UNIT]
        self._last = np.zeros(len(self._open), np.int64)
        unused = self._rng.integers(0, 1 << 12, words.shape)
        return (words << 12 | unused).view(np.uint64).T.ravel()

    def settled(self, i: int) -> bool:
        """Whether the floor is the same for all bits that may follow: they add less than r."""
        above = self.seen[i] + Fraction(self.r, UNIT ** self.drawn[i])
        return math.ceil(above) - 1 == math.floor(self.seen[i])


def as_raw(values: np.ndarray) -> np.ndarray:
    """The 64-bit words that hold these small integers."""
    flat = np.zeros(-(-values.size // 8) * 8, values.dtype)
    flat[: values.size] = values.ravel()
    return flat.view(np.uint64)[: -(-values.size * values.itemsize // 8)]


def drawn(d: int, users: int, r: int, levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A state of the sixteen generators, and the bits and coins that the compiled kernel takes."""
    state = np.random.default_rng(r).integers(0, 2**64, 64, np.uint64)
    moving, size = state.reshape(4, 16).copy(), 1 if levels <= 8 else 2
    bits, coins = np.empty((r, d, users), np.uint16), np.empty((d, users), f"u{size}")
    pieces = [(j, s) for j in range(d) for s in range(0, users, 512)]
    for k, (j, s) in enumerate(pieces):
        if k % 4 == 0:
            room = np.empty((32 * r + 16 * size, 16), np.uint64)
            compiled.fill(moving, room)
            words = room[: 32 * r].reshape(-1).view(np.uint16).reshape(4, r, 512)
            flips = room[32 * r :].reshape(-1).view(coins.dtype).reshape(4, 512)
        stop = min(s + 512, users)
        bits[:, j, s:stop] = words[k % 4, :, : stop - s]
        coins[j, s:stop] = flips[k % 4, : stop - s]
    return state, bits, coins


@pytest.mark.parametrize(("r", "levels"), [(2, 0), (2, 5), (3, 8), (4, 9), (5, MAX_LEVELS)])
def test_both_kernels_are_the_formula_in_exact_arithmetic(r, levels):
    """A = floor(s + sum of uniforms) with 68 bits of each; every other value is tied."""
    d, users, most = 3, 700, 30.0
    state, bits, coins = drawn(d, users, r, levels)
    rng = np.random.default_rng(3)
    scaled = rng.integers(0, 29 * ONE, (d, users)) + rng.choice([0.0, 0.25, 0.75], (d, users))
    low = (ONE - 1 - rng.integers(0, r + 1, (d, users)) - bits.sum(axis=0, dtype=int)) % ONE
    tied = np.arange(users) % 2 == 0
    scaled[:, tied] = (scaled // ONE * ONE + low + scaled % 1)[:, tied]
    scaled[0, tied] = np.resize([-1e-9, 30 * ONE * (1 + 1e-12)], sum(tied))  # by rounding
    arguments = (scaled / ONE, None, 1.0, 0.0, most, r, levels)
    packed = {}
    for kernel in KERNELS:
        pairs = np.zeros((r + r % 2, d, users), np.uint32)
        pairs[:r] = bits
        words = [as_raw(pairs[k] | pairs[k + 1] << 16) for k in range(0, r, 2)]
        raw = [state] if kernel == "compiled" else [*words, as_raw(coins)]
        with using(kernel):
            packed[kernel] = split_numbers(*arguments, Replay(*raw)).copy()
    assert (packed["numpy"] == packed["compiled"]).all()
    totals = {
        place: Fraction(min(max(float(scaled[place]), 0.0), most * ONE))
        + int(bits[(slice(None), *place)].sum(dtype=int))
        for place in np.ndindex(d, users)
    }
    ties = [place for place, total in totals.items() if math.floor(total) % ONE >= ONE - r]
    assert len(ties) > 400
    more = (np.random.SFC64(7).random_raw(r * len(ties)) >> 12).reshape(-1, r).sum(axis=1)
    for place, units in zip(ties, more.tolist(), strict=True):
        totals[place] += Fraction(units, UNIT)
    mask = 2**levels - 1
    for place, total in totals.items():
        coin, number = int(coins[place]) & mask, math.floor(total / ONE)
        assert int(packed["numpy"][place]) == (number + coin) + ((mask - coin) << 16)


@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_ties_are_broken_exactly_by_as_many_words_as_it_takes(r):
    """Coupled with exact reals; nearly half of all sums are tied, again and again."""
    units = np.random.default_rng(3).integers(0, UNIT, 20_000)
    units[:100], units[100:200] = 0, UNIT - 1
    rng = Tying(units, r)
    carried = carry_out(units / UNIT, r, rng)
    assert all(rng.settled(i) for i in range(units.size))
    assert carried.tolist() == [math.floor(total) for total in rng.seen]
    assert max(rng.drawn) >= 8
    assert set(carried.tolist()) == set(range(r + 1))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("levels", [0, 1, 4, 8, 9, MAX_LEVELS])
@pytest.mark.parametrize("users", [1, 2, 63, 130, 4099])
def test_digits_are_those_of_fair_carries(kernel, levels, users):
    """Against the recursion, one carry after the other."""
    rng, d = np.random.default_rng(4), 3
    numbers = rng.integers(0, 60, (d, users))
    numbers[:, 0] = 59
    coins = rng.integers(0, 2**levels, (d, users))
    packed = (numbers + coins + ((2**levels - 1 - coins) << 16)).astype(np.uint32)
    counts, rest = [], numbers
    for level in range(levels):
        half = (rest + (coins >> level & 1)) // 2
        counts.append(rest - 2 * half + 1)
        rest = half
    expected = np.stack([*counts, rest], axis=-1)  # (d, users, levels + 1)
    top = int(rest.max())
    with using(kernel):
        assert (digit_sums(packed, levels) == expected.sum(axis=1)).all()
        for dtype in (np.uint8, np.uint16):
            seen = digit_counts(packed, levels, dtype)
            assert seen.dtype == dtype
            assert (seen.reshape(users, d, -1) == expected.swapaxes(0, 1)).all()
        if 2 * levels + top > 56:
            return
        reports = pack_reports(packed, levels, top)
    widths = np.array([2] * levels + [top])
    bits = np.concatenate(
        [
            np.arange(width) < each[:, None]
            for counted in expected
            for width, each in zip(widths, counted.T, strict=True)
        ],
        axis=1,
    )
    assert (reports == np.packbits(bits, axis=1)).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("users", [65_535, 65_536, 150_001])
def test_sums_of_many_do_not_overflow(kernel, users):
    packed = np.full((2, users), 2**32 - 1, np.uint32)
    with using(kernel):
        assert (digit_sums(packed, 3) == users * np.array([2, 2, 2, 2**13 - 1])).all()
        assert (digit_sums(packed, 0) == users * (2**16 - 1)).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_numbers_and_their_sums_have_their_exact_law(kernel, r):
    """Of single numbers, and of sums over users; false-alarm rate 1e-6 each.

    Power: a w that is a fiftieth of a step off is caught, and values of nine tenths in a sum.
    """
    rng, draws, users = np.random.default_rng(5), 60_000, 12
    steps = np.array([0.0, 0.3, 2.5, 4.81, 5.0])
    with using(kernel):
        packed = split_numbers(np.repeat(steps[:, None], draws, 1), None, 1.0, 0.0, 5.0, r, 0, rng)
        for w, numbers in zip(steps.tolist(), packed.astype(np.int64), strict=True):
            check_pmf(numbers - math.floor(w), carry.law(w, r, 0))
            with pytest.raises(LawError):
                check_pmf(numbers - math.floor(w), carry.law(w + 0.02, r, 0))
        ws, factors = rng.uniform(0.5, 2, (1, users)), rng.uniform(0.5, 1, users)
        sums = np.array(
            [
                digit_sums(split_numbers(ws, factors, 1.0, 2.0, 4.0, r, 0, rng), 0)[0, 0]
                for _ in range(5000)
            ]
        )
    for scale in (1.0, 0.9):
        law, start = np.ones(1), 0
        for w in (ws[0] * factors * scale + 2.0).tolist():
            law, start = np.convolve(law, carry.law(w, r, 0)), start + math.floor(w)
        if scale == 1.0:
            check_pmf(sums - start, law)
        else:
            with pytest.raises(LawError):
                check_pmf(sums - start, law)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("levels", [3, 8, 9])
def test_coins_are_fair_and_independent(kernel, levels):
    """All patterns of three coins, within and across coordinates; false-alarm rate 1e-6 each."""
    rng, users = np.random.default_rng(6), 40_000
    with using(kernel):
        packed = split_numbers(np.full((2, users), 0.5), None, 1.0, 0.0, 1.0, 2, levels, rng)
    coins = (2**levels - 1) - (packed >> 16).astype(np.int64)
    numbers = (packed & (ONE - 1)).astype(np.int64) - coins
    bits = [coins[0] & 1, coins[0] >> (levels - 1) & 1, coins[1] & 1]
    pattern = bits[0] + 2 * bits[1] + 4 * bits[2]
    check_pmf(pattern, np.full(8, 1 / 8))
    check_pmf(numbers[0] * 8 + pattern, np.kron(carry.law(0.5, 2, 0), np.full(8, 1 / 8)))
    shared = np.where(np.arange(users) % 20 == 0, bits[0], bits[2])
    with pytest.raises(LawError):  # power: one coin of twenty is that of the other coordinate
        check_pmf(bits[0] + 2 * bits[1] + 4 * shared, np.full(8, 1 / 8))


@pytest.mark.parametrize("most", [1.0, 3.0, 3.0 - 1e-13, 2.5, MAX_NUMBER - 4.0])
@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_numbers_never_leave_their_range(most, r):
    """All random bits ones, or zeros, at the ends and beyond them by rounding.

    The compiled kernel makes the same of the same bits.
    """
    ends = np.array([[0.0, -1e-12, most, most * (1 + 1e-12)]])
    for word in (2**64 - 1, 0):
        numbers = split_numbers(ends, None, 1.0, 0.0, most, r, 0, Replay(word=word))[0].tolist()
        assert max(numbers) <= math.ceil(most) + r - 1
        assert numbers[:2] == ([r - 1, r - 1] if word else [0, 0])
        assert numbers[2] >= (math.ceil(most) + r - 1 if word else math.floor(most))


@pytest.mark.parametrize("size", [1, 511, 5000, 20_000])
def test_what_is_read_next_changes_nothing(size):
    columns = np.random.default_rng(8).random((3, 1500))
    nothing = np.asfortranarray(np.full((size, 3), np.nan))
    with using("compiled"):
        packed = []
        for coming in (None, nothing):
            kernels.expect(coming)
            rng = np.random.default_rng(9)
            packed.append(split_numbers(columns, None, 5.0, 0.0, 5.0, 2, 2, rng).copy())
        kernels.expect(None)
    assert (packed[0] == packed[1]).all()
