"""The compiled loops of spline rounding and fair carries; import only where numba is installed.

Integers are cast after each step: numba would widen them to 64 bits, and with them the vectors.
"""

import numpy as np

from shuffle_sim.sampling.compiled import fill, jit, prefetch, put_word
from shuffle_sim.sampling.compiled_bits import ones


@jit
def _two(places, words, numbers):
    """floor(s + U_1 + U_2) by one word each; how far the nearest is from a tie (below 2: tied)."""
    # Little-endian: the lower half of a place comes first.
    near, halves = np.uint16(65535), places.view(np.uint16)
    for i in range(numbers.size):
        low, word = halves[2 * i], words[i]
        high, other = np.uint16(~low), np.uint16(~word)
        below = np.uint16(np.uint32(np.uint32(high) * np.uint32(high)) >> np.uint32(17))
        above = np.uint16(np.uint32(np.uint32(low) * np.uint32(low)) >> np.uint32(17))
        # Unsigned: on the other side of a threshold the distance wraps round to a large one.
        near = min(near, np.uint16(word - below), np.uint16(other - above))
        whole = np.uint16(halves[2 * i + 1] + np.uint16(1))
        numbers[i] = np.uint16(
            np.uint16(whole + np.uint16(other < above)) - np.uint16(word < below)
        )
    return near


@jit
def _several(places, words, r, numbers):
    """floor(s + U_1 + ... + U_r) by r words each; how far the nearest is (below r: tied)."""
    near, size = np.uint16(65535), numbers.size
    for k in range(r):
        bits = words[512 * k : 512 * k + size]
        for i in range(size):
            places[i] = np.int32(places[i] + np.int32(bits[i]))
    for i in range(size):
        # 65,535 less the low bits: below r where a carry of c <= r can matter.
        near = min(near, np.uint16(~np.uint16(places[i])))
        numbers[i] = np.uint16(places[i] >> np.int32(16))
    return near


@jit
def _add_coins(numbers, flips, mask, totals, kept):
    """T = A + C, and the complement of C, in their own type: what is above it cancels."""
    kind = totals.dtype.type
    for i in range(totals.size):
        # The complement of a uniform number is uniform: it is drawn itself, and C = mask - coin.
        coin = kind(kind(flips[i]) & mask)
        kept[i] = coin
        totals[i] = kind(kind(kind(numbers[i]) + mask) - coin)


@jit
def _note_ties(values, factors, start, most, r, words, moved, base, seen, count):
    """Note a piece's tied values; returns how many are noted then."""
    for i in range(values.size):
        scaled = values[i] * factors[i] + start
        place = np.int64(np.int32(scaled))
        # Clipped to the last step, beyond which `scaled` may be by a rounding error.
        units = np.int64(max(min(scaled, most) - place, 0.0) * 2.0**52)
        if r == 2:
            low, word = place & 65535, np.int64(words[i])
            below, above = (65535 - low) ** 2 >> 17, low**2 >> 17
            tied = 0 <= word - below < 2 or 0 <= 65535 - word - above < 2
            held = (low << 16) | word
        else:
            held = np.int64(moved[i] & np.int32(65535))
            tied = held >= 65536 - r
        if tied:
            seen[0, count] = base + i
            seen[1, count] = units
            seen[2, count] = held
            count += 1
    return count


@jit
def split_numbers(
    columns, multipliers, start, most, r, mask, ahead, state, random, words, coins, seen, out
):
    """See `carries.split_numbers`; a piece is gone through again only if one value is tied.

    ahead, state and random are those of `compiled.rounded_sum`. words and coins are views of
    random: the words and a coin for each value of some whole pieces of 512. seen: room for the
    ties of `carries._settle`, returned is how many.
    """
    d, users = columns.shape
    used, thrown, count, fetched = words.size, 0, 0, 0
    each = 512 if r == 2 else 512 * r
    places, numbers = np.empty(512, np.int32), np.empty(512, np.uint16)
    for j in range(d):
        for s in range(0, users, 512):
            for line in range(fetched, min(fetched + 512, ahead.size), 8):
                prefetch(ahead, line)
            fetched += 512
            if used == words.size:
                fill(state, random)
                used, thrown = 0, 0
            values, factors = columns[j, s : s + 512], multipliers[s : s + 512]
            size, taken = values.size, words[used : used + each]
            for i in range(size):
                places[i] = np.int32(values[i] * factors[i] + start)
            if r == 2:
                near = _two(places, taken, numbers[:size])
            else:
                near = _several(places, taken, r, numbers[:size])
            totals, kept = out[0, j, s : s + 512], out[1, j, s : s + 512]
            _add_coins(numbers, coins[thrown : thrown + 512], mask, totals, kept)
            # r = 2 has two tied words on each side; of more uniforms r places may carry.
            if near < r:
                base = j * users + s
                count = _note_ties(
                    values, factors, start, most, r, taken, places, base, seen, count
                )
            used += each
            thrown += 512
    return count


@jit
def digit_sums(split, levels, bits, whole, unit, sums):
    """See `carries.digit_sums`: how many numbers have each bit, of bits many.

    The first `whole` numbers of a row fill words; unit: a word with the lowest bit of each.
    """
    _, d, users = split.shape
    for k in range(2):
        for j in range(d):
            words = split[k, j, :whole].view(np.uint64)
            for s in range(0, words.size, 1024):
                part = words[s : s + 1024]
                for bit in range(bits if k == 0 else levels):
                    mask, total = unit << np.uint64(bit), np.uint64(0)
                    for i in range(part.size):
                        total += ones(part[i] & mask)
                    sums[j, min(bit, levels)] += np.int64(total) << max(bit - levels, 0)
            for i in range(whole, users):
                for bit in range(bits if k == 0 else levels):
                    one = np.int64(split[k, j, i]) >> bit & 1
                    sums[j, min(bit, levels)] += one << max(bit - levels, 0)


@jit
def digit_counts(split, levels, digits, out):
    """See `carries.digit_counts`; a coordinate's counts are bytes of one word.

    digits: a table of `carries`. out, flat: bytes, eight more than there are counts.
    """
    _, d, users = split.shape
    mask, top, place = (1 << levels) - 1, np.uint64(8 * levels), 0
    for i in range(users):
        for j in range(d):
            number = split[0, j, i]
            rest = np.uint64(number >> levels)
            word = digits[number & mask] + digits[split[1, j, i]] + (rest << top)
            # It may write beyond its levels + 1 bytes: what follows is written later.
            put_word(out, place, word)
            place += levels + 1


@jit
def pack_reports(split, levels, digits, rests, bits, out):
    """See `carries.pack_reports`; whole bytes leave a word as soon as they are in it.

    digits and rests: tables of `carries`; bits: of a coordinate, up to 56.
    """
    _, d, users = split.shape
    top, mask = np.uint64(bits - 2 * levels), (1 << levels) - 1
    for i in range(users):
        word, held, place = np.uint64(0), 0, 0
        for j in range(d):
            number, kept = split[0, j, i], split[1, j, i]
            both, either = number & kept, (number | kept) & mask
            pairs = (digits[either] << np.uint64(1)) | digits[both & mask]
            rest = rests[number >> levels]
            word = (word << np.uint64(bits)) | (pairs << top) | rest
            held += bits
            # Bits above the held ones have left already: the mask below drops them.
            while held >= 8:
                held -= 8
                out[i, place] = np.uint8((word >> np.uint64(held)) & np.uint64(255))
                place += 1
        if held:
            out[i, place] = np.uint8((word << np.uint64(8 - held)) & np.uint64(255))
