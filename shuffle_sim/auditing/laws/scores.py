"""Scores of numbers whose law is known, and the judgement of their sums.

A number of known law gets two scores from 0 to 31: its rank, and the rank of its distance from the
median. Sums of independent scores are judged by Bernstein's inequality. It holds for every number
of terms, so the false-alarm rate that is stated is a bound, not an approximation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.statistics import LawError

LEVELS = 32
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """A score of the outcomes 0, 1, ... of a law.

    Attributes:
        of: the score of each outcome.
        mean: under the law.
        variance: under the law.
    """

    of: Floats
    mean: float
    variance: float


def scores(pmf: Floats) -> tuple[Score, Score]:
    """The rank of an outcome, and the rank of its distance from the median."""
    pmf = pmf / pmf.sum()
    distance = np.abs(np.arange(len(pmf)) - int(np.searchsorted(np.cumsum(pmf), 0.5)))
    return _ranked(pmf, np.arange(len(pmf))), _ranked(pmf, distance)


def ranked(pmf: Floats) -> tuple[Floats, float]:
    """Ranks of the outcomes in [-1, 1], of mean 0, and their variance under the law."""
    score = scores(pmf)[0]
    centred = score.of - score.mean
    # A law of one outcome has no spread; all its ranks are 0.
    scale = max(float(np.abs(centred).max()), 1e-300)
    return centred / scale, score.variance / scale**2


def rarity(pmf: Floats) -> Score:
    """The rank of how improbable an outcome is: what is rarely drawn, and shared, is seen."""
    key = np.empty(len(pmf), np.int64)
    key[np.argsort(-pmf, kind="stable")] = np.arange(len(pmf))
    return _ranked(pmf / pmf.sum(), key)


def _ranked(pmf: Floats, key: Ints) -> Score:
    # Middle of its share: a likely outcome is neither at its lower nor at its upper end.
    grouped = np.bincount(key, weights=pmf)
    rank = np.floor(LEVELS * np.clip(np.cumsum(grouped) - grouped / 2, 0.0, 1 - 1e-9))[key]
    mean = float((pmf * rank).sum())  # a dot product would wake the threads of BLAS
    return Score(rank, mean, float((pmf * (rank - mean) ** 2).sum()))


def judge(sums: Floats, means: Floats, variances: Floats, alarm: float, what: str) -> None:
    """Sums of independent scores against their means; `alarm` is shared by all of them.

    Raises:
        LawError: naming the first sum that is off.
    """
    off = np.abs(np.asarray(sums) - means)
    # Bernstein: exp(-t^2/(2 V + 2 M t/3)) at either side; M = 32 is more than any centred score.
    # Terms need not be alike, so laws may be mixed; it holds for negatively associated ones, too.
    exponent = off * off / (2 * np.asarray(variances) + 2 * LEVELS * off / 3 + 1e-300)
    # Two sides of each sum: a union bound, so they may depend on each other.
    limit = math.log(2 * off.size / alarm)
    if (bad := np.flatnonzero(exponent.ravel() > limit)).size:
        place = ", ".join(map(str, np.unravel_index(int(bad[0]), off.shape)))
        raise LawError(f"{what} [{place}]: mean score off by {off.ravel()[bad[0]]:.0f} in sum")


def convolved(first: Floats, second: Floats) -> Floats:
    """The law of a sum; long ones by Fourier transforms, to 1e-16."""
    return (
        np.convolve(first, second)
        if min(len(first), len(second)) < 4096
        else np.maximum(scipy.signal.fftconvolve(first, second), 0.0)
    )


def summed(laws: Sequence[tuple[Floats, int]], modulo: int | None = None) -> Floats:
    """The law of a sum of independent numbers, so many of each law; or modulo a power of two."""
    size = modulo or 1 + sum((len(pmf) - 1) * count for pmf, count in laws)
    # No shorter than the sum's law: a cyclic convolution would wrap its ends.
    padded = modulo or 1 << max(1, size - 1).bit_length()
    transform = np.ones(padded // 2 + 1, complex)
    alike: dict[bytes, tuple[Floats, int]] = {}
    for pmf, count in laws:
        before = alike.get(pmf.tobytes(), (pmf, 0))[1]
        alike[pmf.tobytes()] = pmf, before + count
    for pmf, count in alike.values():
        # Alike laws once: a power in place of thousands of products.
        folded = np.bincount(np.arange(len(pmf)) % padded, pmf / pmf.sum(), padded)
        transform *= np.fft.rfft(folded) ** count
    return np.maximum(np.fft.irfft(transform, padded)[:size], 0.0)


def in_the_middle(laws: Sequence[tuple[Floats, int]]) -> tuple[Floats, int]:
    """The law of such a sum modulo a power of two, and what is added to it for that.

    The mean is in the middle then, and the law is exact however far the sum may reach.
    """
    mean = spread = 0.0
    for pmf, count in laws:
        places = np.arange(len(pmf))
        each = float(places @ pmf)
        mean, spread = mean + count * each, spread + count * float((places - each) ** 2 @ pmf)
    size = 1 << math.ceil(math.log2(32 + 32 * math.sqrt(spread)))
    shift = size // 2 - round(mean)
    law = np.roll(summed(laws, size), shift)
    return np.asarray(law / law.sum()), shift


def scored(seen: Ints, law: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of both scores of independent draws, and their means and variances."""
    both, kept = scores(law), inside(seen, law)
    return (
        np.array([score.of[kept].sum() for score in both]),
        np.array([score.mean * seen.size for score in both]),
        np.array([score.variance * seen.size for score in both]),
    )


def stacked(found: Sequence[tuple[Floats, Floats, Floats]]) -> tuple[Floats, Floats, Floats]:
    """Those of several laws together, as `judge` takes them."""
    sums, means, variances = (np.array(each) for each in zip(*found, strict=True))
    return sums, means, variances


def inside(seen: Ints, law: Floats) -> Ints:
    """Outcomes, if all of them are possible."""
    if seen.size and (seen.min() < 0 or seen.max() >= len(law)):
        raise LawError("a count that has probability 0")
    return seen
