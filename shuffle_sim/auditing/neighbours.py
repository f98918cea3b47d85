"""Tables of a curator that differ in one row, or person: on the border, beyond it, and far out."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.protocol.release import CentralAlgorithm

_BORDER, _COHORTS = 8, 8  # random rows of the size of the first one; releases with a changed row
_LONGER = 1.001, 1.2, 1.5, 4.0, 1e3  # times a row, or its features
_ODD = np.nan, -np.inf
_RAGGED = 1, 8, 64  # records of a person


def neighbours(
    algorithm: CentralAlgorithm[Any], first: Floats, second: Floats, starts: Iterable[int] = ()
) -> Iterator[tuple[int, Population]]:
    """Tables that differ from the first in one row: which one, and the table.

    They are the second, and those with other rows that the algorithm does not refuse.

    Args:
        algorithm: whose rows they are.
        first: rows, or persons with as many records each.
        second: rows of which one differs.
        starts: where cohorts begin: every release has a changed row.
    """
    algorithm = deepcopy(algorithm)  # it may keep what it checks
    apart = (first != second).reshape(len(first), -1).any(axis=1)
    place, unit, most = int(np.argmax(apart)), algorithm.unit, algorithm.most_records
    yield place, population_for(unit, second, most)
    rows = first[place], second[place]
    rng, size = np.random.default_rng(len(first)), float(np.linalg.norm(rows[0].ravel()))
    border = [size * x / np.linalg.norm(x) for x in rng.normal(size=(_BORDER, *rows[0].shape))]
    longer = [far * rows[1] for far in _LONGER]
    # Rows of classes are refused with another label: there the features alone are longer.
    labelled = [each for row in rows for each in _of_label(row)]
    odd = [np.full_like(rows[0], each) for each in _ODD]
    changed = [place, 0, len(first) // 2, len(first) - 1, *sorted(starts)[:_COHORTS]]
    for other in dict.fromkeys(changed):
        for row, many in product(rows, _RAGGED if unit is Unit.PERSON else ()):
            ragged = np.empty(len(first), object)
            ragged[:] = [*first]
            ragged[other] = np.resize(row, (many, row.shape[-1]))
            yield other, population_for(unit, ragged, most)
        for row in (*rows, *odd, -rows[0], 0 * rows[0], *longer, *labelled, *border, *first[:2]):
            table = first.copy()
            table[other] = row
            try:
                population = population_for(unit, table, most)
                if isinstance(population, InMemory):
                    algorithm.check(population.array)
            except ShuffleSimError:
                continue
            yield other, population


def _of_label(row: Floats) -> list[Floats]:
    """Rows, or persons, whose features are those of another one times a number; of either label."""
    if row.shape[-1] < 2:
        return []
    features, label = row[..., :-1], row[..., -1:]
    far = [each * features for each in _LONGER] + [np.full_like(features, each) for each in _ODD]
    return [np.concatenate([each, y], axis=-1) for each in far for y in (label, -label)]
