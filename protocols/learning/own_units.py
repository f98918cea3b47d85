"""Rows in their own units: all columns get bounds by a private choice; the model is mapped back."""

import math

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.row_map import RowMap


def free_columns(columns: int, others: int) -> RowMap:
    """A map whose first columns have no bounds yet; within any, these lie in the unit ball.

    Args:
        columns: of features.
        others: after them, left as they are: a constant, labels, weights.
    """
    every, free = columns + others, np.arange(columns)
    wide = np.full(every, np.inf)
    reach = np.full(columns, 1 / math.sqrt(columns))
    return RowMap(-wide, wide, np.zeros(every), np.ones(every), free, reach)


def in_own_units(theta: Floats, by: RowMap, columns: int, constant: float) -> tuple[Floats, Floats]:
    """Coefficients (outputs, columns) and intercepts (outputs,) for rows as they are.

    Args:
        theta: for mapped rows with a constant behind their features, (outputs, columns + 1).
        by: the map, with bounds.
        columns: of features.
        constant: its value.
    """
    coefficients = theta[:, :columns] * by.factor[:columns]
    return coefficients, theta[:, columns] * constant - coefficients @ by.center[:columns]


def beyond(rows: Floats, by: RowMap) -> NDArray[np.bool_]:
    """Which rows have a cell outside the bounds."""
    return np.asarray(((rows < by.lower) | (rows > by.upper)).any(axis=1))
