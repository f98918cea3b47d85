"""One value per user: arrays, and multiples of rows kept apart from their factors."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Buffer = bytes | memoryview
"""Bytes that need not be copied."""

_HUGE = 1e50
"""Factors up to it times what squares of rows lose, 1e-323, are far below bounds of 1e-100."""
_TINY = 1e-280
"""Squares above it lost nothing that shows: what vanished is below 1e-308 a coordinate."""


@dataclass(frozen=True)
class Scaled:
    """Vectors that are multiples of rows: vector i is factors[i] * rows[i].

    Gradients of linear models are such vectors.

    Kept apart, a randomizer can multiply, round and add in one pass.

    Attributes:
        rows: (users, d), in Fortran order where speed matters.
        factors: (users,).
        squared_norms: of the rows, (users,), if they are known.
    """

    rows: Floats
    factors: Floats
    squared_norms: Floats | None = None

    def __len__(self) -> int:
        """Number of vectors."""
        return len(self.factors)

    def __getitem__(self, some: slice) -> "Scaled":
        """Of some users."""
        squares = None if self.squared_norms is None else self.squared_norms[some]
        return Scaled(self.rows[some], self.factors[some], squares)

    def dense(self) -> Floats:
        """The vectors, (users, d)."""
        return self.rows * self.factors[:, None]

    @cached_property
    def norms_squared(self) -> Floats:
        """Squared l2 norms of the vectors."""
        rows = (
            np.einsum("ij,ij->i", self.rows, self.rows)
            if self.squared_norms is None
            else self.squared_norms
        )
        norms = rows * self.factors
        norms *= self.factors
        largest = max(self.factors.max(initial=0.0), -self.factors.min(initial=0.0))
        if not largest <= _HUGE:  # or is not a number
            # A row's square may have vanished where the vector is long: it is looked at itself.
            long = np.flatnonzero(~(np.abs(self.factors) <= _HUGE))
            with np.errstate(over="ignore", invalid="ignore"):
                vectors = self.rows[long] * self.factors[long, None]
                norms[long] = np.hypot.reduce(vectors, axis=1) ** 2
        return norms


Values = Floats | Scaled
"""One value per user: an array (users, ...), or multiples of rows."""


def all_finite(values: NDArray[np.floating]) -> bool:
    """Whether no value is infinite or NaN; one pass and no memory where that is so."""
    with np.errstate(over="ignore", invalid="ignore"):
        flat = values.reshape(-1, order="A")
        # numpy's fastest sum. It may overflow where the values are finite.
        return bool(np.isfinite(np.einsum("i->", flat)) or np.isfinite(values).all())


def lengths(rows: Floats) -> Floats:
    """l2 norms of rows, (users, d) to (users,): squares may overflow or vanish, these do not."""
    rows = np.asarray(rows, np.float64)
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
    norms = np.sqrt(squares)
    extreme = ~((squares > _TINY) & (squares < np.inf))
    if extreme.any():
        norms[extreme] = np.hypot.reduce(rows[extreme], axis=1)
    return np.asarray(norms)


def dense(values: Values) -> Floats:
    """The values as an array."""
    return values.dense() if isinstance(values, Scaled) else values
