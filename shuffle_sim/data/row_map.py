"""From rows in a table's units to rows in the unit ball: column by column, by public numbers."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from shuffle_sim.arrays import Floats


@dataclass(frozen=True, eq=False)
class RowMap:
    """(row clipped to [lower, upper] - center) times factor.

    Attributes:
        lower, upper, center, factor: shape (columns,); infinite limits leave a column as it is.
        free: places of the columns whose limits are still to be chosen, shape (free,), int64.
        reach: the largest distance from zero that each of those may have then, shape (free,).
    """

    lower: Floats
    upper: Floats
    center: Floats
    factor: Floats
    free: np.ndarray[tuple[int], np.dtype[np.int64]]
    reach: Floats

    def __call__(self, rows: Floats) -> Floats:
        """The rows, (rows, columns)."""
        inside = np.clip(rows, self.lower, self.upper)
        return np.asarray((inside - self.center) * self.factor)

    def bounded(self, low: Floats, high: Floats) -> Self:
        """With limits of the free columns, shape (free,)."""
        lower, upper, center, factor = (
            each.copy() for each in (self.lower, self.upper, self.center, self.factor)
        )
        lower[self.free], upper[self.free] = low, high
        center[self.free] = (low + high) / 2
        # Half of the range comes to the reach, on both sides of the center.
        factor[self.free] = self.reach * 2 / (high - low)
        return type(self)(lower, upper, center, factor, self.free[:0], self.reach[:0])
