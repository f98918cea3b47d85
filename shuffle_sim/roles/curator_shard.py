"""A shard of the trusted curator: blocks of rows, of which parts of statistics are computed."""

from collections.abc import Iterable

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Population
from shuffle_sim.protocol.release import Part


class CuratorShard:
    """Some blocks of rows, of which parts of statistics are computed."""

    def __init__(self, population: Population, blocks: Iterable[int], block_size: int) -> None:
        """Take the blocks."""
        self._population, self._blocks, self._size = population, tuple(blocks), block_size

    def parts(self, part: Part, cohort: Cohort) -> list[tuple[int, Floats]]:
        """(block, part of its rows in the cohort) for each block that has some."""
        found = []
        for block in self._blocks:
            spans = cohort.within(block * self._size, (block + 1) * self._size)
            pieces = [part(self._population.rows(low, high)) for low, high in spans]
            if pieces:
                found.append((block, np.sum(pieces, axis=0)))
        return found
