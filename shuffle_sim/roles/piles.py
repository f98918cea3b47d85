"""What a shuffler holds of a round: a pile that messages are put on, and dealt from in an order that is uniformly random.

To deal is to permute all messages under each label uniformly and to cut the result into consecutive hands. One-bit messages are
held as numbers of ones, so a pile of any size takes no memory; other symbols are held, and really moved.
"""

from abc import ABC, abstractmethod
from collections import Counter
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.reports import read_sums
from shuffle_sim.sampling.shuffling import arrange, permuted, share_out
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

HAND_BYTES = 1 << 21
"""Largest hand of a view: whoever holds one needs little memory."""
SIZE = 8
"""Bytes in front of a hand: how many messages it has under each label."""


class Pile(ABC):
    """Messages of one round, equally many under each label."""

    def __init__(self, randomizer: Randomizer) -> None:
        """An empty pile."""
        self.randomizer = randomizer
        self.size = 0  # messages under each label
        self.dealt: list[int] = []  # sizes of the hands

    @abstractmethod
    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Put users' reports on the pile."""

    @abstractmethod
    def take(self, payload: bytes) -> None:
        """Put a hand dealt by another shard on the pile.

        Raises:
            FrameError: if it is none.
        """

    def deal(self, sizes: list[int], rng: np.random.Generator) -> None:
        """Permute, and cut into hands of these sizes, which add up to the pile's."""
        self.dealt, self._starts = sizes, [0, *accumulate(sizes)]
        self._cut(np.array(sizes, np.int64), rng)

    def hand(self, index: int, rng: np.random.Generator) -> bytes:
        """One of the hands dealt, label by label, its size in front; the same generator gives the same bytes again."""
        return self.dealt[index].to_bytes(SIZE, "big") + self._hand(index, rng)

    def places(self, index: int) -> slice:
        """Of the messages of a hand under each label, after they were permuted."""
        return slice(self._starts[index], self._starts[index + 1])

    def shares(self, shards: int, rng: np.random.Generator) -> list[int]:
        """How many messages each shard gets when each message goes to a uniformly random one."""
        return [int(share) for share in rng.multinomial(self.size, np.full(shards, 1 / shards))]

    def view(self) -> list[int]:
        """Sizes of the hands in which the whole pile is released."""
        return list(view_hands(self.randomizer, self.size).elements())

    @abstractmethod
    def _cut(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Permute and cut."""

    @abstractmethod
    def _hand(self, index: int, rng: np.random.Generator) -> bytes:
        """The messages of a hand."""


class BitPile(Pile):
    """One-bit messages: how many ones there are under each label is all there is to know."""

    def __init__(self, randomizer: Randomizer) -> None:
        """No ones."""
        super().__init__(randomizer)
        self._ones = np.zeros(randomizer.alphabet.labels, np.int64)

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Count them."""
        assert isinstance(reports, Messages)
        self._ones += reports.sums()
        self.size += reports.reports * reports.per_label

    def take(self, payload: bytes) -> None:
        """Count them."""
        size, ones = read_hand(payload, self.randomizer)
        self._ones += ones
        self.size += size

    def _cut(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        self._hands = np.array([share_out(int(ones), sizes, rng) for ones in self._ones])

    def _hand(self, index: int, rng: np.random.Generator) -> bytes:
        return b"".join(arrange(int(ones), self.dealt[index], rng).tobytes() for ones in self._hands[:, index])


class SymbolPile(Pile):
    """Messages of any alphabet, each held and moved."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Nothing held."""
        super().__init__(randomizer)
        self._held: list[NDArray[np.integer]] = []

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Keep them by label."""
        assert isinstance(reports, Messages)
        self._hold(reports.symbols.transpose(1, 0, 2).reshape(reports.alphabet.labels, -1))

    def take(self, payload: bytes) -> None:
        """Keep them."""
        self._hold(_messages(payload, self.randomizer).symbols[:, 0, :])

    def _hold(self, rows: NDArray[np.integer]) -> None:
        self._held.append(rows)
        self.size += rows.shape[1]

    def _cut(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        none = np.empty((self.randomizer.alphabet.labels, 0), np.uint8)
        self._moved = [permuted(parts, rng) for parts in zip(*(self._held or [none]), strict=True)]
        self._held = []

    def _hand(self, index: int, rng: np.random.Generator) -> bytes:
        alphabet = Alphabet(1, self.randomizer.alphabet.symbols)
        rows = np.stack([row[self.places(index)] for row in self._moved])
        return Messages.from_symbols(alphabet, rows[:, None, :]).tobytes()


class TallyPile(Pile):
    """Sums of symbols, where the messages themselves are not simulated: there is nothing to permute, and one hand only."""

    def __init__(self, randomizer: Randomizer) -> None:
        """Nothing counted."""
        super().__init__(randomizer)
        self._sums = np.zeros(randomizer.alphabet.labels, np.int64)

    def add(self, reports: Messages | Tally | NDArray[np.uint8]) -> None:
        """Add them up."""
        assert isinstance(reports, Messages | Tally)
        self._sums += reports.sums if isinstance(reports, Tally) else reports.sums()
        self.size += reports.reports * self.randomizer.per_label

    def take(self, payload: bytes) -> None:
        """Add it."""
        size, sums = read_tally(payload, self.randomizer)
        self._sums += sums
        self.size += size

    def view(self) -> list[int]:
        """One hand."""
        return [self.size]

    def _cut(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> None:
        pass

    def _hand(self, index: int, rng: np.random.Generator) -> bytes:
        return self._sums.astype("<i8").tobytes()


def pile_of(randomizer: Randomizer, fidelity: str) -> Pile:
    """An empty pile for a round whose messages can be read."""
    if fidelity != "literal":
        return TallyPile(randomizer)
    return (BitPile if randomizer.alphabet.symbols == 2 else SymbolPile)(randomizer)


def view_hands(randomizer: Randomizer, size: int) -> Counter[int]:
    """Into how many hands of which sizes so many messages under each label are cut to be released, the largest first."""
    alphabet = randomizer.alphabet
    largest = max(8, 8 * HAND_BYTES // (alphabet.labels * alphabet.symbol_bits) // 8 * 8)
    whole, rest = divmod(size, largest)
    return +Counter({largest: whole}) + Counter([rest] * (rest > 0))


def hand_bytes(randomizer: Randomizer, size: int) -> int:
    """Bytes of a hand of so many messages under each label, by formula."""
    return SIZE + randomizer.alphabet.labels * ((size * randomizer.alphabet.symbol_bits + 7) // 8)


def read_hand(payload: bytes, randomizer: Randomizer) -> tuple[int, NDArray[np.int64]]:
    """Of a hand how many messages it has under each label, and the sums of their symbols.

    Raises:
        FrameError: `wrong-length`, `nonzero-padding` or `symbol-out-of-range` if it does not encode so many messages.
    """
    messages = _messages(payload, randomizer)
    return messages.per_label, messages.row_sums()


def read_tally(payload: bytes, randomizer: Randomizer) -> tuple[int, NDArray[np.int64]]:
    """The same of a hand whose messages were not simulated.

    Raises:
        FrameError: `wrong-length`, or `count-out-of-range` if so many messages cannot have these sums.
    """
    size, rest = parted(payload)
    return size, read_sums(rest, randomizer, size // randomizer.per_label)


def parted(payload: bytes) -> tuple[int, bytes]:
    """The size in front of a hand, and the rest.

    Raises:
        FrameError: `wrong-length` if there is no size.
    """
    if len(payload) < SIZE:
        raise FrameError("wrong-length", f"{len(payload)} bytes")
    return int.from_bytes(payload[:SIZE], "big"), payload[SIZE:]


def _messages(payload: bytes, randomizer: Randomizer) -> Messages:
    """The messages of a hand; their rows are the labels."""
    size, rest = parted(payload)
    return Messages.from_bytes(Alphabet(1, randomizer.alphabet.symbols), size, rest, randomizer.alphabet.labels)
