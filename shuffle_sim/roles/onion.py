"""Onion: every message sealed to the analyzer, and a user's bundle of them sealed to the shuffler.

The shuffler opens the bundle, checks how many messages it has, and moves sealed boxes of one size
that it cannot read. The analyzer opens the boxes and cannot tell whose they are. A message says its
label itself; the boxes of one label are permuted among themselves, as in the plain mode, and one
that was put under another label is dropped: a malicious user has no more messages under a label
than an honest one. Lengths are the same for all honest reports of a round, so nothing is padded.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Buffer
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.chunks import (
    VIEW_CHUNK_BYTES,
    Size,
    front,
    parted,
    room,
    tally_of,
    under_each,
)
from shuffle_sim.roles.pools import MessagePool
from shuffle_sim.sampling.shuffling import gathered, order
from shuffle_sim.wire.frames import Context, Frame
from shuffle_sim.wire.messages import Alphabet, Messages, Tally
from shuffle_sim.wire.sealing import BOX_ID, SEAL, KeyPair, Purpose, Sealer

Boxes = NDArray[np.uint8]


def message_bytes(alphabet: Alphabet) -> int:
    """Bytes of a message before it is sealed: label and symbol as one big-endian number."""
    return max(1, (alphabet.label_bits + alphabet.symbol_bits + 7) // 8)


def box_bytes(alphabet: Alphabet) -> int:
    """Bytes of a sealed message."""
    return SEAL + message_bytes(alphabet)


def bundle_bytes(randomizer: Randomizer) -> int:
    """Bytes of a user's sealed messages, before they are sealed together; of words, at most."""
    return randomizer.report_messages * box_bytes(randomizer.alphabet)


def bundles(reports: Messages, sealer: Sealer) -> Iterator[bytes]:
    """Each user's messages, sealed one by one and joined, label by label."""
    alphabet, width = reports.alphabet, message_bytes(reports.alphabet)
    if reports.each is not None:
        of_user = np.split(reports.packed, np.cumsum(reports.each)[:-1])
        for words in of_user:
            yield b"".join(sealer.seal(word.tobytes()) for word in words)
        return
    # As Python's integers: label and symbol together may have more than 64 bits.
    for rows in reports.symbols.tolist():
        numbers = (
            label << alphabet.symbol_bits | symbol
            for label, symbols in zip(alphabet.label_of.tolist(), rows, strict=True)
            for symbol in symbols
        )
        yield b"".join(sealer.seal(number.to_bytes(width, "big")) for number in numbers)


def read_bundle(frame: Frame, randomizer: Randomizer) -> Boxes:
    """A user's boxes, (labels or columns, per_label, bytes); of words, (1, messages, bytes).

    Raises:
        FrameError: `wrong-length` if it is not the right number of boxes of the right size;
            `too-many-messages`.
    """
    if randomizer.view != "sums":
        boxes, rest = divmod(len(frame.payload), box_bytes(randomizer.alphabet))
        if not rest and boxes > randomizer.per_label:
            raise FrameError("too-many-messages", f"{boxes}, at most {randomizer.per_label}")
        if not rest:
            return np.frombuffer(frame.payload, np.uint8).reshape(
                1, boxes, box_bytes(randomizer.alphabet)
            )
    if len(frame.payload) != bundle_bytes(randomizer):
        raise FrameError(
            "wrong-length",
            f"a bundle of {len(frame.payload)} bytes, not {bundle_bytes(randomizer)}",
        )
    return np.frombuffer(frame.payload, np.uint8).reshape(
        randomizer.alphabet.width, randomizer.per_label, -1
    )


class BoxPool(MessagePool):
    """Sealed messages, each held and moved; nothing of them can be read here."""

    def __init__(self, randomizer: Randomizer) -> None:
        super().__init__(randomizer)
        self._held: list[list[Boxes]] = [[] for _ in range(randomizer.alphabet.labels)]

    def add(self, reports: Messages | Tally | Boxes) -> None:
        assert isinstance(reports, np.ndarray)
        edges = self.randomizer.alphabet.edges.tolist()
        size = reports.shape[-1]
        self._hold([reports[low:high].reshape(-1, size) for low, high in pairwise(edges)])

    def take(self, payload: bytes) -> None:
        self._hold(read_boxes(payload, self.randomizer)[1])

    def _hold(self, rows: list[Boxes]) -> None:
        for held, row in zip(self._held, rows, strict=True):
            held.append(row)
        self.each += np.array([len(row) for row in rows])

    def view(self) -> NDArray[np.int64]:
        return self._in_chunks(largest_boxes(self.randomizer))

    def _permute(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        none = np.empty((0, box_bytes(self.randomizer.alphabet)), np.uint8)
        self._boxes = [np.concatenate([none, *held]) for held in self._held]
        # Boxes are moved once, as chunks are put together (docs/theory/shards.md, "Memory").
        self._orders = [order(len(boxes), rng) for boxes in self._boxes]
        self._held = [[] for _ in self._held]

    def _chunk(self, index: int, rng: np.random.Generator) -> list[Buffer]:
        return [
            gathered(row, drawn[place]).reshape(-1).data
            for row, drawn, place in zip(self._boxes, self._orders, self.places(index), strict=True)
        ]


def largest_boxes(randomizer: Randomizer) -> int:
    """Boxes of a chunk in each column, at most."""
    return max(1, VIEW_CHUNK_BYTES // (randomizer.alphabet.width * box_bytes(randomizer.alphabet)))


def box_chunk_bytes(randomizer: Randomizer, size: Size) -> int:
    """Bytes of a chunk of so many boxes under each label, by formula."""
    boxes = int(under_each(size, randomizer).sum())
    return len(front(size, randomizer)) + boxes * box_bytes(randomizer.alphabet)


def read_boxes(payload: bytes, randomizer: Randomizer) -> tuple[Size, list[Boxes]]:
    """The size of a chunk, and its boxes by label, (boxes, bytes) each.

    Raises:
        FrameError: `wrong-length`.
    """
    size, _, rest = parted(payload, randomizer)
    each = room(size, randomizer)
    if len(payload) != box_chunk_bytes(randomizer, size):
        raise FrameError("wrong-length", f"{len(rest)} bytes for {size} boxes under each label")
    boxes = np.frombuffer(rest, np.uint8).reshape(-1, box_bytes(randomizer.alphabet))
    return size, np.split(boxes, np.cumsum(each)[:-1])


class Opener:
    """The analyzer's side: opens boxes, and drops by reason what is no message of the round.

    Attributes:
        opened: messages opened.
        dropped: messages by reason; in sums they count as 0, of words they are none.
    """

    def __init__(self, keys: KeyPair, context: Context) -> None:
        """Start with no box opened."""
        self._keys, self._context = keys, context
        self._seen: set[bytes] = set()
        self.opened = 0
        self.dropped: Counter[str] = Counter()

    def read(self, payload: bytes, randomizer: Randomizer) -> tuple[Size, Tally]:
        """A chunk's number of boxes under each label, and the tally of those that open.

        Raises:
            FrameError: `wrong-length` if it is not a chunk.
        """
        size, boxes = read_boxes(payload, randomizer)
        symbols: list[list[int]] = [[] for _ in boxes]
        for label, row in enumerate(boxes):
            for box in row:
                try:
                    symbols[label].append(self.symbol(box.tobytes(), label, randomizer.alphabet))
                    self.opened += 1
                except FrameError as error:
                    self.dropped[error.reason] += 1
        if randomizer.view != "sums":
            return size, tally_of(np.array(symbols[0], np.uint64), randomizer)
        return size, Tally(np.array([sum(row) for row in symbols], np.int64), 0)

    def symbol(self, box: bytes, label: int, alphabet: Alphabet) -> int:
        """The symbol in a box that came under a label.

        Raises:
            FrameError: naming why the message is dropped.
        """
        if box[:BOX_ID] in self._seen:
            raise FrameError("replayed", "the same box came before")
        plain = self._keys.open(box, Purpose.MESSAGE, self._context)
        # After it opened: else an altered copy in front would keep out the true one.
        self._seen.add(box[:BOX_ID])
        said, symbol = divmod(int.from_bytes(plain, "big"), 1 << alphabet.symbol_bits)
        # Else a user could have all its messages under one label.
        if said != label:
            raise FrameError("wrong-label", f"label {said} among those of {label}")
        if symbol >= alphabet.symbols:
            raise FrameError("symbol-out-of-range", f"symbols must be below {alphabet.symbols}")
        return symbol
