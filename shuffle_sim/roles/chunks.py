"""A chunk of messages as it is sent: its size in front, then the messages under each label.

The shuffler's shards send chunks to each other, and a view is released in chunks.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.reports import read_counts, read_sums
from shuffle_sim.wire.messages import Alphabet, Messages, Tally
from shuffle_sim.wire.words import read_words, word_bytes

VIEW_CHUNK_BYTES = 1 << 21
"""Largest chunk of a view: whoever holds one needs little memory."""
SIZE = 8
"""Bytes of a number of messages in front of a chunk."""
_SEVERAL = 1 << 63  # plus the number of labels: a number for each of them follows
MOST_MESSAGES = 1 << 62
"""Of a pool: their numbers never wrap."""
Size = int | tuple[int, ...]
"""Messages of a chunk: as many in each column of each label; or else, of each label."""


def under_each(size: Size, randomizer: Randomizer) -> NDArray[np.int64]:
    """How many messages under each label, shape (labels,)."""
    if isinstance(size, int):
        return np.diff(randomizer.alphabet.edges) * size
    return np.array(size, np.int64)


def shortened(counts: NDArray[np.int64], randomizer: Randomizer) -> Size:
    """The size of a chunk with so many messages under each label."""
    each, rest = np.divmod(counts, np.diff(randomizer.alphabet.edges))
    alike = not rest.any() and bool((each == each[0]).all())
    return int(each[0]) if alike else tuple(counts.tolist())


def size_bytes(size: Size) -> int:
    """Bytes of the size in front of a chunk."""
    return SIZE if isinstance(size, int) else SIZE * (1 + len(size))


def front(size: Size, randomizer: Randomizer, whole: int = 0) -> bytes:
    """The size in front of a chunk; of words also how many there are in the whole view."""
    numbers = (size,) if isinstance(size, int) else (_SEVERAL | len(size), *size)
    told = () if randomizer.view == "sums" else (whole,)
    return b"".join(each.to_bytes(SIZE, "big") for each in (*numbers, *told))


def view_chunks(size: int, largest: int) -> Counter[Size]:
    """The sizes of the chunks into which so many messages under each label are cut.

    The largest come first.
    """
    whole, rest = divmod(size, largest)
    found: Counter[Size] = Counter({largest: whole})
    # Plus leaves out the sizes of which there are none.
    return +found + Counter([rest] * (rest > 0))


def largest_chunk(randomizer: Randomizer) -> int:
    """Messages of a chunk in each column, at most."""
    alphabet = randomizer.alphabet
    if randomizer.view != "sums":
        return VIEW_CHUNK_BYTES // word_bytes(alphabet.symbols)
    # A multiple of 8: chunks of bits end at whole bytes.
    return max(8, 8 * VIEW_CHUNK_BYTES // (alphabet.width * alphabet.symbol_bits) // 8 * 8)


def view_chunk_bytes(randomizer: Randomizer, size: Size) -> int:
    """Bytes of a chunk of so many messages under each label, by formula."""
    if randomizer.view != "sums":
        words = int(under_each(size, randomizer).sum())
        return 2 * SIZE + words * word_bytes(randomizer.alphabet.symbols)
    counted: Counter[int] = Counter(under_each(size, randomizer).tolist())
    bits = randomizer.alphabet.symbol_bits
    rows = (labels * ((messages * bits + 7) // 8) for messages, labels in counted.items())
    return size_bytes(size) + sum(rows)


def read_view_chunk(payload: bytes, randomizer: Randomizer) -> tuple[Size, Tally]:
    """Of a chunk how many messages it has under each label, and their tally, of no report yet.

    Raises:
        FrameError: `wrong-length`, `nonzero-padding` or `symbol-out-of-range` if it does not encode
            so many messages.
    """
    size, _, rest = parted(payload, randomizer)
    alphabet = randomizer.alphabet
    if randomizer.view != "sums":
        words = read_words(rest, alphabet.symbols, int(room(size, randomizer).sum()))
        return size, tally_of(words, randomizer)
    # A label of a chunk is as a report of one label: all are read in one step.
    if isinstance(size, int) and not alphabet.columns:  # all labels at once
        one = Alphabet(1, alphabet.symbols)
        sums = Messages.from_bytes(one, size, rest, alphabet.labels).row_sums()
        return size, Tally(sums, 0)
    by_row = [row.row_sums() for row in by_label(payload, randomizer)]
    return size, Tally(np.concatenate(by_row), 0)


def tally_of(words: NDArray[Any], randomizer: Randomizer) -> Tally:
    """Of words as they were released, of no report yet: counted, or in their order."""
    if randomizer.view == "counts":
        return Tally.counted(words, reports=0)
    return Tally(np.ones(len(words), np.int64), 0, words.astype(np.uint64))


def read_tally(payload: bytes, randomizer: Randomizer) -> tuple[int, Tally]:
    """The same of a chunk whose messages were not simulated.

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if so many messages cannot have these
            sums.
    """
    size, _, rest = parted(payload, randomizer)
    if not isinstance(size, int):
        raise FrameError("wrong-length", "sums are of as many messages under each label")
    if randomizer.view == "sums":
        return size, Tally(read_sums(rest, randomizer, size // randomizer.per_label), 0)
    tally = read_counts(rest, randomizer)
    if tally.messages != size:
        raise FrameError("wrong-length", f"counts of {tally.messages} messages, said were {size}")
    return size, tally


def parted(payload: bytes, randomizer: Randomizer) -> tuple[Size, int | None, memoryview]:
    """Of a chunk its size, of words how many the whole view has, and the rest.

    Raises:
        FrameError: `wrong-length` if there is no size.
    """
    size, rest = _sized(payload)
    if randomizer.view == "sums":
        return size, None, rest
    if len(rest) < SIZE:
        raise FrameError("wrong-length", f"{len(payload)} bytes")
    return size, int.from_bytes(rest[:SIZE], "big"), rest[SIZE:]


def _sized(payload: bytes) -> tuple[Size, memoryview]:
    numbers = np.frombuffer(payload, ">u8", len(payload) // SIZE)  # no copy of it
    if not numbers.size:
        raise FrameError("wrong-length", f"{len(payload)} bytes")
    first = int(numbers[0])
    if first < _SEVERAL:
        return first, memoryview(payload)[SIZE:]
    labels = first - _SEVERAL
    # A number from 2^63 on would be negative as it is counted.
    if labels >= numbers.size or (numbers[1 : 1 + labels] >= _SEVERAL).any():
        raise FrameError("wrong-length", f"{len(payload)} bytes, sizes of {labels} labels")
    return tuple(numbers[1 : 1 + labels].tolist()), memoryview(payload)[SIZE * (1 + labels) :]


def room(size: Size, randomizer: Randomizer) -> NDArray[np.int64]:
    """Messages under each label of a chunk that came.

    Raises:
        FrameError: `wrong-length` if its size is of other labels, or no pool holds so many.
    """
    labels = randomizer.alphabet.labels
    if not isinstance(size, int) and len(size) != labels:
        raise FrameError("wrong-length", f"sizes of {len(size)} labels, not of {labels}")
    # Python's integers: hostile sizes do not wrap.
    total = size * randomizer.alphabet.width if isinstance(size, int) else sum(size)
    if total > MOST_MESSAGES:
        raise FrameError("wrong-length", f"{total:,} messages, at most {MOST_MESSAGES:,}")
    return under_each(size, randomizer)


def by_label(payload: bytes, randomizer: Randomizer) -> list[Messages]:
    """The messages of a chunk under each label, as one report."""
    size, _, rest = parted(payload, randomizer)
    each, one = room(size, randomizer), Alphabet(1, randomizer.alphabet.symbols)
    if len(payload) != view_chunk_bytes(randomizer, size):
        raise FrameError("wrong-length", f"{len(rest)} bytes for {size} messages under each label")
    found, start = [], 0
    for messages in each.tolist():
        stop = start + (Messages.row_bits(one, messages) + 7) // 8
        found.append(Messages.from_bytes(one, messages, rest[start:stop], 1))
        start = stop
    return found
