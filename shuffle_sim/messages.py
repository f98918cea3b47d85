"""What users send: an alphabet of labelled messages, batches of reports packed to bits, and their tally."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import FrameError, integer

_UNPACKED = 1 << 19  # messages unpacked to a byte each at a time: they stay in the cache


@dataclass(frozen=True)
class Alphabet:
    """The public message space of a round: every message is a pair (label, symbol).

    Attributes:
        labels: number of labels (coordinates), at least 1.
        symbols: number of symbols, at least 2; 2 means one-bit messages.
    """

    labels: int
    symbols: int = 2

    def __post_init__(self) -> None:
        """Refuse an empty alphabet."""
        integer("labels", self.labels)
        integer("symbols", self.symbols, 2)

    @property
    def symbol_bits(self) -> int:
        """Bits of one symbol."""
        return (self.symbols - 1).bit_length()

    @property
    def label_bits(self) -> int:
        """Bits that a label would cost on a message sent on its own; grouped by label, it costs none."""
        return (self.labels - 1).bit_length()


@dataclass(frozen=True)
class Tally:
    """How often each symbol came under each label: all that a permuted view says.

    Attributes:
        counts: int64 array of shape (labels, symbols).
        reports: number of reports (users) counted.
    """

    counts: NDArray[np.int64]
    reports: int

    @property
    def ones(self) -> NDArray[np.int64]:
        """Number of one-bits per label, shape (labels,)."""
        return self.counts[:, 1]

    @classmethod
    def of_ones(cls, ones: NDArray[np.integer], per_label: int, reports: int) -> "Tally":
        """The tally of `reports` reports of `per_label` one-bit messages a label, `ones` (labels,) of them ones."""
        ones = ones.astype(np.int64)
        return cls(np.stack([per_label * reports - ones, ones], axis=1), reports)

    def __add__(self, other: "Tally") -> "Tally":
        """The tally of both batches together."""
        return Tally(self.counts + other.counts, self.reports + other.reports)


@dataclass(frozen=True)
class Messages:
    """A batch of reports, one row a user, packed: a one-bit message costs one bit of memory.

    A report lists its messages label by label; inside a label the order carries nothing.

    Attributes:
        alphabet: the message space.
        per_label: messages under each label in each report.
        packed: uint8 array of shape (reports, report_bytes), big-endian bit order, zero padding.
    """

    alphabet: Alphabet
    per_label: int
    packed: NDArray[np.uint8]

    @staticmethod
    def row_bits(alphabet: Alphabet, per_label: int) -> int:
        """Payload bits of one report (the papers' count)."""
        return alphabet.labels * per_label * alphabet.symbol_bits

    @property
    def reports(self) -> int:
        """Number of reports in the batch."""
        return int(self.packed.shape[0])

    @classmethod
    def from_symbols(cls, alphabet: Alphabet, symbols: NDArray[np.integer]) -> "Messages":
        """Pack symbols of shape (reports, labels, per_label)."""
        reports, _, per_label = symbols.shape
        width = alphabet.symbol_bits
        if width == 1:
            bits = symbols.reshape(reports, alphabet.labels * per_label).astype(np.uint8)
        else:
            shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
            bits = ((symbols.astype(np.uint64)[..., None] >> shifts) & np.uint64(1)).astype(np.uint8)
            bits = bits.reshape(reports, alphabet.labels * per_label * width)
        return cls(alphabet, per_label, np.packbits(bits, axis=1))

    @classmethod
    def from_ones(cls, counts: NDArray[np.integer], per_label: int) -> "Messages":
        """Reports of one-bit messages with `counts` (reports, labels) ones under each label, ones first."""
        labels = counts.shape[1]
        # A table of the per_label + 1 possible labels' bits: one gather instead of a comparison per bit.
        table = (np.arange(per_label) < np.arange(per_label + 1)[:, None]).astype(np.uint8)
        packed = np.empty((len(counts), (labels * per_label + 7) // 8), np.uint8)
        step = max(1, _UNPACKED // (labels * per_label))
        for start in range(0, len(counts), step):
            bits = table[np.ascontiguousarray(counts[start : start + step])]
            packed[start : start + step] = np.packbits(bits.reshape(len(bits), labels * per_label), axis=1)
        return cls(Alphabet(labels), per_label, packed)

    @classmethod
    def from_bytes(cls, alphabet: Alphabet, per_label: int, payload: bytes, reports: int) -> "Messages":
        """Unpack reports from the wire.

        Raises:
            FrameError: `wrong-length` if the payload is not exactly that of so many reports, `nonzero-padding` or
                `symbol-out-of-range` if a report does not encode messages of the alphabet.
        """
        bits = cls.row_bits(alphabet, per_label)
        size = (bits + 7) // 8
        if len(payload) != reports * size:
            raise FrameError("wrong-length", f"{len(payload)} bytes for {reports} reports of {size}")
        batch = cls(alphabet, per_label, np.frombuffer(payload, np.uint8).reshape(reports, size))
        spare = 8 * size - bits
        if spare and reports and bool((batch.packed[:, -1] & ((1 << spare) - 1)).any()):
            raise FrameError("nonzero-padding", f"the last {spare} bits of a report must be zero")
        if alphabet.symbols != 1 << alphabet.symbol_bits and bool((batch.symbols >= alphabet.symbols).any()):
            raise FrameError("symbol-out-of-range", f"symbols must be below {alphabet.symbols}")
        return batch

    @cached_property
    def symbols(self) -> NDArray[np.integer]:
        """The messages, shape (reports, labels, per_label)."""
        bits = np.unpackbits(self.packed, axis=1, count=self.row_bits(self.alphabet, self.per_label))
        shape = self.reports, self.alphabet.labels, self.per_label
        width = self.alphabet.symbol_bits
        if width == 1:
            return bits.reshape(shape)
        weights = np.uint64(1) << np.arange(width - 1, -1, -1, dtype=np.uint64)
        symbols: NDArray[np.uint64] = (bits.reshape(*shape, width).astype(np.uint64) * weights).sum(-1)
        return symbols

    def ones_per_label(self) -> NDArray[np.int64]:
        """Number of one-bits under each label over the whole batch, shape (labels,)."""
        columns = np.zeros(self.row_bits(self.alphabet, self.per_label), np.int64)
        for start in range(0, self.reports, 255):  # 255 rows cannot overflow a uint8: sums of bytes stay in SIMD
            rows = np.unpackbits(self.packed[start : start + 255], axis=1, count=columns.size)
            columns += np.add.reduce(rows, axis=0, dtype=np.uint8)
        ones: NDArray[np.int64] = columns.reshape(self.alphabet.labels, self.per_label).sum(axis=1)
        return ones

    def tobytes(self) -> bytes:
        """All reports, one after the other."""
        return self.packed.tobytes()
