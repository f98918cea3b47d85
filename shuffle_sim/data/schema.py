"""What is public of a table: its columns, their bounds and categories, and what blanks become.

A schema is written by people, as TOML, and never computed from data. With it every user encodes its
own row.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.column_kinds import Category, FreeNumber, Number
from shuffle_sim.data.column_stated import column_from
from shuffle_sim.data.columns import Bounds, Column, Marks
from shuffle_sim.data.files import read_whole
from shuffle_sim.errors import WITHHELD, ParameterError, one_of

MISSING = ("drop", "midpoint", "indicator")
"""What becomes of a row with a blank cell: it is left out; the cell becomes the middle of its
public bounds; or the middle, with one more column that says so."""
_FILE_BYTES = 1 << 24  # bytes of a schema file
_KEYS = ("target", "person", "missing", "file", "columns")
_FILE = ("delimiter", "decimal", "thousands")


@dataclass(frozen=True, eq=False)
class Scale:
    """The public map of encoded rows into the l2 unit ball: (row - center)/half/norm.

    Attributes:
        center, half: shape (columns,).
        norm: no row less the center, divided by half, is longer.
    """

    center: Floats
    half: Floats
    norm: float


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a file is written.

    Attributes:
        delimiter: between cells; None: that of the header which is there most often.
        marks: of its numbers.
    """

    delimiter: str | None = None
    marks: Marks = field(default_factory=Marks)


_RULE = (
    "take a rule: --missing drop, midpoint or indicator; an estimator takes "
    'missing = "midpoint" or "indicator" of its schema'
)


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Public: which columns are used, and how a user encodes its row.

    Attributes:
        columns: the features, in order.
        target: what is learnt, if its type was stated.
        missing: one of MISSING; None: a blank cell is refused.
        layout: of the file.
    """

    columns: tuple[Column, ...]
    target: Column | None = None
    missing: str | None = None
    layout: Layout = field(default_factory=Layout)

    def __post_init__(self) -> None:
        """Check the rule for blanks."""
        one_of("missing", self.missing, MISSING, None)
        if len(set(self.names)) < len(self.names):
            allowed = "such that no two of the encoded columns have one name"
            raise ParameterError("columns", list(self.names), allowed)
        if self.missing in ("midpoint", "indicator") and self.free:
            allowed = (
                "drop, or bounds stated for all columns: those of "
                f"{self.names[self.free[0]]!r} are to be chosen, and have no middle yet"
            )
            raise ParameterError("missing", self.missing, allowed)

    @classmethod
    def within(cls, names: Sequence[str], lower: ArrayLike, upper: ArrayLike) -> Self:
        """Numbers with public bounds, a name each."""
        ends = zip(names, np.asarray(lower).tolist(), np.asarray(upper).tolist(), strict=True)
        return cls(columns=tuple(Number(name=name, limits=(a, b)) for name, a, b in ends))

    @property
    def free(self) -> list[int]:
        """Places of the encoded columns whose bounds are to be chosen privately."""
        each = [isinstance(column, FreeNumber) for column in self.columns for _ in column.names]
        return [place for place, is_free in enumerate(self._spread(each, False)) if is_free]

    def bounded(self, limits: Mapping[str, Bounds]) -> Self:
        """The same with bounds for columns that had none, by name."""
        columns = tuple(
            Number(name=column.name, unit=column.unit, limits=limits[column.name])
            if isinstance(column, FreeNumber)
            else column
            for column in self.columns
        )
        return replace(self, columns=columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the encoded columns."""
        return tuple(name for column in self.columns for name in self._names(column))

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Public bounds of the encoded columns."""
        each = [column.bounds for column in self.columns for _ in column.names]
        bounds = np.array(self._spread(each, (0.0, 1.0)), np.float64)
        return bounds[:, 0], bounds[:, 1]

    @property
    def scale(self) -> Scale:
        """Into the unit ball: a blank cell is zero, a category is one short vector."""
        each = [column.scaling[:2] for column in self.columns for _ in column.names]
        center, half = np.array(self._spread(each, (0.0, 1.0)), np.float64).T
        # Where the indicator is 1 the cell's own numbers are 0.
        least = 1.0 if self.missing == "indicator" else 0.0
        # Squares add up: each cell has its own part of the row's squared norm.
        norms = [max(column.scaling[2], least) for column in self.columns]
        return Scale(center, half, float(np.sqrt(np.sum(norms))))

    def scaled(self, rows: Floats) -> Floats:
        """Encoded rows, clipped to their limits, in the l2 unit ball."""
        scale = self.scale
        # Clipped before it is scaled: cells of `encode` may lie anywhere.
        inside = np.clip(rows, *self.limits)
        return np.asarray((inside - scale.center) / scale.half / scale.norm)

    @property
    def plain(self) -> bool:
        """Whether every column is one number from its bounds, and nothing else."""
        return self.missing != "indicator" and not any(
            isinstance(column, Category) for column in self.columns
        )

    @property
    def texts(self) -> list[str]:
        """Columns that are not read as numbers."""
        every = (*self.columns, *([self.target] if self.target else []))
        return [column.name for column in every if not isinstance(column, Number)]

    def encode(self, cells: Mapping[str, NDArray[Any]], rule: str = _RULE) -> Floats:
        """The rows, (rows, len(names)): each by itself, whatever the others hold.

        With `missing` "drop" a row with a blank is NaN there. Where nothing is stated for blanks,
        `rule` says what whoever reads the table can do.

        Raises:
            ParameterError: naming the column and the first row that does not fit.
        """
        parts = []
        for column in self.columns:
            found = column.values(cells[column.name], self.layout.marks)
            gaps = np.isnan(found[:, 0])
            if gaps.any() and self.missing is None:
                allowed = f"given, not blank (the first row is 1); or {rule}"
                column.refuse(int(np.argmax(gaps)), allowed)
            if self.missing in ("midpoint", "indicator"):
                found = np.where(gaps[:, None], column.scaling[0], found)
            parts.append(found)
            if self.missing == "indicator":
                parts.append(gaps.astype(np.float64)[:, None])
        return np.concatenate(parts, axis=1)

    def targets(self, cells: NDArray[Any]) -> NDArray[Any]:
        """What is learnt: numbers, or names of classes; a blank is NaN or None."""
        return cells if self.target is None else self.target.labels(cells, self.layout.marks)

    def public(self) -> dict[str, Any]:
        """As JSON holds it."""
        file = {"decimal": self.layout.marks.decimal, "thousands": self.layout.marks.thousands}
        if self.layout.delimiter is not None:
            file["delimiter"] = self.layout.delimiter
        found: dict[str, Any] = {"missing": self.missing, "file": file}
        found["columns"] = {column.name: column.public() for column in self.columns}
        if self.target is not None:
            found["target"] = {"name": self.target.name} | self.target.public()
        return found

    @classmethod
    def from_public(cls, given: Mapping[str, Any]) -> Self:
        """What `public` gave."""
        columns = tuple(column_from(name, each) for name, each in given["columns"].items())
        target = None
        if (known := given.get("target")) is not None:
            target = column_from(known["name"], {k: v for k, v in known.items() if k != "name"})
        layout = layout_from(given["file"])
        return cls(columns=columns, target=target, missing=given["missing"], layout=layout)

    def _names(self, column: Column) -> list[str]:
        more = [f"{column.name} is blank"] if self.missing == "indicator" else []
        return [*column.names, *more]

    def _spread(self, each: list[Any], more: Any) -> list[Any]:
        """`each` of the encoded columns, with `more` for every indicator."""
        found, place = [], 0
        for column in self.columns:
            found += each[place : place + len(column.names)]
            place += len(column.names)
            found += [more] if self.missing == "indicator" else []
        return found


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What people state of a file before anybody reads it.

    Attributes:
        columns: by name, in order.
        chosen: whether these are all features, as in a schema file; else more may be there.
        target, person: columns that are no features.
        missing: as of `Schema`.
        layout: of the file.
        free: whether a number without bounds is taken, since they are to be chosen privately.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    chosen: bool = False
    target: str | None = None
    person: str | None = None
    missing: str | None = None
    layout: Layout = field(default_factory=Layout)
    free: bool = False


def read_schema(path: Path, *, free: bool = False) -> Declared:
    """A schema file, in TOML; with `free` its numbers need no bounds.

    Raises:
        ParameterError: it is none, or says what a schema does not.
    """
    try:
        given = tomllib.loads(read_whole(path, "schema", _FILE_BYTES).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        line = str(error).splitlines()[0]
        raise ParameterError("schema", str(path), f"a readable TOML file ({line})") from error
    unknown = sorted(set(given) - set(_KEYS))
    if unknown:
        allowed = f"made of {', '.join(_KEYS)}; {', '.join(unknown)} is not known"
        raise ParameterError("schema", str(path), allowed)
    columns, file = given.get("columns"), given.get("file", {})
    tables = isinstance(columns, dict) and all(isinstance(each, dict) for each in columns.values())
    if not tables or not columns or not isinstance(file, dict):
        allowed = 'with a table for each column, such as [columns."net income"]'
        raise ParameterError("schema", str(path), allowed)
    for name in ("target", "person"):
        if not isinstance(given.get(name), str | None):
            raise ParameterError(f"{name} of the schema", given[name], "the name of a column")
    return Declared(
        columns={name: column_from(name, each, free=free) for name, each in columns.items()},
        chosen=True,
        target=given.get("target"),
        person=given.get("person"),
        missing=given.get("missing"),
        layout=layout_from(file),
        free=free,
    )


def layout_from(given: Mapping[str, Any]) -> Layout:
    """How a file is written, as JSON and TOML hold it.

    Raises:
        ParameterError: an unknown key, or no text.
    """
    for name, value in given.items():
        if name not in _FILE or not isinstance(value, str):
            allowed = f"one of {', '.join(_FILE)}, with a text"
            raise ParameterError("file in the schema", {name: value}, allowed)
    marks = Marks(given.get("decimal", "."), given.get("thousands", ""))
    return Layout(delimiter=given.get("delimiter"), marks=marks)


def draft(name: str, kinds: Mapping[str, str], layout: Layout) -> str:
    """A schema to be completed: names and types of columns, and no value of any cell.

    Args:
        name: of the file.
        kinds: number, date, boolean, category or blank, by column.
        layout: of the file.
    """
    lines = [
        f"# Drafted for {json.dumps(name, ensure_ascii=False)}: names and types of columns were",
        "# read, and nothing else. Fill in what is public: bounds and categories that you know",
        "# without looking at the data. Delete the columns that you do not need.",
        "",
        '# target = "..."            # the column to predict',
        '# person = "..."            # the column that names the person',
        '# missing = "midpoint"      # or drop, indicator; without it a blank cell is refused',
        "",
        "[file]",
        f"decimal = {json.dumps(layout.marks.decimal)}",
        f"thousands = {json.dumps(layout.marks.thousands)}",
    ]
    if layout.delimiter is not None:
        lines.append(f"delimiter = {json.dumps(layout.delimiter)}")
    for column, kind in kinds.items():
        lines += ["", f"[columns.{json.dumps(column, ensure_ascii=False)}]"]
        if kind == "blank":
            lines.append("# every cell is blank: state the type yourself")
        lines.append(f'type = "{"number" if kind == "blank" else kind}"')
        lines += _WANTED[kind]
    return "\n".join(lines) + "\n"


_WANTED = {
    "number": ["# bounds = [0, 100]", '# unit = "..."'],
    "blank": ["# bounds = [0, 100]"],
    "date": ["# bounds = [1900-01-01, 2030-01-01]"],
    "boolean": [],
    "category": ['# categories = ["...", "..."]', "# other = false    # refuse what is not listed"],
}


def nothing_left(missing: str | None, blank: Sequence[str]) -> ParameterError:
    """That every row has a blank; `blank` names the columns in which every cell is one."""
    where = f"column {', '.join(blank)} has nothing else" if blank else f"where is {WITHHELD}"
    allowed = f"midpoint or indicator here, or without some columns: every row has a blank, {where}"
    return ParameterError("missing", missing, allowed)
