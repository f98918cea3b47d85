"""Exact privacy of binomial noise: Bin(m, p) against its shift by s, in both directions.

Binomial noise has a monotone likelihood ratio, so threshold tests are optimal: for every epsilon

    delta(epsilon) = max over k of F(k) - e^epsilon F(k - s),   and the mirrored form with the
    survival function,

and the function of k under the maximum rises, then falls (its increments pmf(k) - e^epsilon pmf(k -
s) change sign once). Its superlevel sets are intervals, so ln((F(k) - delta) / F(k - s)) is
quasi-concave in k: the maximum is found in O(log m) evaluations, for any m, and there is no root
finding. Everything is rounded outward.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError, integer, real

_Tail = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def _error(m: int) -> float:
    """Relative error granted to a tail; the measured one is at least 3 times less (the tests)."""
    return 2e-12 + 2e-15 * math.sqrt(m)


def lower_tail(k: NDArray[np.int64], m: int, p: float) -> NDArray[np.float64]:
    """P(Bin(m, p) <= k), to a few 1e-14 relative in the far tail.

    scipy's bdtr is off by 1e-9 at m = 1e6.
    """
    inside = np.clip(k, 0, m - 1).astype(float)
    return np.where(
        k < 0, 0.0, np.where(k >= m, 1.0, scipy.special.betaincc(inside + 1, m - inside, p))
    )


def upper_tail(k: NDArray[np.int64], m: int, p: float) -> NDArray[np.float64]:
    """P(Bin(m, p) >= k)."""
    if 1.0 - (1.0 - p) == p and (1.0 - p) * 2**30 == int(
        (1.0 - p) * 2**30
    ):  # 1 - p is exact: mirror the better formula
        return lower_tail(m - k, m, 1.0 - p)
    inside = np.clip(k, 1, m).astype(float)
    return np.where(
        k <= 0, 1.0, np.where(k > m, 0.0, scipy.special.betainc(inside, m - inside + 1, p))
    )


def _tails(m: int, p: float) -> tuple[_Tail, _Tail]:
    """P(X <= k) for X = Bin(m, p) and for its mirror image m - X."""
    return lambda k: lower_tail(k, m, p), lambda k: upper_tail(m - k, m, p)


def _check(m: int, p: float, shift: int) -> None:
    integer("m", m, 1, 2**53)
    real("p", p, 0.0, 1.0, closed=(False, False))
    integer("shift", shift, 0)


def epsilon(m: int, p: float, shift: int, delta: float) -> float:
    """The smallest epsilon at which a shift of Bin(m, p) is (epsilon, delta)-indistinguishable.

    Within about 1e-10 above the truth, never below; infinite where no epsilon will do.

    Args:
        m: number of trials.
        p: success probability in (0, 1).
        shift: by how much neighbouring inputs move the count.
        delta: in (0, 1).
    """
    _check(m, p, shift)
    real("delta", delta, 0.0, 1.0, closed=(False, False))
    if shift == 0:
        return 0.0
    if shift > m:
        return math.inf
    return max(0.0, *(_epsilon_one_way(tail, m, shift, delta) for tail in _tails(m, p)))


def _epsilon_one_way(tail: _Tail, m: int, shift: int, delta: float) -> float:
    if tail(np.array(shift - 1)) * (1 + _error(m)) > delta:
        return math.inf

    def loss(k: NDArray[np.int64]) -> NDArray[np.float64]:
        here, there = tail(k) * (1 + _error(m)), tail(k - shift) * (1 - _error(m))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(here > delta, np.log(np.maximum(here - delta, 1e-320) / there), -np.inf)

    return _peak(loss, *_reach(tail, m, shift)) * (1 + 1e-14)


def delta(m: int, p: float, shift: int, epsilon: float) -> float:
    """The smallest delta at which a shift of Bin(m, p) is (epsilon, delta)-indistinguishable.

    Never below the truth; above it by at most about 1e-11 of the tail it is computed from.

    Args:
        m: number of trials.
        p: success probability in (0, 1).
        shift: by how much neighbouring inputs move the count.
        epsilon: at least 0.
    """
    _check(m, p, shift)
    real("epsilon", epsilon, 0.0, math.inf, closed=(True, False))
    if shift == 0:
        return 0.0
    if shift > m:
        return 1.0
    factor = math.exp(min(epsilon, 700.0))

    def gain(tail: _Tail) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
        return lambda k: tail(k) * (1 + _error(m)) - factor * tail(k - shift) * (1 - _error(m))

    return min(
        1.0, max(0.0, *(_peak(gain(tail), *_reach(tail, m, shift)) for tail in _tails(m, p)))
    )


def _reach(tail: _Tail, m: int, shift: int) -> tuple[int, int]:
    """Where the maximum lies: the tail is above 1e-300 and not yet 1 to the last bit."""
    low = first(lambda k: bool(tail(np.array(k)) > 1e-300), 0, m)
    high = first(lambda k: bool(tail(np.array(k)) >= 1 - 1e-16), low, m)
    return low, min(m, high + shift)


def first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least k in [low, high] at which a monotone predicate holds (high if nowhere)."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _peak(
    function: Callable[[NDArray[np.int64]], NDArray[np.float64]], low: int, high: int
) -> float:
    """The maximum of a function over integers that rises, then falls.

    Each grid of 257 points lies inside the peak of the one before.

    The first grid is finer than half a standard deviation, so it meets the part that is neither
    -inf nor flat.
    """
    best = -math.inf
    while True:
        grid = np.unique(np.linspace(low, high, 257).round().astype(np.int64))
        values = function(grid)
        best = max(best, float(values.max()))
        if grid.size == high - low + 1:
            return best
        at = int(values.argmax())
        low, high = int(grid[max(at - 1, 0)]), int(grid[min(at + 1, grid.size - 1)])


def variance(m: int, p: float) -> float:
    """m p (1 - p).

    Raises:
        ParameterError: if p is not a probability.
    """
    if not 0 <= p <= 1:
        raise ParameterError("p", p, "in [0, 1]")
    return m * p * (1 - p)
