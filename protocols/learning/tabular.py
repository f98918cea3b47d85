"""Tables as they are: data frames of pandas, polars or pyarrow, encoded by a public schema.

Columns are found by name, in whatever order they stand; those that the schema does not name are not
used. Each user encodes its own row: nothing is fitted.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import validation

from shuffle_sim.arrays import Floats
from shuffle_sim.data.column_kinds import Category, Number
from shuffle_sim.data.column_stated import column_from
from shuffle_sim.data.columns import Column
from shuffle_sim.data.schema import Schema, read_schema
from shuffle_sim.errors import WITHHELD, ParameterError

_OPEN = "given: public limits, not computed from the data"
_PAID = "; or take choose_bounds, which pays for them"


def schema_of(given: Any, *, free: bool | None = None) -> Schema:
    """A schema, as it is, from a TOML file, or by column.

    Args:
        given: a `Schema`; the path of a schema file; or by name a pair (low, high), a list of
            categories, or what a schema file has for the column, such as {"type": "boolean"}. The
            name "missing" holds the rule for blanks.
        free: whether a number may be without bounds, since they are chosen privately; its pair is
            then None. None: nobody here can choose them.

    Raises:
        ParameterError: naming the column and what is wrong or missing.
    """
    allowed = _OPEN if free is None else _OPEN + _PAID
    if isinstance(given, Schema):
        found = given
    elif isinstance(given, str | Path):
        known = read_schema(Path(given), free=bool(free))
        features = [name for name in known.columns if name not in (known.target, known.person)]
        columns = tuple(known.columns[name] for name in features)
        found = Schema(columns=columns, missing=known.missing, layout=known.layout)
    elif isinstance(given, Mapping):
        parts = {name: each for name, each in given.items() if name != "missing"}
        for name, each in parts.items():
            if each is None and not free:
                raise ParameterError(f"bounds of {name}", None, allowed)
        columns = tuple(_column_of(name, each, bool(free)) for name, each in parts.items())
        found = Schema(columns=columns, missing=given.get("missing"))
    else:
        allowed = "None, a Schema, a path, or bounds and categories by the name of a column"
        raise ParameterError("schema", type(given).__name__, allowed)
    if not found.columns:
        raise ParameterError("schema", given, "of one column at least")
    if found.missing == "drop":
        allowed = "midpoint or indicator; or leave rows with blanks out before"
        raise ParameterError("missing of the schema", "drop", allowed)
    if found.free and not free:
        name = found.names[found.free[0]]
        raise ParameterError(f"bounds of {name}", None, allowed)
    return found


def _column_of(name: str, given: Any, free: bool) -> Column:
    if isinstance(given, Column):
        return given
    if isinstance(given, Mapping):
        return column_from(name, dict(given), free=free)
    if given is None:
        return column_from(name, {"type": "number"}, free=free)
    if not isinstance(given, Sequence) or isinstance(given, str):
        allowed = "(low, high), categories, or a mapping as of a schema file"
        raise ParameterError(f"schema of column {name}", given, allowed)
    if all(isinstance(each, str) for each in given):
        return Category(name=name, categories=tuple(given))
    if len(given) != 2:
        raise ParameterError(f"schema of column {name}", given, "(low, high), or texts")
    return column_from(name, {"type": Number.kind, "bounds": list(given)})


def encoded(X: Any, schema: Schema) -> Floats:
    """Rows of a table in the encoded columns' own units, (rows, columns).

    Raises:
        ParameterError: naming the column: not there, there twice, or with a cell that does not fit.
    """
    return schema.encode(cells_of(X, [column.name for column in schema.columns]))


def cells_of(X: Any, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Columns by name; those of an array without names are taken in order.

    Raises:
        ParameterError: a column is not there, or there twice.
    """
    known = names_of(X)
    if known is None:
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != len(names):
            allowed = f"a table, or an array of {len(names)} columns, as the schema has"
            raise ParameterError("X", f"an array of shape {rows.shape}", allowed)
        return {name: rows[:, place] for place, name in enumerate(names)}
    for name in names:
        if (times := known.count(name)) != 1:
            allowed = f"once in the table, which has {', '.join(map(str, known[:20]))}"
            raise ParameterError(f"column {name}", f"there {times} times", allowed)
    return {name: _cells(X[name]) for name in names}


def names_of(X: Any) -> list[Any] | None:
    """The names of a table's columns; None: it is an array, or a list of rows."""
    names = getattr(X, "column_names", None)
    if names is None:
        names = getattr(X, "columns", None) if hasattr(X, "__getitem__") else None
    return None if names is None else list(names)


def _cells(column: Any) -> NDArray[Any]:
    """As a file's column is read: texts, numbers and times; a time with a zone is text."""
    import pyarrow as pa

    try:
        # NaN of pandas is a blank: arrow tells it from a number only here.
        made = pa.chunked_array([pa.array(column, from_pandas=True)])
    except (pa.ArrowException, TypeError, ValueError):
        try:
            made = pa.chunked_array(column)
        except (pa.ArrowException, TypeError, ValueError):  # of several kinds: its column refuses
            return np.asarray(column, object)
    kind = made.type
    zoned = pa.types.is_timestamp(kind) and kind.tz
    if pa.types.is_dictionary(kind) or zoned:
        made = made.cast(pa.string())
    return np.asarray(made.to_numpy())


class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Rows into the l2 unit ball by public bounds alone: nothing is fitted.

    Each column is clipped to its bounds and mapped to [-1, 1]; rows are then divided by the square
    root of the columns. With a schema it takes tables with categories, dates and blanks.

    Args:
        bounds: (low, high) of all columns, or a pair for each, (columns, 2).
        schema: as of the estimators, in place of bounds.

    Attributes:
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
    """

    def __init__(self, bounds: ArrayLike = (-1.0, 1.0), schema: Any = None) -> None:
        """Keep what is public."""
        self.bounds = bounds
        self.schema = schema

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = self.schema is not None
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the columns; nothing is learnt.

        Raises:
            ParameterError: naming the parameter or the column.
        """
        self._rows(X, reset=True)
        return self

    def transform(self, X: Any) -> Floats:
        """Shape (rows, encoded columns)."""
        return self._rows(X, reset=False)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the encoded columns."""
        if self.schema is not None:
            return np.array(schema_of(self.schema).names, object)
        return np.asarray(super().get_feature_names_out(input_features), object)

    def _rows(self, X: Any, *, reset: bool) -> Floats:
        if self.schema is not None:
            made = schema_of(self.schema)
            return made.scaled(fitted_rows(self, X, blank=True) if reset else encoded(X, made))
        rows = validation.validate_data(self, X, dtype=np.float64, reset=reset)
        ends = np.asarray(self.bounds, np.float64)
        if ends.shape not in ((2,), (rows.shape[1], 2)):
            allowed = f"(low, high), or one pair for each of {rows.shape[1]} columns"
            raise ParameterError("bounds", f"of shape {ends.shape}", allowed)
        low, high = np.broadcast_to(ends, (rows.shape[1], 2)).T
        if not (np.isfinite(ends).all() and (low < high).all()):
            raise ParameterError("bounds", self.bounds, "finite, each low below its high")
        inside = (np.clip(rows, low, high) - low) / (high - low)
        return np.asarray((2 * inside - 1) / np.sqrt(rows.shape[1]))


def fitted_rows(estimator: Any, X: Any, *, blank: bool = False) -> Floats:
    """Rows of `fit`, `encoded`; the estimator keeps its schema and, as scikit-learn, the columns.

    Raises:
        ParameterError: as of `schema_of` and `encoded`; or, if not `blank`, a column where every
            cell is.
    """
    free = estimator.choose_bounds is not None if hasattr(estimator, "choose_bounds") else None
    estimator.schema_ = schema = schema_of(estimator.schema, free=free)
    names = [column.name for column in schema.columns]
    cells, rows = cells_of(X, names), encoded(X, schema)
    for column in schema.columns if not blank else ():
        # The first cell mostly settles it: the whole column is only read if that is blank.
        for end in (1, None):  # all cells are looked at where the first is blank
            found = column.values(cells[column.name][:end], schema.layout.marks)
            if not np.isnan(found[:, 0]).all():
                break
        else:
            allowed = "given in one row at least; or leave the column out of the schema"
            raise ParameterError(f"column {column.name}", "all blank", allowed)
    estimator.n_features_in_ = len(names)
    if names_of(X) is not None:
        estimator.feature_names_in_ = np.array(names, object)
    return rows


def beyond_limits(rows: Floats, schema: Schema) -> dict[str, NDArray[np.bool_]]:
    """Which encoded rows lie outside the schema's bounds, (rows,), by what to widen."""
    low, high = schema.limits
    cells = (low > rows) | (high < rows)
    names = [name for name, each in zip(schema.names, cells.T, strict=True) if each.any()]
    what = f"bounds of {', '.join(names)} in schema"
    return {what: np.asarray(cells.any(axis=1))} if names else {}


def in_order(estimator: Any, X: Any) -> Any:
    """A table with the columns of `fit`, in their order; other data as they are.

    Raises:
        ParameterError: a column is not there.
    """
    known, names = getattr(estimator, "feature_names_in_", None), names_of(X)
    if known is None or names is None or list(known) == names:
        return X
    for name in known:
        if name not in names:
            raise ParameterError(f"column {name}", WITHHELD, "in the table, as it was in fit")
    columns = list(known)
    return X.select(columns) if hasattr(X, "select") else X[columns]
