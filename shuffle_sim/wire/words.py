"""Words: messages that are sent one by one, as numbers below the size of their alphabet.

On the wire a word is a big-endian number of whole bytes. In memory it is an integer of 1, 2, 4 or 8
bytes, the least that hold it: they are moved and counted faster.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError, ParameterError

Words = NDArray[np.unsignedinteger[Any]]

_DENSE = 1 << 12
"""Cells that are counted one by one whatever the number of words; beyond, as many as words."""


@lru_cache(maxsize=256)  # asked for by each user of a randomizer that draws one by one
def carrier_bytes(width: int) -> int:
    """Bytes of the machine integer that holds a number of `width` bits."""
    return next(octets for octets in (1, 2, 4, 8) if width <= 8 * octets)


@lru_cache(maxsize=256)
def word_bytes(symbols: int) -> int:
    """Bytes of a word on the wire."""
    return max(1, ((symbols - 1).bit_length() + 7) // 8)


def words_of(values: ArrayLike, symbols: int) -> Words:
    """Integers (words,) as words.

    Raises:
        ParameterError: they are no integers from 0 to symbols - 1.
    """
    given = np.asarray(values)
    if not given.size:
        # numpy takes an empty list for floats.
        given = given.astype(np.uint8)
    # As Python integers: an alphabet of 2^64 words is beyond any integer of numpy.
    whole = given.dtype.kind in "iu" and given.ndim == 1
    if not (whole and int(given.min(initial=0)) >= 0 and int(given.max(initial=0)) < symbols):
        raise ParameterError("messages", given, f"integers, (messages,), from 0 to {symbols - 1}")
    return given.astype(f"u{carrier_bytes(8 * word_bytes(symbols))}", copy=False)


def pack_words(words: Words, symbols: int) -> NDArray[np.uint8]:
    """Words (words,) as they are sent, (words, bytes)."""
    octets, carrier = word_bytes(symbols), words.dtype.itemsize
    if carrier == 1:
        return np.array(words, np.uint8).reshape(-1, 1)
    rows = words.astype(f">u{carrier}").view(np.uint8).reshape(-1, carrier)
    return np.ascontiguousarray(rows[:, carrier - octets :])


def read_words(payload: Buffer, symbols: int, words: int) -> Words:
    """So many words from the wire.

    Raises:
        FrameError: `wrong-length`, or `symbol-out-of-range`.
    """
    octets = word_bytes(symbols)
    if len(payload) != words * octets:
        raise FrameError("wrong-length", f"{len(payload)} bytes for {words} words of {octets}")
    carrier = carrier_bytes(8 * octets)
    rows = np.frombuffer(payload, np.uint8).reshape(words, octets)
    if carrier != octets:
        padded = np.zeros((words, carrier), np.uint8)
        padded[:, carrier - octets :] = rows
        rows = padded
    found: Words = rows.view(f">u{carrier}").reshape(-1).astype(f"u{carrier}")
    # Where every number of so many bytes is a word none is out of range.
    if symbols != 256**octets and int(found.max(initial=0)) >= symbols:
        raise FrameError("symbol-out-of-range", f"symbols must be below {symbols}")
    return found


def counted(
    words: NDArray[Any], counts: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The distinct words, ascending, and how often each came, at least once.

    Args:
        words: (words,), in any order.
        counts: how often each of them came; None: once.
    """
    if counts is None:
        if words.size and int(words.max()) < max(_DENSE, words.size):
            found = np.bincount(words.astype(np.int64, copy=False))
            distinct = np.flatnonzero(found)
            return distinct.astype(np.uint64), found[distinct]
        distinct, often = np.unique(words, return_counts=True)
        return distinct.astype(np.uint64), often.astype(np.int64)
    # A tally of words names those that came.
    came = counts != 0
    words, counts = words[came].astype(np.uint64, copy=False), counts[came]
    if words.size > 1 and bool((words[1:] <= words[:-1]).any()):
        order = np.argsort(words, kind="stable")
        words, counts = words[order], counts[order]
        first = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
        words, counts = words[first], np.add.reduceat(counts, first)
    return words, counts.astype(np.int64, copy=False)
