"""The privacy blanket of k-ary randomised response by exact sums (Balle et al. 2019).

Every user keeps its symbol with probability 1 - gamma and else draws one of K uniformly. Tell the
attacker who drew, and all data but one user's: what is left is that user's message among M uniform
ones, M ~ Bin(n - 1, gamma). With N and N' the numbers of the two symbols in question among the M +
1 messages, uniform and independent, the hockey-stick divergence is exactly

    delta(epsilon) = E [ (c N + gamma) - e^epsilon (c N' + gamma) ]_+,    c = (1 - gamma) K / (M +
    1),

(c N + gamma is the likelihood ratio of the histogram to that of M + 1 uniform messages). More
blanket is post-processing, so the M of a bucket may all be counted as its least: the sum is rounded
upward.
"""

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import integer, real

_BUCKETS, _PLACES = 24, 1500  # of the numbers of uniform messages, and of those of one symbol
_TAIL = 1e-13  # of each binomial; what lies beyond counts as revealed


def check(users: int, gamma: float, symbols: int) -> None:
    """Refuse what is no randomised response.

    Raises:
        ParameterError: no user, gamma not in (0, 1], fewer than two symbols.
    """
    integer("n", users, 1)
    real("gamma", gamma, 0.0, 1.0)
    integer("symbols", symbols, 2, 2**16)


def delta(users: int, gamma: float, symbols: int, epsilon: float) -> float:
    """delta of one round of `users` honest users; never below the exact one of the blanket."""
    check(users, gamma, symbols)
    real("epsilon", epsilon, 0.0, math.inf, closed=(True, False))
    low, high = (int(x) for x in scipy.stats.binom.ppf([_TAIL, 1 - _TAIL], users - 1, gamma))
    edges = np.unique(np.linspace(low, high + 1, _BUCKETS + 1).astype(int))
    weights = np.diff(scipy.stats.binom.cdf(edges - 1, users - 1, gamma))
    factor = math.exp(min(epsilon, 700.0))
    gains = [_gain(int(least) + 1, gamma, symbols, factor) for least in edges[:-1]]
    # Outside the window, and in its first bucket's lower edge, at most everything is revealed.
    return min(1.0, float(weights @ gains) * (1 + 1e-9) + 4 * _TAIL)


def _gain(messages: int, gamma: float, symbols: int, factor: float) -> float:
    """E [(c N + gamma) - factor (c N' + gamma)]_+ for so many uniform messages, rounded upward.

    Given N = a, N' is binomial among the other messages, and E [A - B N']_+ = A P(N' <= t) - B
    E[N'; N' <= t] for t = A/B.
    """
    c = (1 - gamma) * symbols / messages
    low, high = (int(x) for x in scipy.stats.binom.ppf([_TAIL, 1 - _TAIL], messages, 1 / symbols))
    edges = np.unique(np.linspace(low, high + 1, min(high + 1 - low, _PLACES) + 1).astype(np.int64))
    weights = np.diff(scipy.stats.binom.cdf(edges - 1, messages, 1 / symbols))
    a = edges[1:] - 1  # the gain grows with N: all of a bucket count as its last
    others = messages - a
    # A - B N' is the gain; beyond t = A/B it is negative. A < 0 gives t < 0, so nothing.
    A, B = c * a + gamma - factor * gamma, factor * c
    t = np.floor(A / B)
    if symbols == 2:  # the others are all of the second symbol
        gains = np.maximum(A - B * others, 0.0)
    else:
        p = 1 / (symbols - 1)
        # E[N'; N' <= t] of Bin(m, p) is m p P(Bin(m - 1, p) <= t - 1).
        mean = others * p * _tail(t - 1, others - 1, p)
        # The two terms nearly cancel: each is moved outward by the error of its tail.
        error = 1e-11 + 1e-14 * math.sqrt(messages)
        gains = np.where(
            t >= 0, A * _tail(t, others, p) * (1 + error) - B * mean * (1 - error), 0.0
        )
    # What is cut off has N outside the window; below, the gain is less than inside; above, its mean
    # is below 4 K _TAIL.
    return float(weights @ np.maximum(gains, 0.0)) + 5 * symbols * _TAIL


def _tail(k: NDArray[np.float64], m: NDArray[np.int64], p: float) -> NDArray[np.float64]:
    """P(Bin(m, p) <= k)."""
    inside = np.clip(k, 0, np.maximum(m - 1, 0))
    return np.where(
        k < 0,
        0.0,
        np.where(k >= m, 1.0, scipy.special.betaincc(inside + 1, np.maximum(m - inside, 1), p)),
    )


@lru_cache(maxsize=256)
def epsilon(users: int, gamma: float, symbols: int, delta_: float) -> float:
    """The smallest epsilon at `delta_`, rounded up; at most that of one user's own response."""
    check(users, gamma, symbols)
    real("delta", delta_, 0.0, 1.0, closed=(False, False))
    # Of a report alone: (1 - gamma + gamma/K) over gamma/K.
    high = math.log1p((1 - gamma) * symbols / gamma)
    if delta(users, gamma, symbols, 0.0) <= delta_:
        return 0.0
    if delta(users, gamma, symbols, high) > delta_:
        return high  # one user's own randomised response is that private without any others
    root: float = scipy.optimize.brentq(
        lambda e: math.log(delta(users, gamma, symbols, e) / delta_), 0.0, high, xtol=1e-10
    )
    # The root is within 1e-10, and delta falls: twice that is on the private side of it.
    return root + 2e-10


def theorem(users: int, steps: int, epsilon: float, delta_: float) -> float:
    """gamma of Theorem 3.1 of the paper for K = steps + 1 symbols.

    It is max(14 K ln(2/delta) / ((n - 1) epsilon^2), 27 K / ((n - 1) epsilon)).

    Raises:
        ParameterError: epsilon not in (0, 1], where the theorem applies.
    """
    integer("n", users, 2)
    real("epsilon", epsilon, 0.0, 1.0)
    k = integer("steps", steps) + 1
    return max(
        14 * k * math.log(2 / delta_) / ((users - 1) * epsilon**2), 27 * k / ((users - 1) * epsilon)
    )
