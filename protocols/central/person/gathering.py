"""Rows of a cohort at the curator, in order: for statistics that are no sums."""

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.protocol.release import Total


class Gathered:
    """A part whose total is a list: blocks are added in order, and so are lists."""

    def __init__(self, value: Callable[[Floats], Floats] | None = None) -> None:
        """`value` turns rows into one value for each user; None: the rows as they are."""
        self._value = value

    def __call__(self, rows: Floats) -> Floats:
        """One list of one array, as an array of objects."""
        # Filled by hand: np.array([rows], object) would take the rows apart into numbers.
        found: NDArray[np.object_] = np.empty(1, object)
        found[0] = [np.asarray(rows if self._value is None else self._value(rows))]
        return cast(Floats, found)  # a `Part` gives floats; lists are added as they are


def gathered(total: Total, value: Callable[[Floats], Floats] | None = None) -> Floats:
    """One value for each user of the cohort, in the order of users, shape (users, ...).

    Args:
        total: the curator's.
        value: of some rows, one for each; None: the rows as they are.
    """
    (pieces,) = np.asarray(total(Gathered(value)), object).ravel()
    return np.concatenate(pieces)
