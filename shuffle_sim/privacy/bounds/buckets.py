"""Rényi bounds of sums by a secret coordinate in each bucket (docs/theory/buckets.md, Theorem S).

Each of h honest users sends one message to each of s buckets: a uniform coordinate of the B in it,
and a sign, + with probability 1/2 + v, |v| <= a < 1/2. With probability 1 - 2 a such a message is
uniform whatever the datum is, so at least K0 uniform ones hide a change.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from shuffle_sim.arrays import Floats
from shuffle_sim.privacy.bounds.binomial import first, lower_tail

ORDERS: Floats = np.array([*range(2, 61), *range(64, 132, 4), *range(140, 401, 20)], np.float64)
"""Orders alpha of the Rényi divergences that are tried."""
LOST = tuple(np.geomspace(1e-3, 1e-62, 60).tolist())
"""Probabilities of too few uniform messages that are tried; every fixed one is valid."""
SHARE = 0.01
"""Of delta, near which the best of them lies."""
_MOST_GAIN = 1e6  # 1 + eta beyond which an order says nothing
_INFLATE = 1 + 2e-6
"""Covers norms in doubles that exceed their bound by 1e-12."""


@dataclass(frozen=True)
class Buckets:
    """A round: h honest users (the one who changes among them), s buckets, spread k, bias a.

    Attributes:
        honest: h.
        buckets: s.
        a: largest distance of a sign's probability from 1/2.
        k: coordinates are clipped to k/sqrt(size of the vector) norm bounds.
    """

    honest: int
    buckets: int
    a: float
    k: float

    def divergences(self, lost: float) -> Floats:
        """Rényi divergences at `ORDERS`, but for an event of probability `lost`; maybe infinite."""
        # Left out in each bucket: lost/s, so that it is `lost` in all of a round.
        uniform = least_uniform(self.honest, 1 - 2 * self.a, lost / self.buckets)
        if uniform < 2:
            return np.full(ORDERS.shape, np.inf)
        # 4 times sum E Y^2 <= ||v' - v||^2/B: 4 a^2 s/k^2 in the ball, and 4 a^2 s in the cube
        # |v| <= a, which is less where k < 1 ("What is claimed").
        signal = 16 * self.a**2 * self.buckets / max(self.k, 1.0) ** 2
        # E 1/(1 + Bin(h - 1, t)) = (1 - (1 - t)^h)/(h t), at most 1/(h t); K >= K0 only lowers it.
        mean = self.honest * (1 - 2 * self.a)
        found = ORDERS / 2 * gain(uniform, ORDERS, self.a) * signal / mean * _INFLATE
        return np.asarray(found)


def ends(honest: int, a: float) -> tuple[Floats, Floats]:
    """Laws of the plus signs of h users in a bucket of one coordinate, (counts,): all at the lower
    end; and one of them at the upper one.
    """
    others = scipy.stats.binom.pmf(np.arange(-1, honest + 1), honest - 1, 0.5 - a)
    # Entry t + 1 of the others is P(t): with a plus of one user t is t - 1 of theirs.
    minus, plus = others[1:], others[:-1]
    low, high = 0.5 - a, 0.5 + a
    return high * minus + low * plus, low * minus + high * plus


@lru_cache(maxsize=1 << 12)
def least_uniform(honest: int, share: float, lost: float) -> int:
    """K0: 1 + Bin(honest - 1, share) is below it with probability at most `lost`; at least 1."""
    if honest < 2:
        return 1
    mean, log = (honest - 1) * share, math.log(1 / lost)
    low = max(0, math.floor(mean - math.sqrt(2 * mean * log)) - 1)  # enough by Chernoff's bound

    def likely(k: int) -> bool:
        return float(lower_tail(np.array(k), honest - 1, share)) > lost

    # P(1 + Bin < 1 + k) = P(Bin <= k - 1): the first k that is likely itself is K0 - 1.
    return 1 + first(likely, low, math.ceil(mean) + 1) if not likely(low) else 1


def gain(uniform: int, orders: Floats, a: float) -> Floats:
    """1 + eta of the theorem at K0 = `uniform`; infinite where an order says nothing.

    E[e^(w^2/(2 K)) (1 + w^2/K)] with w = c + t |G|, G standard normal, in closed form: under the
    exponential w is c + t times a normal variable of mean m and variance v, cut off at 0.
    """
    slope = 2 * a * np.sqrt((orders - 1) / (1 - 2 * a) ** 2)
    start = 2 * a * (2 * (orders - 2) + 1)
    # From -g^2/2 + (c + t g)^2/(2 K) = c^2/(2 K) + m^2/(2 v) - (g - m)^2/(2 v), over g > 0, twice.
    flat = slope**2 / uniform
    with np.errstate(all="ignore"):
        v = 1 / (1 - flat)
        m = start * slope / uniform * v
        height = m / np.sqrt(v)
        above, density = scipy.special.ndtr(height), np.exp(-(height**2) / 2) / math.sqrt(2 * np.pi)
        log = start**2 / (2 * uniform) + m**2 / (2 * v)
        first_moment = m * above + np.sqrt(v) * density
        second = (m**2 + v) * above + m * np.sqrt(v) * density
        squares = start**2 * above + 2 * start * slope * first_moment + slope**2 * second
        found = 2 * np.exp(log) * np.sqrt(v) * (above + squares / uniform)
    # At flat = 1 the mean is infinite: far from it the closed form keeps its digits.
    return np.where((flat <= 0.5) & (found <= _MOST_GAIN), found, np.inf)


Rounds = tuple[tuple[Buckets, int], ...]
"""Rounds over one user, with how many there are of each; queries may be chosen adaptively."""


def delta(rounds: Rounds, epsilon: float, lost: float) -> float:
    """delta at `epsilon`, at most 1, where each round may lose `lost` (Canonne et al. 2020)."""
    # Every order is a bound, so the least is. Orders that say nothing are left out; 0 gives 1.
    divergence, units = composed(rounds, lost)
    with np.errstate(over="ignore", invalid="ignore"):
        log = (ORDERS - 1) * (divergence - epsilon) - np.log(ORDERS - 1)
        log += ORDERS * np.log1p(-1 / ORDERS)
    least = float(np.min(log, where=np.isfinite(divergence), initial=0.0))
    return min(1.0, math.exp(least) + units * lost)


@lru_cache(maxsize=1 << 10)
def composed(rounds: Rounds, lost: float) -> tuple[Floats, int]:
    """Divergences of all rounds at `ORDERS`, and how often `lost` is given up."""
    total = sum((count * each.divergences(lost) for each, count in rounds), np.zeros(ORDERS.shape))
    return total, sum(count for _, count in rounds)


def lost_near(delta: float, units: int) -> tuple[float, ...]:
    """The few of `LOST` that a delta asks for, where `units` times one is given up."""
    near = math.log(max(delta, 1e-300) * SHARE / units)
    return tuple(sorted(LOST, key=lambda each: abs(math.log(each) - near))[:3])
