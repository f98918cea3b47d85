"""The friendly mean: points that agree are averaged, outliers are left out, privately.

Source of the idea: Asi and Liu 2024, Lemma 3.5, with random inclusion. This one is deterministic,
and its constants are proven in docs/theory/user-level.md, "Friendly mean".
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive

MAX_POINTS = 20_000  # all pairs are looked at
_UNIT = 2.0**-53  # roundoff of doubles


@dataclass(frozen=True)
class FriendlyMean:
    """Of C points, those with more than C/2 friends within a radius, weighted by how many.

    Attributes:
        points: C.
        radius: r; points at most r apart are friends.
        largest: K, the largest score that a test lets pass.

    Raises:
        ParameterError: C not above 3 K + 3, or too many points to look at all pairs.
    """

    points: int
    radius: float
    largest: int

    def __post_init__(self) -> None:
        """Refuse what has no sensitivity."""
        integer("points", self.points, 1, MAX_POINTS)
        integer("largest", self.largest, 0)
        positive("radius", self.radius)
        # A score of K at most means Q >= C - 3 K for both neighbours, and the lemma needs q > 3.
        if self.points <= 3 * self.largest + 3:
            allowed = f"above 3 K + 3 = {3 * self.largest + 3}: a passing sum of weights must be"
            raise ParameterError("points", self.points, allowed)

    @property
    def sensitivity(self) -> float:
        """s6: how far values of neighbours are apart, where both scores are at most K."""
        C, K = self.points, self.largest
        # The lemma's second bound at q = C - 3 K: q >= C/2 + 3 is C >= 6 K + 6.
        factor = 3 + 3 * K / (C - 3 * K - 3) if C >= 6 * K + 6 else 6.0
        return self.radius * min(6.0, factor) / (C - 3 * K)

    def rounded(self, largest: float) -> float:
        """s6 of points no longer than `largest`, with what rounding adds to two means in doubles.

        A mean of C points is off by (C + 3) u times the largest at most (Higham 2002, section 3.1).
        """
        # A weight rounds once, the dot C times, sum and quotient once each: C + 3 a mean, 5 to
        # spare.
        return self.sensitivity + 2 * (self.points + 8) * _UNIT * largest

    def friends(self, points: Floats) -> NDArray[np.int64]:
        """How many points are within the radius of each, itself included; NaN has none.

        Distances are the same for (a, b) and (b, a), and independent of all other points.
        """
        found = np.zeros(len(points), np.int64)
        finite = np.isfinite(points).all(axis=1)
        kept = points[finite]
        near = np.zeros(len(kept), np.int64)
        for at, point in enumerate(kept):
            # Not |a|^2 + |b|^2 - 2 <a, b>: near points lose their digits there, and what BLAS
            # rounds for one pair may depend on the other rows.
            gaps = np.hypot.reduce(kept - point, axis=1)
            near[at] = np.count_nonzero(gaps <= self.radius)
        found[finite] = near
        return found

    def score(self, friends: NDArray[np.int64]) -> int:
        """k = ceil((C - Q)/3), by integers; it changes by at most 1 with one point."""
        C = self.points
        # C (1 - p) = min(C, 2 (C - h)) in whole numbers: no rounding carries Q over a step of the
        # ceiling.
        missing = int(np.minimum(C, 2 * (C - friends)).sum())  # C (C - Q)
        return -(-missing // (3 * C))

    def __call__(self, points: Floats) -> tuple[int, Floats]:
        """(score, value); where no point has friends enough the value is 0, and never passes.

        Args:
            points: (C, d).
        """
        if len(points) != self.points:
            raise ParameterError("points", len(points), f"{self.points} of them")
        friends = self.friends(points)
        weights = np.clip((2 * friends - self.points) / self.points, 0.0, 1.0)
        # Left out before the sum: 0 times NaN is NaN, and would tell of a point without weight.
        kept = weights > 0
        if not kept.any():
            return self.score(friends), np.zeros(points.shape[1])
        value = weights[kept] @ points[kept] / math.fsum(weights[kept])
        return self.score(friends), np.asarray(value)
