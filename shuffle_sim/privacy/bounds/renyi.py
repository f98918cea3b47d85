"""One round of a vector sum with few coins: a Renyi bound that includes the rounding.

The domination lemma reveals the rounding's uniforms. That is cheap at the sizes people run; with a
few hundred coins and few steps it can cost many orders of magnitude in delta. Here nothing is
revealed. A coordinate at w in [0, g] has the law P_w of Bin(m, p) + floor(w) + Ber(w - floor(w)).
For theta > 0 and a window of counts, with sums and tails inside the window,

    M(w, w') = sum_y P_w(y)^(1 + theta) P_w'(y)^-theta, K(w, w') = theta^theta / (1 + theta)^(1 +
    theta) max_t P_w(tail t)^(1 + theta) P_w'(tail t)^-theta,

    delta(epsilon) <= e^(-theta epsilon) sup K(w_1, w'_1) M(w_2, w'_2) ... M(w_d, w'_d) + d rho,

rho the mass a coordinate may have outside the window: K is exact for the coordinate that moves
most, M a moment of the others.
The supremum over all pairs of points of the ball is bounded by its Lagrange dual on a grid. Proof:
docs/theory/few-coins.md, "Few coins".
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.privacy.bounds import binomial
from shuffle_sim.privacy.bounds.binomial import lower_tail, upper_tail, variance

MOST_COINS = 512
MOST_STEPS = 16
LEAST_VARIANCE = 0.1
_CELLS = 48  # per axis of the grid over half the range
_FINER = 1.05  # ratio of neighbouring orders theta
_ORDERS = range(-60, 190)  # theta from 0.05 to 1e4
# Doubles are good to 1e-12 theta here; this also covers norms that exceed their bound by a rounding
# error.
_INFLATE = 1e-6
_Floats = NDArray[np.float64]
_Value = Callable[[float, float, float], float]
"""Of the order theta, the logarithm of the supremum at it, and d rho."""


def applies(m: int, p: float, g: int, d: int) -> bool:
    """Whether there are two coordinates or more, some noise, and few enough coins and steps."""
    return (
        d > 1 and m <= MOST_COINS and g <= min(MOST_STEPS, m) and variance(m, p) >= LEAST_VARIANCE
    )


@lru_cache(maxsize=4096)
def delta_few_coins(epsilon: float, m: int, p: float, g: int, d: int) -> float:
    """delta of one round at `epsilon`, never below the truth.

    Args:
        epsilon: at least 0.
        m: trials of the noise in each coordinate.
        p: success probability in (0, 1).
        g: rounding steps over the range; the ball of users' vectors has radius g/2 in them.
        d: coordinates.
    """

    def log_delta(theta: float, log_constant: float, revealed: float) -> float:
        return float(np.logaddexp(log_constant - theta * epsilon, math.log(revealed)))

    delta = max(
        binomial.delta(m, p, g, epsilon), 1e-300
    )  # a guess for the windows: the truth in one dimension
    for _ in range(2):
        delta = math.exp(min(0.0, _least(log_delta, epsilon, delta, m, p, g, d)))
    return delta


@lru_cache(maxsize=4096)
def epsilon_few_coins(delta: float, m: int, p: float, g: int, d: int) -> float:
    """epsilon of one round, never below the truth; infinite where none is found.

    `delta` lies in (0, 1).
    """

    def epsilon(theta: float, log_constant: float, revealed: float) -> float:
        return (log_constant - math.log(delta - revealed)) / theta if revealed < delta else math.inf

    return max(0.0, _least(epsilon, binomial.epsilon(m, p, g, delta), delta, m, p, g, d))


def _least(value: _Value, epsilon: float, delta: float, m: int, p: float, g: int, d: int) -> float:
    """The least of `value` over orders and windows that leave out part of `delta`; all hold."""
    # A Gaussian's best order is epsilon sigma^2/g^2 - 1/2. Only a start: every order is valid.
    order = round(math.log(max(1.0, min(epsilon * variance(m, p) / g**2, m / g)), _FINER))
    best = math.inf
    for low, high in dict.fromkeys(_window(m, p, g, delta / d * 3.0**-k) for k in range(1, 7)):
        revealed = d * _outside(m, p, g, low, high)

        def at(i: int, low: int = low, high: int = high, revealed: float = revealed) -> float:
            return (
                value(_FINER**i, _bound(m, p, g, d, i, low, high), revealed)
                if i in _ORDERS
                else math.inf
            )

        # Up to a monotone function `at` is convex in theta; neighbouring windows have neighbouring
        # orders.
        here = at(order)
        for step in (8, 4, 2, 1) if math.isinf(best) else (2, 1):
            for side in (step, -step):
                while (there := at(order + side)) < here:
                    here, order = there, order + side
        best = min(best, here)
    return best


def _window(m: int, p: float, g: int, mass: float) -> tuple[int, int]:
    """Counts possible under every P_w; each side leaves out at most half of `mass`, or nothing."""
    # From g on and up to m every P_w is positive, so no ratio is infinite.
    low = binomial.first(lambda y: bool(lower_tail(np.array(y), m, p) > mass / 2), g, m)
    high = binomial.first(lambda y: bool(upper_tail(np.array(y + 1 - g), m, p) <= mass / 2), low, m)
    return low, high


def _outside(m: int, p: float, g: int, low: int, high: int) -> float:
    """rho: no P_w has more mass outside the window."""
    return float(lower_tail(np.array(low - 1), m, p) + upper_tail(np.array(high + 1 - g), m, p)) * (
        1 + 1e-9
    )


@lru_cache(maxsize=4096)
def _bound(m: int, p: float, g: int, d: int, order: int, low: int, high: int) -> float:
    """Logarithm of the supremum of K M ... M."""
    theta, a = _FINER**order, _grid(g)
    # On opposite sides of the middle ("Wider is worse"): distances are all that is left.
    below, above = (_log_laws(g / 2 + side * a, m, p, low, high) for side in (-1, 1))
    moment, exact = _tables(above, below, theta)
    if p != 0.5:  # else the mirror image is the same
        moment, exact = np.maximum((moment, exact), _tables(below[:, ::-1], above[:, ::-1], theta))
    return _dual(a, moment, exact, d, theta * (1 + theta) / (2 * variance(m, p))) + _INFLATE


def _grid(g: int) -> _Floats:
    """Distances from the middle of [0, g], with those of all integers.

    Between neighbours P_w is linear in w.
    """
    grid: _Floats = np.unique(
        np.concatenate(
            [g / 2 * np.linspace(0, 1, _CELLS + 1) ** (2 / 3), g / 2 - np.arange(g // 2 + 1)]
        )
    )
    return grid


def _log_laws(w: _Floats, m: int, p: float, low: int, high: int) -> _Floats:
    """log P_w(y) for low <= y <= high, one row per w."""
    k = np.arange(m + 1)
    gammaln = scipy.special.gammaln
    pmf = (
        gammaln(m + 1)
        - gammaln(k + 1)
        - gammaln(m - k + 1)
        + k * math.log(p)
        + (m - k) * math.log1p(-p)
    )
    floor = np.floor(w).astype(np.int64)[:, None]
    fraction = w[:, None] - floor
    y = np.arange(low, high + 1) - floor
    with np.errstate(divide="ignore"):  # log 0 where w is an integer
        laws: _Floats = np.logaddexp(
            np.log1p(-fraction) + pmf[y], np.log(fraction) + pmf[np.maximum(y - 1, 0)]
        )
    return laws


def _tables(log_p: _Floats, log_q: _Floats, theta: float) -> tuple[_Floats, _Floats]:
    """log M and log K of all pairs of rows; the likelihood ratio p/q grows along the rows."""
    tail_p, tail_q = (np.logaddexp.accumulate(rows[:, ::-1], axis=1) for rows in (log_p, log_q))
    # sup over u of e^{theta u} (A - e^u B) is at e^u = theta A/((1 + theta) B).
    exact: _Floats = np.array([((1 + theta) * row - theta * tail_q).max(axis=1) for row in tail_p])
    moment = np.empty_like(exact)
    for row, logs in zip(moment, log_p, strict=True):
        terms = (1 + theta) * logs - theta * log_q
        peak = terms.max(axis=1)
        row[:] = peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))
    exact += theta * math.log(theta) - (1 + theta) * math.log1p(theta)
    return moment, exact


def _dual(a: _Floats, moment: _Floats, exact: _Floats, d: int, curvature: float) -> float:
    """An upper bound of max log K + (d - 1) log M in the ball, by its Lagrange dual.

    a and a' are in the ball of radius g/2.
    """
    budget = a[-1] ** 2
    # Some coordinate has a^2 + b^2 >= 2 G/d: a cell meets that only if its outer corner does.
    leads = a[1:, None] ** 2 + a[1:] ** 2 >= 2 * budget / d * (1 - 1e-12)

    def bound(log_prices: _Floats) -> float:
        prices = np.exp(log_prices)
        return float(
            prices.sum() * budget
            + _cells(exact, a, prices)[leads].max()
            + (d - 1) * _cells(moment, a, prices).max()
        )

    # ln M is near curvature (a + a')^2 <= 2 curvature (a^2 + a'^2); all prices give a bound.
    start = np.full(2, math.log(2 * curvature))
    return float(
        scipy.optimize.minimize(
            bound, start, method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 3e-3}
        ).fun
    )


def _cells(table: _Floats, a: _Floats, prices: _Floats) -> _Floats:
    """Upper bounds of log f(a, a') - prices . (a^2, a'^2) on the cells of a grid.

    They come from log f at the grid's points; f is convex in each of a and a'.
    """
    first, second = prices[0] * a[:, None] ** 2, prices[1] * a**2
    left = table - first - second
    left = np.maximum(left[1:], left[:-1])
    corners = np.maximum(left[:, 1:], left[:, :-1])
    steps = np.diff(a) ** 2
    apart = (prices[0] * steps[:, None] + prices[1] * steps) / 4
    bounds: _Floats = corners + apart + (np.diff(first, axis=0) ** 2 + np.diff(second) ** 2) / 8
    return bounds
