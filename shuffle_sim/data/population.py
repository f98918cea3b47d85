"""Where the users' data is: in memory, or made from a seed; files are in `file_population`."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.sampling.randomness import Role, entropy_of, stream


class Unit(StrEnum):
    """Whose data neighbours differ in: one record, or all records of one person."""

    RECORD = "record"
    PERSON = "person"


class Population(ABC):
    """The data of all users; row i belongs to user i."""

    left_out: int = 0
    """Records of persons that do not count; private."""

    @property
    @abstractmethod
    def users(self) -> int:
        """Number of users."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows of users start, ..., stop - 1."""

    def content(self, start: int, stop: int) -> bytes:
        """SHA-256 of the rows of users start, ..., stop - 1 as they are read now.

        Empty where nobody asks: rows in memory, and those made from a seed unless `watched`.
        """
        return _hashed(self.rows(start, stop))

    def watched(self) -> "Population":
        """The same rows for a run whose rounds may be drawn again, and must meet no others."""
        return self

    @property
    def resident(self) -> bool:
        """Whether shards keep their rows; others ask in every round and hold one chunk."""
        return False

    def width(self, user: int) -> int:
        """Values of a row; that of this user is looked at, as its page is read next."""
        return int(self.rows(user, user + 1).size)

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
            allowed = "at least one user along the first axis"
            raise ParameterError("data.shape", self.array.shape, allowed)

    @property
    def users(self) -> int:
        return len(self.array)

    @property
    def resident(self) -> bool:
        return True

    def content(self, start: int, stop: int) -> bytes:
        return b""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
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
        self._digests: dict[int, bytes] | None = None

    @property
    def users(self) -> int:
        return self._users

    def watched(self) -> "Generated":
        found = copy(self)
        found._digests = {}
        return found

    def content(self, start: int, stop: int) -> bytes:
        """SHA-256 of the pages with these rows as they were made last; empty unless `watched`."""
        if self._digests is None:
            return b""
        pages = range(start // self.PAGE, -(-stop // self.PAGE))
        for page in pages:
            if page not in self._digests:
                self._rows_of_page(page)
        return hashlib.sha256(b"".join(self._digests[page] for page in pages)).digest()

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        size, parts = self.PAGE, []
        for page in range(start // size, -(-stop // size)):
            rows = self._rows_of_page(page)
            parts.append(rows[max(0, start - page * size) : stop - page * size])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _rows_of_page(self, page: int) -> NDArray[Any]:
        if self._page is None or self._page[0] != page:
            count = min(self.PAGE, self._users - page * self.PAGE)
            made = self._make(stream(self._entropy, 0, Role.DATA, page), count)
            if len(made) != count:
                allowed = f"a function that makes {count} rows when asked for {count}"
                raise ParameterError("make", len(made), allowed)
            # One page is kept: blocks of users ask for it piece by piece.
            self._page = page, made
            if self._digests is not None:
                self._digests[page] = _hashed(np.asarray(made))
        return self._page[1]

    def __getstate__(self) -> dict[str, Any]:
        """Without the page that is kept, and what is known of others."""
        known = None if self._digests is None else dict[int, bytes]()
        return {**self.__dict__, "_page": None, "_digests": known}


def _hashed(rows: NDArray[Any]) -> bytes:
    rows = np.ascontiguousarray(rows)
    # Type and shape first: the same bytes as other numbers are other rows.
    found = hashlib.sha256(f"{rows.dtype.descr}{rows.shape}".encode())
    found.update(rows.reshape(-1).view(np.uint8).data)
    return found.digest()


def population_of(data: "Population | ArrayLike") -> Population:
    """`data` itself if it is a population, else the array in memory."""
    return data if isinstance(data, Population) else InMemory(data)
