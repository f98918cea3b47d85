"""Loops over rows, compiled: into columns and the ball, turned, and summed by person.

Import only where numba is installed.
"""

import numba
import numpy as np

from shuffle_sim.sampling.compiled import jit

# quotients by zero are infinite, so that they need no branch
_jit_unchecked = numba.njit(cache=True, boundscheck=False, nogil=True, error_model="numpy")


@jit
def columns_of(rows, out, squares):
    """Rows (users, d) as columns (d, users), and their squared norms (users,), in one pass.

    Eight rows at a time: their values are added and stored as one vector.
    """
    users, d = rows.shape
    whole = users // 8 * 8
    for start in range(0, whole, 8):
        part = squares[start : start + 8]
        for k in range(8):
            part[k] = 0.0
        for j in range(d):
            for k in range(8):
                value = rows[start + k, j]
                out[j, start + k] = value
                part[k] += value * value
    for i in range(whole, users):
        squares[i] = 0.0
        for j in range(d):
            value = rows[i, j]
            out[j, i] = value
            squares[i] += value * value


@jit
def squared_norms(columns, squares):
    """Of rows, given as columns (d, users), in pieces that stay in the first-level cache."""
    d, users = columns.shape
    for start in range(0, users, 256):
        part = squares[start : start + 256]
        part[:] = 0.0
        for j in range(d):
            column = columns[j, start : start + 256]
            for i in range(part.size):
                part[i] += column[i] * column[i]


@_jit_unchecked
def shorten(squares, bound, factors):
    """See `kernels.shorten`; without branches, since half of the rows may be long."""
    # As in numpy: longer by less than rounding shows is inside.
    limit = bound * bound * (1 + 1e-12)
    long = np.int64(0)
    for i in range(squares.size):
        square = squares[i]
        shorter = bound / np.sqrt(square)
        long += np.int64(square > limit)
        factors[i] *= shorter if square > limit else 1.0
    return long


@jit
def person_sums(records, factors, sums):
    """Sums of multiples of records, each person's own, in one pass over the records.

    records (d, m, persons) and factors (m, persons), sums (d, persons) of zeros; persons lie next
    to each other, so the innermost loop is over them.
    """
    d, m, persons = records.shape
    for k in range(d):
        out = sums[k]
        for j in range(m):
            row, factor = records[k, j], factors[j]
            for i in range(persons):
                out[i] += factor[i] * row[i]


@jit
def turned(columns, factors, signs, out):
    """Columns (d, users) times a factor of each user and a sign of each coordinate, transformed.

    out (users, size), size a power of two of at least d, takes the rows. Eight users at a time:
    their rows lie a power of two apart, and share sets of the cache.
    """
    d, users = columns.shape
    for start in range(0, users, 8):
        stop = min(users, start + 8)
        for j in range(d):
            for i in range(start, stop):
                out[i, j] = columns[j, i] * factors[i] * signs[j]
        for i in range(start, stop):
            out[i, d:] = 0.0
            hadamard(out[i])


@jit
def hadamard(row):
    """The transform in place, over the root of its size, which is a power of two.

    The highest bit of an index is first. Two bits are done in a pass, until a block stays in the
    first-level cache.
    """
    size, stride = row.size, row.size // 2
    # Below it a block of 2 stride doubles has 32 KiB at most, and stays in the first-level cache.
    while stride >= 4096:
        half = stride // 2
        for start in range(0, size, 2 * stride):
            for i in range(start, start + half):
                a, b, c, d = row[i], row[i + half], row[i + stride], row[i + stride + half]
                ac, bd, a_c, b_d = a + c, b + d, a - c, b - d
                row[i], row[i + half] = ac + bd, ac - bd
                row[i + stride], row[i + stride + half] = a_c + b_d, a_c - b_d
        stride //= 4
    # Divided at the end, once for each value: exact for powers of four.
    root = np.sqrt(size)
    for block in range(0, size, max(1, 2 * stride)):
        k = stride
        while k:
            for start in range(block, block + 2 * stride, 2 * k):
                for i in range(start, start + k):
                    a, b = row[i], row[i + k]
                    row[i], row[i + k] = a + b, a - b
            k //= 2
        for i in range(block, min(size, block + 2 * stride)):
            row[i] /= root
