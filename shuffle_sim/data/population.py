"""Where the users' data is: in memory, in files that shards read, or made from a seed."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.data import files
from shuffle_sim.errors import DataError, ParameterError, integer
from shuffle_sim.sampling.randomness import Role, entropy_of, stream


class Unit(StrEnum):
    """Whose data neighbours differ in: one record, or all records of one person."""

    RECORD = "record"
    PERSON = "person"


class Population(ABC):
    """The data of all users; row i belongs to user i."""

    @property
    @abstractmethod
    def users(self) -> int:
        """Number of users."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows of users start, ..., stop - 1."""

    def content(self, start: int, stop: int) -> bytes:
        """SHA-256 of the rows of users start, ..., stop - 1 as they are read now.

        Empty where rows cannot change under a run: those in memory, and those made from a seed.
        """
        rows = np.ascontiguousarray(self.rows(start, stop))
        found = hashlib.sha256(f"{rows.dtype.descr}{rows.shape}".encode())
        found.update(rows.reshape(-1).view(np.uint8).data)
        return found.digest()

    @property
    def resident(self) -> bool:
        """Whether shards keep their rows; others ask in every round and hold one chunk."""
        return False

    @property
    def unit(self) -> Unit:
        """What privacy protects: one record."""
        return Unit.RECORD


def plain_array(parameter: str, data: ArrayLike) -> NDArray[Any]:
    """The data as an array, without a copy where it is one.

    Raises:
        ParameterError: it has a mask, or is not rectangular.
    """
    if isinstance(data, np.ma.MaskedArray):
        allowed = "without a mask: fill or drop what is masked first"
        raise ParameterError(parameter, type(data).__name__, allowed)
    try:
        return np.asarray(data)
    except ValueError as error:
        allowed = "a rectangular array of numbers"
        raise ParameterError(parameter, type(data).__name__, allowed) from error


class InMemory(Population):
    """An array whose first axis is the users."""

    def __init__(self, data: ArrayLike) -> None:
        """Keep the data as an array, without a copy where it is one.

        Raises:
            ParameterError: it is not a rectangular array of numbers with at least one user.
        """
        self.array = plain_array("data", data)
        if self.array.ndim == 0 or len(self.array) == 0:
            raise ParameterError(
                "data.shape", self.array.shape, "at least one user along the first axis"
            )

    @property
    def users(self) -> int:
        """Number of rows."""
        return len(self.array)

    @property
    def resident(self) -> bool:
        """Rows in memory stay with the shards."""
        return True

    def content(self, start: int, stop: int) -> bytes:
        """Nothing: shards have a copy, and a checkpoint knows the array by every element."""
        return b""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """A view of the rows."""
        return self.array[start:stop]


class Generated(Population):
    """Rows made when they are asked for: 10^8 users need no array anywhere.

    Rows come in pages of PAGE users, each from its own stream, so that they do not depend on who
    asks for which range.
    """

    PAGE = 65_536

    def __init__(
        self, users: int, make: Callable[[np.random.Generator, int], NDArray[Any]], *, seed: int = 0
    ) -> None:
        """Remember how to make rows.

        Args:
            users: number of users.
            make: (generator, count) -> array of `count` rows; must be importable by the actors that
                call it.
            seed: of the data.
        """
        self._users, self._make, self._entropy = integer("users", users), make, entropy_of(seed)
        self._page: tuple[int, NDArray[Any]] | None = None

    @property
    def users(self) -> int:
        """Number of users."""
        return self._users

    def content(self, start: int, stop: int) -> bytes:
        """Nothing: the same seed makes the same rows."""
        return b""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows, from the pages they lie in; the last page made is kept."""
        return _from_pages(start, stop, self.PAGE, self._rows_of_page)

    def _rows_of_page(self, page: int) -> NDArray[Any]:
        if self._page is None or self._page[0] != page:
            count = min(self.PAGE, self._users - page * self.PAGE)
            made = self._make(stream(self._entropy, 0, Role.DATA, page), count)
            if len(made) != count:
                raise ParameterError(
                    "make", len(made), f"a function that makes {count} rows when asked for {count}"
                )
            self._page = page, made
        return self._page[1]

    def __getstate__(self) -> dict[str, Any]:
        """Without the page that is kept."""
        return {**self.__dict__, "_page": None}


def _from_pages(
    start: int, stop: int, size: int, page_rows: Callable[[int], NDArray[Any]]
) -> NDArray[Any]:
    parts = []
    for page in range(start // size, -(-stop // size)):
        parts.append(page_rows(page)[max(0, start - page * size) : stop - page * size])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Files(Population):
    """Rows in files, one after the other, each read by the shards that need it."""

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
        shapes = [self._shape(path) for path in self._paths]
        for path, shape in zip(self._paths, shapes, strict=True):
            if shape[1:] != shapes[0][1:]:
                raise ParameterError(
                    "file", str(path), f"rows of shape {shapes[0][1:]}, as in the first file"
                )
        self._ends = np.cumsum([shape[0] for shape in shapes]).tolist()
        if not self._ends[-1]:
            raise ParameterError("paths", paths, "files with at least one row")

    @property
    def users(self) -> int:
        """Rows of all files together."""
        return int(self._ends[-1])

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows, from the files they lie in."""
        parts, first = [], 0
        for path, end in zip(self._paths, self._ends, strict=True):
            if max(first, start) < min(end, stop):  # an empty file has no part
                parts.append(self._part(path, max(0, start - first), min(stop, end) - first))
            first = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @abstractmethod
    def _shape(self, path: Path) -> tuple[int, ...]:
        """The shape of all rows of the file."""

    @abstractmethod
    def _part(self, path: Path, start: int, stop: int) -> NDArray[Any]:
        """The rows start, ..., stop - 1 of one file."""


class NpyFiles(Files):
    """Rows in .npy files; those that are asked for are read."""

    suffix = ".npy"

    def __init__(self, paths: Sequence[str | Path]) -> None:
        """As of all files."""
        self._rows: dict[Path, files.Rows] = {}
        super().__init__(paths)

    def _shape(self, path: Path) -> tuple[int, ...]:
        rows = files.Rows(path)
        if not rows.shape or rows.dtype.kind not in "fiub":
            raise ParameterError("file", str(path), "rows of numbers")
        self._rows[path] = rows
        return rows.shape

    def _part(self, path: Path, start: int, stop: int) -> NDArray[Any]:
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

    def _shape(self, path: Path) -> tuple[int, ...]:
        import pyarrow.types as kinds

        schema, rows = self.described(path)
        types = {field.name: field.type for field in schema}
        if self._columns is None:
            self._columns = list(types)
        for name in self._columns:
            kind = types.get(name)
            if kind is None or not (
                kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
            ):
                raise ParameterError(f"column {name} of {path}", str(kind), "there, and of numbers")
        return rows, *([len(self._columns)] if len(self._columns) > 1 else [])

    def _part(self, path: Path, start: int, stop: int) -> NDArray[Any]:
        first, parts = 0, []
        for group, rows in enumerate(self._groups(path)):
            end = first + rows
            if first < stop and end > start:
                parts.append(self._rows_of_group(path, group)[max(0, start - first) : stop - first])
            first = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _rows_of_group(self, path: Path, group: int) -> NDArray[Any]:
        if self._group is None or self._group[:2] != (path, group):
            with _readable(path), files.parquet(path) as file:
                table = file.read_row_group(group, columns=self._columns)
                columns = [
                    np.asarray(table[name].to_numpy(), np.float64) for name in self._columns or ()
                ]
            self._group = path, group, columns[0] if len(columns) == 1 else np.column_stack(columns)
        return self._group[2]

    def column(self, name: str) -> Iterator[tuple[Path, NDArray[Any]]]:
        """One column of each file, of whatever type.

        Raises:
            ParameterError: a file has no such column.
        """
        for path in self._paths:
            if name not in self.described(path)[0].names:
                raise ParameterError(f"column {name} of {path}", None, "there")
            with _readable(path), files.parquet(path) as file:
                found = file.read(columns=[name])[name].to_numpy()
            yield path, found

    def __getstate__(self) -> dict[str, Any]:
        """Without the row group that is kept."""
        return {**self.__dict__, "_group": None}

    @staticmethod
    def _groups(path: Path) -> list[int]:
        """Rows of each row group."""
        with _readable(path), files.parquet(path) as file:
            described = file.metadata
            return [described.row_group(at).num_rows for at in range(described.num_row_groups)]

    @staticmethod
    def described(path: Path) -> tuple[Any, int]:
        """The file's schema, and its number of rows.

        Raises:
            ParameterError: it is not a whole Parquet file.
        """
        try:
            with files.parquet(path) as file:
                described = file.metadata
                groups = [described.row_group(at) for at in range(described.num_row_groups)]
                if sum(group.num_rows for group in groups) != described.num_rows:
                    raise ValueError("its parts have other rows")
                widest = max((group.num_rows * group.num_columns for group in groups), default=0)
                if 8 * widest > files.most_memory():
                    raise ValueError(f"a row group of {widest:,} cells")
                return file.schema_arrow, described.num_rows
        except ParameterError:
            raise
        except ValueError as error:
            raise ParameterError("file", str(path), f"a whole Parquet file ({error})") from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A file whose description was read before, as the run began.

    Raises:
        DataError: what is in it cannot be read.
    """
    try:
        yield
    except (ParameterError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error


def population_of(data: "Population | ArrayLike") -> Population:
    """`data` itself if it is a population, else the array in memory."""
    return data if isinstance(data, Population) else InMemory(data)
