"""How far apart two laws are, at any epsilon: by themselves, or of several numbers together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats

_STEP, _LONGEST = 1e-3, 40.0  # of the grid of losses; none is counted as longer
_ROUNDED = 1e-11  # of Fourier transforms, in all of a grid
_BULK = 1e-9  # of a law on either side, which says nothing of how wide it is
_FINE, _REACH = 512, 24.0  # points in a deviation of one of all losses; deviations above
_BELOW, _LARGEST = 35.0, 2**21  # losses below the grid; points, about


def hockey(p: Floats, q: Floats, epsilon: float) -> float:
    """The hockey-stick divergence, sum (p - e^epsilon q)+."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def repeated(pairs: Sequence[tuple[Floats, Floats, int]], epsilon: float) -> float:
    """A lower bound of the divergence at epsilon of independent numbers, each drawn so often.

    Losses are rounded down to a grid. Those far above count as its end, and those far below for
    nothing. A sum of them is below -x with a chance of e^-x at most, as what is likelier under the
    second laws: so no more than e^-35 comes round the grid's end.
    """
    parts, finite = list[tuple[Floats, Floats, int]](), 0.0
    for p, q, count in pairs:
        both = (p > 0) & (q > 0)
        with np.errstate(divide="ignore"):
            finite += count * float(np.log1p(-min(1.0, p[(p > 0) & ~both].sum())))
        if both.any():
            parts.append((np.log(p[both] / q[both]), p[both], count))
    known = [_spread(loss, chances) * math.sqrt(count) for loss, chances, count in parts]
    deviation = math.sqrt(math.fsum(each**2 for each in known))
    infinite, many = -math.expm1(finite), sum(count for *_, count in parts)
    if not deviation:
        return infinite
    end = 2 * epsilon + _REACH * deviation
    step = max(deviation / _FINE / math.sqrt(many), (end + _BELOW) / _LARGEST)
    size = scipy.fft.next_fast_len(math.ceil((end + _BELOW) / step) + many, real=True)
    whole = np.ones(size // 2 + 1, np.complex128)
    for loss, chances, count in parts:
        near = loss > -_BELOW
        place = np.floor(np.minimum(loss[near], end) / step).astype(np.int64)
        law = np.bincount(place % size, chances[near], size)
        whole *= scipy.fft.rfft(law) ** count
    masses = scipy.fft.irfft(whole, size)
    losses = step * np.arange(size)[: math.floor(end / step) + 1]
    above = losses > epsilon
    found = float(masses[: losses.size][above] @ -np.expm1(epsilon - losses[above]))
    return infinite + max(0.0, found - _ROUNDED)


def _spread(loss: Floats, chances: Floats) -> float:
    """Standard deviation of a loss, without what is too rare to say how wide it is."""
    order = np.argsort(loss)
    below = np.cumsum(chances[order])
    kept = order[(below > _BULK) & (below - chances[order] < below[-1] - _BULK)]
    if not kept.size:
        return 0.0
    mean = float(np.average(loss[kept], weights=chances[kept]))
    return math.sqrt(float(np.average((loss[kept] - mean) ** 2, weights=chances[kept])))


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
