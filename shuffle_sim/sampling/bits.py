"""Loops over packed bits, in numpy or compiled with numba: the same results of the same bits.

Only `add_half_binomial` draws, and its random bits differ by kernel.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.sampling.kernels import compiling, half_binomial, lanes

Octets = NDArray[np.uint8]
Ints = NDArray[np.int64]


def add_half_binomial(counts: NDArray[np.integer], b: int, rng: np.random.Generator) -> None:
    """Add independent draws of Bin(b, 1/2), the ones among b random bits, to counts in C order."""
    if not compiling():
        np.add(counts, half_binomial(b, counts.shape, rng), out=counts, casting="unsafe")
        return
    from shuffle_sim.sampling.compiled_bits import add_random_ones

    state, random = lanes(rng)
    for used in [64] * (b // 64) + [b % 64] * (b % 64 > 0):
        # The narrowest type with room: fewer random words, and more counts in a vector.
        width = next(bits for bits in (8, 16, 32, 64) if used <= bits)
        words = random.reshape(-1).view(f"u{width // 8}")
        add_random_ones(counts.reshape(-1), words.dtype.type(width - used), state, random, words)


def pack_ones(counts: NDArray[np.integer], per_label: int) -> Octets:
    """Reports of one-bit messages, packed, compiled: (users, bytes), the ones first.

    counts (labels, users): ones under each label.
    """
    from shuffle_sim.sampling.compiled_bits import pack_ones as compiled

    size = -(-len(counts) * per_label // 8)
    # Words of eight bytes are stored from any byte on, the last one beyond the end.
    out = np.empty(counts.shape[1] * size + 8, np.uint8)
    compiled(counts, per_label, out)
    return out[:-8].reshape(-1, size)


def field_sums(packed: Octets, edges: Ints) -> Ints:
    """Ones over all reports (reports, bytes) in each field of bits, compiled; between edges."""
    from shuffle_sim.sampling.compiled_bits import field_sums as compiled

    reports, row = packed.shape
    sums, pieces = np.zeros(len(edges) - 1, np.int64), _pieces(tuple(edges.tolist()))
    # Copied to where eight more bytes may be read.
    alone = min(reports, -(-8 // max(1, row)))  # whose last word may reach beyond the bytes
    last = np.zeros(alone * row + 8, np.uint8)
    last[:-8] = packed[reports - alone :].reshape(-1)
    for part, many in ((packed.reshape(-1), reports - alone), (last, alone)):
        compiled(part, many, row, *pieces, sums)
    return sums


@lru_cache(maxsize=16)
def _pieces(edges: tuple[int, ...]) -> tuple[Ints, NDArray[np.uint64], NDArray[np.uint64], Ints]:
    """Fields cut so that each lies in a word: its byte, bits before and after it, its field."""
    found = []
    for label, (start, stop) in enumerate(pairwise(edges)):
        place = start
        while place < stop:
            before = place % 8
            # A word is loaded from a whole byte: of its 64 bits `before` are of others.
            size = min(64 - before, stop - place)
            found.append((place // 8, before, 64 - before - size, label))
            place += size
    places, before_, after, labels = np.array(found, np.int64).reshape(-1, 4).T.copy()
    return places, before_.astype(np.uint64), after.astype(np.uint64), labels


def count_ones(packed: Octets) -> int:
    """The ones of some bytes, compiled."""
    from shuffle_sim.sampling.compiled_bits import count_ones as compiled

    return int(compiled(packed))
