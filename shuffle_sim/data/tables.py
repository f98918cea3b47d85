"""Real tables: those that are registered, and the user's own CSV, Parquet or NPZ files.

Private sums need bounds that are public, that is, not computed from the data: a registered table
has published ones, for a user's file the user states them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.column_kinds import Category, Date, FreeNumber, Number, kind_of, no_number
from shuffle_sim.data.columns import Bounds, Column
from shuffle_sim.data.file_columns import column_in, columns_of, gaps, nameless, names_of
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.data.schema import Declared, Scale, Schema, nothing_left
from shuffle_sim.errors import ParameterError
from shuffle_sim.registry import registered


@dataclass(frozen=True, kw_only=True)
class Table:
    """Named columns, with public bounds for every column; a row is a record.

    Attributes:
        name: of the table or file.
        schema: how a row's cells were encoded, with their public bounds.
        rows: float64 array of shape (records, columns).
        target: what a model may learn to predict, shape (records,): names of classes or real
            numbers; or None.
        target_bounds: public bounds of a real target, or None.
        target_name: what messages call it.
        person: the name of each row's person, shape (records,); None: each row is a person's.
        assumptions: what epsilon does not cover.
        classes: the public classes of the target, where they were stated.
        free: whether bounds that nobody stated are to be chosen privately.
        chosen_bounds: those that were, by column.
    """

    name: str
    schema: Schema
    rows: Floats
    target: NDArray[Any] | None = None
    target_bounds: Bounds | None = None
    target_name: str = "label"
    person: NDArray[Any] | None = None
    assumptions: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    free: bool = False
    chosen_bounds: dict[str, Bounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the shape."""
        if self.rows.ndim != 2 or self.rows.shape[1] != len(self.columns):
            allowed = f"(records, {len(self.columns)}), as the schema says"
            raise ParameterError("rows.shape", self.rows.shape, allowed)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in order."""
        return self.schema.names

    @cached_property
    def lower(self) -> Floats:
        """Public lower bounds, shape (columns,)."""
        return self.schema.limits[0]

    @cached_property
    def upper(self) -> Floats:
        """Public upper bounds, shape (columns,)."""
        return self.schema.limits[1]

    @property
    def rule(self) -> str:
        """How columns are scaled, before all are divided by one number."""
        whose = "public or privately chosen" if self.free else "public"
        rule = f"each column is mapped from its {whose} bounds to [-1, 1] (and clipped there)"
        if self.schema.plain:
            return rule
        rule += "; a category becomes a column for each of its K levels, 1 or 0, less 1/K"
        return rule + ("; a blank is 0" if self.schema.missing else "")

    @property
    def scaling(self) -> str:
        """The public rule by which `scaled` brings rows into the l2 unit ball."""
        norm, count = self.scale.norm, len(self.columns)
        by = f"the square root of the {count} columns" if self.schema.plain else f"{norm:.4g}"
        return f"{self.rule}, then divided by {by}, so every row lies in the l2 ball of radius 1"

    @cached_property
    def scale(self) -> Scale:
        """Into the l2 unit ball."""
        return self.schema.scale

    @property
    def clipped_cells(self) -> int:
        """How many cells lie outside the public bounds."""
        return int(((self.rows < self.lower) | (self.rows > self.upper)).sum())

    def scaled(self) -> Floats:
        """The rows in the l2 unit ball, by `scaling`."""
        return self.schema.scaled(self.rows)

    def row_map(self, norm: float) -> RowMap:
        """The same column by column, divided by another number: users apply it themselves."""
        scale, free = self.scale, np.array(self.schema.free, np.int64)
        # Free columns get theirs with their limits (`RowMap.bounded`).
        factor = 1 / scale.half / norm
        return RowMap(
            self.lower, self.upper, scale.center, factor, free, np.full(len(free), 1 / norm)
        )

    def bounded(self, low: Floats, high: Floats) -> "Table":
        """With bounds for the columns that had none, in their order."""
        names = [self.columns[place] for place in self.schema.free]
        limits = dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))
        return replace(self, schema=self.schema.bounded(limits), chosen_bounds=limits)

    def means(self, sums: Floats, count: int) -> Floats:
        """Column means in the table's own units, from sums of `count` scaled rows."""
        scale = self.scale
        return np.asarray(scale.center + scale.half * scale.norm * sums / count)

    def dates(self, means: Floats) -> dict[str, str]:
        """Means of columns of dates, as dates."""
        kinds = {each.name for each in self.schema.columns if isinstance(each, Date)}
        days = np.floor(np.clip(means, -1e6, 1e6)).astype("datetime64[D]")  # noise may go beyond
        found = zip(self.columns, days, strict=True)
        return {name: str(day) for name, day in found if name in kinds}

    def spread(self, standard_error: float, count: int) -> Floats:
        """Standard error of each column mean in the table's own units."""
        return np.asarray(self.scale.half * self.scale.norm * standard_error / count)


def bundled(name: str) -> Table:
    """The table that is registered under a name: those of scikit-learn, and of third parties.

    Raises:
        ParameterError: for another name, or where something else is registered under it.
    """
    make = registered("table", name)
    found = make() if callable(make) else make
    if not isinstance(found, Table):
        raise ParameterError("table", name, f"of a Table, not a {type(found).__name__}")
    return found


def read(
    path: Path,
    columns: list[str] | None,
    bounds: Mapping[str, Bounds],
    everywhere: Bounds | None,
    target: str | None = None,
    person: str | None = None,
    declared: Declared | None = None,
) -> Table:
    """A table from a .csv, .tsv, .parquet or .npz file.

    Args:
        path: the file. An .npz holds one array per column, or one array of shape (records, columns)
            with columns "0", "1", ...
        columns: which columns, in order; None: those of `declared`, or all.
        bounds: public bounds by column.
        everywhere: public bounds of the columns that neither `bounds` nor `declared` has.
        target: the column that a model may learn to predict; not among the others.
        person: the column that names the person of a record; not among the others.
        declared: what else is stated of the file: types, categories, blanks.

    Raises:
        ParameterError: unreadable file, missing column, a cell that is not what its column was
            stated to hold, or a column without bounds.
    """
    known = declared or Declared()
    target, person = target or known.target, person or known.person
    stated = dict(known.columns) | {
        name: Number(name=name, limits=limits) for name, limits in bounds.items()
    }
    texts = [name for name, column in stated.items() if not isinstance(column, Number)]
    found = columns_of(path, known.layout, texts)
    apart = [each for each in (target, person) if each]
    every = known.columns if known.chosen else found
    names = columns or [name for name in every if name not in apart]
    for name in (*names, *stated, *apart):
        column_in(found, name, path, "person" if name == person else "column")
    if not names or target in names:
        raise ParameterError("columns", names, f"at least one, and not the label {target!r}")
    if person is not None and person in (*names, target):
        raise ParameterError("person", person, "a column that is neither a feature nor the label")
    others = [name for name in names if name not in stated]
    if everywhere is None and not known.free:
        # No bounds would make numbers of them: what helps is another type.
        for name in others:
            if kind_of(name, found[name], known.layout.marks) == Category.kind:
                raise no_number(name)
    schema = Schema(
        columns=tuple(stated.get(name) or _number(name, everywhere, known.free) for name in names),
        target=None if target is None else stated.get(target),
        missing=known.missing,
        layout=known.layout,
    )
    made = replace(table_of(schema, found, path.name, target, person), free=known.free)
    if target is None or made.target_bounds is not None or everywhere is None:
        return made
    return replace(made, target_bounds=_number(target, everywhere).bounds)


def table_of(
    schema: Schema,
    cells: Mapping[str, NDArray[Any]],
    name: str,
    target: str | None = None,
    person: str | None = None,
) -> Table:
    """The columns of a file, encoded by a schema.

    Raises:
        ParameterError: a cell that is not what its column was stated to hold, or no row is left.
    """
    rows, stated = schema.encode(cells), schema.target
    labels = None if target is None else schema.targets(cells[target])
    persons = None if person is None else cells[person]
    notes: tuple[str, ...] = ()
    if schema.missing == "drop":
        kept = ~np.isnan(rows).any(axis=1)
        # A row without its label or person is left out with it.
        kept &= True if labels is None else ~gaps(labels)
        kept &= True if persons is None else ~nameless(persons)
        if not kept.any():
            raise nothing_left(schema.missing, _only_blanks(schema, rows))
        if not kept.all():
            rows = rows[kept]
            labels, persons = (each if each is None else each[kept] for each in (labels, persons))
            notes = ("which rows are left out for a blank is public; epsilon does not cover it",)
    if persons is not None:
        persons = names_of(f"column {person}", persons)
    classes = None if stated is None else stated.classes
    return Table(
        name=name,
        schema=schema,
        rows=rows,
        target=labels,
        target_bounds=None if stated is None or classes else stated.bounds,
        target_name=target or "label",
        person=persons,
        assumptions=notes,
        classes=classes,
    )


def _only_blanks(schema: Schema, rows: Floats) -> list[str]:
    """The columns of which every cell is blank."""
    blank = [bool(np.isnan(column).all()) for column in rows.T]
    known = dict(zip(schema.names, blank, strict=True))
    return [each.name for each in schema.columns if any(known[name] for name in each.names)]


def _number(name: str, bounds: Bounds | None, free: bool = False) -> Column:
    """A number with its public bounds, which must be there unless they are to be chosen."""
    if bounds is None and free:
        return FreeNumber(name=name)
    if bounds is None:
        raise ParameterError(
            "bounds",
            None,
            f"given for column {name!r}: public limits, not computed from the data; or take "
            "--choose-bounds, which pays for a private choice",
        )
    return Number(name=name, limits=bounds)
