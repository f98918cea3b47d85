"""Users' data in files, which the shards read that need it."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.data import files
from shuffle_sim.data.file_columns import from_arrow
from shuffle_sim.data.population import Population
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import DataError, ParameterError


class Files(Population):
    """Rows in files, one after the other, each read by the shards that need it.

    A file has parts, which are read one at a time.
    """

    suffix: str

    def __init__(self, paths: Sequence[str | Path]) -> None:
        """Read what the files say of themselves, not their rows.

        Raises:
            ParameterError: no file, a missing or truncated one, or rows of different shapes or not
                of numbers.
        """
        self._paths = [Path(path) for path in paths]
        if not self._paths:
            raise ParameterError("paths", paths, f"at least one {self.suffix} file")
        self._parts: list[tuple[Path, int, int]] = []  # (file, which part of it, its rows)
        first = None
        for path in self._paths:
            sizes, shape = self._described(path)
            first = shape if first is None else first
            if shape != first:
                raise ParameterError(
                    "file", str(path), f"rows of shape {first}, as in the first file"
                )
            self._parts += [(path, part, rows) for part, rows in enumerate(sizes)]
        self._users = sum(rows for _, _, rows in self._parts)
        if not self._users:
            raise ParameterError("paths", paths, "files with at least one row")

    @property
    def users(self) -> int:
        return self._users

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        found, first = [], 0
        for path, part, rows in self._parts:
            if max(first, start) < min(first + rows, stop):  # an empty part has none
                inside = max(0, start - first), min(rows, stop - first)
                found.append(self._read(path, part, *inside))
                # A file that changed would shift rows to other
                # users: the run ends before they answer.
                if len(found[-1]) != inside[1] - inside[0]:
                    raise DataError(f"{path} has other rows than when the run began")
            first += rows
        return found[0] if len(found) == 1 else np.concatenate(found)

    @abstractmethod
    def _described(self, path: Path) -> tuple[list[int], tuple[int, ...]]:
        """How many rows each part of a file has; and the shape of a row."""

    @abstractmethod
    def _read(self, path: Path, part: int, start: int, stop: int) -> NDArray[Any]:
        """The rows start, ..., stop - 1 of a part of a file."""


class NpyFiles(Files):
    """Rows in .npy files; those that are asked for are read."""

    suffix = ".npy"

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._rows: dict[Path, files.NpyRows] = {}
        super().__init__(paths)

    def _described(self, path: Path) -> tuple[list[int], tuple[int, ...]]:
        rows = files.NpyRows(path)
        if not rows.shape or rows.dtype.kind not in "fiub":
            raise ParameterError("file", str(path), "rows of numbers")
        self._rows[path] = rows
        return [rows.shape[0]], rows.shape[1:]

    def _read(self, path: Path, part: int, start: int, stop: int) -> NDArray[Any]:
        return self._rows[path].read(start, stop)


class ParquetFiles(Files):
    """Rows in Parquet files, read one row group at a time.

    A missing value is not finite, so its user sends zero.
    """

    suffix = ".parquet"

    def __init__(self, paths: Sequence[str | Path], columns: Sequence[str] | None = None) -> None:
        """Take these columns, in this order; by default all.

        One column alone gives rows that are numbers.
        """
        self._columns = None if columns is None else list(columns)
        self._group: tuple[Path, int, NDArray[Any]] | None = None
        super().__init__(paths)

    def _described(self, path: Path) -> tuple[list[int], tuple[int, ...]]:
        import pyarrow.types as kinds

        schema, groups = self.described(path)
        types = {field.name: field.type for field in schema}
        if self._columns is None:
            self._columns = list(types)
        for name in self._columns:
            kind = types.get(name)
            if kind is None or not (
                kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
            ):
                raise ParameterError(f"column {name} of {path}", str(kind), "there, and of numbers")
        return groups, (len(self._columns),) if len(self._columns) > 1 else ()

    def _read(self, path: Path, part: int, start: int, stop: int) -> NDArray[Any]:
        if self._group is None or self._group[:2] != (path, part):
            # Kept until another group is asked for: chunks of users come in order.
            with readable(path), files.parquet(path) as file:
                table = file.read_row_group(part, columns=self._columns)
                self._group = path, part, self._rows_of(table)
        return self._group[2][start:stop]

    def _rows_of(self, table: Any) -> NDArray[Any]:
        """The rows of one row group."""
        names = self._columns or ()
        columns = [np.asarray(table[name].to_numpy(), np.float64) for name in names]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def column(self, name: str) -> Iterator[tuple[Path, NDArray[Any]]]:
        """One column of each file, of whatever type.

        Raises:
            ParameterError: a file has no such column.
        """
        for path in self._paths:
            if name not in self.described(path)[0].names:
                raise ParameterError(f"column {name} of {path}", None, "there")
            with readable(path), files.parquet(path) as file:
                found = file.read(columns=[name])[name].to_numpy()
            yield path, found

    def __getstate__(self) -> dict[str, Any]:
        """Without the row group that is kept."""
        return {**self.__dict__, "_group": None}

    @staticmethod
    def described(path: Path) -> tuple[Any, list[int]]:
        """The file's schema, and the number of rows of each row group.

        Raises:
            ParameterError: it is not a whole Parquet file.
        """
        try:
            with files.parquet(path) as file:
                described = file.metadata
                groups = [described.row_group(at) for at in range(described.num_row_groups)]
                rows = [group.num_rows for group in groups]
                if sum(rows) != described.num_rows or min(rows, default=0) < 0:
                    raise ValueError("its parts have other rows")
                # As doubles: a group is read as a whole.
                widest = max((group.num_rows * group.num_columns for group in groups), default=0)
                if 8 * widest > files.most_memory():
                    raise ValueError(f"a row group of {widest:,} cells")
                return file.schema_arrow, rows
        except ParameterError:
            raise
        except ValueError as error:
            raise ParameterError("file", str(path), f"a whole Parquet file ({error})") from error


class EncodedFiles(ParquetFiles):
    """Rows in Parquet files as a schema encodes them, scaled into the l2 unit ball.

    Numbers, dates, booleans and categories are taken, one row group at a time. `schema.scale` has
    the way back into the units of the columns.

    Attributes:
        schema: of the columns.
    """

    def __init__(self, paths: Sequence[str | Path], schema: Schema) -> None:
        """Read what the files say of themselves, not their rows.

        Args:
            paths: the files.
            schema: with bounds for every column. `missing` may be "midpoint" or "indicator".

        Raises:
            ParameterError: a file without one of the columns, or that is no whole Parquet file; or
                a schema that leaves rows out, or bounds to be chosen.
        """
        if schema.missing == "drop":
            allowed = "midpoint or indicator for files: how many rows there are is fixed beforehand"
            raise ParameterError("missing", schema.missing, allowed)
        if schema.free:
            allowed = "given for every column of files: no run chooses those"
            raise ParameterError("bounds", schema.names[schema.free[0]], allowed)
        self.schema = schema
        super().__init__(paths, [column.name for column in schema.columns])

    def _described(self, path: Path) -> tuple[list[int], tuple[int, ...]]:
        described, groups = self.described(path)
        for column in self.schema.columns:
            if column.name not in described.names:
                allowed = f"there: the file has {', '.join(described.names)}"
                raise ParameterError(f"column {column.name} of {path}", None, allowed)
        return groups, (len(self.schema.names),)

    def _rows_of(self, table: Any) -> NDArray[Any]:
        return self.schema.scaled(self.schema.encode(from_arrow(table)))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A file whose description was read before, as the run began.

    Raises:
        DataError: what is in it cannot be read.
    """
    try:
        yield
    except (ParameterError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
