"""Tables that are odd as a whole: nearly without numbers, of other types, and ways between two.

What a statistic takes from the whole table, such as a count, a middle or a threshold, moves by one
row here: where it is the only one of its kind, or where it tips a balance.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.aside import aside
from shuffle_sim.auditing.claims.neighbours import RereadRows, diverse, taken
from shuffle_sim.auditing.curator.calls import check_atoms, check_careless, value_of
from shuffle_sim.auditing.curator.distances import distance
from shuffle_sim.auditing.curator.release_law import check_distance
from shuffle_sim.auditing.laws.statistics import naming
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.setup import suited
from shuffle_sim.protocol.release import CentralAlgorithm, Release

_TYPES: tuple[Any, ...] = (np.int64, np.float32, np.int8)
_LONG = 100  # times a unit; a small integer holds it
_PARTS = 16  # of a way between two tables


def check_whole(
    release: Release,
    algorithm: CentralAlgorithm[Any],
    rows: tuple[Floats, Floats],
    seconds: float,
) -> None:
    """A release moves no farther than stated on such tables, and in the steepest step of each way.

    Args:
        release: the first.
        algorithm: whose it is; a copy of it looks at the rows.
        rows: two tables that differ in one row.
        seconds: of the processor, for the ways.

    Raises:
        LawError: it does.
    """
    algorithm, began = deepcopy(algorithm), time.process_time()

    def apart(one: Population, other: Population) -> float:
        values = value_of(release, one), value_of(release, other)
        return distance(release.sensitivity.norm, *values) or 0.0

    with naming("release 0 on tables that are odd as a whole"):
        for base, others in odd(algorithm, *rows):
            value = value_of(release, base)
            for other in others:
                check_distance(release, value, value_of(release, other))
        for pair in ways(*rows):
            if time.process_time() - began > seconds:
                return
            if (step := steepest(algorithm, pair, apart)) is not None:
                check_distance(release, *(value_of(release, each) for each in step))


def check_diverse(
    releases: Sequence[Release],
    algorithm: CentralAlgorithm[Any],
    rows: tuple[Floats, Floats],
    seconds: float,
) -> None:
    """Some releases on tables of many kinds of rows, and on their neighbours; as `check_whole`."""
    began = time.process_time()
    some = [releases[at] for at in sorted({0, len(releases) // 2, len(releases) - 1})]
    for turn, (base, others) in enumerate(diverse(algorithm, *rows)):
        for place, release in enumerate(some):
            with naming(f"release {place} on rows of many kinds"):
                value, *values = aside(partial(value_of, release), [base, *others])
                check_careless(release, value, base, turn)
                check_atoms(release, value)
                for other in values:
                    check_distance(release, value, other)
            if time.process_time() - began > seconds:
                return


def odd(
    algorithm: CentralAlgorithm[Any], first: Floats, second: Floats
) -> Iterator[tuple[Population, list[Population]]]:
    """Tables with one sound row among others without numbers, and of whole numbers or short floats;
    with each some that differ from it in one row.

    Args:
        algorithm: whose rows they are; those that it refuses are left out.
        first: rows, or persons with as many records each.
        second: rows of which one differs.
    """
    place = int(np.argmax((first != second).reshape(len(first), -1).any(axis=1)))
    rows = first[place], second[place], 0 * first[place], 3 * second[place]
    for value in (np.nan, np.inf):
        base = np.full_like(first, value)
        yield from _differing(algorithm, base, place, rows)
        base[: len(first) // 2] = first[: len(first) // 2]
        yield from _differing(algorithm, base, len(first) - 1, rows)
    for kind in _TYPES if algorithm.unit is Unit.RECORD else ():
        base = np.sign(first)
        far = [_LONG * np.sign(row) for row in rows[:2]]
        far += [np.append(row[:-1], np.sign(rows[0][-1:])) for row in far]
        typed = [row.astype(kind) for row in far]
        yield from _differing(algorithm, base.astype(kind), place, typed)


def _differing(
    algorithm: CentralAlgorithm[Any], base: NDArray[Any], place: int, rows: Any
) -> Iterator[tuple[Population, list[Population]]]:
    """Tables with one of the rows at that place, in memory and read anew, which is looked at less:
    the first that is taken, and the others.
    """
    found, anew = list[Population](), list[Population]()
    for row in rows:
        table = base.copy()
        table[place] = row
        if (population := taken(algorithm, table)) is not None:
            found.append(population)
        elif algorithm.unit is Unit.RECORD:
            with suppress(ShuffleSimError):
                anew.append(suited(algorithm, RereadRows(InMemory(table))))
    for every in (found, anew):
        if len(every) > 1:
            yield every[0], every[1:]


def ways(first: Floats, second: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Pairs of tables of one size, all of whose rows differ: short and long, of either label,
    one way and all ways.
    """
    place = int(np.argmax((first != second).reshape(len(first), -1).any(axis=1)))
    rng, row = np.random.default_rng([len(first), 5]), first[place]
    long = np.broadcast_to(row, first.shape).copy()
    short, far, turned, other = (long.copy() for _ in range(4))
    features = np.s_[..., : max(1, first.shape[-1] - 1)]  # a table of one column has no label
    short[features] *= 1e-3
    far[features] *= 3
    turned[..., -1] *= -1
    drawn = rng.normal(size=other[features].shape)
    drawn *= np.linalg.norm(row.ravel()) / np.linalg.norm(drawn, axis=-1, keepdims=True)
    other[features] = drawn
    yield short, long
    yield short, far
    yield turned, long
    yield long, other
    yield 0 * long, far


def steepest(
    algorithm: CentralAlgorithm[Any],
    pair: tuple[Floats, Floats],
    apart: Callable[[Population, Population], float],
) -> tuple[Population, Population] | None:
    """The step between two tables, row by row, in which a value moves most; about.

    Parts of the way are looked at first, and the part that moves most for its rows is halved.

    Args:
        algorithm: whose rows they are; None if it refuses some.
        pair: tables; on the way the rows of the second come in place of those of the first.
        apart: how far two tables' values are apart.
    """

    def at(many: int) -> Population | None:
        return taken(algorithm, np.concatenate([pair[1][:many], pair[0][many:]]))

    ends = np.unique(np.linspace(0, len(pair[0]), _PARTS + 1).astype(int)).tolist()
    tables = {many: at(many) for many in ends}
    if None in tables.values():
        return None
    known: dict[int, Any] = dict(tables)
    spans = pairwise(ends)

    def slope(span: tuple[int, int]) -> float:
        return apart(known[span[0]], known[span[1]]) / (span[1] - span[0])

    low, high = max(spans, key=slope)
    while high - low > 1:
        middle = (low + high) // 2
        if (table := at(middle)) is None:
            return None
        known[middle] = table
        low, high = max((low, middle), (middle, high), key=slope)
    return known[low], known[high]
