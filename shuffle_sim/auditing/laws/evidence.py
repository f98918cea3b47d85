"""Evidence against a law of counts: bounds of the false alarm for every number of draws.

Counts are split in two, and their halves again. Given how many draws a part has, its split is
binomial, or for two samples hypergeometric. Each split bets on the wider law that is proportional
to the chance of an outcome to the power 1 - tilt, with 0 < tilt < 1. The product of likelihood
ratios has mean 1 under the stated law. So it exceeds 1/alarm with probability `alarm` at most
(Markov). Nothing is said of limits. Where cells are full, the logarithm is the deviance, times the
tilt, less its share for each degree of freedom.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats

Numbers = NDArray[Any]
_LEFT = 25.0  # e^-25 of a normaliser is left out, and added as a bound
_FARTHEST = 36.0  # square of standard deviations, as far as a bet goes


def spared(numbers: Floats, doubt: float) -> float:
    """How far a mean is from its expectation at most, to one side (Maurer and Pontil 2009).

    Args:
        numbers: independent, of one law on [0, 1]; (draws,).
        doubt: half the probability that it is farther.
    """
    log, many = math.log(1 / doubt), len(numbers)
    return math.sqrt(2 * float(numbers.var(ddof=1)) * log / many) + 7 * log / 3 / (many - 1)


def against_law(counts: Numbers, weights: Floats, alarm: float) -> bool:
    """Whether counts of independent draws speak against a law, falsely with probability `alarm`.

    Args:
        counts: of each cell.
        weights: of each cell, in proportion to its probability.
        alarm: bound of the probability of a false answer.
    """
    if len(counts) == 2 and counts.any():
        law = scipy.stats.binom(int(counts.sum()), float(weights[0] / weights.sum()))
        return _tails(law, int(counts[0])) < alarm
    return against_laws([(counts, weights)], alarm)


def against_laws(tables: Sequence[tuple[Numbers, Floats]], alarm: float) -> bool:
    """`against_law` of several counts, with their weights, that are independent of each other."""
    degrees = sum(len(counts) - 1 for counts, _ in tables)
    if degrees < 1:
        return False
    tilt, found = tilt_of(degrees, alarm), 0.0
    for table in tables:
        counts, weights = table
        while len(counts) > 1:
            (left, right), (heavy, light) = _halves(counts), _halves(weights)
            counts, weights = left + right, heavy + light
            # Where one half is impossible there is nothing to bet on.
            open_ = (heavy > 0) & (light > 0) & (counts > 0)
            share = heavy[open_] / weights[open_]
            found += _surplus(left[open_], counts[open_], share, _binomial(share), tilt)
    return found >= -math.log(alarm)


def against_each_other(first: Numbers, second: Numbers, alarm: float) -> bool:
    """Whether counts of two samples speak against a common law, falsely with probability `alarm`.

    Args:
        first: of each cell.
        second: of the other sample, in the same cells.
        alarm: bound of the probability of a false answer.
    """
    both = first + second
    first, both = first[both > 0], both[both > 0]
    if len(both) < 2:
        return False
    if len(both) == 2:
        law = scipy.stats.hypergeom(both.sum(), both[0], first.sum())
        return _tails(law, int(first[0])) < alarm
    tilt, found = tilt_of(len(both) - 1, alarm), 0.0
    while len(both) > 1:
        (left, right), (large, small) = _halves(first), _halves(both)
        first, both = left + right, large + small
        open_ = (large > 0) & (small > 0) & (first > 0) & (first < both)
        drawn, many, of = (each[open_] for each in (first, large, both))
        found += _surplus(left[open_], drawn, many / of, _hypergeometric(many, of), tilt)
    return found >= -math.log(alarm)


def against_spread(draws: Sequence[tuple[Numbers, Floats]], alarm: float) -> bool:
    """Whether numbers are spread further or less far than their laws say.

    It is the test of chi-square for the variance, with each number's own law in place of a
    Gaussian: the mean of e^(c z^2) is summed over it, where z is a number less its mean, in
    standard deviations, and no more than 6 of them.

    Args:
        draws: independent outcomes, with the law of 0, 1, ... of which they are.
        alarm: bound of the probability of a false answer.
    """
    limit = math.log(2 / alarm)
    for more in (True, False):
        tilt = tilt_of(sum(len(seen) for seen, _ in draws), alarm / 2, more=more)
        found = 0.0
        for seen, law in draws:
            place = np.arange(len(law))
            mean = float(place @ law)
            square = (place - mean) ** 2
            bet = tilt / 2 * np.minimum(square / float(square @ law), _FARTHEST)
            found += float(bet[seen].sum()) - len(seen) * math.log(float(np.exp(bet) @ law))
        if found >= limit:
            return True
    return False


def tilt_of(degrees: float, alarm: float, *, more: bool = True) -> float:
    """The tilt at which the least deviance reaches 1/alarm, by Chernoff's bound of chi-square.

    Any number below 1 that does not depend on the draws keeps the alarm. Below 0, for a deviance
    that is too small.
    """
    half, limit = degrees / 2, -math.log(alarm)

    def beyond(log: float) -> float:
        return half * (math.exp(log) - 1 - log) - limit

    ends = (0.0, math.log(2 + 4 * limit / half)) if more else (-1 - limit / half, 0.0)
    return 1 - math.exp(-float(scipy.optimize.brentq(beyond, *ends)))


def _halves(of: Numbers) -> tuple[Numbers, Numbers]:
    """Neighbours apart; one that is missing at the end is empty."""
    whole = np.append(of, np.zeros(len(of) % 2, of.dtype))
    return whole[0::2], whole[1::2]


def _tails(law: "scipy.stats.rv_frozen", found: int) -> float:
    """Twice the smaller tail: exact, and at most `alarm` with that probability or less."""
    return 2 * float(min(law.cdf(found), law.sf(found - 1)))


Chance = Callable[[Numbers, Numbers, NDArray[np.intp]], Floats]
"""Outcomes, draws and the split of each -> logarithms of their probabilities."""


def _binomial(share: Floats) -> Chance:
    yes, no = np.log(share), np.log1p(-share)

    def chance(hits: Numbers, draws: Numbers, split: NDArray[np.intp]) -> Floats:
        rest = draws - hits
        return np.asarray(_choose(draws, hits) + hits * yes[split] + rest * no[split])

    return chance


def _hypergeometric(many: Numbers, of: Numbers) -> Chance:
    def chance(hits: Numbers, draws: Numbers, split: NDArray[np.intp]) -> Floats:
        kind, all_ = many[split], of[split]
        ways = _choose(kind, hits) + _choose(all_ - kind, draws - hits)
        known = np.where(np.isnan(ways), -np.inf, ways)
        return np.asarray(known - _choose(all_, draws))

    return chance


def _choose(of: Numbers, many: Numbers) -> Floats:
    """log of a binomial coefficient; NaN outside."""
    outside = (many < 0) | (many > of)
    inside = np.where(outside, 0, many)
    found = _log_factorial(of) - _log_factorial(inside) - _log_factorial(of - inside)
    return np.asarray(np.where(outside, np.nan, found))


def _log_factorial(x: Numbers) -> Floats:
    return np.asarray(scipy.special.gammaln(x + 1.0))


def _surplus(hits: Numbers, draws: Numbers, share: Floats, chance: Chance, tilt: float) -> float:
    """The logarithm of the product of likelihood ratios of all splits."""
    if not len(hits):
        return 0.0
    # Chernoff: chances are below exp(-draws KL), for hypergeometric laws, too (Hoeffding 1963),
    # and KL is above Bernstein's exponent. So outcomes beyond `far` add e^-_LEFT or less.
    depth = (_LEFT + np.log(draws + 1.0)) / (1 - tilt)
    far = depth / 3 + np.sqrt(depth**2 / 9 + 2 * depth * draws * share * (1 - share))
    low = np.maximum(0, np.floor(draws * share - far)).astype(np.int64)
    high = np.minimum(draws, np.ceil(draws * share + far)).astype(np.int64)
    sizes = high - low + 1
    starts = np.cumsum(sizes) - sizes
    split = np.repeat(np.arange(len(sizes)), sizes)
    outcomes = np.arange(len(split)) - (starts - low)[split]
    wide = np.exp((1 - tilt) * chance(outcomes, draws[split], split))
    normaliser = np.add.reduceat(wide, starts) + math.exp(-_LEFT)
    seen = chance(hits, draws, np.arange(len(hits)))
    return float((-tilt * seen - np.log(normaliser)).sum())
