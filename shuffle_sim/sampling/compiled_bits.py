"""The compiled loops over packed bits; import only where numba is installed.

Bits are big-endian: words are loaded and stored with their bytes turned.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array

from shuffle_sim.sampling.compiled import fill, jit

_FULL = np.uint64(2**64 - 1)


def _ones(_, word):
    """How many bits of an unsigned word are one."""

    def build(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return word(word), build


def _load(_, array, place):
    """The eight bytes from array[place] on, wherever that is, the first one highest."""

    def build(context, builder, signature, arguments):
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        # Any byte may be the first: hence align 1, below.
        spot = builder.gep(data, [arguments[1]])
        word = builder.load(builder.bitcast(spot, ir.IntType(64).as_pointer()))
        word.align = 1
        return builder.bswap(word)

    return types.uint64(array, types.intp), build


def _store(_, array, place, word):
    """Store a word in the eight bytes from array[place] on, the highest one first."""

    def build(context, builder, signature, arguments):
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        spot = builder.gep(data, [arguments[1]])
        turned = builder.bswap(arguments[2])
        builder.store(turned, builder.bitcast(spot, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), build


ones: Any = intrinsic(_ones)
load: Any = intrinsic(_load)
store: Any = intrinsic(_store)


@jit
def add_random_ones(counts, spare, state, random, words):
    """Add the ones among some random bits to each count.

    words: a view of random, (rounds, 16), which `fill` draws; a word for each count, of which
    `spare` bits are not used. It holds whole pieces of 512.
    """
    used = words.size
    for s in range(0, counts.size, 512):
        # Drawn as they are used: they stay in the first-level cache.
        if used == words.size:
            fill(state, random)
            used = 0
        part, bits = counts[s : s + 512], words[used : used + 512]
        used += 512
        for i in range(part.size):
            part[i] += ones(bits[i] >> spare)


@jit
def pack_ones(counts, per_label, out):
    """Reports of `per_label` bits under each label, the ones first.

    counts (labels, users); out, flat: bytes, eight more than the reports have.
    """
    labels, users = counts.shape
    row = (labels * per_label + 7) // 8
    for i in range(users):
        word, held, place = np.uint64(0), np.uint64(0), i * row
        for j in range(labels):
            left, rest = np.uint64(counts[j, i]), np.uint64(per_label)
            while rest:
                size = min(rest, np.uint64(64))
                some = min(left, size)
                # A shift by all 64 bits is undefined; so is it below, where nothing is left.
                run = _FULL << (np.uint64(64) - some) if some else np.uint64(0)
                word |= run >> held
                held += size
                if held >= np.uint64(64):
                    store(out, place, word)
                    place += 8
                    held -= np.uint64(64)
                    word = run << (size - held) if held else np.uint64(0)
                left -= some
                rest -= size
        if held:
            # What of it lies beyond the report the next report writes over.
            store(out, place, word)


@jit
def field_sums(packed, reports, row, places, before, after, labels, sums):
    """Add the ones of all reports under each label, piece by piece.

    packed, flat: bytes, eight more than these reports have. A piece k of a report lies in the word
    at byte places[k], between `before` and `after` bits that are not its own.
    """
    # Some reports at a time: their lines are read again for the next piece of them.
    for first in range(0, reports, 64):
        last = min(reports, first + 64)
        for k in range(places.size):
            total, left, right = np.uint64(0), before[k], before[k] + after[k]
            place = places[k] + first * row
            for _ in range(first, last):
                # The shifts drop what is before and after; neither is 64, as no piece is empty.
                total += ones((load(packed, place) << left) >> right)
                place += row
            sums[labels[k]] += np.int64(total)


@jit
def count_ones(packed):
    """The ones of some bytes."""
    total, words = np.uint64(0), packed.size // 8
    for k in range(words):
        total += ones(load(packed, 8 * k))
    for place in range(8 * words, packed.size):
        total += np.uint64(ones(packed[place]))
    return np.int64(total)


@jit
def draw_bits(numerator, precision, state, random, out):
    """Words of independent bits that are one with probability numerator / 2^precision.

    numerator: from 1 to 2^precision - 1. out (rounds, 16), drawn as many rounds at a time as
    random holds.
    """
    lowest = 0
    # From the least digit: zeros below the last one would only be and-ed with nothing.
    while not numerator >> lowest & 1:
        lowest += 1
    step = random.shape[0]
    for s in range(0, out.shape[0], step):
        tile = out[s : s + step]
        # The digit `lowest` is a one: (nothing) or (a random bit).
        fill(state, tile)
        flat = tile.reshape(-1)
        words = random[: tile.shape[0]].reshape(-1)
        for digit in range(lowest + 1, precision):  # u < t / 2^r, digit by digit
            fill(state, random[: tile.shape[0]])
            if numerator >> digit & 1:
                for i in range(flat.size):
                    flat[i] |= words[i]
            else:
                for i in range(flat.size):
                    flat[i] &= words[i]


@jit
def flip_bits(bits, size, wrong, missing, state, random):
    """Turn `missing` uniformly chosen ones of the bits that are `wrong`, one after the other.

    Places below size, which is below 2^32, by Lemire's bounded integers.
    """
    words, bound = random.reshape(-1).view(np.uint32), np.uint64(size)
    used, refused = words.size, (np.uint64(1 << 32) - bound) % bound
    while missing:
        if used == words.size:
            fill(state, random)
            used = 0
        product = np.uint64(words[used]) * bound
        used += 1
        if product & np.uint64(0xFFFFFFFF) >= refused:
            place = product >> np.uint64(32)
            at, mask = np.int64(place >> np.uint64(3)), np.uint8(128 >> (place & np.uint64(7)))
            # Others are drawn again, so each wrong bit is equally likely.
            if ((bits[at] & mask) != 0) == wrong:
                bits[at] ^= mask
                missing -= 1
