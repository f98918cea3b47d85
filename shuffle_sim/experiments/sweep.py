"""Runs a study: every point of a grid, over all cores, each kept as soon as it ends."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.experiments.points import Grid, Point, points_of, written
from shuffle_sim.experiments.store import Kept, Store, identity
from shuffle_sim.experiments.trial import Make, Outcome, measured_names
from shuffle_sim.registry import registered

if TYPE_CHECKING:
    import pyarrow

OnPoint = Callable[[int, int, Outcome], object]


@dataclass(frozen=True)
class Study:
    """What is run at which points.

    Attributes:
        make: from parameters to what is run (see `Trial`).
        points: in the order of the table.
        name: of the study in a store.
    """

    make: Make
    points: list[Point]
    name: str

    def run(
        self,
        store: Store,
        *,
        runtime: str = "processes",
        workers: int | None = None,
        address: str | None = None,
        on_point: OnPoint | None = None,
    ) -> list[Kept]:
        """Run what the store does not hold yet; each point is in it as soon as it ended.

        A point that failed is kept with its reason, and run again the next time.

        Returns:
            All points in their order.

        Raises:
            ParameterError: a bad option, or a store that cannot be written.
        """
        code = identity(self.make)
        done = store.rows(self.name, code)
        left = [point for point in self.points if point.content not in done]
        pool = registered("pool", runtime)
        if address is not None and runtime != "ray":
            raise ParameterError("address", address, 'left out but with runtime "ray"')
        host = pool() if address is None else pool(address)
        many = None if workers is None else integer("workers", workers)
        ended = len(self.points) - len(left)
        # closing: at Ctrl-C the pool ends its workers before the store is left.
        with closing(host.outcomes(self.make, left, many)) as outcomes:
            for point, outcome in outcomes:
                kept = store.keep(self.name, code, point, outcome)
                # A failure is kept, but not done: the next run of the study tries it again.
                if outcome.row is not None:
                    done[point.content] = kept
                ended += 1
                if on_point is not None:
                    on_point(ended, len(self.points), outcome)
        failed = store.rows(self.name, code, state="failed")
        return [done.get(each.content) or failed[each.content] for each in self.points]


def sweep(
    make: Make,
    grid: Grid,
    *,
    seeds: int | Iterable[int] | None = 1,
    runtime: str = "processes",
    workers: int | None = None,
    address: str | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    on_point: OnPoint | None = None,
) -> "pyarrow.Table":
    """Run `make` at every point of `grid`, over all cores: a table with a row for each point.

    The same study gives the same rows on any runtime and any number of workers: a point's seed is
    drawn from its parameters and its repetition. A point that fails has a reason in its row, and
    the others go on.

    Args:
        make: takes the parameters of a point by name, and its `seed` if it asks for one. It gives a
            `Trial`, a tuple (algorithm, data), or the row itself, as a mapping.
        grid: for each parameter a value or a list of values; all combinations are run. A list of
            grids: all points of each.
        seeds: how many repetitions of each, or a list of their numbers. None: one, unseeded.
        runtime: "processes" of this machine, "ray", "inprocess" or another registered pool.
        workers: points at a time; by default one for each core.
        address: with "ray": host:port of a running cluster, or "auto".
        store: a file that keeps every point as it ends. What it holds already is not run again.
        name: of the study in the store; by default that of `make`.
        on_point: called after each point with how many are done, how many there are, and what
            became of the last.

    Returns:
        The parameters, `repeat`, `seed`, what was measured, `reason` (empty where the point ran)
        and `seconds`, as a table of pyarrow; pandas and polars take it by `to_pandas` and
        `from_arrow`.

    Raises:
        ParameterError: a bad grid, option or store; naming it.
    """
    if not callable(make):
        raise ParameterError("make", make, "a function of a point's parameters")
    title = name or str(getattr(make, "__qualname__", type(make).__qualname__))
    study = Study(make, points_of(grid, seeds), title)
    with closing(Store.open(store)) as kept:
        rows = study.run(kept, runtime=runtime, workers=workers, address=address, on_point=on_point)
    return table_of(rows)


def table_of(rows: Iterable[Kept]) -> "pyarrow.Table":
    """Points as a table; a parameter that is a list or a mapping is shown as JSON."""
    import pyarrow as pa

    found = [_flat(each) for each in rows]
    columns = list(dict.fromkeys(name for row in found for name in row))
    last = ["reason", "seconds"]
    columns = [name for name in columns if name not in last] + last
    return pa.table({name: _column([row.get(name) for row in found]) for name in columns})


def _column(values: list[Any]) -> Any:
    """Values as one type: numbers where all are, else texts."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # Arrow refuses 1 and 1.5 in one column; as doubles both fit.
        kinds = {type(each) for each in values if each is not None}
        if kinds <= {int, float}:
            return pa.array([None if each is None else float(each) for each in values])
        return pa.array(
            [each if each is None or type(each) is str else written(each) for each in values]
        )


def _flat(kept: Kept) -> Mapping[str, Any]:
    parameters = {
        name: written(value) if isinstance(value, list | dict) else value
        for name, value in kept.point.parameters.items()
    }
    row = kept.row or {}
    measured = {told: row[name] for name, told in measured_names(row, parameters).items()}
    run = {"repeat": kept.point.repeat, "seed": kept.point.seed}
    return {**parameters, **run, **measured, "reason": kept.reason, "seconds": kept.seconds}
