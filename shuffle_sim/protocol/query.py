"""What a round asks of each user, and what it proves of the answers."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from shuffle_sim.arrays import Floats, Values


class Query(ABC):
    """What a round asks of each user's row; public.

    It is a frozen dataclass of plain values, so that it can be broadcast. Its annotations are what
    users check before they build it.
    """

    moves: ClassVar[tuple[str, ...]] = ()
    """Fields that follow from earlier views. Users agree to all others before the run."""
    proven: ClassVar[bool] = False
    """Whether `apart` is proven of `__call__` here; a class that changes one says it anew."""

    @property
    def apart(self) -> float:
        """How far (l2) the values of neighbours are apart at most; infinite: nothing is proven.

        Where it is finite it must be computed from fields that the query holds every row to, and
        neighbours are those of the protocol's guarantee. Less noise is charged for.
        """
        return math.inf

    def believed(self) -> tuple[str, ...]:
        """What privacy takes from the author of `apart`, in words; () where it is proven."""
        owner, other = (
            next(kind for kind in type(self).__mro__ if name in vars(kind))
            for name in ("apart", "__call__")
        )
        if owner is Query or (owner is other and vars(owner).get("proven", False)):
            return ()
        words = "of neighbours are no farther apart than it states: its author says so"
        return (f"values of {type(self).__name__} {words}",)

    @abstractmethod
    def __call__(self, rows: Floats) -> Values:
        """The values to be summed, one for each row of `rows` (users, ...).

        They are computed row by row, never across users.

        Rows come in Fortran order: columns are contiguous.
        """


@dataclass(frozen=True)
class Datum(Query):
    """Asks for the datum itself."""

    def __call__(self, rows: Floats) -> Values:
        return rows
