"""Tables of a curator that differ in one row, or person: on the border, beyond it, and far out.

Most rows of a table are alike in some, and of many kinds in others: what a statistic takes from
other rows, such as a middle or a quantile, shows where these are not alike.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.protocol.release import CentralAlgorithm

_BORDER, _COHORTS = 8, 8  # random rows of the size of the first one; releases with a changed row
_LONGER = 1.001, 1.2, 1.5, 4.0, 1e3  # times a row, or its features
_SPANS = 1.0, 0.0999  # so that the longest rows are ten times as long, and no longer
_RAGGED = 1, 8, 64  # records of a person
_MANY = 1, 2, 8, 64  # records of persons, where all differ
_NUMBERS = 0.0, 0.5, -2.0, 20.0, -1e3  # in place of a column
_WAYS, _HALVED = 4, 30  # random ways; bisections to the longest row that is taken


class RereadRows(Population):
    """Rows that are read anew each time, as from a file or a generator: no shard keeps them."""

    def __init__(self, inner: Population) -> None:
        """The rows of another population."""
        self._inner = inner

    @property
    def users(self) -> int:
        return self._inner.users

    @property
    def unit(self) -> Unit:
        return self._inner.unit

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        return self._inner.rows(start, stop)


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
    brink = _brink(algorithm, first, place) if unit is not Unit.PERSON else []
    brink += [each for row in rows for each in _by_column(row)]
    changed = [place, 0, len(first) // 2, len(first) - 1, *sorted(starts)[:_COHORTS]]
    for other in dict.fromkeys(changed):
        for row, many in product(rows, _RAGGED if unit is Unit.PERSON else ()):
            ragged = np.empty(len(first), object)
            ragged[:] = [*first]
            ragged[other] = np.resize(row, (many, row.shape[-1]))
            yield other, population_for(unit, ragged, most)
        far = (*longer, *labelled, *border, *first[:2])
        for row in (*rows, -rows[0], 0 * rows[0], *(brink if other == place else ()), *far):
            population = taken(algorithm, _changed(first, other, row))
            if population is not None:
                yield other, population


def _of_label(row: Floats) -> list[Floats]:
    """Rows, or persons, whose features are those of another one times a number; of either label."""
    if row.shape[-1] < 2:
        return []
    features, label = row[..., :-1], row[..., -1:]
    labels = label, -label
    return [np.concatenate([far * features, y], axis=-1) for far in _LONGER for y in labels]


def _by_column(row: Floats) -> list[Floats]:
    """Rows, or persons, of which one column is another: so a label may be any number."""
    found = []
    for column in dict.fromkeys((row.shape[-1] - 1, 0, row.shape[-1] // 2)):
        for value in _NUMBERS:
            each = row.copy()
            each[..., column] = value
            found.append(each)
    return found


def _brink(algorithm: CentralAlgorithm[Any], first: Floats, place: int) -> list[Floats]:
    """Rows as long as they may be: corners of a cube, and random ways, with the label kept."""
    row, rng, found = first[place], np.random.default_rng(len(first)), []
    for kept in range(min(2, len(row))):
        d = len(row) - kept
        for way in (np.ones(d), np.resize([1.0, -1.0], d), *rng.normal(size=(_WAYS, d))):
            one = way / float(np.abs(way).max())

            def allowed(far: float, one: Floats = one, d: int = d) -> bool:
                each = np.concatenate([far * one, row[d:]])
                return taken(algorithm, _changed(first, place, each)) is not None

            found.append(np.concatenate([longest(allowed, 2 * _LONGER[-1]) * one, row[d:]]))
    return found


def longest(allowed: Callable[[float], bool], most: float) -> float:
    """How long a row may be, below `most`: by bisection; 0 where no length is allowed."""
    low, high = 0.0, most
    for _ in range(_HALVED):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def diverse(
    algorithm: CentralAlgorithm[Any], first: Floats, second: Floats
) -> Iterator[tuple[Population, list[Population]]]:
    """Tables of many kinds of rows, and with each some that differ from it in one row.

    Few long rows beside short ones; all long, all ways; lengths of two decades, one way and all
    ways; all alike; nearly as many long as short ones. Also all as short as the first table's.

    Args:
        algorithm: whose rows they are; those that it refuses are left out.
        first: rows, or persons with as many records each.
        second: rows of which one differs.
    """
    algorithm, rng, n = deepcopy(algorithm), np.random.default_rng([len(first), 2]), len(first)
    place = int(np.argmax((first != second).reshape(n, -1).any(axis=1)))
    row = first[place].reshape(-1, first.shape[-1])[0]
    if algorithm.unit is Unit.PERSON:
        yield from _ragged(algorithm, first, (first[place], second[place]))
    # What stays as it is: nothing, a label, a label and a group.
    # Kinds change first: where there is time for a few tables, they are of all kinds.
    for far, kept, changed, kind in product(
        _SPANS, range(min(3, len(row))), {0, int(rng.integers(n))}, _KINDS
    ):
        split = len(row) - kept
        size = float(np.linalg.norm(row[:split])) * (1 - 1e-9)
        base = np.where(rng.random(n) < 0.5, 0, 1).reshape(-1, *[1] * (first.ndim - 1))
        base = np.where(base == 0, first[place], second[place])
        base[..., :split] = far * size * kind(rng, base[..., :split].shape)
        others = [base[changed - 1], -base[changed], 1e3 * base[changed], 0 * base[changed]]
        others += [_with(row[..., :split], base[changed]) for row in (*others, first[place])]
        label = base[changed].copy()
        label[..., split : split + 1] *= -1
        found = [base, *(_changed(base, changed, row) for row in (*others, label))]
        every = [each for table in found if (each := taken(algorithm, table)) is not None]
        whole = taken(algorithm, base)
        if whole is not None and len(every) > 1:
            yield whole, every[1:]


def _ragged(
    algorithm: CentralAlgorithm[Any], first: Floats, pair: tuple[Floats, Floats]
) -> Iterator[tuple[Population, list[Population]]]:
    """Persons who have many records or few; one of them has another number, or others.

    All have one less than count: what one has beyond could take their places. Or they have any
    number, of two kinds of rows.
    """
    n, rng = len(first), np.random.default_rng([len(first), 3])
    sides = np.arange(n) % 2, (np.arange(n) < n // 2) * 1, rng.integers(0, 2, n)
    tables = [(first, np.full(n, max(1, first.shape[1] - 1)))]
    tables += [(np.stack(pair)[side], rng.choice(_MANY, n)) for side in sides]

    def population(rows: Floats, counts: NDArray[np.int64]) -> Population:
        people = np.empty(n, object)
        people[:] = [
            np.resize(row, (many, row.shape[-1]))
            for row, many in zip(rows, counts.tolist(), strict=True)
        ]
        return population_for(algorithm.unit, people, algorithm.most_records)

    for rows, counts in tables:
        for changed in (0, int(rng.integers(n))):
            others = []
            for many, row in product((_MANY[0], _MANY[-1]), pair):
                of = counts.copy()
                of[changed] = many
                others.append(population(_changed(rows, changed, row), of))
            # Any two of them differ in that person alone.
            yield others[-1], [population(rows, counts), *others[:-1]]


def nearly(first: Floats) -> list[Floats]:
    """The table with a number changed by a bit, or in sign: of the first row, amid, the last."""
    found = []
    for place, column in zip((0, len(first) // 2, len(first) - 1), (0, -1, -2), strict=True):
        table = first.copy()
        numbers = table.reshape(len(first), -1)[place][column:][:1]
        label = column == -1 and numbers.any()
        numbers[:] = -numbers if label else np.nextafter(numbers, np.where(numbers, 0.0, 1.0))
        found.append(table)
    return found


def unsound(algorithm: CentralAlgorithm[Any], first: Floats) -> Iterator[Population]:
    """Tables with a row that holds no numbers, where these are taken: a run of them ends well."""
    for value in (np.nan, np.inf):
        population = taken(algorithm, _changed(first, 0, np.full_like(first[0], value)))
        if population is not None:
            yield population


def longer(algorithm: CentralAlgorithm[Any], first: Floats) -> Iterator[Population]:
    """The table with rows ten times as long, where these are taken: the first, then all."""
    for rows in (slice(1), slice(None)):
        table = first.copy()
        table[rows, ..., : max(1, first.shape[-1] - 1)] *= 10
        if (population := taken(algorithm, table)) is not None:
            yield population


def _with(features: Floats, row: Floats) -> Floats:
    """A row with other features."""
    return np.concatenate([features, row[..., features.shape[-1] :]], axis=-1)


def _changed(table: Floats, place: int, row: Floats) -> Floats:
    """The table with another row."""
    found = table.copy()
    found[place] = row
    return found


def taken(algorithm: CentralAlgorithm[Any], table: Floats) -> Population | None:
    """The rows as a run takes them; None: it refuses them."""
    with suppress(ShuffleSimError):
        population = population_for(algorithm.unit, table, algorithm.most_records)
        if isinstance(population, InMemory):
            algorithm.check(population.array)
        return population
    return None


def _few_long(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """A fifth are long, in one direction."""
    found = np.full(shape, 1e-3) * _way(rng, shape[-1])
    found[: max(1, shape[0] // 5)] *= 1e3
    return found


def _every_way(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """All of one length, all ways: no class is far from another."""
    ways = rng.normal(size=shape)
    return np.asarray(ways / np.linalg.norm(ways, axis=-1, keepdims=True))


def _alike(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """All are one."""
    return np.asarray(np.ones(shape) * _way(rng, shape[-1]))


def _two_decades(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Lengths from 1/10 to 10, all ways."""
    ways = _every_way(rng, shape)
    return np.asarray(ways * 10.0 ** rng.uniform(-1, 1, (shape[0], *[1] * (len(shape) - 1))))


def _one_way(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """The same lengths, one way."""
    far = 10.0 ** rng.uniform(-1, 1, (shape[0], *[1] * (len(shape) - 1)))
    return np.asarray(far * np.ones(shape) * _way(rng, shape[-1]))


def _tied(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Half are longer than others, and one more or less."""
    found = np.full(shape, 0.1) * _way(rng, shape[-1])
    found[: (shape[0] + 1) // 2] *= 10
    return found


def _way(rng: np.random.Generator, d: int) -> Floats:
    way = rng.normal(size=d)
    return np.asarray(way / np.linalg.norm(way))


_KINDS = _few_long, _every_way, _one_way, _alike, _tied, _two_decades
