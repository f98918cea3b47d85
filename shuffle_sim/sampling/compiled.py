"""The compiled inner loops; import only where numba is installed.

No fast-math: it changes results.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array

jit = numba.njit(cache=True, boundscheck=False, nogil=True)


def _prefetch(_, array, place):
    """Bring the line of array[place] to the second-level cache, without waiting for it."""

    def build(context, builder, signature, arguments):
        line = builder.gep(
            make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]]
        )
        kind, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [kind], ir.FunctionType(ir.VoidType(), [kind, *[number] * 3])
        )
        # Read, second level, data.
        builder.call(fetch, [builder.bitcast(line, kind), number(0), number(2), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), build


prefetch: Any = intrinsic(_prefetch)


def _put_word(_, array, place, word):
    """Store the eight bytes of a word from array[place] on, wherever that is."""

    def build(context, builder, signature, arguments):
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        spot = builder.gep(data, [arguments[1]])
        # align=1: without it LLVM may take an instruction that faults at odd addresses.
        builder.store(arguments[2], builder.bitcast(spot, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), build


put_word: Any = intrinsic(_put_word)


def _fill_rows(_, state, out):
    """The loop of `fill` on vectors of sixteen words, its state in registers."""

    def build(context, builder, signature, arguments):
        kind = ir.VectorType(ir.IntType(64), 16)
        kept, made = (
            make_array(type_)(context, builder, array)
            for type_, array in zip(signature.args, arguments, strict=True)
        )
        rows, room = (builder.bitcast(each.data, kind.as_pointer()) for each in (kept, made))
        places = [builder.gep(rows, [ir.IntType(32)(row)]) for row in range(4)]
        slots = [
            cgutils.alloca_once_value(builder, builder.load(place, align=8)) for place in places
        ]
        count = cgutils.unpack_tuple(builder, made.shape)[0]

        def each(value):
            return ir.Constant(kind, [value] * 16)

        with cgutils.for_range(builder, count) as loop:
            # SFC64 (Doty-Humphrey) as in numpy; by its counter no period is below 2^64.
            a, b, c, counter = (builder.load(slot) for slot in slots)
            word = builder.add(builder.add(a, b), counter)
            turned = builder.or_(builder.shl(c, each(24)), builder.lshr(c, each(40)))
            following = (
                builder.xor(b, builder.lshr(b, each(11))),
                builder.add(c, builder.shl(c, each(3))),
                builder.add(turned, word),
                builder.add(counter, each(1)),
            )
            for slot, value in zip(slots, following, strict=True):
                builder.store(value, slot)
            builder.store(word, builder.gep(room, [loop.index]), align=8)
        for place, slot in zip(places, slots, strict=True):
            builder.store(builder.load(slot), place, align=8)
        return context.get_dummy_value()

    return types.void(state, out), build


fill_rows: Any = intrinsic(_fill_rows)


@jit
def fill(state, out):
    """Words of 16 SFC64 generators side by side, in vector registers.

    state (4, 16), out (rounds, 16), both contiguous uint64.
    """
    fill_rows(state, out)


@jit
def margins_and_norms(columns, theta, margins, norms):
    """Inner products with theta and squared norms, in pieces that stay in the first-level cache.

    Four columns at a time: fewer passes over the piece, and memory is read in several streams at
    once.
    """
    d, users = columns.shape
    odd = d % 2
    # An odd first column, which also sets the sums, leaves fours and at most one pair.
    fours = odd + (d - odd) // 4 * 4
    for start in range(0, users, 256):
        stop = start + 256
        m, n = margins[start:stop], norms[start:stop]
        for i in range(m.size):
            value = columns[0, start + i] if odd else 0.0
            m[i] = theta[0] * value
            n[i] = value * value
        for j in range(odd, fours, 4):
            a, b, c, e = (
                columns[j, start:stop],
                columns[j + 1, start:stop],
                columns[j + 2, start:stop],
                columns[j + 3, start:stop],
            )
            p, q, r, t = theta[j], theta[j + 1], theta[j + 2], theta[j + 3]
            for i in range(m.size):
                m[i] += (p * a[i] + q * b[i]) + (r * c[i] + t * e[i])
                n[i] += (a[i] * a[i] + b[i] * b[i]) + (c[i] * c[i] + e[i] * e[i])
        for j in range(fours, d, 2):
            a, b, p, q = columns[j, start:stop], columns[j + 1, start:stop], theta[j], theta[j + 1]
            for i in range(m.size):
                m[i] += p * a[i] + q * b[i]
                n[i] += a[i] * a[i] + b[i] * b[i]


@jit
def column_sums(rows, some, sums, most):
    """See `kernels.column_sums`; of 2^16 rows at a time in 32 bits."""
    # 65,536 numbers below 65,536 stay below 2^32: 32 bits add twice as many at once as 64.
    for start in range(0, len(rows), 65536):
        some[:] = 0
        for i in range(start, min(start + 65536, len(rows))):
            row = rows[i]
            for j in range(row.size):
                some[j] = np.uint32(some[j] + np.uint32(row[j]))
                most[j] = max(most[j], row[j])
        for j in range(some.size):
            sums[j] += np.int64(some[j])


@jit
def rounded_sum(columns, multipliers, start, ahead, state, random, ties, sums):
    """See `kernels.rounded_sum`; a piece is gone through again only if one of its values is tied.

    ahead, flat: what will be read next is fetched piece by piece meanwhile. state and random,
    (rounds, 16): of `fill`, which draws the words when they are needed, so that they stay in the
    first-level cache; random holds whole pieces of 256 values.
    """
    d, users = columns.shape
    words = random.reshape(-1).view(np.uint16)
    used, seen, fetched = words.size, 0, 0
    for j in range(d):
        total = np.int64(0)
        for s in range(0, users, 256):
            for place in range(fetched, min(fetched + 256, ahead.size), 8):
                prefetch(ahead, place)
            fetched += 256
            if used == words.size:
                fill(state, random)
                used = 0
            values, factors, bits = (
                columns[j, s : s + 256],
                multipliers[s : s + 256],
                words[used : used + 256],
            )
            used += 256
            # 256 numbers below 2^15 fit 32 bits; tied is gathered without a branch.
            part, tied = np.int32(0), np.int32(0)
            for i in range(values.size):
                moved = np.int32(values[i] * factors[i] + start) + np.int32(bits[i])
                part += moved >> np.int32(16)
                tied |= np.int32((moved & np.int32(65535)) == np.int32(65535))
            total += part
            if tied:
                for i in range(values.size):
                    scaled = values[i] * factors[i] + start
                    whole = np.int32(scaled)
                    if (whole + bits[i]) & 65535 == 65535:
                        # How many uniforms there are: `kernels._random`.
                        if ties[seen % ties.size] < scaled - whole:
                            total += 1
                        seen += 1
        sums[j] = total


@jit
def rounded_values(columns, multipliers, start, state, random, ties, out):
    """See `kernels.rounded_values`; randomness as for `rounded_sum`."""
    d, users = columns.shape
    words = random.reshape(-1).view(np.uint16)
    used, seen = words.size, 0
    for j in range(d):
        for s in range(0, users, 256):
            if used == words.size:
                fill(state, random)
                used = 0
            values, factors, bits = (
                columns[j, s : s + 256],
                multipliers[s : s + 256],
                words[used : used + 256],
            )
            used += 256
            rounded, tied = out[j, s : s + 256], np.int32(0)
            for i in range(values.size):
                moved = np.int32(values[i] * factors[i] + start) + np.int32(bits[i])
                rounded[i] = np.uint16(moved >> np.int32(16))
                tied |= np.int32((moved & np.int32(65535)) == np.int32(65535))
            if tied:
                for i in range(values.size):
                    scaled = values[i] * factors[i] + start
                    whole = np.int32(scaled)
                    if (whole + bits[i]) & 65535 == 65535:
                        if ties[seen % ties.size] < scaled - whole:
                            rounded[i] += np.uint16(1)
                        seen += 1


@jit
def draw_buckets(state, words, bucket_of, ends):
    """A random bucket for every message.

    words (rounds, 16) are drawn here by `fill`; bucket_of: their bytes, one for each message.

    ends (256,): one past the last place of each bucket.
    """
    for k in range(0, words.shape[0], 64):
        fill(state, words[k : k + 64])
        # While they are in the first-level cache; so far `ends` are sizes, summed up below.
        for bucket in bucket_of[128 * k : 128 * (k + 64)]:
            ends[bucket] += 1
    for k in range(1, ends.size):
        ends[k] += ends[k - 1]


@jit
def into_buckets(row, bucket_of, buckets, places):
    """Move every message to the next place of its bucket."""
    for i in range(row.size):
        bucket = bucket_of[i]
        buckets[places[bucket]] = row[i]
        places[bucket] += 1


@jit
def permute_buckets(buckets, ends, state, random):
    """Permute every bucket where it lies.

    state and random (rounds, 16) are those of `fill`, which draws the words as they are used.
    """
    words, used, start = random.reshape(-1).view(np.uint32), 2 * random.size, 0
    for k in range(ends.size):
        # The last bucket has none after it: an empty piece is fetched.
        end, after = ends[k], ends[min(k + 1, ends.size - 1)]
        # Words go on from bucket to bucket: none is used twice, and none thrown away.
        used = permute_bucket(buckets[start:end], buckets[end:after], state, random, words, used)
        start = end


@jit
def permute_bucket(bucket, following, state, random, words, used):
    """Fisher and Yates with Lemire's bounded integers; returns how many words are used then.

    The words are those of `random`.

    The following bucket is fetched piece by piece meanwhile: where it will be read first, no
    processor foresees.
    """
    size, fetched = bucket.size, 0
    while size > 1:
        for place in range(fetched, min(fetched + 64, following.size), 64 // bucket.itemsize):
            prefetch(following, place)
        fetched += 64
        # 64 swaps, and the lines of 64 of the following messages: both buckets end about together.
        stop = max(1, size - 64)
        while size > stop:
            bound = np.uint64(size)
            low, product = np.uint64(0), np.uint64(0)
            while True:
                if used == words.size:
                    fill(state, random)
                    used = 0
                # Lemire (2019): the high half is uniform below
                # the bound, once few low halves are refused.
                product = np.uint64(words[used]) * bound
                used += 1
                low = product & np.uint64(0xFFFFFFFF)
                # Rarely the word is refused: below the bound the remainder is worth its division.
                if low >= bound or low >= (np.uint64(1 << 32) - bound) % bound:
                    break
            j = np.int64(product >> np.uint64(32))
            last = bucket[size - 1]
            bucket[size - 1] = bucket[j]
            bucket[j] = last
            size -= 1
    return used


@jit
def gather(rows, order, out):
    """Rows in this order; those to come are fetched meanwhile."""
    for i in range(order.size):
        coming, row, place = rows[order[min(i + 64, order.size - 1)]], rows[order[i]], out[i]
        prefetch(coming, 0)
        # A row may lie on two lines.
        prefetch(coming, coming.size - 1)
        for k in range(row.size):
            place[k] = row[k]
