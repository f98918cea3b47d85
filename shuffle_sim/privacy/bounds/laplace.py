"""Exact privacy of discrete Laplace noise that users make in shares.

A user's share is the difference of two negative binomials of shape 1/N, so the shares of h users
are the difference D_r of two of shape r = h/N: the discrete Laplace law, pmf ~ e^{-rate |z|}, at r
= 1, and less noise below. With nb(j) the pmf of one of the two, P(w) = sum_j nb(j) nb(j + w) is a
mixture of sequences that fall and are log-convex in w >= 0 for r <= 1. Hence (proofs in
docs/theory/split-and-mix.md, "The noise")

- P is symmetric and falls away from 0, so delta(epsilon) = sum_w max(0, P(w) - e^epsilon P(w -
shift)) grows with the shift,
- the loss of a shift t is at most ln P(0)/P(t) <= t ln P(0)/P(1): pure differential privacy, and
  with it zero-concentrated privacy of rho = (ln P(0)/P(1))^2 ||shift||^2 / 2 for independent
  coordinates.
"""

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import integer, positive, real

MIN_RATE = 1e-5
"""Below, the window in which the noise has to be summed would not fit in memory."""

_TAIL = 42.0  # e^-42 of the noise lies outside the window; less than the error of the sums


def check(shape: float, rate: float, shift: int) -> None:
    """Refuse what the formulas do not cover.

    Raises:
        ParameterError: shape not in (0, 1], rate below MIN_RATE, a negative shift.
    """
    real("shape", shape, 0.0, 1.0)
    real("rate", rate, MIN_RATE, math.inf, closed=(True, False))
    integer("shift", shift, 0)


@lru_cache(maxsize=16)
def pmf(shape: float, rate: float, reach: int) -> NDArray[np.float64]:
    """P(D_r = 0), P(D_r = 1), ..., P(D_r = reach), each to about 1e-15 P(0): the law is symmetric.

    By inverting the characteristic function ((1 - a)^2 / |1 - a e^{it}|^2)^r, a = e^-rate, on a
    circle so long that what wraps around is below the error.

    Args:
        shape: r in (0, 1].
        rate: of the discrete Laplace law at shape 1.
        reach: last value wanted.
    """
    check(shape, rate, reach)
    # |1 - a e^{it}|^2 = (1 - a)^2 + 4 a sin(t/2)^2, whose quotient keeps its digits at small t.
    size = 1 << math.ceil(math.log2(2 * (reach + _TAIL / rate) + 2))
    half = np.sin(np.arange(size // 2 + 1) * (math.pi / size))
    spectrum = np.exp(-shape * np.log1p(4 * math.exp(-rate) * (half / -math.expm1(-rate)) ** 2))
    law = np.maximum(np.fft.irfft(spectrum, size)[: reach + 1], 0.0)
    law.flags.writeable = False
    return law


def pure_epsilon(shape: float, rate: float, shift: int) -> float:
    """The largest privacy loss of a shift, ln P(0)/P(shift); at shape 1 it is rate * shift."""
    check(shape, rate, shift)
    if shape == 1 or shift == 0:
        return rate * shift
    # Far out P itself is lost in rounding; the losses of steps of 1 fall with the distance, so
    # those last seen bound the rest.
    law = pmf(shape, rate, shift)
    far = min(shift, max(1, int(np.searchsorted(-law, -1e-4 * law[0])) - 1))
    slope = math.log(law[far // 2] / law[far]) / (far - far // 2)
    return (math.log(law[0] / law[far]) + (shift - far) * slope) * (1 + 1e-9)


def delta(shape: float, rate: float, shift: int, epsilon: float) -> float:
    """The smallest delta at which a shift of D_r is (epsilon, delta)-indistinguishable; rounded up.

    Above it by at most about 1e-14 (1 + e^epsilon), the error of the sums.
    """
    real("epsilon", epsilon, 0.0, math.inf, closed=(True, False))
    # Its sums would be the rounding error only.
    if epsilon >= pure_epsilon(shape, rate, shift):
        return 0.0
    here, there = _neighbours(shape, rate, shift)
    factor = math.exp(min(epsilon, 700.0))
    return min(1.0, float(np.maximum(here - factor * there, 0.0).sum()) + 1e-14 * (1 + factor))


@lru_cache(maxsize=8)
def _neighbours(
    shape: float, rate: float, shift: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(w) and P(w - shift) for w up to shift / 2; beyond, the shifted law is the larger one."""
    reach = math.ceil(_TAIL / rate)
    law = pmf(shape, rate, reach + shift)
    # P(w) > P(w - shift) only for w < shift/2, as P falls with |w|.
    w = np.arange(-reach, (shift + 1) // 2)
    return law[np.abs(w)], law[np.abs(w - shift)]


def epsilon(shape: float, rate: float, shift: int, delta_: float) -> float:
    """The smallest epsilon at which a shift of D_r is indistinguishable at `delta_`; rounded up."""
    real("delta", delta_, 0.0, 1.0, closed=(True, False))
    pure = pure_epsilon(shape, rate, shift)
    if delta(shape, rate, shift, 0.0) <= delta_:
        return 0.0
    low, high = 0.0, pure
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if delta(shape, rate, shift, middle) <= delta_ else (middle, high)
    return high


def delta_zcdp(rho: float, epsilon: float) -> float:
    """delta of rho-zero-concentrated privacy at `epsilon` (Canonne, Kamath and Steinke 2020).

    inf over alpha > 1 of e^{(alpha - 1)(alpha rho - epsilon)} (1 - 1/alpha)^alpha / (alpha - 1);
    every alpha gives a bound.
    """
    return math.exp(_log_delta_zcdp(positive("rho", rho), min(epsilon, 1e6)))


def _log_delta_zcdp(rho: float, epsilon: float) -> float:
    def log_bound(x: float) -> float:
        extra = math.exp(x)  # alpha - 1
        return (
            extra * ((1 + extra) * rho - epsilon) + (1 + extra) * math.log1p(-1 / (1 + extra)) - x
        )

    # The best is near epsilon/(2 rho) or 1/sqrt(2 rho), whichever is more.
    most = max(1e6, 10 * (epsilon / rho + 1 / math.sqrt(rho)))
    best = scipy.optimize.minimize_scalar(
        log_bound,
        bounds=(math.log(1e-6), math.log(most)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return min(0.0, float(best.fun))


def epsilon_zcdp(rho: float, delta_: float) -> float:
    """The smallest epsilon that `delta_zcdp` proves at `delta_`, rounded up."""
    target = math.log(delta_)
    if _log_delta_zcdp(positive("rho", rho), 0.0) <= target:
        return 0.0
    high = rho + 2 * math.sqrt(-rho * target)  # the classical conversion is never better
    root: float = scipy.optimize.brentq(
        lambda e: _log_delta_zcdp(rho, e) - target, 0.0, high * (1 + 1e-9), xtol=1e-13, rtol=1e-13
    )
    return root * (1 + 1e-7)  # the minimiser is found to 1e-9


def rho_zcdp(epsilon: float, delta_: float) -> float:
    """The largest rho that `delta_zcdp` proves (epsilon, delta_)-private, rounded down."""
    positive("epsilon", epsilon)
    target = math.log(real("delta", delta_, 0.0, 1.0, closed=(False, False)))
    # At the lower end the classical conversion is private, at the upper one the divergence alone is
    # not.
    low = math.log(min(epsilon / 2, epsilon**2 / (-16 * target)))
    ends = low, math.log(epsilon - 2 * target + 1)
    root: float = scipy.optimize.brentq(
        lambda x: _log_delta_zcdp(math.exp(x), epsilon) - target, *ends, xtol=1e-13
    )
    return math.exp(root) * (1 - 1e-6)
