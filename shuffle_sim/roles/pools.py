"""What a shuffler holds of a round: a pool of messages, released in uniformly random order.

To cut is to permute all messages under each label uniformly and to cut the result into consecutive
chunks. Each label is cut by itself: with sizes drawn once for all labels, what comes from where
would be alike under all of them. One-bit messages are held as numbers of ones, so a pool of any
size takes no memory; other symbols are held, and really moved.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.reports import read_ones, read_sums
from shuffle_sim.sampling.shuffling import arrange, permuted, share_out
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

VIEW_CHUNK_BYTES = 1 << 21
"""Largest chunk of a view: whoever holds one needs little memory."""
SIZE = 8
"""Bytes of a number of messages in front of a chunk."""
_SEVERAL = 1 << 63  # plus the number of labels: a number for each of them follows
_MOST = 1 << 62  # messages of a pool: their numbers never wrap
Size = int | tuple[int, ...]
"""Messages of a chunk: as many in each column of each label; or else, of each label."""


def under_each(size: Size, randomizer: Randomizer) -> NDArray[np.int64]:
    """How many messages under each label, shape (labels,)."""
    if isinstance(size, int):
        return np.diff(randomizer.alphabet.edges) * size
    return np.array(size, np.int64)


def _shortened(counts: NDArray[np.int64], randomizer: Randomizer) -> Size:
    """The size of a chunk with so many messages under each label."""
    each, rest = np.divmod(counts, np.diff(randomizer.alphabet.edges))
    alike = not rest.any() and bool((each == each[0]).all())
    return int(each[0]) if alike else tuple(counts.tolist())


def size_bytes(size: Size) -> int:
    """Bytes of the size in front of a chunk."""
    return SIZE if isinstance(size, int) else SIZE * (1 + len(size))


def _front(size: Size) -> bytes:
    numbers = (size,) if isinstance(size, int) else (_SEVERAL | len(size), *size)
    return b"".join(each.to_bytes(SIZE, "big") for each in numbers)


class MessagePool(ABC):
    """Messages of one round."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with no messages."""
        self.randomizer = randomizer
        self.each = np.zeros(randomizer.alphabet.labels, np.int64)  # messages under each label
        self.chunk_sizes: list[Size] = []  # sizes of the chunks

    @property
    def size(self) -> int:
        """Messages under all labels."""
        return int(self.each.sum())

    def more(self, size: Size) -> NDArray[np.int64]:
        """Messages under each label of a chunk that came.

        Raises:
            FrameError: `wrong-length` if its size is of other labels, or no pool holds so many.
        """
        each = room(size, self.randomizer)
        if self.size + int(each.sum()) > _MOST:
            raise FrameError("wrong-length", f"more than {_MOST:,} messages")
        return each

    @abstractmethod
    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Put users' reports on the pool."""

    @abstractmethod
    def take(self, payload: bytes) -> None:
        """Put a chunk cut by another shard on the pool.

        Raises:
            FrameError: if it is none.
        """

    def cut(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Permute, and cut into chunks of these sizes, which add up to the pool's.

        Args:
            sizes: messages of each chunk under each label, (chunks, labels).
            rng: of the shuffler.
        """
        self.chunk_sizes = [_shortened(each, self.randomizer) for each in sizes]
        self._cut = sizes
        self._starts = np.concatenate([0 * self.each[None], np.cumsum(sizes, axis=0)])
        self._permute(sizes, rng)

    def chunk(self, index: int, rng: np.random.Generator) -> bytes:
        """One of the chunks, label by label, its size in front.

        The same generator gives the same bytes again.
        """
        return b"".join([_front(self.chunk_sizes[index]), *self._chunk(index, rng)])

    def routed(self, index: int, rng: np.random.Generator) -> bytes:
        """One of the chunks as it goes to another shard, which permutes it again."""
        return self.chunk(index, rng)

    def places(self, index: int) -> list[slice]:
        """Of the messages of a chunk under each label, after they were permuted."""
        return list(map(slice, self._starts[index], self._starts[index + 1]))

    def shares(self, shards: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many messages each shard gets when each message goes to a uniformly random one.

        The shape is (shards, labels): every label has sizes of its own.
        """
        found = rng.multinomial(self.each, np.full(shards, 1 / shards))
        return np.asarray(found.T, np.int64)

    def view(self) -> NDArray[np.int64]:
        """Sizes of the chunks in which the whole pool is released, (chunks, labels)."""
        return self._in_chunks(_largest(self.randomizer))

    def _in_chunks(self, largest: int) -> NDArray[np.int64]:
        """Chunks of at most so many messages in each column."""
        room = largest * np.diff(self.randomizer.alphabet.edges)
        many = int((-(-self.each // room)).max())
        sizes: NDArray[np.int64] = np.clip(self.each - np.arange(many)[:, None] * room, 0, room)
        return sizes

    @abstractmethod
    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Permute and cut."""

    @abstractmethod
    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        """The messages of a chunk, in pieces."""


class BitPool(MessagePool):
    """One-bit messages: how many ones there are under each label is all there is to know."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with no messages."""
        super().__init__(randomizer)
        self._ones = np.zeros(randomizer.alphabet.labels, np.int64)

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Count the ones."""
        assert isinstance(reports, Messages)
        self._ones += reports.sums()
        self.each += under_each(reports.reports * reports.per_label, self.randomizer)

    def take(self, payload: bytes) -> None:
        """Add the ones."""
        size, rest = parted(payload)
        each = self.more(size)
        self._ones += read_ones(rest, each)
        self.each += each

    def routed(self, index: int, rng: np.random.Generator) -> bytes:
        """How many ones there are under each label: their order is drawn where they are viewed."""
        return _front(self.chunk_sizes[index]) + self._chunks[:, index].astype("<i8").tobytes()

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        self._chunks = np.array(
            [
                share_out(int(ones), each, rng)
                for ones, each in zip(self._ones, sizes.T, strict=True)
            ]
        )

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        return [
            arrange(int(ones), int(size), rng).data
            for ones, size in zip(self._chunks[:, index], self._cut[index], strict=True)
        ]


class SymbolPool(MessagePool):
    """Messages of any alphabet, each held and moved."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with no messages."""
        super().__init__(randomizer)
        self._held: list[Sequence[NDArray[np.integer]]] = []

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Keep the messages by label."""
        assert isinstance(reports, Messages)
        self._hold(list(reports.symbols.transpose(1, 0, 2).reshape(reports.alphabet.labels, -1)))

    def take(self, payload: bytes) -> None:
        """Keep the messages of the chunk."""
        self._hold([row.symbols.ravel() for row in by_label(payload, self.randomizer)])

    def _hold(self, rows: Sequence[NDArray[np.integer]]) -> None:
        self._held.append(rows)
        self.each += np.array([len(row) for row in rows])

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        none = list(np.empty((self.randomizer.alphabet.labels, 0), np.uint8))
        self._moved = [permuted(parts, rng) for parts in zip(*(self._held or [none]), strict=True)]
        self._held = []

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        alphabet = Alphabet(1, self.randomizer.alphabet.symbols)
        return [
            Messages.from_symbols(alphabet, row[None, None, place]).tobytes()
            for row, place in zip(self._moved, self.places(index), strict=True)
        ]


class TallyPool(MessagePool):
    """Sums of symbols, where messages are not simulated: one chunk, and nothing to permute."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with sums of zero."""
        super().__init__(randomizer)
        self._sums = np.zeros(randomizer.alphabet.labels, np.int64)

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Add the reports' sums."""
        assert isinstance(reports, Messages | Tally)
        self._sums += reports.sums if isinstance(reports, Tally) else reports.sums()
        self.each += under_each(reports.reports * self.randomizer.per_label, self.randomizer)

    def take(self, payload: bytes) -> None:
        """Add the chunk's sums."""
        size, sums = read_tally(payload, self.randomizer)
        each = self.more(size)
        self._sums += sums
        self.each += each

    def shares(self, shards: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """All for the first shard: sums are in no order."""
        return np.eye(shards, 1, dtype=np.int64) * self.each

    def view(self) -> NDArray[np.int64]:
        """One chunk for the whole pool."""
        return self.each[None][: self.size]

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        pass

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        sums = self._sums if self.chunk_sizes[index] else 0 * self._sums
        return [sums.astype("<i8").tobytes()]


def pool_of(randomizer: Randomizer, fidelity: str) -> MessagePool:
    """An empty pool for a round whose messages can be read."""
    if fidelity != "literal":
        return TallyPool(randomizer)
    return (BitPool if randomizer.alphabet.symbols == 2 else SymbolPool)(randomizer)


def view_chunks(randomizer: Randomizer, size: int) -> Counter[Size]:
    """The sizes of the chunks into which so many messages under each label are cut.

    The largest come first.
    """
    largest = _largest(randomizer)
    whole, rest = divmod(size, largest)
    found: Counter[Size] = Counter({largest: whole})
    return +found + Counter([rest] * (rest > 0))


def _largest(randomizer: Randomizer) -> int:
    """Messages of a chunk in each column, at most."""
    alphabet = randomizer.alphabet
    return max(8, 8 * VIEW_CHUNK_BYTES // (alphabet.width * alphabet.symbol_bits) // 8 * 8)


def view_chunk_bytes(randomizer: Randomizer, size: Size) -> int:
    """Bytes of a chunk of so many messages under each label, by formula."""
    counted: Counter[int] = Counter(under_each(size, randomizer).tolist())
    bits = randomizer.alphabet.symbol_bits
    rows = (labels * ((messages * bits + 7) // 8) for messages, labels in counted.items())
    return size_bytes(size) + sum(rows)


def read_view_chunk(payload: bytes, randomizer: Randomizer) -> tuple[Size, NDArray[np.int64]]:
    """Of a chunk how many messages it has under each label, and the sums of their symbols.

    Raises:
        FrameError: `wrong-length`, `nonzero-padding` or `symbol-out-of-range` if it does not encode
            so many messages.
    """
    size, rest = parted(payload)
    alphabet = randomizer.alphabet
    if isinstance(size, int) and not alphabet.columns:  # all labels at once
        one = Alphabet(1, alphabet.symbols)
        return size, Messages.from_bytes(one, size, rest, alphabet.labels).row_sums()
    sums = [row.row_sums() for row in by_label(payload, randomizer)]
    return size, np.concatenate(sums)


def read_tally(payload: bytes, randomizer: Randomizer) -> tuple[int, NDArray[np.int64]]:
    """The same of a chunk whose messages were not simulated.

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if so many messages cannot have these
            sums.
    """
    size, rest = parted(payload)
    if not isinstance(size, int):
        raise FrameError("wrong-length", "sums are of as many messages under each label")
    return size, read_sums(rest, randomizer, size // randomizer.per_label)


def parted(payload: bytes) -> tuple[Size, memoryview]:
    """The size in front of a chunk, and the rest.

    Raises:
        FrameError: `wrong-length` if there is no size.
    """
    numbers = np.frombuffer(payload, ">u8", len(payload) // SIZE)  # no copy of it
    if not numbers.size:
        raise FrameError("wrong-length", f"{len(payload)} bytes")
    first = int(numbers[0])
    if first < _SEVERAL:
        return first, memoryview(payload)[SIZE:]
    labels = first - _SEVERAL
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
    total = size * randomizer.alphabet.width if isinstance(size, int) else sum(size)
    if total > _MOST:
        raise FrameError("wrong-length", f"{total:,} messages, at most {_MOST:,}")
    return under_each(size, randomizer)


def by_label(payload: bytes, randomizer: Randomizer) -> list[Messages]:
    """The messages of a chunk under each label, as one report."""
    size, rest = parted(payload)
    each, one = room(size, randomizer), Alphabet(1, randomizer.alphabet.symbols)
    if len(payload) != view_chunk_bytes(randomizer, size):
        raise FrameError("wrong-length", f"{len(rest)} bytes for {size} messages under each label")
    found, start = [], 0
    for messages in each.tolist():
        stop = start + (Messages.row_bits(one, messages) + 7) // 8
        found.append(Messages.from_bytes(one, messages, rest[start:stop], 1))
        start = stop
    return found
