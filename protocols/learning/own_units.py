"""Rows in their own units: all columns get bounds by a private choice; the model is mapped back."""

import math

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.row_map import RowMap
from shuffle_sim.data.schema import Schema


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


def of_schema(schema: Schema, others: int) -> RowMap:
    """A map whose first columns are those of a schema, into the unit ball; some have no bounds yet.

    Args:
        schema: of the features.
        others: as of `free_columns`.
    """
    scale, (lower, upper), free = schema.scale, schema.limits, np.array(schema.free, np.int64)
    wide = np.full(others, np.inf)
    return RowMap(
        np.concatenate([lower, -wide]),
        np.concatenate([upper, wide]),
        np.concatenate([scale.center, np.zeros(others)]),
        np.concatenate([1 / scale.half / scale.norm, np.ones(others)]),
        free,
        np.full(len(free), 1 / scale.norm),
    )


def in_own_units(theta: Floats, by: RowMap, columns: int, constant: float) -> tuple[Floats, Floats]:
    """Coefficients (outputs, columns) and intercepts (outputs,) for rows as they are.

    Args:
        theta: for mapped rows with a constant behind their features, (outputs, columns + 1).
        by: the map, with bounds.
        columns: of features.
        constant: its value.
    """
    # <theta, (x - center) factor> + theta_c constant, sorted by x.
    coefficients = theta[:, :columns] * by.factor[:columns]
    return coefficients, theta[:, columns] * constant - coefficients @ by.center[:columns]


def beyond(rows: Floats, by: RowMap) -> NDArray[np.bool_]:
    """Which rows have a cell outside the bounds."""
    return np.asarray(((rows < by.lower) | (rows > by.upper)).any(axis=1))
