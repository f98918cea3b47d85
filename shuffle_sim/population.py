"""Where the users' data is: in memory; the shards ask for it by ranges of users."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.errors import ParameterError


class Population(ABC):
    """The data of all users; row i belongs to user i."""

    @property
    @abstractmethod
    def users(self) -> int:
        """Number of users."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows of users start, ..., stop - 1."""


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

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """A view of the rows."""
        return self.array[start:stop]


def population_of(data: "Population | ArrayLike") -> Population:
    """`data` itself if it is a population, else the array in memory."""
    return data if isinstance(data, Population) else InMemory(data)
