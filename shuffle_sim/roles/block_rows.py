"""The rows of user blocks, in pieces that stay in the processor's cache; who hosts some blocks."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Population
from shuffle_sim.errors import DataChangedError
from shuffle_sim.protocol.release import Part
from shuffle_sim.sampling import kernels


class Chunk(NamedTuple):
    """Its first user, its rows, those that are read next if they are in memory, and ||row||^2."""

    first: int
    rows: Floats
    following: Floats | None = None
    squares: Floats | None = None


# doubles of a chunk, 1 MiB: from query to bits it stays near its core, and calls are paid for
_CHUNK_VALUES = 131_072


def chunk_rows(width: int) -> int:
    """How many rows of so many values are asked, randomized and added at a time.

    It depends on the width of a row only, so never on the workers.
    """
    # Of long rows still some: each call of a kernel has a price of its own.
    return max(64, -(-_CHUNK_VALUES // max(1, width)))


class BlockRows:
    """Reads the rows of blocks, and keeps those in memory that are read again."""

    def __init__(self, population: Population) -> None:
        """Start with nothing read."""
        self._population = population
        self._read_once: set[int] = set()
        self._resident: dict[int, list[Chunk]] = {}
        self._kept: list[Chunk] = []

    def chunks(self, start: int, stop: int) -> Iterable[Chunk]:
        """The rows of a block, in pieces that stay in the cache, columns contiguous.

        Rows in memory are copied when they are read again: many are read once only.
        """
        if start in self._read_once and start not in self._resident:
            self._keep(start, stop)
        if self._population.resident:
            # Rows of files and generators are read anew: kept, they would fill the memory.
            self._read_once.add(start)
        return self._resident[start] if start in self._resident else self._read(start, stop)

    def _read(self, start: int, stop: int) -> Iterator[Chunk]:
        """Each until the next is asked for: they share their memory."""
        width = self._population.width(start)
        step = chunk_rows(width)
        room = np.empty(min(step, stop - start) * max(1, width))
        for first in range(start, stop, step):
            rows = self._population.rows(first, min(first + step, stop))
            columns, squares = kernels.arranged(rows, room if rows.size <= room.size else None)
            yield Chunk(first, columns, None, squares)

    def _keep(self, start: int, stop: int) -> None:
        """Keep the block's chunks, each with the one that is read after it."""
        chunks = self._copied(start, stop)
        after = [chunk for _, chunk in chunks[1:]]
        kept = [Chunk(*each, next_) for each, next_ in zip(chunks, [*after, None], strict=True)]
        if self._kept:
            self._kept[-1] = self._kept[-1]._replace(following=chunks[0][1])
        self._resident[start] = self._kept = kept

    def _copied(self, start: int, stop: int) -> list[tuple[int, Floats]]:
        """The block's chunks, their columns in one piece of memory: numpy asks for large pages."""
        rows = self._population.rows(start, stop)
        if rows.ndim == 1:  # they are one column as they are
            return [(each.first, each.rows) for each in self._read(start, stop)]
        kept, chunks, step = np.empty(rows.shape), [], chunk_rows(self._population.width(start))
        for first in range(0, len(rows), step):
            part = kept[first : first + step]
            chunk = part.reshape(part.shape[::-1]).T
            chunk[...] = rows[first : first + step]
            chunks.append((start + first, chunk))
        return chunks


class Hosting:
    """Some blocks of rows, and the hashes of their rows as they were first read."""

    def __init__(
        self,
        population: Population,
        blocks: Iterable[int],
        block_size: int,
        contents: Mapping[int, bytes] | None = None,
        users: int | None = None,
    ) -> None:
        """Take the blocks of the first `users`, or of all.

        `contents` are the hashes of their rows; None: they are read now.
        """
        self._population, self._hosted, self._size = population, tuple(blocks), block_size
        self._users = population.users if users is None else users
        first = (
            {block: population.content(*self._span(block)) for block in self._hosted}
            if contents is None
            else contents
        )
        self._contents = {block: first[block] for block in self._hosted}

    def contents(self) -> dict[int, bytes]:
        """Hashes of the rows of each block, as they were first read."""
        return self._contents

    def _span(self, block: int) -> tuple[int, int]:
        return block * self._size, min((block + 1) * self._size, self._users)

    def _demand_unchanged(self, block: int) -> None:
        """Refuse a block after its rows were read: those that change on the way count, too.

        Raises:
            DataChangedError: rows are others than were first read.
        """
        first = self._contents[block]
        if first and self._population.content(*self._span(block)) != first:
            raise DataChangedError(block)


class CuratorShard(Hosting):
    """A shard of the trusted curator: blocks of rows, of which parts of statistics are computed."""

    def parts(self, part: Part, cohort: Cohort) -> list[tuple[int, Floats]]:
        """(block, part of its rows in the cohort) for each block that has some.

        Raises:
            DataChangedError: rows are others than were first read.
        """
        found = []
        for block in self._hosted:
            spans = cohort.within(*self._span(block))
            pieces = [part(self._population.rows(low, high)) for low, high in spans]
            self._demand_unchanged(block)
            if pieces:
                found.append((block, np.sum(pieces, axis=0)))
        return found
