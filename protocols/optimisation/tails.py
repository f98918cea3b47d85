"""A histogram of A, the largest gradient of a row over the domain, and what it says of a clip.

Who adds the noise is not known here: a curator, or the users' messages.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats

EDGES = 2.0 ** (np.arange(-20, 21) / 2)
"""Upper edges of the bins, in units of a public `scale`; one more bin is above them."""
BINS = EDGES.size + 1
SHARE = 0.1
"""Of the users that are asked in a pilot, where not given."""


def bins_of(reach: Callable[[Floats], Floats], scale: float, rows: Floats) -> NDArray[np.int64]:
    """The bin of each row's A, (users,); `reach` gives A.

    A row that is not finite counts in the lowest bin: it adds nothing to any gradient. An A beyond
    doubles counts in the highest.
    """
    rows = np.asarray(rows, np.float64)
    known: NDArray[np.bool_] = np.asarray(np.isfinite(rows).all(axis=1))
    with np.errstate(over="ignore"):
        found = reach(np.where(known[:, None], rows, 0.0))
    # NaN after an overflow: such a row is long.
    found = np.where(known, np.nan_to_num(found, nan=math.inf, posinf=math.inf), 0.0)
    # A value on an edge counts below it: edges are upper ones.
    return np.asarray(np.searchsorted(scale * EDGES, found))


@dataclass(frozen=True)
class Tails:
    """What a noisy histogram says of A.

    Attributes:
        counts: noisy, (42,).
        users: n_0 of the pilot.
        epsilon: of the run.
        scale: unit of the edges.
    """

    counts: Floats
    users: int
    epsilon: float
    scale: float = 1.0

    def target(self, users: int, d: int) -> float:
        """The noisy tail count at which a phase of m users clips.

        6 (d + 1)/epsilon of m users, as the theorem's own optimum has it; 16/epsilon at least, the
        noise of some bins.
        """
        return max(self.users / users * 6 * (d + 1), 16) / self.epsilon

    def place(self, users: int, d: int) -> int:
        """Index of the least edge whose noisy tail count is at most the target."""
        tails = np.cumsum(self.counts[::-1])[::-1][1:]  # above each edge
        below = np.flatnonzero(np.less_equal(tails, self.target(users, d)))
        return int(below[0]) if below.size else EDGES.size - 1

    def clip(self, users: int, d: int) -> float:
        """C of a phase of m users."""
        return float(self.scale * EDGES[self.place(users, d)])

    def moment(self, power: int, place: int) -> float:
        """E min(A, C)^power at most, by upper edges, C the edge at `place`."""
        edges = self.scale * EDGES[: place + 1]
        # Noise makes counts negative; a moment is a sum of what is not.
        inside = float(np.maximum(self.counts[: place + 1], 0.0) @ edges**power)
        above = max(0.0, float(self.counts[place + 1 :].sum())) * float(edges[-1]) ** power
        # Above 0, as moments must be, even where noise leaves nothing.
        return max((inside + above) / self.users, float(edges[0]) ** power)
