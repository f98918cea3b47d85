"""Sums by digits under floods of carries and one two-sided noise (docs/theory/floods.md).

A number in [0, g] travels in base beta over K planes. Plane L gets two-sided geometric noise, the
planes below it a little Poisson noise. Zero-sum batches of messages hide how the sum is written:
carries between planes, pairs on plane L, and splits of digits that are sent as one message. A
change of one user moves each kind of batch by a few at most (Theorem 1), so what the view tells is
a sum of independent losses, one a kind.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.privacy.bounds.cells import batches, compound
from shuffle_sim.privacy.bounds.losses import LossLaw

Ints = NDArray[np.int64]
_ROUNDING = 1e-15  # of a curve's differences, for each of its points
_FALSE = 3e-16  # of a transform: what is below is its error
_DEPTH = 46.0  # e^-46 of a geometric law lies beyond its window


@dataclass(frozen=True)
class Digits:
    """How a number is written.

    Attributes:
        base: beta, at least 2.
        low: L planes below the one with the noise.
        high: H planes above it.
        top: Q, the largest top digit.
        packed: whether a digit is one message, not as many as its value.
    """

    base: int
    low: int
    high: int
    top: int
    packed: bool = False

    @property
    def planes(self) -> int:
        """K."""
        return self.low + self.high + 1

    @property
    def units(self) -> int:
        """G: the range in units of the plane with the noise."""
        return int(self.top * self.base**self.high)

    @property
    def steps(self) -> int:
        """g: the range in units of the lowest plane."""
        return int(self.units * self.base**self.low)

    @property
    def reach(self) -> tuple[int, ...]:
        """The most that a change moves the carries out of each plane but the last, (K - 1,)."""
        # t_l = Q beta^(H - 1 - (l - L)); the low planes, mixed by their noise, move by one.
        high = (self.top * self.base**e for e in reversed(range(self.high)))
        return (1,) * self.low + tuple(high)

    @property
    def splits(self) -> tuple[tuple[int, int], ...]:
        """(plane, digit) of every digit that is split into a smaller one and a unit."""
        if not self.packed:
            return ()
        largest = (self.base - 1,) * (self.planes - 1) + (self.top,)
        return tuple((plane, v) for plane, most in enumerate(largest) for v in range(2, most + 1))

    @property
    def split_moves(self) -> int:
        """The most splits that a change moves, by one each."""
        return (self.planes - 1) * (self.base - 2) + self.top - 1 if self.packed else 0


@dataclass(frozen=True)
class FloodNoise:
    """All users' noise together.

    Attributes:
        decay: a; two-sided noise ~ e^(-a |z|) on plane L.
        smooth: lambda, mean of the Poisson noise of each plane below it.
        flood: s, mean of a kind of carries whose reach is 1.
        pairs: s_c, mean of the pairs over G.
        batch: J_t, largest batch of carries whose reach is 1.
        pair_batch: J_c, largest batch of pairs over G.
    """

    decay: float
    smooth: float
    flood: float
    pairs: float
    batch: int
    pair_batch: int

    def variance(self, digits: Digits) -> float:
        """Of the sum, over the range squared; without rounding."""
        # 2 rho/(1 - rho)^2 of rho = e^-a.
        two_sided = 0.5 / math.sinh(self.decay / 2) ** 2
        smooth: float = self.smooth * sum(
            digits.base ** (-2.0 * j) for j in range(1, digits.low + 1)
        )
        return (two_sided + smooth) / digits.units**2

    def messages(self, digits: Digits) -> float:
        """Mean of all noise messages."""
        # A batch of T is beta + 1 messages, one of C is 2; of a split v + 2 and v + 1.
        carries = self.flood * (digits.base + 3) * sum(digits.reach)
        splits = self.flood * sum(3 + 2 * v for _, v in digits.splits)
        two_sided = 2 / math.expm1(self.decay)
        pairs = 2 * self.pairs * digits.units
        return float(carries + splits) + pairs + two_sided + digits.low * self.smooth


@lru_cache(maxsize=1 << 10)
def skew(smooth: float, base: int) -> float:
    """zeta: log-ratio of the likeliest and the least likely rest modulo `base` of Poisson noise."""
    places = np.arange(base * math.ceil((smooth + 12 * math.sqrt(smooth) + 60) / base))
    shares = scipy.stats.poisson.pmf(places, smooth).reshape(-1, base).sum(axis=0)
    return math.log(float(shares.max() / shares.min()))


@lru_cache(maxsize=64)
def _flood(mean: float, batch: int) -> Floats:
    """Counts of a kind whose batches are uniform on 1 .. batch, (counts,)."""
    # The mean size is (J + 1)/2.
    return compound(2 * mean / (batch + 1), batches(batch))


def _quick_flood(mean: float, batch: int) -> Floats:
    """The same by a transform: what is below its error counts as lost."""
    # The rate times the mean square of a size, (J + 1)(2 J + 1)/6.
    spread = math.sqrt(mean * (2 * batch + 1) / 3)
    size = scipy.fft.next_fast_len(math.ceil(mean + 14 * spread + 40 * batch), True)
    sizes = np.zeros(size)
    sizes[1 : batch + 1] = 1 / batch
    transform = np.exp(2 * mean / (batch + 1) * (scipy.fft.rfft(sizes) - 1))
    law = scipy.fft.irfft(transform, size)
    return np.asarray(np.where(law > _FALSE, law, 0.0))


def moved(law: Floats, by: int, step: float) -> LossLaw:
    """Two floods of a law (counts,), of which one gets `by` more and the other as many less."""
    gap = np.zeros(by)
    # Only P's outcomes count: what Q alone can give is left out, what P alone can give is lost.
    up = LossLaw.of(law, np.append(law[by:], gap), step)
    down = LossLaw.of(law, np.append(gap, law[: law.size - by]), step)
    return up.then(down)


def two_sided(decay: float, pairs: Floats, k: int, up: bool, step: float) -> LossLaw:
    """k more (up), or less, of the two-sided noise under a law of pairs (counts,).

    With A, B the noise, M = min(A, B) + pairs is independent of A - B. Where the change leaves the
    lesser of the counts h above, or below, M, the loss is a (k - 2 h) and what M and M + h differ
    by, or a (2 h - k) and what M and M - h do.
    """
    rho = math.exp(-decay)
    # min(A, B) is geometric of ratio rho^2.
    tail = np.zeros(math.ceil(_DEPTH / (2 * decay)))
    least = scipy.signal.lfilter([1 - rho * rho], [1.0, -rho * rho], np.append(pairs, tail))
    # P(A - B = z) ~ rho^|z|: chances of the side where nothing moves, of 1 .. k - 1, from k on.
    shifts = np.arange(k + 1)
    chances = np.where(shifts == 0, 1.0, rho**shifts * (1 - rho)) / (1 + rho)
    chances[k] = rho**k / (1 + rho)
    here, there = [], []
    for place, chance in enumerate(chances):
        h, gap = (place, np.zeros(place)) if up else (k - place, np.zeros(k - place))
        other = np.append(least[h:], gap) if up else np.append(gap, least[: least.size - h])
        loss = decay * (k - 2 * h) if up else decay * (2 * h - k)
        here.append(chance * least)
        # Q(z') M'(.) at the outcome of P(z) M(.): the factor of the differences is e^-loss.
        there.append(chance * math.exp(-loss) * other)
    return LossLaw.of(np.concatenate(here), np.concatenate(there), step)


def heights(decay: float, pairs: Floats) -> Floats:
    """ln H(m), m = 0, 1, ..., and at last of m = -1, under a law of pairs (counts,).

    (A + C', B + C') has the law rho^(sum) H(least) up to a factor, and H(m) is the sum of
    P(C' = f) rho^(-2 f) over f <= m.
    """
    with np.errstate(divide="ignore"):
        terms = np.log(pairs) + 2 * decay * np.arange(pairs.size)
    return np.append(np.logaddexp.accumulate(terms), -np.inf)


def more_odds(decay: float, heights: Floats, plus: Ints, minus: Ints, k: int) -> Floats:
    """ln of how much likelier two counts are if k of the first are not noise."""
    there, here = (
        heights[np.clip(np.minimum(plus - less, minus), -1, heights.size - 2)] for less in (k, 0)
    )
    return np.asarray(decay * k + there - here)


def ends(digits: Digits, noise: FloodNoise, step: float) -> LossLaw:
    """Of the two ends of the range on one plane: a pair of data, so it is reached."""
    units = digits.units
    pairs = _flood(noise.pairs * units, noise.pair_batch * units)
    return two_sided(noise.decay, pairs, units, False, step)


def curve(law: LossLaw, first: int, last: int) -> Floats:
    """delta at the points first .. last of a law's grid; no term of it is negative."""
    masses = np.zeros(max(last, law.start + law.masses.size) - first + 1)
    below = max(0, first - law.start)
    at = max(0, law.start - first)
    masses[at : at + law.masses.size - below] = law.masses[below:]
    # delta_i = sum m_j (1 - e^((i - j) h)) = e^-h delta_(i+1) + (1 - e^-h) P(loss > i).
    above = np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)  # beyond each point
    keep = math.exp(-law.step)
    found = scipy.signal.lfilter([1 - keep], [1.0, -keep], above[::-1])[::-1]
    return np.asarray(found[: last - first + 1] + law.lost)


def envelope(laws: list[LossLaw]) -> LossLaw:
    """A law whose delta is that of the worst of some laws of one grid, at every point of it."""
    step = laws[0].step
    # One point below all takes the Q-mass that is in none: P gets more, so delta is no less.
    first = min(law.start for law in laws) - 1
    last = max(law.start + law.masses.size for law in laws)
    curves = np.array([curve(law, first, last) for law in laws])
    worst = curves.max(axis=0)
    for law, own in zip(laws, curves, strict=True):
        if (own >= worst - _ROUNDING).all():
            return LossLaw(step, law.start, law.masses, law.lost + _ROUNDING)
    # delta is convex and piecewise linear in e^epsilon; the maximum of such at the grid, joined by
    # chords, is again, and not below. Its bends are the Q-masses, times e^loss the P-masses.
    points = np.exp(step * np.arange(first, last + 1))
    slopes = np.concatenate([[1.0], -np.diff(worst) / np.diff(points), [0.0]])
    masses = points * np.maximum(slopes[:-1] - slopes[1:], 0.0)
    lost = float(worst[-1]) + _ROUNDING * masses.size
    return LossLaw(step, first, masses, lost)


@lru_cache(maxsize=64)
def losses(digits: Digits, noise: FloodNoise, step: float, quick: bool = False) -> LossLaw:
    """A law that dominates what one release tells of one number, with everybody's noise.

    Quickly only the largest moves are looked at, which nearly always tell the most.
    """
    flood = _quick_flood if quick else _flood
    units, decay = digits.units, noise.decay
    pairs = flood(noise.pairs * units, noise.pair_batch * units)
    shifts = range(units, units - 1 if quick else 0, -1)
    signs = (False,) if quick else (False, True)
    found = envelope([two_sided(decay, pairs, k, up, step) for k in shifts for up in signs])
    # Splits move by one, like the carries of the low planes.
    for reach, count in Counter(digits.reach + (1,) * digits.split_moves).items():
        law = flood(noise.flood * reach, noise.batch * reach)
        moves = range(reach, reach - 1 if quick else 0, -1)
        found = found.then(envelope([moved(law, by, step) for by in moves]).times(count))
    # delta(epsilon - z) of the theorem: all losses grow by z = L zeta, rounded up to the grid.
    shift = math.ceil(digits.low * skew(noise.smooth, digits.base) / step) if digits.low else 0
    return LossLaw(step, found.start + shift, found.masses, found.lost)
