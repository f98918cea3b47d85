"""The columns of a table's file, by name: what stands in a CSV, TSV, Parquet or NPZ file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data import files
from shuffle_sim.data.archives import read_archive
from shuffle_sim.data.column_kinds import Number, kind_of
from shuffle_sim.data.columns import BLANKS, Marks
from shuffle_sim.data.delimited import header, read_text, unlike
from shuffle_sim.data.schema import Layout, Schema
from shuffle_sim.errors import WITHHELD, ParameterError


def column_in(
    found: Mapping[str, NDArray[Any]], name: str, path: Path, asked: str = "column"
) -> NDArray[Any]:
    """The column of a name, of those of a file.

    Raises:
        ParameterError: no such column; it names the option that `asked` for it.
    """
    if name not in found:
        raise ParameterError(asked, name, f"one of {', '.join(map(_quoted, found))} (in {path})")
    return found[name]


def cells_of(path: Path, schema: Schema) -> dict[str, NDArray[Any]]:
    """The columns of a file that a schema speaks of, and all others.

    Raises:
        ParameterError: unreadable file, or a column that is not there.
    """
    found = columns_of(path, schema.layout, schema.texts)
    for column in schema.columns:
        column_in(found, column.name, path)
    return found


def kinds_of(path: Path, layout: Layout) -> tuple[dict[str, str], Layout]:
    """The types of a file's columns, and how it is written: nothing else of its cells.

    Where every number of a text column has a decimal comma, so is the file's.

    Raises:
        ParameterError: unreadable file.
    """
    found = columns_of(path, layout)
    if path.suffix in (".csv", ".tsv"):
        layout = replace(layout, delimiter=header(path, layout.delimiter)[1])
        # Cells cut at commas have no decimal commas.
        if layout.marks == Marks() and layout.delimiter != ",":
            kinds = [kind_of(*each, layout.marks) for each in found.items()]
            for marks in (Marks(","), Marks(",", ".")):
                others = [kind_of(*each, marks) for each in found.items()]
                if others.count(Number.kind) > kinds.count(Number.kind):
                    layout, kinds = replace(layout, marks=marks), others
    return {each[0]: kind_of(*each, layout.marks) for each in found.items()}, layout


def numeric(name: str, column: NDArray[Any]) -> Floats:
    """A column as finite floats.

    Raises:
        ParameterError: naming the column, and the first row that is not finite.
    """
    if column.dtype.kind not in "fiub":
        raise ParameterError(f"column {name}", str(column.dtype), "numeric")
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        allowed = "finite (no NaN, no infinity, no gaps; the first row is 1)"
        raise ParameterError(f"column {name}, row {row + 1}", WITHHELD, allowed)
    return np.asarray(column, float)


def first_gap(column: NDArray[Any]) -> int | None:
    """The first row with a missing value (None, NaN or ""); None where there is none."""
    missing = gaps(column)
    return int(np.argmax(missing)) if missing.any() else None


def gaps(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are missing: None, NaN or an empty text."""
    if column.dtype.kind in "UT":
        return np.asarray(column == "")
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind != "O":
        return np.zeros(len(column), bool)
    # NaN of any type differs from itself.
    return np.array([value in (None, "") or ne(value, value) for value in column.tolist()], bool)


def columns_of(path: Path, layout: Layout, texts: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """All columns of the file by name; those of `texts` are not taken as numbers.

    Raises:
        ParameterError: another kind of file, unreadable, without rows, or of unequal columns.
    """
    readers: dict[str, Callable[[Path], dict[str, NDArray[Any]]]] = {
        ".csv": lambda file: from_arrow(read_text(file, layout.delimiter, layout.marks, texts)),
        ".parquet": lambda file: from_arrow(files.read_parquet(file)),
        ".npz": _from_npz,
    }
    readers[".tsv"] = readers[".csv"]
    if path.suffix not in readers:
        raise ParameterError("file", str(path), f"a {', '.join(readers)} file")
    try:
        found = readers[path.suffix](path)
    except ParameterError:
        raise
    except (OSError, ValueError, KeyError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        allowed = f"a readable {path.suffix} table ({reason})"
        raise ParameterError("file", str(path), allowed) from error
    if not found:
        raise ParameterError("file", str(path), "a table with at least one column")
    # An .npz may hold anything: tables of other kinds are rectangular.
    lengths = {len(column) for column in found.values()}
    if lengths == {0}:
        raise ParameterError("file", str(path), "a table with at least one row")
    if len(lengths) != 1:
        raise ParameterError("file", str(path), "a table whose columns have one length")
    return found


def _quoted(name: str) -> str:
    return name if name.isprintable() else repr(name)


def from_arrow(table: Any) -> dict[str, NDArray[Any]]:
    """The columns; a time with a zone becomes text, which keeps the zone."""
    import pyarrow as pa

    found = {}
    with files.arrow_errors():
        for name, column in zip(unlike(table.column_names), table.columns, strict=True):
            kind = column.type
            if pa.types.is_dictionary(kind) or (pa.types.is_timestamp(kind) and kind.tz):
                found[name] = column.cast(pa.string()).to_numpy()
            else:
                found[name] = column.to_numpy()
    return found


def _from_npz(path: Path) -> dict[str, NDArray[Any]]:
    found = read_archive(path)
    if len(found) == 1 and (only := next(iter(found.values()))).ndim == 2:
        return {str(index): only[:, index] for index in range(only.shape[1])}
    if any(column.ndim != 1 for column in found.values()):
        raise ValueError("holds arrays that are neither columns nor one table")
    return found


def names_of(parameter: str, column: NDArray[Any]) -> NDArray[Any]:
    """Names of persons, as texts are read everywhere: without blanks around them.

    Raises:
        ParameterError: one is missing; it names the row.
    """
    if (missing := nameless(column)).any():
        row = int(np.argmax(missing)) + 1
        raise ParameterError(f"{parameter}, row {row}", None, "given (the first row is 1)")
    if column.dtype.kind == "U":
        return np.char.strip(column)
    if column.dtype.kind == "O":
        stripped = [each.strip() if isinstance(each, str) else each for each in column.tolist()]
        return np.array(stripped, object)
    return column


def nameless(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a column of persons' names has none: a gap, or one of `BLANKS`."""
    if column.dtype.kind == "U":
        return np.isin(np.char.strip(column), BLANKS)
    if column.dtype.kind in "mM":
        return np.asarray(np.isnat(column))
    if column.dtype.kind != "O":
        return gaps(column)
    blank = (isinstance(each, str) and each.strip() in BLANKS for each in column.tolist())
    return np.asarray(gaps(column) | np.fromiter(blank, bool, len(column)))
