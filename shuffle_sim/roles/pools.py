"""What a shuffler holds of a round: a pool of messages, released in uniformly random order.

To cut is to permute all messages under each label uniformly and to cut the result into consecutive
chunks. One-bit messages are held as numbers of ones, so a pool of any size takes no memory; other
symbols are held, and really moved.
"""

from abc import ABC, abstractmethod
from collections import Counter
from itertools import accumulate

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
"""Bytes in front of a chunk: how many messages it has under each label."""


class MessagePool(ABC):
    """Messages of one round, equally many under each label."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with no messages."""
        self.randomizer = randomizer
        self.size = 0  # messages under each label
        self.chunk_sizes: list[int] = []  # sizes of the chunks

    @abstractmethod
    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Put users' reports on the pool."""

    @abstractmethod
    def take(self, payload: bytes) -> None:
        """Put a chunk cut by another shard on the pool.

        Raises:
            FrameError: if it is none.
        """

    def cut(self, sizes: list[int], rng: np.random.Generator) -> None:
        """Permute, and cut into chunks of these sizes, which add up to the pool's."""
        self.chunk_sizes, self._starts = sizes, [0, *accumulate(sizes)]
        self._permute(np.array(sizes, np.int64), rng)

    def chunk(self, index: int, rng: np.random.Generator) -> bytes:
        """One of the chunks, label by label, its size in front.

        The same generator gives the same bytes again.
        """
        return b"".join([self.chunk_sizes[index].to_bytes(SIZE, "big"), *self._chunk(index, rng)])

    def routed(self, index: int, rng: np.random.Generator) -> bytes:
        """One of the chunks as it goes to another shard, which permutes it again."""
        return self.chunk(index, rng)

    def places(self, index: int) -> slice:
        """Of the messages of a chunk under each label, after they were permuted."""
        return slice(self._starts[index], self._starts[index + 1])

    def shares(self, shards: int, rng: np.random.Generator) -> list[int]:
        """How many messages each shard gets when each message goes to a uniformly random one."""
        return [int(share) for share in rng.multinomial(self.size, np.full(shards, 1 / shards))]

    def view(self) -> list[int]:
        """Sizes of the chunks in which the whole pool is released."""
        return list(view_chunks(self.randomizer, self.size).elements())

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
        self.size += reports.reports * reports.per_label

    def take(self, payload: bytes) -> None:
        """Add the ones."""
        size, rest = parted(payload)
        room = size * np.diff(self.randomizer.alphabet.edges)
        self._ones += read_ones(rest, room)
        self.size += size

    def routed(self, index: int, rng: np.random.Generator) -> bytes:
        """How many ones there are under each label: their order is drawn where they are viewed."""
        size = self.chunk_sizes[index].to_bytes(SIZE, "big")
        return size + self._chunks[:, index].astype("<i8").tobytes()

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        columns = np.diff(self.randomizer.alphabet.edges)
        self._chunks = np.array(
            [
                share_out(int(ones), sizes * each, rng)
                for ones, each in zip(self._ones, columns, strict=True)
            ]
        )

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        sizes = self.chunk_sizes[index] * np.diff(self.randomizer.alphabet.edges)
        return [
            arrange(int(ones), int(size), rng).data
            for ones, size in zip(self._chunks[:, index], sizes, strict=True)
        ]


class SymbolPool(MessagePool):
    """Messages of any alphabet, each held and moved."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with no messages."""
        super().__init__(randomizer)
        self._held: list[NDArray[np.integer]] = []

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Keep the messages by label."""
        assert isinstance(reports, Messages)
        self._hold(reports.symbols.transpose(1, 0, 2).reshape(reports.alphabet.labels, -1))

    def take(self, payload: bytes) -> None:
        """Keep the messages of the chunk."""
        self._hold(_messages(payload, self.randomizer).symbols[:, 0, :])

    def _hold(self, rows: NDArray[np.integer]) -> None:
        self._held.append(rows)
        self.size += rows.shape[1]

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        none = np.empty((self.randomizer.alphabet.labels, 0), np.uint8)
        self._moved = [permuted(parts, rng) for parts in zip(*(self._held or [none]), strict=True)]
        self._held = []

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        alphabet = Alphabet(1, self.randomizer.alphabet.symbols)
        rows = np.stack([row[self.places(index)] for row in self._moved])
        return [Messages.from_symbols(alphabet, rows[:, None, :]).tobytes()]


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
        self.size += reports.reports * self.randomizer.per_label

    def take(self, payload: bytes) -> None:
        """Add the chunk's sums."""
        size, sums = read_tally(payload, self.randomizer)
        self._sums += sums
        self.size += size

    def shares(self, shards: int, rng: np.random.Generator) -> list[int]:
        """All for the first shard: sums are in no order."""
        return [self.size] + [0] * (shards - 1)

    def view(self) -> list[int]:
        """One chunk for the whole pool."""
        return [self.size] * (self.size > 0)

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


def view_chunks(randomizer: Randomizer, size: int) -> Counter[int]:
    """The sizes of the chunks into which so many messages under each label are cut.

    The largest come first.
    """
    alphabet = randomizer.alphabet
    largest = max(8, 8 * VIEW_CHUNK_BYTES // (alphabet.width * alphabet.symbol_bits) // 8 * 8)
    whole, rest = divmod(size, largest)
    return +Counter({largest: whole}) + Counter([rest] * (rest > 0))


def view_chunk_bytes(randomizer: Randomizer, size: int) -> int:
    """Bytes of a chunk of so many messages under each label, by formula."""
    alphabet = randomizer.alphabet
    counted: Counter[int] = Counter(np.diff(alphabet.edges).tolist())
    return SIZE + sum(
        labels * ((size * columns * alphabet.symbol_bits + 7) // 8)
        for columns, labels in counted.items()
    )


def read_view_chunk(payload: bytes, randomizer: Randomizer) -> tuple[int, NDArray[np.int64]]:
    """Of a chunk how many messages it has under each label, and the sums of their symbols.

    Raises:
        FrameError: `wrong-length`, `nonzero-padding` or `symbol-out-of-range` if it does not encode
            so many messages.
    """
    if not randomizer.alphabet.columns:
        messages = _messages(payload, randomizer)
        return messages.per_label, messages.row_sums()
    size, rest = parted(payload)
    if len(payload) != view_chunk_bytes(randomizer, size):
        raise FrameError("wrong-length", f"{len(rest)} bytes for {size} messages in each column")
    sums, start = [], 0
    for columns in randomizer.alphabet.columns:
        stop = start + (size * columns + 7) // 8
        row = Messages.from_bytes(Alphabet(1), size * columns, rest[start:stop], 1)
        sums.append(row.row_sums())
        start = stop
    return size, np.concatenate(sums)


def read_tally(payload: bytes, randomizer: Randomizer) -> tuple[int, NDArray[np.int64]]:
    """The same of a chunk whose messages were not simulated.

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if so many messages cannot have these
            sums.
    """
    size, rest = parted(payload)
    return size, read_sums(rest, randomizer, size // randomizer.per_label)


def parted(payload: bytes) -> tuple[int, memoryview]:
    """The size in front of a chunk, and the rest.

    Raises:
        FrameError: `wrong-length` if there is no size.
    """
    if len(payload) < SIZE:
        raise FrameError("wrong-length", f"{len(payload)} bytes")
    return int.from_bytes(payload[:SIZE], "big"), memoryview(payload)[SIZE:]


def _messages(payload: bytes, randomizer: Randomizer) -> Messages:
    """The messages of a chunk; their rows are the labels."""
    size, rest = parted(payload)
    return Messages.from_bytes(
        Alphabet(1, randomizer.alphabet.symbols), size, rest, randomizer.alphabet.labels
    )
