"""Laws of privacy losses on a grid: any pair of finite laws, composed over many releases.

The loss of an outcome is l = ln(p/q), its law is taken under P. An atom (p, q) with loss between
two points of the grid is split into two atoms at these points so that both p and q are conserved.
The old pair is a merging of the new one, so every delta from the grid is an upper bound. It is off
by the square of the step only (docs: theory, Amplification).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Protocol

import numpy as np
import scipy

from shuffle_sim.arrays import Floats

_FARTHEST = 60.0  # losses beyond count as infinite, those below minus it are raised
_TAIL = 1e-17  # of a law, cut off at each end
_CHERNOFF = 41.0  # -ln of such a tail by its bound, with e^1.8 to spare for rounding
_TILTS, _TRIED = (0.1, 30.0), 40  # over standard deviations; of a Gaussian 9.1 is best
_SHORT = 4096  # points, of which all pairs are multiplied: slower than a transform, but exact
_UNIT = 1.2e-16  # of rounding
_FINE = 800, 50.0, 8000  # grid steps in a standard deviation: at least, times a root, at most
"""An atom that is split adds h^2/4 of variance at most: of k releases k/(4 steps^2) in all."""
_SHORTER = 0.9  # of two laws' points


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
        # A loss that is raised has less of Q: delta does not fall.
        return cls._split(np.maximum(loss[known], -_FARTHEST), p[known], lost, step)

    @classmethod
    def _split(cls, loss: Floats, kept: Floats, lost: float, step: float) -> "LossLaw":
        """Atoms of P on a grid, both P and Q conserved."""
        place = np.floor(loss / step)
        low = np.clip(np.expm1((place + 1) * step - loss) / math.expm1(step), 0.0, 1.0)
        start = int(place.min()) if place.size else 0
        index = (place - start).astype(np.int64)
        masses = np.zeros(int(index.max(initial=0)) + 2)
        masses += np.bincount(index, kept * low, masses.size)
        masses += np.bincount(index + 1, kept * (1 - low), masses.size)
        return cls(step, start, masses, lost)._trimmed()

    @property
    def losses(self) -> Floats:
        """The points of the grid, (points,)."""
        return np.asarray(self.step * (self.start + np.arange(self.masses.size)))

    def on(self, step: float) -> "LossLaw":
        """On another grid; a coarser one is rougher by the square of its step."""
        if step == self.step:
            return self
        if step not in self._grids:
            self._grids[step] = self._split(self.losses, self.masses, self.lost, step)
        return self._grids[step]

    @cached_property
    def _grids(self) -> "dict[float, LossLaw]":
        """This law on other grids, by their steps."""
        return {}

    def then(self, other: "LossLaw") -> "LossLaw":
        """Both releases, on the coarser grid; the second may be chosen after the first was seen."""
        if other.step != self.step:
            step = max(self.step, other.step)
            return self.on(step).then(other.on(step))
        if self.masses.size * other.masses.size <= _SHORT**2:
            masses = np.convolve(self.masses, other.masses)  # no term is negative
            return self._product(other, masses, 0.0)
        error = self._rounding(other)
        points, lost = self.masses.size + other.masses.size, self.lost + other.lost
        one, two = (each._shortened(error / points) for each in (self, other))
        shorter = one.masses.size + two.masses.size < _SHORTER * points
        if shorter and one._rounding(two) + one.lost + two.lost < error + lost:
            return one.then(two)
        # What rounding made negative is in the error that is added.
        masses = np.maximum(scipy.signal.fftconvolve(self.masses, other.masses), 0.0)
        return self._product(other, masses, error)

    def _product(self, other: "LossLaw", masses: Floats, error: float) -> "LossLaw":
        lost = self.lost + other.lost - self.lost * other.lost + error
        return LossLaw(self.step, self.start + other.start, masses, lost)._trimmed()

    def _rounding(self, other: "LossLaw") -> float:
        """Of a product by transforms, which counts as lost."""
        size = 2 * (self.masses.size + other.masses.size)  # of the transform at most
        # A point is off by some u log2(size) |p| |q|; all of them together by size times that.
        norms = float(np.linalg.norm(self.masses) * np.linalg.norm(other.masses))
        return 8 * _UNIT * math.log2(size) * norms * size

    def times(self, count: int) -> "LossLaw":
        """So many releases of this pair."""
        reach, found, done, power, each = self._reach(count), None, 0, self, 1
        while True:
            if count & each:
                done += each
                found = power if found is None else found.then(power)._between(*reach(done))
            each *= 2
            if each > count:
                assert found is not None
                # Masses of one release are rounded: that is multiplied.
                return replace(found, lost=found.lost + _UNIT * (count - 1))
            power = power.then(power)._between(*reach(each))

    def _reach(self, most: int) -> Callable[[int], tuple[int, int]]:
        """Places between which all but e^-41 of so many releases lie, on either side.

        Rounding of a transform hides where a law ends: its own sums would find no end, and the
        length would double with each product. Chernoff's bound needs this law alone: P(loss > x) is
        at most E[e^(t loss)]^count e^(-t x) for every t, and likewise below.
        """
        seen = self.masses > 0
        if not seen.any():  # all is lost
            return lambda count: (self.start, self.start)
        masses, losses = self.masses[seen], self.losses[seen]
        mean = float(losses @ masses)
        far = losses - mean
        spread = math.sqrt(float(far**2 @ masses)) or self.step
        tilts = np.geomspace(_TILTS[0] / spread / math.sqrt(most), _TILTS[1] / spread, _TRIED)
        # E[e^(t far)] by its logarithm, as far losses may be beyond doubles.
        above, below = (
            np.array([_log_mean(t * signed, masses) for t in tilts]) for signed in (far, -far)
        )

        def reach(count: int) -> tuple[int, int]:
            down, up = (((count * each + _CHERNOFF) / tilts).min() for each in (below, above))
            low, high = (count * mean + end for end in (-float(down), float(up)))
            return math.floor(low / self.step), math.ceil(high / self.step)

        return reach

    def _between(self, low: int, high: int) -> "LossLaw":
        """Without places beyond, which count as lost; at least one stays."""
        first = min(max(low - self.start, 0), self.masses.size - 1)
        last = min(max(high - self.start, first), self.masses.size - 1)
        kept = self.masses[first : last + 1]
        return LossLaw(self.step, self.start + first, kept, self.lost + 2 * _TAIL)

    def _shortened(self, price: float) -> "LossLaw":
        """Without tails whose masses are less than their points' price, the error of a transform.

        A few far losses make it long: then it is cheaper to count them as infinite.
        """
        below, above = np.cumsum(self.masses), np.cumsum(self.masses[::-1])
        prices = price * np.arange(1, self.masses.size + 1)
        first, behind = (int(np.argmin(np.append(0.0, tail - prices))) for tail in (below, above))
        return self._cut(first, max(first, self.masses.size - behind - 1))

    def delta(self, epsilon: float) -> float:
        """Of all of them, at most 1."""
        losses = self.losses
        above = losses > epsilon
        gains = self.masses[above] * -np.expm1(epsilon - losses[above])
        return min(1.0, (self.lost + float(gains.sum())) * (1 + 1e-9))

    def _trimmed(self, tail: float = _TAIL) -> "LossLaw":
        """Tails below `tail` become infinite, which only lets delta grow."""
        below, above = np.cumsum(self.masses), np.cumsum(self.masses[::-1])[::-1]
        first = int(np.searchsorted(below, tail))
        last = max(first, int(np.count_nonzero(above > tail)) - 1)
        return self._cut(first, last)

    def _cut(self, first: int, last: int) -> "LossLaw":
        """Without points before the first and behind the last, which become infinite."""
        if first >= self.masses.size:
            return self
        kept = self.masses[first : last + 1]
        lost = self.lost + float(self.masses[:first].sum() + self.masses[last + 1 :].sum())
        return LossLaw(self.step, self.start + first, kept, lost)


def _log_mean(logs: Floats, masses: Floats) -> float:
    """ln sum_i masses_i e^logs_i; `scipy.special.logsumexp` takes 60 times as long."""
    most = float(logs.max())
    return most + math.log(np.exp(logs - most) @ masses)


class Pair(Protocol):
    """Two laws that neighbours' releases are not told apart better than; exchanged, the same."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, where it is finite."""

    def losses(self, step: float) -> LossLaw:
        """On a grid."""

    def delta(self, epsilon: float) -> float:
        """Of one release, rounded upward."""


@dataclass(frozen=True)
class Finite:
    """A pair of laws of the same outcomes.

    Attributes:
        here: (outcomes,).
        there: (outcomes,).
    """

    here: Floats
    there: Floats

    @property
    def deviation(self) -> float:
        """Standard deviation of the loss, where it is finite."""
        known = (self.here > 0) & (self.there > 0)
        p = self.here[known] / self.here[known].sum()
        loss = np.log(self.here[known]) - np.log(self.there[known])
        return float(math.sqrt(p @ (loss - p @ loss) ** 2))

    def losses(self, step: float) -> LossLaw:
        """On a grid."""
        return LossLaw.of(self.here, self.there, step)

    def delta(self, epsilon: float) -> float:
        """The sum of what is more, and what is missing to 1."""
        more = np.maximum(self.here - math.exp(min(epsilon, 700.0)) * self.there, 0.0).sum()
        return min(1.0, (float(more) + max(0.0, 1.0 - float(self.here.sum()))) * (1 + 1e-9))


def together(pairs: Sequence[tuple[Pair, int]]) -> LossLaw:
    """The loss of releases of all of these pairs, so often each; at least one."""
    deviation = math.sqrt(sum(count * pair.deviation**2 for pair, count in pairs))
    least, root, most = _FINE
    fine = max(least, min(root * math.sqrt(sum(count for _, count in pairs)), most))
    # Where all is told, nothing is spread: any step serves.
    laws = (pair.losses(deviation / fine or 1e-3).times(count) for pair, count in pairs)
    return reduce(LossLaw.then, laws)
