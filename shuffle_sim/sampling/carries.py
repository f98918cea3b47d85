"""The inner loops of spline rounding and fair carries, in numpy or compiled with numba.

A number is A = floor(s + U_1 + ... + U_r), s >= 0, rounded down to a multiple of 2^-68. Sixteen
random bits r_k of each uniform decide nearly always: with q = floor(2^16 s), phi the rest and u_k
the uniforms' lower bits it is floor((q + sum r_k + c) / 2^16), c = floor(phi + sum u_k). This c is
at most r. So it matters only if the low 16 bits of q + sum r_k are among the r largest, r times in
65,536. Only then is c drawn, in integers, with as many bits as it takes (`carry_out`). So the law
is exactly that of real uniforms (docs/theory/carry.md, "Facts on the rounding").

With a coin word C, uniform below 2^L, let T = A + C. The digits of fair carries are then
D_l = (bit l of T) - (bit l of C), and the last rest is floor(T / 2^L). For
floor((A + (C mod 2^l)) / 2^l) = floor(T / 2^l) - floor(C / 2^l). So the ones under a level are two
bits: bit l of T, and bit l of the complement of C. Here both travel in one integer of 32 bits: T in
the low half, the complement in the high half. Both kernels make the same of the same random bits.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.sampling.kernels import Floats, Ints, ahead, compiling, multipliers, scratch

Packed = NDArray[np.uint32]
MAX_NUMBER, MAX_LEVELS, MAX_WORD = (1 << 15) - 2, 15, 56
"""Largest number A, most levels, and most bits of a coordinate that are packed, that fit."""
_ONE = 1 << 16
_UNIT = 1 << 52  # of a fraction in integers: sums of six stay below 2^63

_PIECE = 1 << 14  # values that numpy draws at a time: more would come in fresh pages


def split_numbers(
    columns: Floats,
    factors: Floats | None,
    scale: float,
    offset: float,
    most: float,
    r: int,
    levels: int,
    rng: np.random.Generator,
) -> Packed:
    """Rounded numbers with their coins, uint32 (d, users): valid until the next call.

    Args:
        columns: values, (d, users).
        factors: one per user, or None for ones.
        scale: steps per unit.
        offset: added to every scaled value.
        most: all s = scale * factor * value + offset must lie in [0, most], but for rounding.
        r: uniforms; ceil(most) + r - 1 must not exceed MAX_NUMBER.
        levels: L, up to MAX_LEVELS.
        rng: the users' stream.
    """
    columns, factors = np.ascontiguousarray(columns), multipliers(columns, factors, scale)
    start, end, mask = offset * _ONE, most * _ONE, (1 << levels) - 1
    packed: Packed = scratch(columns.shape, np.uint32)
    coin: type[np.unsignedinteger] = np.uint8 if levels <= 8 else np.uint16
    numbers = packed.reshape(-1)
    if compiling():
        from shuffle_sim.sampling.compiled_carries import split_numbers as compiled

        state = rng.bit_generator.random_raw(64).reshape(4, 16)
        # Rows of 16 words hold four pieces of 512 values: r times 16 bits of each, then its coins.
        random = np.empty((32 * r + 16 * np.dtype(coin).itemsize, 16), np.uint64)
        words = random[: 32 * r].reshape(-1).view(np.uint16)
        coins = random[32 * r :].reshape(-1).view(coin)
        seen = scratch((2, columns.size), np.int64)
        count = compiled(
            columns,
            factors,
            start,
            end,
            r,
            np.int32(mask),
            ahead(),
            state,
            random,
            words,
            coins,
            seen,
            packed,
        )
        places, units = seen[:, :count]
        numbers[places] += _carry_out(units, r, rng) >= 0
        return packed
    values = np.multiply(columns, factors, out=scratch(columns.shape, np.float64)).reshape(-1)
    values += start
    for s in range(0, numbers.size, _PIECE):
        _split_piece(values[s : s + _PIECE], end, r, mask, coin, rng, numbers[s : s + _PIECE])
    return packed


def _split_piece(
    scaled: Floats,
    end: float,
    r: int,
    mask: int,
    coin: type[np.unsignedinteger],
    rng: np.random.Generator,
    packed: Packed,
) -> None:
    """The numpy kernel, on values in steps of 2^-16."""
    size, raw = scaled.size, rng.bit_generator.random_raw
    np.copyto(packed.view(np.int32), scaled, casting="unsafe")
    for k in range(0, r, 2):  # words of 32 bits serve two uniforms
        words = raw(-(-size // 2)).view(np.uint32)[:size]
        packed += words & (_ONE - 1)
        if k + 1 < r:
            packed += words >> 16
    low = packed & (_ONE - 1)
    tied = np.flatnonzero(low >= _ONE - r)
    packed >>= 16
    coins = raw(-(-size * np.dtype(coin).itemsize // 8)).view(coin)[:size].astype(np.uint32)
    coins &= mask
    # T = A + C, and the complement of C in the high half.
    coins *= _ONE - 1
    packed -= coins
    packed += np.uint32(mask << 16)
    rest = np.minimum(scaled[tied], end) - scaled[tied].astype(np.int32)
    up = carry_out(np.maximum(rest, 0.0), r, rng)
    packed[tied] += up >= _ONE - low[tied].astype(np.int64)


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


def digit_sums(packed: Packed, levels: int) -> Ints:
    """Ones over all users: two bits of each under a level, and the rests; (d, levels + 1)."""
    sums = np.zeros((len(packed), levels + 1), np.int64)
    if compiling():
        from shuffle_sim.sampling.compiled_carries import digit_sums as compiled

        compiled(packed, levels, sums)
        return sums
    for start in range(0, packed.shape[1], _ONE):
        piece = packed[:, start : start + _ONE]
        even = piece.shape[1] // 2 * 2
        for words in (piece[:, :even].view(np.uint64), piece[:, even:].astype(np.uint64)):
            counted = scratch(words.shape, np.uint64)
            for level in range(levels):
                np.right_shift(words, np.uint64(level), out=counted)
                counted &= np.uint64(0x0001000100010001)  # four counts in the quarters of a word
                quarters = counted.sum(axis=1)[:, None] >> np.arange(0, 64, 16, dtype=np.uint64)
                sums[:, level] += (quarters & np.uint64(_ONE - 1)).sum(axis=1).astype(np.int64)
            # Two rests in the halves: their sums stay below 2^32.
            np.bitwise_and(words, np.uint64(0x0000FFFF0000FFFF), out=counted)
            counted >>= np.uint64(levels)
            counted &= np.uint64(0x0000FFFF0000FFFF)
            halves = counted.sum(axis=1)
            sums[:, levels] += ((halves & np.uint64(2**32 - 1)) + (halves >> np.uint64(32))).astype(
                np.int64
            )
    return sums


def digit_counts(packed: Packed, levels: int, dtype: type[np.integer]) -> NDArray[np.integer]:
    """Ones of each user under each label, (users, d (levels + 1)), in a type that holds them.

    Compiled for bytes and up to seven levels, where the counts of a coordinate fit a word.
    """
    d, users = packed.shape
    if compiling() and levels < 8 and dtype is np.uint8:
        from shuffle_sim.sampling.compiled_carries import digit_counts as compiled

        size = users * d * (levels + 1)
        room = np.empty(size + 8, np.uint8)
        compiled(packed, levels, _digit_table(levels, 0, 8), room)
        return room[:size].reshape(users, -1)
    counts = np.empty((users, d, levels + 1), dtype)
    number, kept = (
        (packed & np.uint32(_ONE - 1)).astype(np.uint16),
        (packed >> 16).astype(np.uint16),
    )
    for level in range(levels):
        counts[:, :, level] = ((number >> level & 1) + (kept >> level & 1)).T
    counts[:, :, levels] = (number >> levels).T
    return counts.reshape(users, -1)


def pack_reports(packed: Packed, levels: int, top: int) -> NDArray[np.uint8]:
    """Reports of one-bit messages, packed: (users, bytes); 2 levels + top at most MAX_WORD.

    Label by label, the ones first: two messages under each level, `top` for the rest.
    """
    d, users = packed.shape
    bits, rests = 2 * levels + top, _rest_table(top)
    digits = _digit_table(levels, 2 * (levels - 1), -2)  # level 0 first, with room for a pair
    if compiling():
        from shuffle_sim.sampling.compiled_carries import pack_reports as compiled

        out = np.empty((users, -(-d * bits // 8)), np.uint8)
        compiled(packed, levels, digits, rests, bits, out)
        return out
    number, kept = packed & np.uint32(_ONE - 1), packed >> 16
    mask = np.uint32((1 << levels) - 1)
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
