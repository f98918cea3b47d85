"""The sigma of the Gaussian that dominates binomial noise, in any dimension.

Binomial noise is then a post-processed Gaussian.

Lemma (docs/theory/vector-sum.md, "Domination"). B ~ Bin(m, p), S(j) = P(B >= j), 0 < nu < 1.
For k = 1..g let mu_k be the maximum, over j with S(j - k) > nu and S(j) < 1 - nu, of

    Phi^-1((S(j - k) - nu)/(1 - nu)) - Phi^-1(S(j)/(1 - nu)),

and sigma* = min_k k / mu_k. Then for every integer shift vector k in [-g, g]^d the d-fold mechanism
k -> k + B satisfies

    delta(epsilon) <= delta_GDP(epsilon; ||k||_2 / sigma*) + d nu.

The comparator's trade-off curve is symmetric, so one direction covers both for every p.

Lemma (docs/theory/vector-sum.md, "Large counts"). Every step z(j) - z(j+1) of z = Phi^-1 o S is at
most the greater of the steps at the two ends of any window around it and of
sqrt(6 (1 - sqrt(1 - kappa/3))), kappa < 3 the largest log((j+1)(m-j+1) / (j (m-j))) in the window.
That bounds mu_k / k for all k at once in O(1), whatever m. The price is about 14 in the variance.
"""

import math
from bisect import bisect
from collections.abc import Callable
from functools import lru_cache
from operator import neg

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds.binomial import lower_tail, upper_tail, variance

NUS = tuple(np.geomspace(1e-3, 1e-60, 115).tolist())
"""Total variations given up in a coordinate that are tried; every fixed one is valid."""
_SHARE = 0.01
"""Of delta, near which the best total variation lies."""
# Doubles agree with 60 digits to 1e-13; this also covers clipping in floats (a norm may exceed its
# bound by 1e-15).
_INFLATE = 1 + 1e-6
# Up to so many (k, j) pairs and this variance the first lemma is evaluated as it stands; beyond,
# the second.
_EXACT_PAIRS = 1_000_000
_EXACT_VARIANCE = 1e5
MIN_VARIANCE = 15.0


def nus_near(delta: float, units: float) -> tuple[float, ...]:
    """The few of `NUS` that a delta asks for, where `units` times one is given up.

    The nearest ones; ten times as much, for little noise; last a ten thousandth, for much.
    """
    near = max(delta, 1e-300) * _SHARE / units
    place = bisect(NUS, -near, key=neg)  # the nearest ones stand here
    around = range(max(place - 3, 0), min(place + 3, len(NUS)))
    order = sorted(around, key=lambda k: abs(math.log(NUS[k] / near)))
    # NUS falls by a factor of 10^(1/2) a place.
    larger, smaller = max(order[0] - 2, 0), min(order[0] + 8, len(NUS) - 1)
    return tuple(NUS[k] for k in (*order[:3], larger, smaller))


def least_delta(at: Callable[[float], float], units: float) -> float:
    """The least of a delta that is valid at every nu: some of all tell which are near."""
    found, tried = min(map(at, NUS[::-19])), set[tuple[float, ...]]()
    # Less delta asks for other ones: as `epsilon` does, which begins with the delta itself.
    while (near := nus_near(found, units)) not in tried:
        tried.add(near)
        found = min(found, *map(at, near))
    return found


def _quantile(
    upper: NDArray[np.float64], lower: NDArray[np.float64], nu: float, below: float
) -> NDArray[np.float64]:
    """Phi^-1((S(j) - below)/(1 - nu)) for below = nu or 0, from whichever tail is small."""
    # 1 - (S - below)/(1 - nu) = (F - (nu - below))/(1 - nu) with F = 1 - S
    with np.errstate(invalid="ignore"):
        # Clipped: beyond 0 or 1 a pair is not in the maximum, and `_max_ratio` leaves it out.
        from_upper = scipy.special.ndtri(np.clip((upper - below) / (1 - nu), 0.0, 1.0))
        from_lower = -scipy.special.ndtri(np.clip((lower - (nu - below)) / (1 - nu), 0.0, 1.0))
    quantile: NDArray[np.float64] = np.where(upper < 0.5, from_upper, from_lower)
    return quantile


@lru_cache(maxsize=4096)
def dominating_sigma(m: int, p: float, g: int, nu: float) -> float:
    """sigma* of the lemmas: of a Gaussian that dominates shifts of up to g of Bin(m, p).

    Args:
        m: number of trials.
        p: success probability in (0, 1).
        g: largest shift of a coordinate, at least 1.
        nu: total variation given up in a coordinate.

    Returns:
        sigma*, in units of one count; 0 where a shift by g is revealed with probability above nu.

    Raises:
        ParameterError: if the variance m p (1 - p) is below 15, where the lemma gives nothing
            useful.
    """
    integer("m", m, 1, 2**53)
    real("p", p, 0.0, 1.0, closed=(False, False))
    integer("g", g)
    v = variance(m, p)
    if v < MIN_VARIANCE:
        raise ParameterError(
            "m p (1 - p)",
            v,
            f"at least {MIN_VARIANCE:g} for the domination lemma: more users or more noise bits b",
        )
    # Bernstein: outside mean +- t each tail is below nu.
    log = math.log(1 / nu)
    t = log / 3 + math.sqrt(log * log / 9 + 2 * log * v)
    low, high = math.floor(m * p - t), math.ceil(m * p + t)
    # A pair (j - k, j) of the lemma has j - k and j at most g beyond these counts.
    slope = _steepest(m, p, low - g - 1, high + g + 1)
    if slope is None or (v <= _EXACT_VARIANCE and g * (high - low) <= _EXACT_PAIRS):
        return 1 / (_max_ratio(m, p, g, nu, max(low - g, 0), min(high + g, m + 1)) * _INFLATE)
    return 1 / (slope * _INFLATE)


def _max_ratio(m: int, p: float, g: int, nu: float, low: int, high: int) -> float:
    """max over k <= g of mu_k / k, all pairs."""
    j = np.arange(low, high + 1)
    upper, lower = upper_tail(j, m, p), lower_tail(j - 1, m, p)
    z_here, z_there = _quantile(upper, lower, nu, 0.0), _quantile(upper, lower, nu, nu)
    # S(j) < 1 - nu by the other tail: 1 - nu is 1 in doubles below 1e-16.
    allowed_here, allowed_there = lower > nu, upper > nu
    best = 0.0
    with np.errstate(invalid="ignore"):  # inf - inf, only where the pair is not allowed
        for k in range(1, min(g, j.size - 1) + 1):
            gain = np.where(allowed_here[k:] & allowed_there[:-k], z_there[:-k] - z_here[k:], 0.0)
            best = max(best, float(gain.max()) / k)
    return best


def _steepest(m: int, p: float, low: int, high: int) -> float | None:
    """An upper bound of z(j) - z(j+1) over low <= j < high; None if the window leaves (0, m)."""
    # The logarithm of kappa is infinite at 0 and at m.
    if low < 1 or high > m - 1:
        return None
    ends = np.array([low, low + 1, high - 1, high])
    z = _quantile_plain(ends, m, p)
    # (j + 1)(m - j + 1) = j (m - j) + m + 1.
    kappa = max(math.log1p((m + 1) / (j * (m - j))) for j in (low, high))
    if kappa >= 1 or not np.isfinite(z).all():
        return None
    # 6 (1 - sqrt(1 - kappa/3)) without its cancellation at a small kappa.
    interior = math.sqrt(2 * kappa / (1 + math.sqrt(1 - kappa / 3)))
    return max(interior, float(z[0] - z[1]), float(z[2] - z[3]))


def _quantile_plain(j: NDArray[np.int64], m: int, p: float) -> NDArray[np.float64]:
    upper, lower = upper_tail(j, m, p), lower_tail(j - 1, m, p)
    quantile: NDArray[np.float64] = np.where(
        upper < 0.5, scipy.special.ndtri(upper), -scipy.special.ndtri(lower)
    )
    return quantile
