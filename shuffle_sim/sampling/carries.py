"""The inner loops of spline rounding and fair carries, in numpy or compiled with numba.

A number is A = floor(s + U_1 + ... + U_r), s >= 0, rounded down to a multiple of 2^-68. With
place = floor(2^16 s), `number` and phi its high and low parts, 16 random bits decide nearly always.

Two uniforms: A - floor(s) is 0, 1 or 2 with probabilities (1-f)^2/2, the rest and f^2/2. One
16-bit word u is compared with floor((2^16-1-phi)^2 / 2^17) from below, and its complement with
floor(phi^2 / 2^17). Both thresholds are less than two below the true ones, so two words of each
side are left. There the word is the high part of a real uniform, compared in integers (`_tied`).

More: sixteen bits r_k of each, u_k its lower bits. The number is floor((place + sum r_k + c)/2^16),
c = floor(rest + sum u_k), rest what is below place. As c is at most r it matters r times in 65,536.
Only then it is drawn, in integers, with as many bits as it takes (`carry_out`). So the law is
exactly that of real uniforms (docs/theory/carry.md, "Facts on the rounding").

With a coin word C, uniform below 2^L, let T = A + C. The digits of fair carries are then
D_l = (bit l of T) - (bit l of C), and the last rest is floor(T / 2^L). For
floor((A + (C mod 2^l)) / 2^l) = floor(T / 2^l) - floor(C / 2^l). So the ones under a level are two
bits: bit l of T, and bit l of the complement of C. Both are kept, in bytes where T fits one. Both
kernels make the same of the same random bits.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.sampling.bits import add_half_binomial
from shuffle_sim.sampling.kernels import (
    Floats,
    Ints,
    ahead,
    compiling,
    fortran,
    multipliers,
    scratch,
)

Split = NDArray[np.uint8] | NDArray[np.uint16]
# T = A + C must fit 16 bits, so A and C have 15 each; up to 7 bits of a word wait for their byte,
# so 56 more fit.
MAX_NUMBER, MAX_LEVELS, MAX_WORD = (1 << 15) - 2, 15, 56
"""Largest number A, most levels, and most bits of a coordinate that are packed, that fit."""
_ONE = 1 << 16
_UNIT = 1 << 52  # of a fraction in integers: sums of six stay below 2^63

_LANES = {1: np.uint64(0x0101010101010101), 2: np.uint64(0x0001000100010001)}
"""Words with the lowest bit of every number in it, by the bytes of a number."""
_FEW = 64  # users whose numbers are added up one by one sooner than in words
_PIECE = 1 << 14  # values that numpy draws at a time: more would come in fresh pages


def split_numbers(
    columns: Floats,
    factors: Floats | None,
    scale: float,
    offset: float,
    most: float,
    r: int,
    b: int,
    levels: int,
    rng: np.random.Generator,
) -> Split:
    """Rounded numbers with their coins, (2, d, users): T, and C's complement below 2^L.

    Valid until the next call.

    Args:
        columns: values, (d, users).
        factors: one per user, or None for ones.
        scale: steps per unit.
        offset: added to every scaled value.
        most: all s = scale * factor * value + offset must lie in [0, most], but for rounding.
        r: uniforms.
        b: fair bits, added to the number; ceil(most) + r - 1 + b must not exceed MAX_NUMBER.
        levels: L, up to MAX_LEVELS.
        rng: the users' stream.
    """
    if not columns.flags.c_contiguous:
        columns = fortran(columns.T).T
    factors = multipliers(columns, factors, scale)
    start, end, mask = offset * _ONE, most * _ONE, (1 << levels) - 1
    # Of T, with the b bits that are added last: it decides the type.
    largest = math.ceil(most) + r - 1 + b + mask
    split: Split = scratch((2, *columns.shape), np.uint8 if largest < 256 else np.uint16)
    coin: type[np.unsignedinteger] = np.uint8 if levels <= 8 else np.uint16
    width = 1 if levels <= 8 else 2
    numbers, kept = split.reshape(2, -1)
    if compiling():
        from shuffle_sim.sampling.compiled_carries import split_numbers as compiled

        state = rng.bit_generator.random_raw(64).reshape(4, 16)
        # Rows of 16 words hold four pieces of 512 values: their words of 16 bits, then coins.
        rows = 32 * _words(r)
        random = np.empty((rows + 16 * width, 16), np.uint64)
        words = random[:rows].reshape(-1).view(np.uint16)
        coins = random[rows:].reshape(-1).view(coin)
        # Room for as many as there are values: pages that nothing is written to cost nothing.
        seen = scratch((3, columns.size), np.int64)
        count = compiled(
            columns,
            factors,
            start,
            end,
            r,
            split.dtype.type(mask),
            ahead(),
            state,
            random,
            words,
            coins,
            seen,
            split,
        )
        _settle(numbers, seen[:, :count], r, rng)
    else:
        values = np.multiply(columns, factors, out=scratch(columns.shape, np.float64)).reshape(-1)
        values += start
        for s in range(0, numbers.size, _PIECE):
            piece, raw = slice(s, s + _PIECE), rng.bit_generator.random_raw
            size = values[piece].size
            words = raw(_words(r) * -(-size // 4)).view(np.uint16).reshape(_words(r), -1)
            coins = raw(-(-size * width // 8)).view(coin)[:size]
            rounded = _rounded(values[piece], end, r, words[:, :size], rng)
            # T = A + C, and the complement of C.
            kept[piece] = coins & mask
            rounded += np.uint32(mask)
            rounded -= kept[piece]
            numbers[piece] = rounded
    if b:
        add_half_binomial(split[0], b, rng)
    return split


def _words(r: int) -> int:
    """Words of 16 bits that round a value."""
    return 1 if r == 2 else r


def _rounded(
    scaled: Floats, end: float, r: int, words: NDArray[np.uint16], rng: np.random.Generator
) -> NDArray[np.uint32]:
    """The numpy kernel of the numbers, on values in steps of 2^-16."""
    moved = scaled.astype(np.int32).view(np.uint32)
    if r == 2:
        # Unsigned: what lies below a threshold wraps round to far above 2, and is no tie.
        low, word = moved & (_ONE - 1), words[0].astype(np.uint32)
        below, above, other = (_ONE - 1 - low) ** 2 >> 17, low * low >> 17, _ONE - 1 - word
        tied = np.flatnonzero((word - below < 2) | (other - above < 2))
        held = (low << 16 | word)[tied]
        moved >>= 16
        moved += 1
        moved += other < above
        moved -= word < below
    else:
        for each in words:
            moved += each
        # c is at most r: only bits within r of the end can carry.
        held = moved & (_ONE - 1)
        tied = np.flatnonzero(held >= _ONE - r)
        held = held[tied]
        moved >>= 16
    if tied.size:
        # Clipped to the last step, beyond which `scaled` may be by a rounding error.
        rest = np.minimum(scaled[tied], end) - scaled[tied].astype(np.int32)
        units = (np.maximum(rest, 0.0) * _UNIT).astype(np.int64)
        _settle(moved, np.stack([tied, units, held.astype(np.int64)]), r, rng)
    return moved


def _settle(
    numbers: NDArray[np.unsignedinteger], ties: Ints, r: int, rng: np.random.Generator
) -> None:
    """Decide the tied numbers; those of one word one by one, in integers beyond 64 bits.

    ties (3, how many): their places, what is below 2^-16 in 2^-68, and the bits that tied.
    """
    if r != 2:
        places, units, held = ties
        # floor(rest + sum u_k) >= 2^16 - held, taken into the sum as a whole number of units.
        numbers[places] += _carry_out(units - ((_ONE - held) << 52), r, rng) >= 0
        return
    # Two words for each: of their 128 bits 121 are the rest of v.
    more = iter(rng.bit_generator.random_raw(2 * ties.shape[1]).tolist())
    for place, unit, bits in ties.T.tolist():
        numbers[place] = int(numbers[place]) + _tied(unit, bits, next(more), next(more))


def _tied(units: int, held: int, high: int, rest: int) -> int:
    """What a tied word of two uniforms moves the middle number by: -1, 0 or 1; exactly.

    f = (phi + units/2^52)/2^16. The number is the lowest where (word + v)/2^16 < (1-f)^2/2, v
    uniform, and the highest where (complement + v)/2^16 < f^2/2. All is counted in 2^-121 of the
    word's unit: there the squares are integers, so 121 bits of two words are all of v.
    """
    low, word = divmod(held, _ONE)
    part, down = (low << 52) + units, 0 <= word - ((_ONE - 1 - low) ** 2 >> 17) < 2
    # (near + v)/2^16 < (side/2^68)^2/2, times 2^137: 137 - 16 = 121.
    side, near = ((1 << 68) - part, word) if down else (part, _ONE - 1 - word)
    reached = (near << 121) + ((high << 64 | rest) >> 7) < side * side
    return -reached if down else int(reached)


def carry_out(fractions: Floats, r: int, rng: np.random.Generator) -> Ints:
    """floor(f + U_1 + ... + U_r) for every f in [0, 1), rounded down to a multiple of 2^-52.

    Exactly: of each uniform 52 bits are drawn. What is below adds less than r units to their sum.
    So only if its low bits are among the r - 1 largest that is drawn, too, in the same way.
    """
    return _carry_out((fractions * _UNIT).astype(np.int64), r, rng)


def _carry_out(units: Ints, r: int, rng: np.random.Generator) -> Ints:
    words = rng.bit_generator.random_raw(r * units.size) >> 12
    total: Ints = units + words.reshape(-1, r).sum(axis=1).view(np.int64)
    (unsure,) = (total & (_UNIT - 1) > _UNIT - r).nonzero()
    if unsure.size:
        total[unsure] += _carry_out(np.zeros(unsure.size, np.int64), r, rng)
    return total >> 52


def digit_sums(split: Split, levels: int, top: int) -> Ints:
    """Ones over all users: two bits of each under a level, and the rests; (d, levels + 1).

    Args:
        split: of `split_numbers`.
        levels: L.
        top: the largest rest.
    """
    bits, sums = levels + top.bit_length(), np.zeros((split.shape[1], levels + 1), np.int64)
    # Numbers that fill words of eight bytes; the others, and few, are taken by themselves.
    each = 8 // split.itemsize
    whole = split.shape[2] // each * each if split.shape[2] > _FEW or compiling() else 0
    unit = _LANES[split.itemsize]
    if compiling():
        from shuffle_sim.sampling.compiled_carries import digit_sums as compiled

        compiled(split, levels, bits, whole, unit, sums)
        return sums
    words, few = split[..., :whole].view(np.uint64), split[..., whole:]
    for bit in range(bits if whole else 0):
        ones = np.bitwise_count(words & (unit << np.uint64(bit))).sum(axis=2, dtype=np.int64)
        # Bit l of T from L on belongs to the rest, in which it counts 2^(l - L).
        sums[:, min(bit, levels)] += ones[0] << max(bit - levels, 0)
        if bit < levels:
            sums[:, bit] += ones[1]
    if few.size:
        for level in range(levels):
            sums[:, level] += (few >> level & 1).sum(axis=(0, 2), dtype=np.int64)
        sums[:, levels] += (few[0] >> levels).sum(axis=1, dtype=np.int64)
    return sums


def digit_counts(split: Split, levels: int, dtype: type[np.integer]) -> NDArray[np.integer]:
    """Ones of each user under each label, (users, d (levels + 1)), in a type that holds them.

    Compiled for bytes and up to seven levels, where the counts of a coordinate fit a word.
    """
    _, d, users = split.shape
    if compiling() and levels < 8 and dtype is np.uint8:
        from shuffle_sim.sampling.compiled_carries import digit_counts as compiled

        size = users * d * (levels + 1)
        room = np.empty(size + 8, np.uint8)
        compiled(split, levels, _digit_table(levels, 0, 8), room)
        return room[:size].reshape(users, -1)
    counts = np.empty((users, d, levels + 1), dtype)
    number, kept = split
    for level in range(levels):
        counts[:, :, level] = ((number >> level & 1) + (kept >> level & 1)).T
    counts[:, :, levels] = (number >> levels).T
    return counts.reshape(users, -1)


def pack_reports(split: Split, levels: int, top: int) -> NDArray[np.uint8]:
    """Reports of one-bit messages, packed: (users, bytes); 2 levels + top at most MAX_WORD.

    Label by label, the ones first: two messages under each level, `top` for the rest.
    """
    _, d, users = split.shape
    bits, rests = 2 * levels + top, _rest_table(top)
    digits = _digit_table(levels, 2 * (levels - 1), -2)  # level 0 first, with room for a pair
    if compiling():
        from shuffle_sim.sampling.compiled_carries import pack_reports as compiled

        out = np.empty((users, -(-d * bits // 8)), np.uint8)
        compiled(split, levels, digits, rests, bits, out)
        return out
    number, kept = split
    mask = (1 << levels) - 1
    # Of two bits the first one is their or, and the second their and: the ones come first.
    pairs = (digits[(number | kept) & mask] << 1) | digits[number & kept & mask]
    words = (pairs << top) | rests[number >> levels]
    out = np.empty((-(-d * bits // 8), users), np.uint8)
    word, held, place = np.zeros(users, np.uint64), 0, 0
    for each in words:
        word = (word << bits) | each
        held += bits
        while held >= 8:
            held -= 8
            out[place] = word >> held
            place += 1
    if held:
        out[place] = word << (8 - held)
    return np.ascontiguousarray(out.T)


@lru_cache(maxsize=16)
def _digit_table(levels: int, first: int, step: int) -> NDArray[np.uint64]:
    """The bits of every number below 2^levels, spread: bit l comes to place first + step l."""
    numbers, table = np.arange(1 << levels, dtype=np.uint64), np.zeros(1 << levels, np.uint64)
    for level in range(levels):
        table |= (numbers >> level & 1) << (first + step * level)
    return table


@lru_cache(maxsize=16)
def _rest_table(top: int) -> NDArray[np.uint64]:
    """So many ones, then zeros: `top` bits."""
    return np.array([(1 << top) - (1 << (top - rest)) for rest in range(top + 1)], np.uint64)
