"""Real tables: the ones bundled with scikit-learn, and the user's own CSV, Parquet or NPZ files.

Private sums need bounds that are public, that is, not computed from the data: for bundled tables
they are the ranges their descriptions publish, for a user's file the user states them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.column_kinds import Category, Date, FreeNumber, Number
from shuffle_sim.data.columns import Bounds, Column
from shuffle_sim.data.file_columns import column_in, columns_of, gaps
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.data.schema import Declared, Scale, Schema, nothing_left
from shuffle_sim.errors import ParameterError

# Ranges as published in the tables' descriptions (diabetes: every column is scaled to unit sum of
# squares over 442 people).
_BREAST_CANCER = """
6.981:28.11 9.71:39.28 43.79:188.5 143.5:2501 0.053:0.163 0.019:0.345 0:0.427 0:0.201
0.106:0.304 0.05:0.097 0.112:2.873 0.36:4.885 0.757:21.98 6.802:542.2 0.002:0.031 0.002:0.135
0:0.396 0:0.053 0.008:0.079 0.001:0.03 7.93:36.04 12.02:49.54 50.41:251.2 185.2:4254 0.071:0.223
0.027:1.058 0:1.252 0:0.291 0.156:0.664 0.055:0.208
"""
_DIABETES_TARGET = (25.0, 346.0)
_WINE = """
11:14.8 0.74:5.8 1.36:3.23 10.6:30 70:162 0.98:3.88 0.34:5.08 0.13:0.66 0.41:3.58 1.3:13
0.48:1.71 1.27:4 278:1680
"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Named columns, with public bounds for every column; a row is a record.

    Attributes:
        name: of the table or file.
        columns: names, in order.
        rows: float64 array of shape (records, columns).
        lower: public lower bounds, shape (columns,).
        upper: public upper bounds, shape (columns,).
        target: what a model may learn to predict, shape (records,): names of classes or real
            numbers; or None.
        target_bounds: public bounds of a real target, or None.
        target_name: what messages call it.
        person: the name of each row's person, shape (records,); None: each row is a person's.
        schema: by which a file's cells were encoded; None: of a bundled table.
        assumptions: what epsilon does not cover.
        classes: the public classes of the target, where they were stated.
        free: whether bounds that nobody stated are to be chosen privately.
        chosen_bounds: those that were, by column.
    """

    name: str
    columns: tuple[str, ...]
    rows: Floats
    lower: Floats
    upper: Floats
    target: NDArray[Any] | None = None
    target_bounds: Bounds | None = None
    target_name: str = "label"
    person: NDArray[Any] | None = None
    schema: Schema | None = None
    assumptions: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    free: bool = False
    chosen_bounds: dict[str, Bounds] = field(default_factory=dict)

    @property
    def rule(self) -> str:
        """How columns are scaled, before all are divided by one number."""
        whose = "public or privately chosen" if self.free else "public"
        rule = f"each column is mapped from its {whose} bounds to [-1, 1] (and clipped there)"
        if self.schema is None or self.schema.plain:
            return rule
        rule += "; a category becomes a column for each of its K levels, 1 or 0, less 1/K"
        return rule + ("; a blank is 0" if self.schema.missing else "")

    @property
    def scaling(self) -> str:
        """The public rule by which `scaled` brings rows into the l2 unit ball."""
        norm, count = self.scale.norm, len(self.columns)
        by = f"the square root of the {count} columns" if self._plain else f"{norm:.4g}"
        return f"{self.rule}, then divided by {by}, so every row lies in the l2 ball of radius 1"

    @property
    def _plain(self) -> bool:
        return self.schema is None or self.schema.plain

    @cached_property
    def scale(self) -> Scale:
        """Into the l2 unit ball."""
        if self.schema is None:
            return Scale.of_bounds(self.lower, self.upper)
        return self.schema.scale

    @property
    def clipped_cells(self) -> int:
        """How many cells lie outside the public bounds."""
        return int(((self.rows < self.lower) | (self.rows > self.upper)).sum())

    def scaled(self) -> Floats:
        """The rows in the l2 unit ball, by `scaling`."""
        scale = self.scale
        inside = np.clip(self.rows, self.lower, self.upper)
        return np.asarray((inside - scale.center) / scale.half / scale.norm)

    def row_map(self, norm: float) -> RowMap:
        """The same column by column, divided by another number: users apply it themselves."""
        scale, free = self.scale, np.array(self.schema.free if self.schema else [], np.int64)
        factor = 1 / scale.half / norm
        return RowMap(
            self.lower, self.upper, scale.center, factor, free, np.full(len(free), 1 / norm)
        )

    def bounded(self, low: Floats, high: Floats) -> "Table":
        """With bounds for the columns that had none, in their order."""
        assert self.schema is not None
        names = [self.columns[place] for place in self.schema.free]
        limits = dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))
        schema = self.schema.bounded(limits)
        lower, upper = schema.limits
        return replace(self, schema=schema, lower=lower, upper=upper, chosen_bounds=limits)

    def means(self, sums: Floats, count: int) -> Floats:
        """Column means in the table's own units, from sums of `count` scaled rows."""
        scale = self.scale
        return np.asarray(scale.center + scale.half * scale.norm * sums / count)

    def spread(self, standard_error: float, count: int) -> Floats:
        """Standard error of each column mean in the table's own units."""
        return np.asarray(self.scale.half * self.scale.norm * standard_error / count)


def bundled(name: str) -> Table:
    """A table bundled with scikit-learn: breast-cancer, digits, diabetes or wine.

    Raises:
        ParameterError: for another name.
    """
    from sklearn import datasets

    loaders = {
        "breast-cancer": (datasets.load_breast_cancer, _BREAST_CANCER),
        "digits": (datasets.load_digits, " ".join(["0:16"] * 64)),
        "diabetes": (datasets.load_diabetes, " ".join(["-0.2:0.2"] * 10)),
        "wine": (datasets.load_wine, _WINE),
    }
    if name not in loaders:
        raise ParameterError("table", name, f"one of {', '.join(loaders)}")
    load, published = loaders[name]
    loaded = load()
    bounds = np.array([[float(end) for end in pair.split(":")] for pair in published.split()])
    columns = tuple(str(column) for column in loaded.feature_names)
    real = name == "diabetes"
    target = loaded.target if real else loaded.target_names[loaded.target]
    return Table(
        name=name,
        columns=columns,
        rows=np.asarray(loaded.data, float),
        lower=bounds[:, 0],
        upper=bounds[:, 1],
        target=target,
        target_bounds=_DIABETES_TARGET if real else None,
    )


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
    found, apart = (
        columns_of(path, known.layout, texts),
        [each for each in (target, person) if each],
    )
    names = columns or [
        name for name in (known.columns if known.chosen else found) if name not in apart
    ]
    for name in (*names, *stated, *apart):
        column_in(found, name, path)
    if not names or target in names:
        raise ParameterError("columns", names, f"at least one, and not the label {target!r}")
    if person is not None and person in (*names, target):
        raise ParameterError("person", person, "a column that is neither a feature nor the label")
    schema = Schema(
        columns=tuple(
            stated.get(name) or _number(name, everywhere, free=known.free) for name in names
        ),
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
    rows, (lower, upper), stated = schema.encode(cells), schema.limits, schema.target
    labels = None if target is None else schema.targets(cells[target])
    persons = None if person is None else cells[person]
    notes: tuple[str, ...] = ()
    if schema.missing == "drop":
        kept = ~np.isnan(rows).any(axis=1)
        for column in (labels, persons):
            kept &= True if column is None else ~gaps(column)
        if not kept.any():
            raise nothing_left(schema.missing, _only_blanks(schema, rows))
        if not kept.all():
            rows = rows[kept]
            labels, persons = (each if each is None else each[kept] for each in (labels, persons))
            notes = ("which rows are left out for a blank is public; epsilon does not cover it",)
    classes = target_bounds = None
    if isinstance(stated, Number | Date):
        target_bounds = stated.bounds
    elif isinstance(stated, Category):
        classes = stated.levels
    elif stated is not None:
        classes = ("false", "true")
    return Table(
        name=name,
        columns=schema.names,
        rows=rows,
        lower=lower,
        upper=upper,
        target=labels,
        target_bounds=target_bounds,
        target_name=target or "label",
        person=persons,
        schema=schema,
        assumptions=notes,
        classes=classes,
    )


def _only_blanks(schema: Schema, rows: Floats) -> list[str]:
    """The columns of which every cell is blank."""
    blank = [bool(np.isnan(column).all()) for column in rows.T]
    known = dict(zip(schema.names, blank, strict=True))
    return [each.name for each in schema.columns if any(known[name] for name in each.names)]


def _number(name: str, bounds: Bounds | None, *, free: bool = False) -> Column:
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
