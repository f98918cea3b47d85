"""Where the users' data is: in memory, in files read by the shards themselves, or made from a seed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.randomness import Role, entropy_of, stream


class Population(ABC):
    """The data of all users; row i belongs to user i."""

    @property
    @abstractmethod
    def users(self) -> int:
        """Number of users."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows of users start, ..., stop - 1."""

    @property
    def resident(self) -> bool:
        """Whether shards keep their rows; otherwise they ask again in every round and hold one chunk at a time."""
        return False


class InMemory(Population):
    """An array whose first axis is the users."""

    def __init__(self, data: ArrayLike) -> None:
        """Keep the data as an array, without a copy where it is one.

        Raises:
            ParameterError: if it is not a rectangular array of numbers with at least one user.
        """
        if isinstance(data, np.ma.MaskedArray):
            raise ParameterError("data", type(data).__name__, "without a mask: fill or drop what is masked first")
        try:
            self.array = np.asarray(data)
        except ValueError as error:
            raise ParameterError("data", type(data).__name__, "a rectangular array of numbers") from error
        if self.array.ndim == 0 or len(self.array) == 0:
            raise ParameterError("data.shape", self.array.shape, "at least one user along the first axis")

    @property
    def users(self) -> int:
        """Number of rows."""
        return len(self.array)

    @property
    def resident(self) -> bool:
        """They do: the data fits."""
        return True

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """A view of the rows."""
        return self.array[start:stop]


class Generated(Population):
    """Rows made when they are asked for: 10^8 users need no array anywhere.

    Rows come in pages of PAGE users, each from its own stream, so that they do not depend on who asks for which range.
    """

    PAGE = 65_536

    def __init__(self, users: int, make: Callable[[np.random.Generator, int], NDArray[Any]], *, seed: int = 0) -> None:
        """Remember how to make rows.

        Args:
            users: number of users.
            make: (generator, count) -> array of `count` rows; must be importable by the actors that call it.
            seed: of the data.
        """
        self._users, self._make, self._entropy = integer("users", users), make, entropy_of(seed)
        self._page: tuple[int, NDArray[Any]] | None = None

    @property
    def users(self) -> int:
        """Number of users."""
        return self._users

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows, from the pages they lie in; the last page made is kept."""
        return _from_pages(start, stop, self.PAGE, self._rows_of_page)

    def _rows_of_page(self, page: int) -> NDArray[Any]:
        if self._page is None or self._page[0] != page:
            count = min(self.PAGE, self._users - page * self.PAGE)
            made = self._make(stream(self._entropy, 0, Role.DATA, page), count)
            if len(made) != count:
                raise ParameterError("make", len(made), f"a function that makes {count} rows when asked for {count}")
            self._page = page, made
        return self._page[1]

    def __getstate__(self) -> dict[str, Any]:
        """Without the page that is kept."""
        return {**self.__dict__, "_page": None}


def _from_pages(start: int, stop: int, size: int, page_rows: Callable[[int], NDArray[Any]]) -> NDArray[Any]:
    parts = []
    for page in range(start // size, -(-stop // size)):
        parts.append(page_rows(page)[max(0, start - page * size) : stop - page * size])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class NpyFiles(Population):
    """Rows in .npy files, one after the other, mapped into memory by the shards that need them."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        """Read the files' headers, not their rows.

        Raises:
            ParameterError: no file, a missing or truncated one, or rows of different shapes.
        """
        self._paths = [Path(path) for path in paths]
        if not self._paths:
            raise ParameterError("paths", paths, "at least one .npy file")
        arrays = [_mapped(path) for path in self._paths]
        for path, array in zip(self._paths, arrays, strict=True):
            if array.ndim == 0 or array.shape[1:] != arrays[0].shape[1:] or array.dtype.kind not in "fiub":
                raise ParameterError("file", str(path), f"rows of numbers of shape {arrays[0].shape[1:]}, as in the first file")
        self._ends = np.cumsum([len(array) for array in arrays]).tolist()
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
            if first < stop and end > start:
                parts.append(np.array(_mapped(path)[max(0, start - first) : stop - first]))
            first = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _mapped(path: Path) -> NDArray[Any]:
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ParameterError("file", str(path), f"a whole .npy file ({error})") from error
    return mapped


def population_of(data: "Population | ArrayLike") -> Population:
    """`data` itself if it is a population, else the array in memory."""
    return data if isinstance(data, Population) else InMemory(data)
