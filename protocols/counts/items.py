"""Items of 2^64 as rows of data, and texts as items: by their first bytes, or by a public hash."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.columns import unique_texts
from shuffle_sim.errors import ParameterError, integer

Items = NDArray[np.uint64]


def items_of(rows: Floats, bits: int) -> tuple[Items, NDArray[np.bool_]]:
    """Items (users,) of rows, and which rows hold one.

    Of up to 53 bits they are whole numbers, (users,); else the upper and the lower 32 bits of each,
    (users, 2).
    """
    columns = np.asarray(rows, np.float64).reshape(len(rows), -1)
    # Doubles hold whole numbers up to 2^53 only: more bits come in two columns.
    tops = [2.0**bits] if columns.shape[1] == 1 else [2.0 ** (bits - 32), 2.0**32]
    inside = ((columns >= 0) & (columns < tops) & (columns == np.floor(columns))).all(axis=1)
    whole = np.where(inside[:, None], columns, 0.0).astype(np.uint64)
    found = whole[:, 0]
    if columns.shape[1] == 2:
        found = (found << np.uint64(32)) | whole[:, 1]
    return found, inside


def columns_of(items: Iterable[int]) -> Floats:
    """Items of 64 bits as rows of data, (users, 2): their upper and their lower 32 bits."""
    found = np.fromiter(items, np.uint64)
    parts = found >> np.uint64(32), found & np.uint64(2**32 - 1)
    return np.stack(parts, axis=1).astype(np.float64)


def prefix_of(text: str, size: int = 8) -> int:
    """The first bytes of a text as an item of 8 size bits: similar texts are neighbours."""
    return int.from_bytes(text.encode()[:size].ljust(size, b"\0"), "big")


def text_of(item: int, size: int = 8) -> str:
    """The text of an item that `prefix_of` made; cut at its last whole letter."""
    return item.to_bytes(size, "big").rstrip(b"\0").decode(errors="ignore")


def hash_of(text: str) -> int:
    """A public hash of a text, 64 bits of BLAKE2b: d texts collide with chance d^2/2^65 at most."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Coded:
    """Users' cells as items: texts by their first 8 bytes, or whole numbers.

    Attributes:
        items: of each user, (users,).
        bits: of whole numbers; None: items are texts.
    """

    items: Items
    bits: int | None = None

    @classmethod
    def of(cls, cells: NDArray[Any], bits: int | None = None) -> "Coded":
        """Of a column of a file.

        Raises:
            ParameterError: bits, or a cell that is no whole number below 2^bits.
        """
        if bits is not None:
            integer("bits", bits, 2, 64)
        different, places = unique_texts(cells)
        return cls(np.array([_item(text, bits) for text in different], np.uint64)[places], bits)

    @property
    def size(self) -> int:
        """Bits of an item."""
        return 64 if self.bits is None else self.bits

    @property
    def rows(self) -> Floats:
        """As users hold them."""
        if self.size <= 53:
            return self.items.astype(float)
        return columns_of(int(each) for each in self.items)

    def name(self, item: int) -> str:
        """For people."""
        return (text_of(item) or "(blank)") if self.bits is None else str(item)

    def cut(self, items: Items) -> bool:
        """Whether some of these may be the beginnings of longer texts."""
        return self.bits is None and bool((np.asarray(items, np.uint64) & np.uint64(255)).any())

    def counts(self, items: Items) -> Floats:
        """True ones, of these items."""
        return np.array([(self.items == each).sum() for each in items], float)


def _item(text: str, bits: int | None) -> int:
    if bits is None:
        return prefix_of(text)
    # 2^64 has 20 digits: longer ones are refused unread, as `int` of a long text is slow.
    if not text.isdecimal() or len(text.lstrip("0")) > 20 or int(text) >= 2**bits:
        allowed = f"whole numbers from 0 to 2^{bits} - 1; texts are found without --bits"
        raise ParameterError("column", "a cell", allowed)
    return int(text)
