"""A shard of the trusted curator: blocks of rows, of which parts of statistics are computed."""

from collections.abc import Iterable, Mapping

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Population
from shuffle_sim.errors import DataChangedError
from shuffle_sim.protocol.release import Part


class CuratorShard:
    """Some blocks of rows, of which parts of statistics are computed."""

    def __init__(
        self,
        population: Population,
        blocks: Iterable[int],
        block_size: int,
        contents: Mapping[int, bytes] | None = None,
    ) -> None:
        """Take the blocks; `contents` are the hashes of their rows as they were first read."""
        self._population, self._blocks, self._size = population, tuple(blocks), block_size
        first = {block: self._content(block) for block in self._blocks} if contents is None else {}
        self._contents = {**first, **(contents or {})}

    def contents(self) -> dict[int, bytes]:
        """Hashes of the rows of each block, as they were first read."""
        return {block: self._contents[block] for block in self._blocks}

    def _content(self, block: int) -> bytes:
        end = min((block + 1) * self._size, self._population.users)
        return self._population.content(block * self._size, end)

    def parts(self, part: Part, cohort: Cohort) -> list[tuple[int, Floats]]:
        """(block, part of its rows in the cohort) for each block that has some.

        Raises:
            DataChangedError: rows are others than were first read.
        """
        found = []
        for block in self._blocks:
            spans = cohort.within(block * self._size, (block + 1) * self._size)
            pieces = [part(self._population.rows(low, high)) for low, high in spans]
            # After they were read: rows that change on the way would not be seen before.
            if self._contents[block] and self._content(block) != self._contents[block]:
                raise DataChangedError(block)
            if pieces:
                found.append((block, np.sum(pieces, axis=0)))
        return found
