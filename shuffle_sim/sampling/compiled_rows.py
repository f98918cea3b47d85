"""Rows brought into columns and into the ball, compiled; import only where numba is installed."""

import numba
import numpy as np

_jit = numba.njit(cache=True, boundscheck=False, nogil=True)
# quotients by zero are infinite, so that they need no branch
_jit_unchecked = numba.njit(cache=True, boundscheck=False, nogil=True, error_model="numpy")


@_jit
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


@_jit
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
