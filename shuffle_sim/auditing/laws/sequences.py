"""Independent draws of known law that stand in a row: none comes again, and none tells of another.

All bounds hold for every number of terms. Products of two centred scores are a martingale in the
order of the draws; Freedman's inequality (1975) bounds its sums by the variance that was really
there. So noise that is nearly always 0 is looked at as sharply as any other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.scores import (
    LEVELS,
    Ints,
    judge,
    ranked,
    rarity,
    scored,
    scores,
    stacked,
    summed,
)
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.laws.tails import judge_tails, tail_sums

Words = NDArray[np.uint64]
_VARIANCES = 64  # powers of two that a variance may lie between
_GROUPS = 2, 16, 256, 4096
_GRAM = 4e8  # products of rows of frames
_NEAR = 1e-11  # numbers of (0, 1) that are so near are one


@dataclass(frozen=True)
class Series:
    """Draws in the order in which they were made, (frames, draws).

    Attributes:
        values: outcomes of the laws.
        pmfs: laws of outcomes 0, 1, ...
        laws: which of them each place of a frame has, (draws,); None: the first.
    """

    values: Ints
    pmfs: Sequence[Floats]
    laws: Ints | None = None

    @property
    def collision(self) -> float:
        """The probability that two draws agree, at most."""
        return max(float((pmf / pmf.sum()) @ (pmf / pmf.sum())) for pmf in self.pmfs)

    @property
    def places(self) -> Ints:
        """The law of each place."""
        shape = self.values.shape[1]
        return np.zeros(shape, np.int64) if self.laws is None else self.laws

    @cached_property
    def centred(self) -> tuple[Floats, Floats]:
        """Ranks in [-1, 1] of mean 0, as the values, and the variance at each place."""
        found, variance = np.empty(self.values.shape), np.empty(self.values.shape[1])
        for law, pmf in enumerate(self.pmfs):
            mine = self.places == law
            if not mine.any():
                continue
            ranks, variance[mine] = ranked(pmf)
            found[:, mine] = ranks[self.values[:, mine]]
        return found, variance


def check_repeats(
    values: Sequence[NDArray[np.integer]], collision: float, alarm: float, what: str
) -> None:
    """No window of independent draws comes twice, wherever it stands.

    Args:
        values: draws in rows; windows may go on from one row to the next.
        collision: the probability that two draws agree, at most.
        alarm: probability of a false alarm.
        what: for the message.

    Raises:
        LawError: saying where it comes again.
    """
    row = np.concatenate([each.ravel() for each in values]).astype(np.uint64)
    # len^2/2 pairs of windows agree with collision^width each: alarm/2 in all. Two draws of
    # different laws agree no more often than of the one with more collisions (Cauchy-Schwarz).
    bits = 2 * math.log2(max(2, len(row))) - math.log2(alarm)
    width = max(2, math.ceil(bits / max(-math.log2(collision), 1e-9)))
    if len(row) < 2 * width:
        return
    hashes = _windows(row, width)
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    for first, second in np.stack([order[same], order[same + 1]], axis=1)[:64]:
        # Windows that overlap are no independent draws; lags are looked at by themselves.
        if second - first >= width and np.array_equal(
            row[first : first + width], row[second : second + width]
        ):
            raise LawError(f"{what}: {width} draws from place {first:,} come again at {second:,}")


def _windows(row: Words, width: int) -> Words:
    """A hash of each window: its polynomial modulo 2^64 at an odd number."""
    base, one = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
    mixed = (row + one) * np.uint64(0xD1342543DE82EF95)
    mixed ^= mixed >> np.uint64(29)
    powers = np.cumprod(np.concatenate([[one], np.full(len(row), base)]))
    sums = np.concatenate([[np.uint64(0)], np.cumsum(mixed * powers[:-1])])
    # Windows at different places are compared by what they have times the last power.
    return np.asarray((sums[width:] - sums[:-width]) * powers[::-1][: len(sums) - width])


def check_products(sums: Floats, seen: Floats, alarm: float, what: str) -> None:
    """Sums of products of independent scores in [-1, 1] against 0, by Freedman's inequality.

    Args:
        sums: of the products.
        seen: for each, the sum of the squares of the first scores times the variance of the second.
        alarm: shared by all of them.
        what: for the message.

    Raises:
        LawError: naming the first that is off.
    """
    # Freedman: for a variance v that is fixed. What was really there is below the next power of
    # two, one of 64: each may have a 64th of the alarm.
    off, variance = np.abs(sums), np.exp2(np.ceil(np.log2(np.maximum(seen, 2.0**-20))))
    limit = math.log(2 * max(1, off.size) * _VARIANCES / alarm)
    bad = np.flatnonzero((off * off > limit * (2 * variance + 2 * off / 3)).ravel())
    if bad.size:
        place = ", ".join(map(str, np.unravel_index(int(bad[0]), off.shape)))
        share = float(off.ravel()[bad[0]] / max(variance.ravel()[bad[0]], 1e-300))
        raise LawError(f"{what} [{place}]: they tell of each other, by a share of {share:.2g}")


def check_series(series: Series, alarm: float, what: str) -> None:
    """Draws are independent: windows, lags, frames two by two, places, and sums of neighbours.

    Raises:
        LawError: naming what is off; by chance with probability `alarm`.
    """
    laws = range(len(series.pmfs))
    for pmf, law in zip(series.pmfs, laws, strict=True):
        mine = series.values[:, series.places == law]
        if mine.size and (mine.min() < 0 or mine.max() >= len(pmf)):
            raise LawError(f"{what}: a draw has probability 0")
    check_repeats([series.values], series.collision, alarm / 6, what)
    centred, variance = series.centred
    check_frames(centred, variance, alarm / 6, what)
    check_lags(centred, float(variance.max(initial=0.0)), alarm / 6, what)
    by_law = [(centred[:, series.places == law], variance[series.places == law]) for law in laws]
    check_places(by_law, alarm / 6, what)
    _check_groups(series, alarm / 6, what)
    tails = [
        tail_sums(series.values[:, series.places == law], pmf)
        for law, pmf in enumerate(series.pmfs)
    ]
    judge_tails(tails, alarm / 6, f"{what}, law, end, depth of a tail")


def check_frames(centred: Floats, variance: Floats, alarm: float, what: str) -> None:
    """Every two frames are independent, place by place."""
    frames, draws = centred.shape
    if frames < 2 or draws < 2:
        return
    kept = max(2, min(draws, int(_GRAM / frames**2)))
    part = centred[:, :kept]
    # All of the first frame is known before the second is drawn: so its squares are the variance.
    gram, seen = part @ part.T, (part**2 * variance[:kept]).sum(axis=1)
    upper = np.triu_indices(frames, 1)
    check_products(gram[upper], seen[upper[0]], alarm, f"{what}, two frames")


def check_axes(series: Series, shape: tuple[int, int], alarm: float) -> None:
    """Every two runs are independent, every two rounds, and every two blocks, in all others.

    shape: of the frames: runs, and rounds of each.
    """
    centred, variance = series.centred
    frames = centred.reshape(*shape, -1, len(variance))
    for axis, what in enumerate(("runs", "rounds", "blocks")):
        each = np.moveaxis(frames, axis, 0)
        spread = np.broadcast_to(variance, each.shape[1:]).ravel()
        check_frames(each.reshape(len(each), -1), spread, alarm / 3, f"draws of {what}")


def check_places(by_law: Sequence[tuple[Floats, Floats]], alarm: float, what: str) -> None:
    """Draws spread as their law at every place of a frame, and at all that are 2, 4, 8, ... apart.

    by_law: draws of each law, (frames, draws), and their variance at each place.
    """
    off, seen = list[Floats](), list[Floats]()
    for centred, variance in by_law:
        # Of squares no variance is larger than their mean.
        for sums in (centred.sum(axis=0), (centred**2 - variance).sum(axis=0)):
            # Kernels draw in pieces of powers of two: what repeats with them is here.
            for apart in (sums.size, *(2**power for power in range(1, sums.size.bit_length()))):
                places = np.arange(sums.size) % apart
                off.append(np.bincount(places, sums).astype(float))
                seen.append(np.bincount(places, len(centred) * variance).astype(float))
    check_products(np.concatenate(off), np.concatenate(seen), alarm, f"{what}, places")


def check_columns(values: Ints, pmfs: Sequence[Floats], alarm: float, what: str) -> None:
    """Every two columns of draws (draws, columns), each of its law, are independent, row by row."""
    if len(pmfs) < 2:
        return
    known = [ranked(pmf) for pmf in pmfs]
    centred = np.stack([row[seen] for (row, _), seen in zip(known, values.T, strict=True)])
    one, other = np.triu_indices(len(pmfs), 1)
    variance = np.array([spread for _, spread in known])
    seen = (centred**2).sum(axis=1)[one] * variance[other]
    check_products((centred @ centred.T)[one, other], seen, alarm, what)


def check_lags(centred: Floats, variance: float, alarm: float, what: str) -> None:
    """Draws of a frame are independent at every lag."""
    size = centred.shape[1]
    if size < 16:
        return
    # Twice as long: lags do not wrap around.
    padded = scipy.fft.next_fast_len(2 * size, real=True)
    found = np.zeros(size)
    for row in centred:
        transform = scipy.fft.rfft(row, padded)
        found += scipy.fft.irfft(np.abs(transform) ** 2, padded)[:size]
    # No lag has more terms than there are draws: an upper bound of what each really had.
    seen = np.full(size - 1, float((centred**2).sum()) * variance)
    check_products(found[1:], seen, alarm, f"{what}, lag")


def _check_groups(series: Series, alarm: float, what: str) -> None:
    """Sums of levels over neighbours: their law is exact, so what a group shares is seen."""
    laws, frames = series.places, len(series.values)
    tests = []
    for law, pmf in enumerate(series.pmfs):
        row, kinds = series.values[:, laws == law], (*scores(pmf), rarity(pmf))
        for size, score in product(_GROUPS, kinds):
            many = row.shape[1] // size
            if not many:
                continue
            # Levels of sums are few: their law is exact where that of the draws would be too long.
            levels = score.of.astype(np.int64)
            mass = np.bincount(levels, weights=pmf / pmf.sum(), minlength=LEVELS).astype(float)
            sums = levels[row[:, : many * size]].reshape(frames, many, size).sum(axis=2)
            tests.append(scored(sums.ravel(), summed([(mass, size)])))
    if tests:
        judge(*stacked(tests), alarm, f"{what}, sums of neighbours")


def check_distinct(uniform: Floats, alarm: float) -> None:
    """Draws of a continuous law, made uniform, hardly ever meet: their number is Poisson or less.

    Raises:
        LawError: they do: noise comes again, or takes few values.
    """
    # Ends of the range are where doubles are made one by rounding.
    row = np.sort(uniform[(uniform > 1e-9) & (uniform < 1 - 1e-9)])
    met = int((np.diff(row) < _NEAR).sum())
    # n^2/2 pairs, each within NEAR on either side; spacings are negatively dependent.
    expected = len(row) ** 2 * _NEAR
    if met and scipy.stats.poisson.sf(met - 1, expected) < alarm / 2:
        raise LawError(f"{met:,} of {len(row):,} draws of noise came before")
    # Noise of the other sign: u and 1 - u; folded, twice as dense.
    both = np.sort(np.minimum(row, 1 - row))
    met = int((np.diff(both) < _NEAR).sum())
    if met and scipy.stats.poisson.sf(met - 1, 2 * expected) < alarm / 2:
        raise LawError(f"{met:,} of {len(row):,} draws of noise came before, turned")
