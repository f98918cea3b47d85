"""How far apart two laws are, at any epsilon: by themselves, or of several numbers together."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats

_STEP, _LONGEST = 1e-3, 40.0  # of the grid of losses; none is counted as longer
_ROUNDED = 1e-11  # of Fourier transforms, in all of a grid


def hockey(p: Floats, q: Floats, epsilon: float) -> float:
    """The hockey-stick divergence, sum (p - e^epsilon q)+."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


@dataclass(frozen=True)
class Losses:
    """The privacy loss of independent numbers under their first laws, rounded down to a grid.

    Attributes:
        chances: of the losses low, low + 1, ... in steps.
        low: the least.
        infinite: chance that some number cannot come by its second law.
        step: of the grid.
    """

    chances: Floats
    low: int
    infinite: float
    step: float = _STEP

    @classmethod
    def of(cls, pairs: Iterable[tuple[Floats, Floats]], step: float = _STEP) -> Self:
        """Of numbers with these two laws each, on the same outcomes."""
        chances, low, finite = np.ones(1), 0, 1.0
        for p, q in pairs:
            both = (p > 0) & (q > 0)
            # Losses are clipped from above alone: to less than they are.
            loss = np.minimum(np.log(p[both] / q[both]), _LONGEST)
            places = np.floor(np.maximum(loss, -_LONGEST) / step).astype(np.int64)
            places, mass = places[loss > -_LONGEST], p[both][loss > -_LONGEST]
            if not places.size:
                return cls(np.zeros(1), 0, 1.0, step)
            least = int(places.min())
            counted = np.bincount(places - least, mass)
            chances, low = scipy.signal.fftconvolve(chances, counted), low + least
            finite *= 1 - float(p[(p > 0) & (q <= 0)].sum())
        return cls(np.maximum(chances, 0.0), low, 1 - finite, step)

    def delta(self, epsilon: float) -> float:
        """A lower bound of the divergence of both laws at epsilon."""
        losses = self.step * (self.low + np.arange(len(self.chances)))
        above = losses > epsilon
        lost = -np.expm1(epsilon - losses[above])
        return max(0.0, self.infinite + float(self.chances[above] @ lost) - _ROUNDED)
