"""The kernels of sums with carries: against exact arithmetic, bit for bit, and their laws."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from shuffle_sim.auditing import LawError, check_pmf
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.sampling import carries, compiled, compiled_carries, kernels
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
    r = 1 if r == 2 else r
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


def exact_number(scaled: Fraction, words: list[int], more: Iterator[int]) -> int:
    """floor(s + sum of uniforms) by 16 bits of each, and by more of them where these leave a tie.

    s in steps of 2^-16. One word stands for two uniforms, by the law of their sum.
    """
    r = len(words)
    if r != 1:
        total = scaled + sum(words)
        if math.floor(total) % ONE >= ONE - r:
            total += Fraction(sum(next(more) >> 12 for _ in words), UNIT)
        return math.floor(total / ONE)
    whole, part = divmod(scaled, ONE)
    sides = [Fraction(words[0]), Fraction(ONE - 1 - words[0])]
    squares = [(ONE - part) ** 2, part**2]
    floors = [(ONE - 1 - math.floor(part)) ** 2 >> 17, math.floor(part) ** 2 >> 17]
    for k in range(2):
        if 0 <= sides[k] - floors[k] < 2:
            sides[k] += Fraction((next(more) << 64 | next(more)) >> 7, 1 << 121)
    below, above = (side < square / 2**17 for side, square in zip(sides, squares, strict=True))
    return int(whole) + 1 - below + above


@pytest.mark.parametrize(("r", "levels"), [(2, 0), (2, 5), (3, 8), (4, 9), (5, MAX_LEVELS)])
def test_both_kernels_are_the_formula_in_exact_arithmetic(r, levels):
    """Every other value is tied."""
    d, users, most = 3, 700, 30.0
    state, bits, coins = drawn(d, users, r, levels)
    rng = np.random.default_rng(3)
    scaled = rng.integers(0, 29 * ONE, (d, users)) + rng.choice([0.0, 0.25, 0.75], (d, users))
    low = (ONE - 1 - rng.integers(0, r + 1, (d, users)) - bits.sum(axis=0, dtype=int)) % ONE
    if r == 2:
        word = bits[0].astype(int)
        side = np.sqrt(np.minimum(word, ONE - 1 - word) << 17).astype(int)
        low = np.clip(np.where(word < ONE // 2, ONE - 1 - side, side), 0, ONE - 1)
    tied = np.arange(users) % 2 == 0
    scaled[:, tied] = (scaled // ONE * ONE + low + scaled % 1)[:, tied]
    scaled[0, tied] = np.resize([-1e-9, 30 * ONE * (1 + 1e-12)], sum(tied))  # by rounding
    arguments, split = (scaled / ONE, None, 1.0, 0.0, most, r, 0, levels), {}
    for kernel in KERNELS:
        words = np.concatenate([as_raw(each) for each in bits])
        raw = [state] if kernel == "compiled" else [words, as_raw(coins)]
        with using(kernel):
            split[kernel] = split_numbers(*arguments, Replay(*raw)).copy()
    assert (split["numpy"] == split["compiled"]).all()
    stream, mask = np.random.SFC64(7).random_raw(10_000).tolist(), 2**levels - 1
    more = iter(stream)
    for place in np.ndindex(d, users):
        clamped = Fraction(min(max(float(scaled[place]), 0.0), most * ONE))
        number = exact_number(clamped, bits[(slice(None), *place)].tolist(), more)
        coin = int(coins[place]) & mask
        assert split["numpy"][(slice(None), *place)].tolist() == [number + mask - coin, coin]
    assert len(stream) - len(list(more)) > 400 * r


PARTS = [0, 1, 2, 255, 21_845, 32_767, 32_768, 46_341, 65_534, 65_535]
"""High bits of fractions: ends, the middle, and where two thresholds come near."""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rest", [0.0, 2.0**-30, 0.40625, 1 - 2.0**-30])
def test_one_word_has_the_law_of_two_uniforms_over_all_words(kernel, rest, monkeypatch):
    """Every one of 2^16 words, and the ties by their own exact probabilities: equal to the law.

    Power: without a tie's chance the law is missed, and for a fraction that is 2^-68 off.
    """
    words, most = np.arange(ONE, dtype=np.uint16), 9.0
    for low in PARTS:
        scaled, part = np.full(ONE, 5.0 * ONE + low + rest), (low + Fraction(rest)) / ONE
        ties = []
        if kernel == "compiled":
            split, seen = np.empty((2, 1, ONE), np.uint8), np.empty((3, ONE), np.int64)
            spare = np.zeros((4, 16), np.uint64), np.empty((64, 16), np.uint64)
            noted = compiled_carries.split_numbers(
                scaled[None], np.ones(ONE), 0.0, most * ONE, 2, np.uint8(0), np.empty(0),
                *spare, words, np.zeros(ONE, np.uint8), seen, split,
            )  # fmt: skip
            numbers, ties = split[0, 0].astype(int), seen[1:, :noted].T.tolist()
        else:
            monkeypatch.setattr(carries, "_settle", noting(ties))
            numbers = carries._rounded(scaled, most * ONE, 2, words[None], None).astype(int)
        counts = np.bincount(numbers - 5, minlength=3)
        law = [Fraction(int(count), ONE) for count in counts]
        assert 2 <= len(ties) <= 4
        untied = law[:]
        for units, held in ties:
            moved, chance = tie_law(units, held)
            law[1 + moved] += chance / ONE
            law[1] -= chance / ONE
        exact = [(1 - part) ** 2 / 2, Fraction(1, 2) + part * (1 - part), part**2 / 2]
        assert law == exact
        assert untied != exact
        off = part + Fraction(1, 2**68)
        assert law != [(1 - off) ** 2 / 2, Fraction(1, 2) + off * (1 - off), off**2 / 2]


def noting(ties: list):
    """In place of `_settle`: only note the ties."""
    return lambda _, tied, *__: ties.extend(tied[1:].T.tolist())


def tie_law(units: int, held: int) -> tuple[int, Fraction]:
    """Which way a tied word may move its number, and how likely: where `_tied` really turns."""
    low, word = divmod(held, ONE)
    part = Fraction(low * UNIT + units, UNIT)
    down = 0 <= word - ((ONE - 1 - low) ** 2 >> 17) < 2
    side = (ONE - part) ** 2 / 2**17 - word if down else part**2 / 2**17 - (ONE - 1 - word)
    chance = min(max(side, Fraction(0)), Fraction(1))
    edge = int(chance * 2**121)
    assert edge == chance * 2**121  # an integer: 121 bits are all it takes
    for v in (0, edge - 1, edge, 2**121 - 1):
        if 0 <= v < 2**121:
            high, rest = divmod(v << 7, 1 << 64)
            assert abs(carries._tied(units, held, high, rest)) == (v < edge)
    return -1 if down else 1, chance


@pytest.mark.parametrize("r", [2, 3, 4, 5])
@pytest.mark.full
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
    split = np.stack([numbers + coins, 2**levels - 1 - coins]).astype(np.uint16)
    if split.max() < 256:
        split = split.astype(np.uint8)
    counts, rest = [], numbers
    for level in range(levels):
        half = (rest + (coins >> level & 1)) // 2
        counts.append(rest - 2 * half + 1)
        rest = half
    expected = np.stack([*counts, rest], axis=-1)  # (d, users, levels + 1)
    top = int(rest.max())
    with using(kernel):
        assert (digit_sums(split, levels, top) == expected.sum(axis=1)).all()
        for dtype in (np.uint8, np.uint16):
            seen = digit_counts(split, levels, dtype)
            assert seen.dtype == dtype
            assert (seen.reshape(users, d, -1) == expected.swapaxes(0, 1)).all()
        if 2 * levels + top > 56:
            return
        reports = pack_reports(split, levels, top)
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
    for kind in (np.uint8, np.uint16):
        split = np.full((2, 2, users), np.iinfo(kind).max, kind)
        bits = 8 * split.itemsize
        with using(kernel):
            for levels in (3, 0):
                rest = 2 ** (bits - levels) - 1
                sums = digit_sums(split, levels, rest)
                assert (sums == users * np.array([2] * levels + [rest])).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("r", [2, 3, 4, 5])
@pytest.mark.full
def test_numbers_and_their_sums_have_their_exact_law(kernel, r):
    """Of single numbers, and of sums over users; false-alarm rate 1e-6 each.

    Power: a w that is a fiftieth of a step off is caught, and values of nine tenths in a sum.
    """
    rng, draws, users = np.random.default_rng(5), 100_000, 12
    steps = np.array([0.0, 0.3, 2.5, 4.81, 5.0])
    with using(kernel):
        packed = split_numbers(
            np.repeat(steps[:, None], draws, 1), None, 1.0, 0.0, 5.0, r, 0, 0, rng
        )
        for w, numbers in zip(steps.tolist(), packed[0].astype(np.int64), strict=True):
            check_pmf(numbers - math.floor(w), carry.law(w, r, 0))
            with pytest.raises(LawError):
                check_pmf(numbers - math.floor(w), carry.law(w + 0.02, r, 0))
        ws, factors = rng.uniform(0.5, 2, (1, users)), rng.uniform(0.5, 1, users)
        sums = np.array(
            [
                digit_sums(split_numbers(ws, factors, 1.0, 2.0, 4.0, r, 0, 0, rng), 0, 8)[0, 0]
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
        packed = split_numbers(np.full((2, users), 0.5), None, 1.0, 0.0, 1.0, 2, 0, levels, rng)
    coins = (2**levels - 1) - packed[1].astype(np.int64)
    numbers = packed[0].astype(np.int64) - coins
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
        numbers = split_numbers(ends, None, 1.0, 0.0, most, r, 0, 0, Replay(word=word))[
            0, 0
        ].tolist()
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
            packed.append(split_numbers(columns, None, 5.0, 0.0, 5.0, 2, 0, 2, rng).copy())
        kernels.expect(None)
    assert (packed[0] == packed[1]).all()
