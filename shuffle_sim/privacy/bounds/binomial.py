"""Exact privacy of binomial noise: Bin(m, p) against its shift by s, in both directions.

Binomial noise has a monotone likelihood ratio, so threshold tests are optimal: for every epsilon

    delta(epsilon) = max over k of F(k) - e^epsilon F(k - s),   and the mirrored form with the
    survival function,

and the function of k under the maximum rises, then falls (its increments pmf(k) - e^epsilon pmf(k -
s) change sign once). Its superlevel sets are intervals, so ln((F(k) - delta) / F(k - s)) is
quasi-concave in k: the maximum is found in O(log m) evaluations, for any m, and there is no root
finding. Everything is rounded outward, and computed with logarithms of tails: delta e^-epsilon may
be far below what a double holds.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError, integer, real

_SMALL = 1e-290  # below, tails lose their digits: their logarithms are found without them


def _error(m: int) -> float:
    """Relative error granted to a tail; the measured one is at least 3 times less (the tests)."""
    return 2e-12 + 2e-15 * math.sqrt(m)


def lower_tail(k: NDArray[np.int64], m: int, p: float) -> NDArray[np.float64]:
    """P(Bin(m, p) <= k), to a few 1e-14 relative in the far tail.

    scipy's bdtr is off by 1e-9 at m = 1e6.
    """
    # 1 - I_p(k + 1, m - k): it takes p itself, where 1 - p of a small p has lost digits.
    inside = np.clip(k, 0, m - 1).astype(float)
    return np.where(
        k < 0, 0.0, np.where(k >= m, 1.0, scipy.special.betaincc(inside + 1, m - inside, p))
    )


def upper_tail(k: NDArray[np.int64], m: int, p: float) -> NDArray[np.float64]:
    """P(Bin(m, p) >= k)."""
    # Where 1 - p is exact: mirror the better formula.
    if 1.0 - (1.0 - p) == p and ((1.0 - p) * 2**30).is_integer():
        return lower_tail(m - k, m, 1.0 - p)
    inside = np.clip(k, 1, m).astype(float)
    return np.where(
        k <= 0, 1.0, np.where(k > m, 0.0, scipy.special.betainc(inside, m - inside + 1, p))
    )


@dataclass(frozen=True)
class _Tail:
    """ln P(X <= k) for X = Bin(m, p), or mirrored for X = m - Bin(m, p)."""

    m: int
    p: float
    mirrored: bool = False

    def __call__(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        m, p = self.m, self.p
        if self.mirrored:
            return _logarithm(upper_tail(m - k, m, p), k, m, 1.0 - p, p)
        return _logarithm(lower_tail(k, m, p), k, m, p, 1.0 - p)

    def reach(self, least: float) -> tuple[int, int]:
        """Below the first the logarithm is under `least`, from the second on the tail is 1 to the
        last bit (Bernstein).
        """
        mean = self.m * (1 - self.p if self.mirrored else self.p)
        # t solves t^2/(2 (v + t/3)) = log; e^-37 is below 2^-53, so 1 less it is 1 in doubles.
        below, above = (
            log / 3 + math.sqrt(log * log / 9 + 2 * log * variance(self.m, self.p))
            for log in (-least, 37.0)
        )
        return max(0, math.floor(mean - below)), min(self.m, math.ceil(mean + above))


def _tails(m: int, p: float) -> tuple[_Tail, _Tail]:
    return _Tail(m, p), _Tail(m, p, mirrored=True)


def _logarithm(
    tail: NDArray[np.float64], k: NDArray[np.int64], m: int, p: float, q: float
) -> NDArray[np.float64]:
    """ln P(Bin(m, p) <= k) from the tail, or where that is near underflow without it."""
    with np.errstate(divide="ignore"):
        found = np.atleast_1d(np.log(tail))
    far = (np.atleast_1d(tail) < _SMALL) & (np.atleast_1d(k) >= 0)
    if far.any():
        found[far] = _log_far_tail(np.atleast_1d(k)[far].astype(float), m, p, q)
    return found.reshape(np.shape(k))


def _log_far_tail(k: NDArray[np.float64], m: int, p: float, q: float) -> NDArray[np.float64]:
    """ln P(Bin(m, p) <= k) where that is tiny: ln pmf(k) (Loader 2000) and the continued fraction
    of the incomplete beta function, which converges in a few steps so far out.
    """
    # By the smaller of p and q: the larger one, 1 less it, is rounded.
    mean, other = (m * p, m - m * p) if p <= 0.5 else (m - m * q, m * q)
    log_pmf = (
        _stirling_error(np.array(float(m)))
        - _stirling_error(k)
        - _stirling_error(m - k)
        - _deviance(k, mean)
        - _deviance(m - k, other)
        - np.log(2 * np.pi * np.maximum(k, 0.5) * (m - k) / m) / 2
    )
    log_pmf = np.where(k == 0, m * np.log1p(-p) if p < 0.5 else m * np.log(q), log_pmf)
    # 1/(a B(a, b)) is C(m, k) here, so what stands before the fraction is pmf(k) p.
    # I_q(a, b) = q^a p^b / (a B(a, b)) / (1 + d_1/(1 + d_2/(1 + ...))) by Lentz' algorithm.
    a, b = m - k, k + 1
    c, d = np.ones_like(k), 1 / (1 - (a + b) * q / (a + 1))
    fraction = d.copy()
    for i in range(1, 1000):
        even = i * (b - i) * q / ((a + 2 * i - 1) * (a + 2 * i))
        odd = -(a + i) * (a + b + i) * q / ((a + 2 * i) * (a + 2 * i + 1))
        before = fraction
        for step in (even, odd):
            d, c = 1 / (1 + step * d), 1 + step / c
            fraction = fraction * c * d
        if (np.abs(fraction - before) <= _error(m) / 8 * np.abs(fraction)).all():
            break
    return np.asarray(log_pmf + np.log(p) + np.log(fraction))


def _stirling_error(n: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln n! - ln(sqrt(2 pi n) (n/e)^n); 0 at n = 0."""
    large = np.maximum(n, 16.0)
    square = large * large
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / large
    small = np.clip(n, 1.0, 16.0)
    plain = (
        scipy.special.gammaln(small + 1)
        - (small + 0.5) * np.log(small)
        + small
        - math.log(2 * math.pi) / 2
    )
    return np.asarray(np.where(n > 15, series, np.where(n > 0, plain, 0.0)))


def _deviance(x: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """x ln(x/mean) + mean - x, without cancellation where x is near the mean."""
    # ln(x/mean) = 2 atanh v. Its first term, 2 x v, and mean - x are (x - mean) v together.
    v = (x - mean) / (x + mean)
    near = np.abs(v) < 0.1
    small = np.where(near, v, 0.0)
    series = sum(small ** (2 * j) / (2 * j + 1) for j in range(1, 10))
    plain = scipy.special.xlogy(x, x / mean) + mean - x
    return np.asarray(np.where(near, (x - mean) * v + 2 * x * v * series, plain))


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
    return max(0.0, *(_epsilon_one_way(tail, shift, delta) for tail in _tails(m, p)))


def _epsilon_one_way(tail: _Tail, shift: int, delta: float) -> float:
    error, most = _error(tail.m), math.log(delta)
    # Counts below the shift come from one world alone: no epsilon covers more than delta of them.
    if tail(np.array(shift - 1)) + error > most:
        return math.inf

    def loss(k: NDArray[np.int64]) -> NDArray[np.float64]:
        here, there = _outward(tail(k), error), _outward(tail(k - shift), -error)
        with np.errstate(divide="ignore", invalid="ignore"):
            # F - delta = F (1 - delta/F); one that vanishes counts as e^-745, which is more.
            kept = np.log(-np.expm1(np.minimum(most - here, 0.0)))
            return np.where(here > most, np.maximum(here + kept, -745.0) - there, -np.inf)

    return _peak(loss, *_reach(tail, shift, most)) * (1 + 1e-14)


def _outward(log: NDArray[np.float64], error: float) -> NDArray[np.float64]:
    """A logarithm moved by the error granted to its tail, which grows with the deviation."""
    size = np.where(np.isneginf(log), 0.0, np.abs(log))
    return np.asarray(log + error * (1 + np.sqrt(size) / 10) + math.copysign(4e-16, error) * size)


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
    error = _error(m)

    def gain(tail: _Tail) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
        def log_gain(k: NDArray[np.int64]) -> NDArray[np.float64]:
            here = _outward(tail(k), error)
            with np.errstate(divide="ignore", invalid="ignore"):
                lost = epsilon + _outward(tail(k - shift), -error) - here
                return np.where(lost < 0, here + np.log(-np.expm1(np.minimum(lost, 0.0))), -np.inf)

        return log_gain

    # -800: e^-800 is less than any double, so no gain that a double holds is left out.
    found = max(_peak(gain(tail), *_reach(tail, shift, -800.0)) for tail in _tails(m, p))
    # A shift always shows with some probability, if with one below the least normal double.
    return min(1.0, max(sys.float_info.min, math.exp(found) * (1 + 1e-12)))


def exceeds(m: int, p: float, shift: int, epsilon: float, delta: float) -> bool:
    """A quick proof that delta at `epsilon` is more than `delta`; False proves nothing.

    It looks at a few counts only, where a Gaussian of the same variance would be told apart.

    Args:
        m: number of trials.
        p: success probability in (0, 1).
        shift: by how much neighbouring inputs move the count; at most m.
        epsilon: above 0.
        delta: in (0, 1).
    """
    sd = math.sqrt(variance(m, p))
    # There the log-ratio of N(m p, sd^2) and its shift is epsilon.
    place = m * p + shift / 2 - epsilon * sd * sd / shift
    k = np.unique(np.clip(np.rint(place + sd * np.linspace(-0.5, 0.5, 9)), 0, m)).astype(np.int64)
    gain = lower_tail(k, m, p) - math.exp(epsilon) * lower_tail(k - shift, m, p)
    return bool(gain.max() > delta * (1 + 1e-6))


def _reach(tail: _Tail, shift: int, least: float) -> tuple[int, int]:
    """Where the maximum lies: the tail's logarithm may be above `least`, the other tail below 1."""
    # From there, behind the shift, both tails are 1: nothing changes any more.
    low, high = tail.reach(least)
    return low, min(tail.m, high + shift)


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
        # Unimodal: the maximum lies between the neighbours of the grid's best point.
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
