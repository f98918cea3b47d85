"""One level of a prefix tree: what it asks of an item, and the noise in its bins."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.counts.items import items_of
from protocols.counts.pollution import Categories
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer
from shuffle_sim.protocol.query import Query

MAX_LEVEL = 24
"""Bits that one level may ask for."""


@dataclass(frozen=True)
class Children(Query):
    """Asks for the place of an item's next bits under the prefixes that were kept; -1: not kept.

    Attributes:
        bits: of an item.
        before: bits of a prefix.
        level: next bits.
        kept: prefixes, ascending, filled up with 2^64 - 1.
    """

    bits: int
    before: int
    level: int
    kept: NDArray[np.uint64]
    moves: ClassVar[tuple[str, ...]] = ("kept",)

    def __post_init__(self) -> None:
        integer("bits", self.bits, 2, 64)
        integer("before", self.before, 0, self.bits - 1)
        integer("level", self.level, 1, min(MAX_LEVEL, self.bits - self.before))

    def __call__(self, rows: Floats) -> Floats:
        """(users,), of rows (users,) or (users, 2)."""
        found, known = items_of(rows, self.bits)
        # At the root the shift would be by all 64 bits, which no machine defines.
        prefix = found >> np.uint64(self.bits - self.before) if self.before else found * 0
        # Beyond the last one searchsorted names a place that is not there.
        at = np.minimum(np.searchsorted(self.kept, prefix), self.kept.size - 1)
        last = found >> np.uint64(self.bits - self.before - self.level)
        children = last & np.uint64((1 << self.level) - 1)
        # The first prefix begins in the middle: that is where a walk without data puts all users,
        # who agree to the rounds that it goes through.
        size = self.kept.size << self.level
        place = ((at << self.level) + children.astype(np.int64) + size // 2) % size
        kept = np.where(self.kept[at] == prefix, place, -1)
        return np.where(known, kept, -2).astype(np.float64)


@dataclass(frozen=True)
class Prefixes(Categories):
    """The place of a child, under noise in all of them."""
