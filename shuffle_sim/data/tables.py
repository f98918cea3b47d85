"""Real tables: the ones bundled with scikit-learn, and the user's own CSV, Parquet or NPZ files.

Private sums need bounds that are public, that is, not computed from the data: for bundled tables
they are the ranges their descriptions publish, for a user's file the user states them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data import files
from shuffle_sim.errors import WITHHELD, ParameterError

Bounds = tuple[float, float]
_LARGEST = 1e100  # of a bound: beyond, differences and squares overflow

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

    @property
    def scaling(self) -> str:
        """The public rule by which `scaled` brings rows into the l2 unit ball."""
        return (
            "each column is mapped from its public bounds to [-1, 1] (and clipped there), then "
            "divided by the square root of "
            f"the {len(self.columns)} columns, so every row lies in the l2 ball of radius 1"
        )

    @property
    def clipped_cells(self) -> int:
        """How many cells lie outside the public bounds."""
        return int(((self.rows < self.lower) | (self.rows > self.upper)).sum())

    def scaled(self) -> Floats:
        """The rows in the l2 unit ball, by `scaling`."""
        middle, half = (self.upper + self.lower) / 2, (self.upper - self.lower) / 2
        return np.asarray(
            np.clip((self.rows - middle) / half, -1.0, 1.0) / np.sqrt(len(self.columns))
        )

    def means(self, sums: Floats, count: int) -> Floats:
        """Column means in the table's own units, from sums of `count` scaled rows."""
        half = (self.upper - self.lower) / 2
        return np.asarray(
            (self.upper + self.lower) / 2 + half * np.sqrt(len(self.columns)) * sums / count
        )

    def spread(self, standard_error: float, count: int) -> Floats:
        """Standard error of each column mean in the table's own units."""
        return np.asarray(
            (self.upper - self.lower) / 2 * np.sqrt(len(self.columns)) * standard_error / count
        )


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
) -> Table:
    """A table from a .csv, .parquet or .npz file.

    Args:
        path: the file. An .npz holds one array per column, or one array of shape (records, columns)
            with columns "0", "1", ...
        columns: which columns, in order; None: all.
        bounds: public bounds by column.
        everywhere: public bounds of the columns not in `bounds`.
        target: the column that a model may learn to predict; not among the others.
        person: the column that names the person of a record; not among the others.

    Raises:
        ParameterError: unreadable file, missing column, a column that is not numeric or finite, or
            without bounds.
    """
    found, apart = _columns(path), [name for name in (target, person) if name is not None]
    names = columns or [name for name in found if name not in apart]
    for name in (*names, *bounds, *apart):
        if name not in found:
            raise ParameterError(
                "column", name, f"one of {', '.join(map(_quoted, found))} (in {path})"
            )
    if not names or target in names:
        raise ParameterError("columns", names, f"at least one, and not the label {target!r}")
    if person is not None and person in (*names, target):
        raise ParameterError("person", person, "a column that is neither a feature nor the label")
    limits = np.array([_limits(name, bounds.get(name, everywhere)) for name in names])
    rows = np.stack([numeric(name, found[name]) for name in names], axis=1)
    labels = None if target is None else found[target]
    reach = None if target is None else bounds.get(target, everywhere)
    target_bounds = reach and _limits(str(target), reach)
    return Table(
        name=path.name,
        columns=tuple(names),
        rows=rows,
        lower=limits[:, 0],
        upper=limits[:, 1],
        target=labels,
        target_bounds=target_bounds,
        target_name=target or "label",
        person=None if person is None else found[person],
    )


def column_of(path: Path, name: str) -> NDArray[Any]:
    """One column of a file, of any type.

    Raises:
        ParameterError: unreadable file, or no such column.
    """
    found = _columns(path)
    if name not in found:
        raise ParameterError("column", name, f"one of {', '.join(map(_quoted, found))} (in {path})")
    return found[name]


def _limits(name: str, bounds: Bounds | None) -> Bounds:
    """The public bounds of a column, checked."""
    if bounds is None:
        raise ParameterError(
            "bounds", None, f"given for column {name!r}: public limits, not computed from the data"
        )
    if not -_LARGEST <= bounds[0] < bounds[1] <= _LARGEST:
        raise ParameterError(
            f"bounds of {name}", bounds, f"two numbers within +-{_LARGEST:g}, the lower first"
        )
    return bounds


def numeric(name: str, column: NDArray[Any]) -> Floats:
    """A column as finite floats.

    Raises:
        ParameterError: naming the column, and the first row that is not finite.
    """
    if column.dtype.kind not in "fiub":
        raise ParameterError(f"column {name}", str(column.dtype), "numeric")
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        raise ParameterError(
            f"column {name}, row {row + 1}",
            WITHHELD,
            "finite (no NaN, no infinity, no gaps; the first row is 1)",
        )
    return np.asarray(column, float)


def first_gap(column: NDArray[Any]) -> int | None:
    """The first row with a missing value (None or NaN); None where there is none."""
    if column.dtype.kind not in "fO":
        return None
    # NaN of any type differs from itself.
    missing = [value is None or ne(value, value) for value in column.tolist()]
    return missing.index(True) if any(missing) else None


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    """All columns of the file by name."""
    readers = {".csv": files.read_csv, ".parquet": files.read_parquet, ".npz": _from_npz}
    if path.suffix not in readers:
        raise ParameterError("file", str(path), f"a {', '.join(readers)} file")
    try:
        found = readers[path.suffix](path)
    except ParameterError:
        raise
    except (OSError, ValueError, KeyError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        reason = re.sub(r"(got \d+|invalid value).*", r"\1", line)  # what follows is the row
        raise ParameterError(
            "file", str(path), f"a readable {path.suffix} table ({reason})"
        ) from error
    if not found:
        raise ParameterError("file", str(path), "a table with at least one column")
    lengths = {len(column) for column in found.values()}
    if lengths == {0}:
        raise ParameterError("file", str(path), "a table with at least one row")
    if len(lengths) != 1:
        raise ParameterError("file", str(path), "a table whose columns have one length")
    return found


def _quoted(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _from_npz(path: Path) -> dict[str, NDArray[Any]]:
    found = files.read_archive(path)
    if len(found) == 1 and (only := next(iter(found.values()))).ndim == 2:
        return {str(index): only[:, index] for index in range(only.shape[1])}
    if any(column.ndim != 1 for column in found.values()):
        raise ValueError("holds arrays that are neither columns nor one table")
    return found
