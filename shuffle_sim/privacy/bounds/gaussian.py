"""The Gaussian mechanism: exact trade-off (Balle and Wang 2018; Dong, Roth and Su 2019)."""

import math
from typing import overload

import numpy as np
import scipy  # parts by attribute: they load when used, and shards and shufflers need few
from numpy.typing import NDArray

from shuffle_sim.errors import positive, real

Real = float | NDArray[np.float64]
_LEAST = 1e-300  # in place of a mu of 0
_SMALL = 1e-2  # of mu: below, a difference of logarithms would lose its digits
_PLACES, _WEIGHTS = (-math.sqrt(0.15), 0.0, math.sqrt(0.15)), (5 / 18, 8 / 18, 5 / 18)  # Gauss
_MILLS = math.sqrt(2 / math.pi)


@overload
def delta_gdp(epsilon: float, mu: float) -> float: ...
@overload
def delta_gdp(epsilon: Real, mu: NDArray[np.float64]) -> NDArray[np.float64]: ...
def delta_gdp(epsilon: Real, mu: Real) -> Real:
    """delta of N(mu, 1) against N(0, 1) at `epsilon`, for mu >= 0.

    It is Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    Computed as a product, Phi(a) (1 - e^(epsilon + log Phi(b) - log Phi(a))), so that no tail
    underflows to a difference. For a small mu the logarithms differ by the integral of phi/Phi.
    """
    mu = np.maximum(mu, _LEAST)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        middle = -epsilon / mu
        upper = scipy.special.log_ndtr(middle + mu / 2)
        apart = upper - scipy.special.log_ndtr(middle - mu / 2)
        if np.any(mu < _SMALL):
            # ln Phi has the slope phi/Phi = sqrt(2/pi)/erfcx(-x/sqrt 2), which no tail underflows.
            places = (middle + mu * place for place in _PLACES)
            slopes = (_MILLS / scipy.special.erfcx(-place / math.sqrt(2)) for place in places)
            mean = sum(w * slope for w, slope in zip(_WEIGHTS, slopes, strict=True))
            apart = np.where((mu > _LEAST) & (mu < _SMALL), mu * mean, apart)
        delta = np.exp(upper) * -np.expm1(np.minimum(epsilon - apart, 0.0))
    delta = np.where(np.isfinite(delta), delta, 0.0)
    return float(delta) if delta.ndim == 0 else delta


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian pair is (epsilon, delta)-indistinguishable, to 1e-12 below."""
    epsilon = real("epsilon", epsilon, 0.0, math.inf, closed=(True, False))
    delta = real("delta", delta, 0, 1, closed=(False, False))
    high = 1.0
    while delta_gdp(epsilon, high) < delta:
        high *= 2
    low = 1e-12 * high
    while delta_gdp(epsilon, low) >= delta:  # of a tiny epsilon mu is about sqrt(2 pi) delta
        low *= 1e-3
    root: float = scipy.optimize.brentq(
        lambda mu: delta_gdp(epsilon, mu) - delta,
        low,
        high,
        xtol=1e-300,
        rtol=1e-14,
        maxiter=500,
    )
    return root * (1 - 1e-13)


def epsilon_gdp(delta: float, mu: float) -> float:
    """The smallest epsilon >= 0 at which N(mu, 1) and N(0, 1) are indistinguishable at `delta`.

    Rounded up; infinite for mu above 1e8, where doubles do not find it. For delta of at least
    1e-300.
    """
    if mu > 1e8:  # epsilon is above 1e15 there
        return math.inf
    if mu <= 0 or delta_gdp(0.0, mu) <= delta:
        return 0.0
    # The loss is N(mu^2/2, mu^2): beyond this it has less than delta.
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    root: float = scipy.optimize.brentq(
        lambda epsilon: delta_gdp(epsilon, mu) - delta,
        0.0,
        high,
        xtol=1e-14 * min(1.0, mu),
        rtol=1e-14,
        maxiter=500,
    )
    more = 1e-13
    while delta_gdp(root, mu) > delta:  # a steep curve, or a root of another sign
        root, more = root * (1 + more), 2 * more
    return root * (1 + 1e-13)


def sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Standard deviation of the analytic Gaussian mechanism for an l2 sensitivity.

    Source: Balle and Wang (2018), Theorem 8.
    """
    return positive("sensitivity", sensitivity) / mu_of(epsilon, delta)
