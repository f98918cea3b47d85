"""What a shuffler holds of a round: a pool of messages, released in uniformly random order.

To cut is to permute all messages under each label uniformly and to cut the result into consecutive
chunks. Each label is cut by itself: with sizes drawn once for all labels, what comes from where
would be alike under all of them. One-bit messages are held as numbers of ones, so a pool of any
size takes no memory; other symbols are held, and really moved.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.chunks import (
    MOST_MESSAGES,
    Size,
    by_label,
    front,
    largest_chunk,
    parted,
    read_tally,
    room,
    shortened,
    under_each,
)
from shuffle_sim.roles.reports import count_bytes, read_ones
from shuffle_sim.sampling.shuffling import arrange, permuted, share_out
from shuffle_sim.wire.messages import Alphabet, Messages, Tally, together
from shuffle_sim.wire.words import Words, pack_words, read_words, words_of


class MessagePool(ABC):
    """Messages of one round."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Start with no messages."""
        self.randomizer = randomizer
        self.each = np.zeros(randomizer.alphabet.labels, np.int64)  # messages under each label
        self.chunk_sizes: list[Size] = []  # sizes of the chunks
        self.whole = 0  # messages of the whole view, once they are known

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
        if self.size + int(each.sum()) > MOST_MESSAGES:
            raise FrameError("wrong-length", f"more than {MOST_MESSAGES:,} messages")
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
        self.chunk_sizes = [shortened(each, self.randomizer) for each in sizes]
        self._cut = sizes
        self._starts = np.concatenate([0 * self.each[None], np.cumsum(sizes, axis=0)])
        self._permute(sizes, rng)

    def chunk(self, index: int, rng: np.random.Generator) -> bytes:
        """One of the chunks, label by label, its size in front.

        The same generator gives the same bytes again.
        """
        size = front(self.chunk_sizes[index], self.randomizer, self.whole)
        return b"".join([size, *self._chunk(index, rng)])

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
        # By label: with sizes in common the lemma fails (docs/theory/shards.md, "Shards").
        found = rng.multinomial(self.each, np.full(shards, 1 / shards))
        return np.asarray(found.T, np.int64)

    def view(self) -> NDArray[np.int64]:
        """Sizes of the chunks in which the whole pool is released, (chunks, labels)."""
        return self._in_chunks(largest_chunk(self.randomizer))

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
        super().__init__(randomizer)
        self._ones = np.zeros(randomizer.alphabet.labels, np.int64)

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        assert isinstance(reports, Messages)
        self._ones += reports.sums()
        self.each += under_each(reports.reports * reports.per_label, self.randomizer)

    def take(self, payload: bytes) -> None:
        size, _, rest = parted(payload, self.randomizer)
        each = self.more(size)
        self._ones += read_ones(rest, each)
        self.each += each

    def routed(self, index: int, rng: np.random.Generator) -> bytes:
        # How many ones: in which order they cross says nothing, the next shard draws another.
        size = front(self.chunk_sizes[index], self.randomizer)
        return size + self._chunks[:, index].astype("<i8").tobytes()

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
        super().__init__(randomizer)
        self._held: list[Sequence[NDArray[np.integer]]] = []

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        assert isinstance(reports, Messages)
        self._hold(list(reports.symbols.transpose(1, 0, 2).reshape(reports.alphabet.labels, -1)))

    def take(self, payload: bytes) -> None:
        self._hold([row.symbols.ravel() for row in by_label(payload, self.randomizer)])

    def _hold(self, rows: Sequence[NDArray[np.integer]]) -> None:
        self._held.append(rows)
        self.each += np.array([len(row) for row in rows])

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        # Nothing came: each label has an empty row.
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
        super().__init__(randomizer)
        self._sums = np.zeros(randomizer.alphabet.labels, np.int64)

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        assert isinstance(reports, Messages | Tally)
        self._sums += reports.sums if isinstance(reports, Tally) else reports.sums()
        self.each += under_each(reports.reports * self.randomizer.per_label, self.randomizer)

    def take(self, payload: bytes) -> None:
        size, tally = read_tally(payload, self.randomizer)
        each = self.more(size)
        self._sums += tally.sums
        self.each += each

    def shares(self, shards: int, rng: np.random.Generator) -> NDArray[np.int64]:
        # All to the first shard: there are no messages, and only their total is seen.
        return np.eye(shards, 1, dtype=np.int64) * self.each

    def view(self) -> NDArray[np.int64]:
        # One chunk; none where nothing came.
        return self.each[None][: self.size]

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        pass

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        sums = self._sums if self.chunk_sizes[index] else 0 * self._sums
        return [sums.astype("<i8").tobytes()]


class WordPool(MessagePool):
    """Words, each held and moved."""

    def __init__(self, randomizer: Randomizer) -> None:
        super().__init__(randomizer)
        self._held = [words_of((), randomizer.alphabet.symbols)]

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        assert isinstance(reports, Messages)
        self._hold(reports.words)

    def take(self, payload: bytes) -> None:
        size, _, rest = parted(payload, self.randomizer)
        words = int(self.more(size).sum())
        self._hold(read_words(rest, self.randomizer.alphabet.symbols, words))

    def _hold(self, words: Words) -> None:
        self._held.append(words)
        self.each += len(words)

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        self._moved = permuted(self._held, rng)
        self._held = self._held[:1]

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        (place,) = self.places(index)
        packed = pack_words(self._moved[place], self.randomizer.alphabet.symbols)
        return [packed.reshape(-1).data]


class CountPool(TallyPool):
    """How often each word came, where messages are not simulated."""

    def __init__(self, randomizer: Randomizer) -> None:
        super().__init__(randomizer)
        self._counted = [Tally.counted((), reports=0)]

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        assert isinstance(reports, Messages | Tally)
        self._hold(reports if isinstance(reports, Tally) else reports.tally())

    def take(self, payload: bytes) -> None:
        size, tally = read_tally(payload, self.randomizer)
        self.more(size)
        self._hold(tally)

    def _hold(self, tally: Tally) -> None:
        self._counted.append(tally)
        self.each += tally.messages

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        self._counted = [together(self._counted)]

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        return [count_bytes(self._counted[0])] if self.chunk_sizes[index] else []


def pool_of(randomizer: Randomizer, fidelity: str) -> MessagePool:
    """An empty pool for a round whose messages can be read."""
    if randomizer.view != "sums":
        return (WordPool if fidelity == "literal" else CountPool)(randomizer)
    if fidelity != "literal":
        return TallyPool(randomizer)
    return (BitPool if randomizer.alphabet.symbols == 2 else SymbolPool)(randomizer)
