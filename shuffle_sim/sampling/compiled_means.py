"""Sums over persons' records, compiled; import only where numba is installed."""

import numba

_jit = numba.njit(cache=True, boundscheck=False, nogil=True)


@_jit
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
