"""What users send: labelled messages, batches of reports packed to bits, and their tally."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError, ParameterError, integer
from shuffle_sim.sampling.bits import count_ones, field_sums, pack_ones
from shuffle_sim.sampling.kernels import compiling
from shuffle_sim.wire.words import (
    Words,
    carrier_bytes,
    counted,
    pack_words,
    read_words,
    word_bytes,
    words_of,
)

_UNPACKED = 1 << 19  # messages unpacked to a byte each at a time: they stay in the cache


@dataclass(frozen=True)
class Alphabet:
    """The public message space of a round: every message is a pair (label, symbol).

    Attributes:
        labels: number of labels (coordinates), at least 1.
        symbols: number of symbols, at least 2; 2 means one-bit messages.
        columns: of each label, where some labels have more messages than others; empty: one each.
            Only for one-bit messages.
    """

    labels: int
    symbols: int = 2
    columns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty alphabet."""
        integer("labels", self.labels)
        integer("symbols", self.symbols, 2, 2 if self.columns else 2**64)
        if self.columns and len(self.columns) != self.labels:
            raise ParameterError("columns", self.columns, f"one for each of {self.labels} labels")
        for each in self.columns:
            integer("columns", each)

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where each label's columns begin, and where the last one's end."""
        return np.cumsum([0, *(self.columns or [1] * self.labels)])

    @cached_property
    def width(self) -> int:
        """Columns of all labels together."""
        return sum(self.columns) or self.labels  # of a broadcast that asks for 2^40: no memory

    @cached_property
    def label_of(self) -> NDArray[np.int64]:
        """The label of each column."""
        return np.repeat(np.arange(self.labels), np.diff(self.edges))

    @property
    def symbol_bits(self) -> int:
        """Bits of one symbol."""
        return (self.symbols - 1).bit_length()

    @property
    def label_bits(self) -> int:
        """Bits of a label on a message sent on its own; grouped by label, it costs none."""
        return (self.labels - 1).bit_length()


@dataclass(frozen=True)
class Tally:
    """What the analyzer gets of a view: sums by label, how often each word came, or the words.

    Of one-bit messages the sum is the number of ones, and then all that a permuted view says.

    Attributes:
        sums: int64 array: of the symbols under each label, (labels,); or how often each word came.
        reports: number of reports (users) counted.
        words: uint64; None in a view of sums. In one of counts the distinct messages, ascending; in
            one of messages all of them, in the order of release, each once.
    """

    sums: NDArray[np.int64]
    reports: int
    words: NDArray[np.uint64] | None = None

    @classmethod
    def counted(cls, words: ArrayLike, counts: ArrayLike | None = None, *, reports: int) -> "Tally":
        """The view of counts: words (words,) in any order, and how often each came; None: once."""
        often = None if counts is None else np.asarray(counts, np.int64)
        given = np.asarray(words)
        distinct, each = counted(given if given.size else given.astype(np.uint64), often)
        return cls(each, reports, distinct)

    def dense(self, symbols: int) -> NDArray[np.int64]:
        """How often each of the symbols 0, ..., symbols - 1 came, in a view of words."""
        if self.words is None:
            raise ParameterError("view", "sums", "of counts or messages: sums are dense already")
        found = np.zeros(symbols, np.int64)
        inside = self.words < symbols
        np.add.at(found, self.words[inside].astype(np.int64), self.sums[inside])
        return found

    def items(self) -> tuple[tuple[int, int], ...]:
        """(label, sum) or (word, how often it came), ascending, but none that is 0."""
        if self.words is None:
            places = np.flatnonzero(self.sums)
            return tuple(zip(places.tolist(), self.sums[places].tolist(), strict=True))
        words, counts = counted(self.words, self.sums)
        return tuple(zip(words.tolist(), counts.tolist(), strict=True))

    @property
    def messages(self) -> int:
        """How many messages there are, in a view of words."""
        return int(self.sums.sum())

    def __add__(self, other: "Tally") -> "Tally":
        """The tally of both batches together; of words their counts."""
        if self.words is None:
            return Tally(self.sums + other.sums, self.reports + other.reports)
        return together([self, other])


def together(tallies: Sequence[Tally]) -> Tally:
    """How often each word came in all of them, at least one."""
    words = np.concatenate([each.words for each in tallies if each.words is not None])
    counts = np.concatenate([each.sums for each in tallies])
    return Tally.counted(words, counts, reports=sum(each.reports for each in tallies))


@dataclass(frozen=True)
class Messages:
    """A batch of reports, one row a user, packed: a one-bit message costs one bit of memory.

    A report lists its messages label by label; inside a label the order carries nothing. Where
    their number varies, each is a word of its own, and a row is a message.

    Attributes:
        alphabet: the message space.
        per_label: messages under each label in each report, or in each of its columns; of words, at
            most.
        packed: uint8 array of shape (reports, report_bytes), big-endian bit order, zero padding; of
            words (messages, bytes), each a big-endian number, user after user.
        each: of words, how many each user sends, (reports,); else None.
    """

    alphabet: Alphabet
    per_label: int
    packed: NDArray[np.uint8]
    each: NDArray[np.int64] | None = None

    @staticmethod
    def row_bits(alphabet: Alphabet, per_label: int) -> int:
        """Payload bits of one report (the papers' count)."""
        return alphabet.width * per_label * alphabet.symbol_bits

    @property
    def reports(self) -> int:
        """Number of reports in the batch."""
        return int(self.packed.shape[0]) if self.each is None else len(self.each)

    @classmethod
    def singly(
        cls, alphabet: Alphabet, most: int, words: ArrayLike, each: ArrayLike | None = None
    ) -> "Messages":
        """Words, each to be sent on its own: all users' messages, user after user.

        Args:
            alphabet: of one label.
            most: messages of a user, at most.
            words: integers, (messages,).
            each: how many each user sends, (users,); None: all are one user's.

        Raises:
            ParameterError: words outside the alphabet, a user with more than `most`, or other
                numbers than words.
        """
        found = words_of(words, alphabet.symbols)
        if each is None:  # called for each user of a randomizer that draws one by one: kept short
            least, largest, numbers = 0, len(found), np.array([len(found)])
        else:
            numbers = np.asarray(each, np.int64)
            least, largest = int(numbers.min(initial=0)), int(numbers.max(initial=0))
        if largest > most or least < 0:
            raise ParameterError("messages of a user", largest, f"from 0 to {most}")
        if each is not None and int(numbers.sum()) != len(found):
            raise ParameterError("messages", len(found), f"as many as each says: {numbers.sum()}")
        return cls(alphabet, most, pack_words(found, alphabet.symbols), numbers)

    @classmethod
    def singly_from_bytes(
        cls, alphabet: Alphabet, most: int, payload: Buffer, reports: int
    ) -> "Messages":
        """Reports of words from the wire: how many each user sends, then all of them.

        Raises:
            FrameError: `wrong-length`, `too-many-messages` of a user, or `symbol-out-of-range`.
        """
        width = carrier_bytes(most.bit_length())
        if len(payload) < reports * width:
            raise FrameError("wrong-length", f"{len(payload)} bytes for {reports} reports")
        each = np.frombuffer(payload, f">u{width}", reports).astype(np.int64)
        if int(each.max(initial=0)) > most:
            raise FrameError("too-many-messages", f"{each.max()} of a user, at most {most}")
        rest, octets = memoryview(payload)[reports * width :], word_bytes(alphabet.symbols)
        if len(rest) != int(each.sum()) * octets:
            raise FrameError("wrong-length", f"{len(rest)} bytes for {each.sum()} messages")
        batch = cls(alphabet, most, np.frombuffer(rest, np.uint8).reshape(-1, octets), each)
        assert batch.words.size == len(batch.packed)  # reading them refuses what is out of range
        return batch

    @cached_property
    def words(self) -> Words:
        """The messages as words, (messages,): all users', user after user."""
        rows = self.packed.reshape(-1).data
        return read_words(rows, self.alphabet.symbols, len(self.packed))

    def tally(self) -> Tally:
        """Of all messages."""
        if self.each is None:
            return Tally(self.sums(), self.reports)
        return Tally.counted(self.words, reports=self.reports)

    @classmethod
    def from_symbols(cls, alphabet: Alphabet, symbols: NDArray[np.integer]) -> "Messages":
        """Pack symbols of shape (reports, labels or columns, per_label)."""
        reports, _, per_label = symbols.shape
        rows = symbols.reshape(reports, alphabet.width * per_label)
        if alphabet.symbol_bits > 1:
            carrier = f">u{carrier_bytes(alphabet.symbol_bits)}"
            octets = rows.astype(carrier)[:, :, None].view(np.uint8)
            bits = np.unpackbits(octets, axis=2)[:, :, -alphabet.symbol_bits :]
            rows = bits.reshape(reports, rows.shape[1] * alphabet.symbol_bits)
        return cls(alphabet, per_label, np.packbits(rows.astype(np.uint8, copy=False), axis=1))

    @classmethod
    def from_ones(cls, counts: NDArray[np.integer], per_label: int) -> "Messages":
        """Reports of one-bit messages with `counts` ones under each label, ones first.

        `counts` has the shape (reports, labels).
        """
        labels = counts.shape[1]
        if compiling():
            return cls(Alphabet(labels), per_label, pack_ones(counts.T, per_label))
        # A table of all possible labels' bits: one gather instead of a comparison per bit.
        table = (np.arange(per_label) < np.arange(per_label + 1)[:, None]).astype(np.uint8)
        packed = np.empty((len(counts), (labels * per_label + 7) // 8), np.uint8)
        step = max(1, _UNPACKED // (labels * per_label))
        for start in range(0, len(counts), step):
            bits = table[np.ascontiguousarray(counts[start : start + step])]
            packed[start : start + step] = np.packbits(bits.reshape(len(bits), -1), axis=1)
        return cls(Alphabet(labels), per_label, packed)

    @classmethod
    def from_bytes(
        cls, alphabet: Alphabet, per_label: int, payload: Buffer, reports: int
    ) -> "Messages":
        """Unpack reports from the wire.

        Raises:
            FrameError: `wrong-length` if the payload is not exactly that of so many reports,
                `nonzero-padding` or `symbol-out-of-range` if a report does not encode messages of
                the alphabet.
        """
        bits = cls.row_bits(alphabet, per_label)
        size = (bits + 7) // 8
        if len(payload) != reports * size:
            told = f"{len(payload)} bytes for {reports} reports of {size}"
            raise FrameError("wrong-length", told)
        batch = cls(alphabet, per_label, np.frombuffer(payload, np.uint8).reshape(reports, size))
        spare = 8 * size - bits
        if spare and reports and bool((batch.packed[:, -1] & ((1 << spare) - 1)).any()):
            raise FrameError("nonzero-padding", f"the last {spare} bits of a report must be zero")
        full = alphabet.symbols == 1 << alphabet.symbol_bits
        if not full and bool((batch.symbols >= alphabet.symbols).any()):
            raise FrameError("symbol-out-of-range", f"symbols must be below {alphabet.symbols}")
        return batch

    @cached_property
    def symbols(self) -> NDArray[np.integer]:
        """The messages, shape (reports, labels or columns, per_label)."""
        count = self.row_bits(self.alphabet, self.per_label)
        bits = np.unpackbits(self.packed, axis=1, count=count)
        shape = self.reports, self.alphabet.width, self.per_label
        width = self.alphabet.symbol_bits
        if width == 1:
            return bits.reshape(shape)
        octets = carrier_bytes(width)
        padded = np.zeros((bits.size // width, 8 * octets), np.uint8)
        padded[:, -width:] = bits.reshape(-1, width)
        return np.packbits(padded, axis=1).view(f">u{octets}").astype(f"u{octets}").reshape(shape)

    def sums(self) -> NDArray[np.int64]:
        """Sum of the symbols under each label over the whole batch, shape (labels,)."""
        if self.alphabet.symbols > 2:
            return np.asarray(self.symbols.sum(axis=(0, 2), dtype=np.int64))
        edges = self.alphabet.edges * self.per_label
        if compiling():
            return field_sums(self.packed, edges)
        # Ones before each label's first bit: those in the whole bytes before it, and those of its
        # byte that are not its own.
        ones = np.cumsum(_column_sums(np.bitwise_count(self.packed)))
        before = np.concatenate([[0], ones])[edges // 8]
        torn = np.flatnonzero(edges % 8)
        parts = self.packed[:, edges[torn] // 8] >> (8 - edges[torn] % 8).astype(np.uint8)
        before[torn] += _column_sums(np.bitwise_count(parts))
        return np.diff(before)

    def row_sums(self) -> NDArray[np.int64]:
        """Sum of the symbols of each row, shape (reports,)."""
        if self.alphabet.symbols > 2:
            return np.asarray(self.symbols.sum(axis=(1, 2), dtype=np.int64))
        if compiling():
            return np.array([count_ones(row) for row in self.packed], np.int64)
        words = self.packed.shape[1] // 8 * 8
        whole = [
            np.bitwise_count(row[:words].view(np.uint64)).sum(dtype=np.int64) for row in self.packed
        ]
        rest = np.bitwise_count(self.packed[:, words:]).sum(axis=1, dtype=np.int64)
        return np.asarray(whole + rest)

    def tobytes(self) -> bytes:
        """All reports, one after the other."""
        return b"".join(self.pieces)

    @property
    def pieces(self) -> tuple[Buffer, ...]:
        """The same in pieces that need not be copied."""
        rows = self.packed.reshape(-1).data
        if self.each is None:
            return (rows,)
        return self.each.astype(f">u{carrier_bytes(self.per_label.bit_length())}").tobytes(), rows


def _column_sums(counts: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Sums of the columns of counts up to 8: those of 31 rows are added in bytes."""
    rows, columns = len(counts) // 31, counts.shape[1]
    together = np.add.reduce(
        counts[: 31 * rows].reshape(31, rows * columns), axis=0, dtype=np.uint8
    ).reshape(rows, columns)
    return np.asarray(
        together.sum(axis=0, dtype=np.int64) + counts[31 * rows :].sum(axis=0, dtype=np.int64)
    )
