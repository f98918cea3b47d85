"""Laws of privacy losses on a grid: any pair of finite laws, composed over many releases.

The loss of an outcome is l = ln(p/q), its law is taken under P. An atom (p, q) with loss between
two points of the grid is split into two atoms at these points so that both p and q are conserved.
The old pair is a merging of the new one, so every delta from the grid is an upper bound. It is off
by the square of the step only (docs: theory, Amplification).
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from shuffle_sim.arrays import Floats

_FARTHEST = 60.0  # losses beyond count as infinite, those below minus it are raised
_TAIL = 1e-17  # of a law, cut off outward
_UNIT = 1.2e-16  # of rounding


@dataclass(frozen=True)
class LossLaw:
    """The loss is step (start + i) with probability masses[i], and infinite with `lost`.

    Attributes:
        step: of the grid.
        start: place of the first point.
        masses: (points,).
        lost: at least what P has where Q has nothing.
    """

    step: float
    start: int
    masses: Floats
    lost: float

    @classmethod
    def of(cls, p: Floats, q: Floats, step: float) -> "LossLaw":
        """Of the pair of laws p, q (outcomes,); what is missing to 1 in p counts as lost."""
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(p) - np.log(q)
        known = (p > 0) & (loss <= _FARTHEST)
        lost = float(p[(p > 0) & ~known].sum()) + max(0.0, 1.0 - float(p.sum()))
        kept, loss = p[known], np.maximum(loss[known], -_FARTHEST)
        place = np.floor(loss / step)
        low = np.clip(np.expm1((place + 1) * step - loss) / math.expm1(step), 0.0, 1.0)
        start = int(place.min()) if place.size else 0
        index = (place - start).astype(np.int64)
        masses = np.zeros(int(index.max(initial=0)) + 2)
        masses += np.bincount(index, kept * low, masses.size)
        masses += np.bincount(index + 1, kept * (1 - low), masses.size)
        return cls(step, start, masses, lost)._trimmed()

    def then(self, other: "LossLaw") -> "LossLaw":
        """Both releases; the second may be chosen after the first was seen."""
        masses = np.maximum(scipy.signal.fftconvolve(self.masses, other.masses), 0.0)
        size = 2 * masses.size  # of the transform at most; its error counts as lost
        norms = float(np.linalg.norm(self.masses) * np.linalg.norm(other.masses))
        error = 8 * _UNIT * math.log2(size) * norms * size
        lost = self.lost + other.lost - self.lost * other.lost + error
        return LossLaw(self.step, self.start + other.start, masses, lost)._trimmed()

    def times(self, count: int) -> "LossLaw":
        """So many releases of this pair."""
        found, power = None, self
        while True:
            if count & 1:
                found = power if found is None else found.then(power)
            count >>= 1
            if not count:
                assert found is not None
                return found
            power = power.then(power)

    def delta(self, epsilon: float) -> float:
        """Of all of them, at most 1."""
        losses = self.step * (self.start + np.arange(self.masses.size))
        above = losses > epsilon
        gains = self.masses[above] * -np.expm1(epsilon - losses[above])
        return min(1.0, (self.lost + float(gains.sum())) * (1 + 1e-9))

    def _trimmed(self) -> "LossLaw":
        """The upper tail becomes infinite, the lower one rises to the first point that is kept."""
        below, above = np.cumsum(self.masses), np.cumsum(self.masses[::-1])[::-1]
        first = int(np.searchsorted(below, _TAIL))
        last = max(first, int(np.count_nonzero(above > _TAIL)) - 1)
        if first >= self.masses.size:
            return self
        kept = self.masses[first : last + 1].copy()
        kept[0] += self.masses[:first].sum()
        lost = self.lost + float(self.masses[last + 1 :].sum())
        return LossLaw(self.step, self.start + first, kept, lost)
