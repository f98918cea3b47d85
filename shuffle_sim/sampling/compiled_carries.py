"""The compiled loops of spline rounding and fair carries; import only where numba is installed.

Integers are cast after each step: numba would widen them to 64 bits.
"""

import numba
import numpy as np

from shuffle_sim.sampling.compiled import fill, prefetch, put_word

_jit = numba.njit(cache=True, boundscheck=False, nogil=True)
_QUARTERS = np.uint64(0x0001000100010001)


@_jit
def _note_ties(values, factors, start, most, r, moved, base, seen, count):
    """Note a piece's tied values; returns how many are noted then."""
    for i in range(values.size):
        low = np.int64(moved[i] & np.int32(65535))
        if low >= 65536 - r:
            scaled = values[i] * factors[i] + start
            rest = max(min(scaled, most) - np.int32(scaled), 0.0)
            seen[0, count] = base + i
            seen[1, count] = np.int64(rest * 2.0**52) - ((65536 - low) << 52)
            count += 1
    return count


@_jit
def split_numbers(
    columns, multipliers, start, most, r, mask, ahead, state, random, words, coins, seen, out
):
    """See `carries.split_numbers`; a piece is gone through again only if one value is tied.

    ahead, state and random are those of `compiled.rounded_sum`. words and coins are views of
    random: r words and a coin for each value of some whole pieces of 512. seen: room for the
    ties, returned is how many. The first row has places. The second has the rests in steps of
    2^-52, less what they must reach with the uniforms' lower bits for the number to go up.
    """
    d, users = columns.shape
    used, thrown, count, fetched = words.size, 0, 0, 0
    moved, silent = np.empty(512, np.int32), np.zeros(512, np.uint16)
    for j in range(d):
        for s in range(0, users, 512):
            for line in range(fetched, min(fetched + 512, ahead.size), 8):
                prefetch(ahead, line)
            fetched += 512
            if used == words.size:
                fill(state, random)
                used, thrown = 0, 0
            values, factors = columns[j, s : s + 512], multipliers[s : s + 512]
            first, second = words[used : used + 512], silent
            if r > 1:
                second = words[used + 512 : used + 1024]
            size, tied = values.size, np.int32(0)
            for i in range(size):
                place = np.int32(values[i] * factors[i] + start)
                moved[i] = np.int32(place + np.int32(np.int32(first[i]) + np.int32(second[i])))
            for k in range(2, r):
                bits = words[used + 512 * k : used + 512 * (k + 1)]
                for i in range(size):
                    moved[i] = np.int32(moved[i] + np.int32(bits[i]))
            packed, flips = out[j, s : s + 512], coins[thrown : thrown + 512]
            for i in range(size):
                place, coin = moved[i], np.int32(np.int32(flips[i]) & mask)
                tied |= np.int32(np.int32(place & np.int32(65535)) >= np.int32(65536 - r))
                number = np.int32(np.int32(place >> np.int32(16)) + coin)
                packed[i] = np.uint32(number | np.int32(np.int32(coin ^ mask) << np.int32(16)))
            if tied:
                base = j * users + s
                count = _note_ties(values, factors, start, most, r, moved, base, seen, count)
            used += 512 * r
            thrown += 512
    return count


@_jit
def digit_sums(packed, levels, sums):
    """See `carries.digit_sums`; two values at a time, four counts in the quarters of a word."""
    d, users = packed.shape
    for j in range(d):
        for s in range(0, users, 4096):
            piece = packed[j, s : s + 4096]
            pairs = piece[: piece.size // 2 * 2].view(np.uint64)
            for level in range(levels):
                shift, total = np.uint64(level), np.uint64(0)
                for i in range(pairs.size):
                    total += (pairs[i] >> shift) & _QUARTERS
                if piece.size % 2:
                    total += (np.uint64(piece[-1]) >> shift) & _QUARTERS
                for _ in range(4):
                    sums[j, level] += np.int64(total & np.uint64(65535))
                    total >>= np.uint64(16)
            rest, last = np.uint32(0), np.uint32(levels)
            for i in range(piece.size):
                low = np.uint32(piece[i] & np.uint32(65535))
                rest = np.uint32(rest + np.uint32(low >> last))
            sums[j, levels] += np.int64(rest)


@_jit
def digit_counts(packed, levels, digits, out):
    """See `carries.digit_counts`; a coordinate's counts are bytes of one word.

    digits: a table of `carries`. out, flat: bytes, eight more than there are counts.
    """
    d, users = packed.shape
    mask, top, place = np.uint32((1 << levels) - 1), np.uint64(8 * levels), 0
    for i in range(users):
        for j in range(d):
            number, kept = packed[j, i] & np.uint32(65535), packed[j, i] >> np.uint32(16)
            rest = np.uint64(number >> np.uint32(levels))
            put_word(out, place, digits[number & mask] + digits[kept] + (rest << top))
            place += levels + 1


@_jit
def pack_reports(packed, levels, digits, rests, bits, out):
    """See `carries.pack_reports`; whole bytes leave a word as soon as they are in it.

    digits and rests: tables of `carries`; bits: of a coordinate, up to 56.
    """
    d, users = packed.shape
    top, mask = np.uint64(bits - 2 * levels), np.uint32((1 << levels) - 1)
    for i in range(users):
        word, held, place = np.uint64(0), 0, 0
        for j in range(d):
            number, kept = packed[j, i] & np.uint32(65535), packed[j, i] >> np.uint32(16)
            both, either = number & kept, (number | kept) & mask
            pairs = (digits[either] << np.uint64(1)) | digits[both & mask]
            rest = rests[number >> np.uint32(levels)]
            word = (word << np.uint64(bits)) | (pairs << top) | rest
            held += bits
            while held >= 8:
                held -= 8
                out[i, place] = np.uint8((word >> np.uint64(held)) & np.uint64(255))
                place += 1
        if held:
            out[i, place] = np.uint8((word << np.uint64(8 - held)) & np.uint64(255))
