"""The noise of density ~ e^{-rate ||z||_2} in R^d: exact privacy against a shift of norm 1.

Its norm is Gamma(d, 1/rate), its direction is uniform. Let eta = ||z - v|| - ||z|| for a shift v
of norm 1. The privacy loss at z is rate * eta, so the noise is rate-differentially private. With
xi = ||z|| + ||z - v||, the prolate spheroidal coordinates (xi, eta) of the foci 0 and v have the
volume element (xi^2 - eta^2) ((xi^2 - 1)(1 - eta^2))^{(d-3)/2}, and ||z|| = (xi - eta)/2. The
integral over xi is a Bessel function. So eta = cos(theta) has, for d >= 2 and x = rate/2, the
density

    f(theta) ~ e^{x cos(theta)} sin(theta)^{d-2} (M - cos(theta)^2),
    M = 1 + (d - 1)/x * K_{d/2}(x) / K_{d/2-1}(x),

and delta(epsilon) = E (1 - e^{epsilon - rate eta})_+ is one integral of a smooth function with one
peak. For d = 1 it is 1 - e^{(epsilon - rate)/2}.

A shift of norm c at `rate` is a shift of norm 1 at c * rate. Longer shifts are less private: the
best test A for v lies in {<v, z> < ||v||^2 / 2}. Move the shifted law further along v: its mass on
A falls, for every point of A gets further from the centre. So the test A gains at least as much.

The theorem holds for real numbers. The draws are floating point numbers: they are open to the
attacks of Mironov (2012) and of Haney et al. (2022).
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import integer, real

_Floats = NDArray[np.float64]
MOST = 10**6
"""Coordinates."""
_RATES = (1e-6, 1e6)
_DEPTH = 60.0  # an integral leaves out what is e^-60 of the peak
_LEAST = -690.0  # logarithm of the smallest delta that is told from 0
_DISTANCES = 2.0 ** (-np.arange(160) / 2)  # from the peak, in units of the largest


def check(rate: float, d: int) -> None:
    """Refuse what is no such noise.

    Raises:
        ParameterError: rate not in [1e-6, 1e6], d not in 1 ... 10^6.
    """
    real("rate", rate, *_RATES, closed=(True, True))
    integer("d", d, 1, MOST)


def delta(epsilon: float, rate: float, d: int) -> float:
    """The smallest delta of the noise at `epsilon` for shifts of norm at most 1, rounded up.

    Never below the truth; above it by about 2e-9 of it. Exactly 0 from epsilon = rate on.

    Args:
        epsilon: at least 0.
        rate: of the noise, for sensitivity 1.
        d: coordinates.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    check(rate, d)
    real("epsilon", epsilon, 0.0, math.inf, closed=(True, False))
    return 0.0 if epsilon >= rate else math.exp(_log_delta(epsilon, rate, d))


def epsilon(delta_: float, rate: float, d: int) -> float:
    """The smallest epsilon of the noise at `delta_`, rounded up; `rate` itself at delta_ = 0.

    Args:
        delta_: in [0, 1).
        rate: of the noise, for sensitivity 1.
        d: coordinates.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    check(rate, d)
    target = _target(delta_)
    if _log_delta(0.0, rate, d) <= target:
        return 0.0
    return rate - _largest(lambda gap: _log_delta(rate - gap, rate, d), target, rate)


def rate_for(epsilon: float, delta_: float, d: int) -> float:
    """The largest rate at which the noise is (epsilon, delta_)-private, rounded down.

    It is at least epsilon, and epsilon itself at delta_ = 0.

    Args:
        epsilon: in [1e-6, 1e6].
        delta_: in [0, 1).
        d: coordinates.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    real("epsilon", epsilon, *_RATES, closed=(True, True))
    integer("d", d, 1, MOST)
    target = _target(delta_)
    return epsilon + _largest(lambda gap: _log_delta(epsilon, epsilon + gap, d), target, epsilon)


def mean_norm(rate: float, d: int) -> float:
    """E ||z||_2 = d / rate."""
    return d / rate


def mean_square(rate: float, d: int) -> float:
    """E ||z||_2^2 = d (d + 1) / rate^2."""
    return d * (d + 1) / rate**2


def draw(rng: np.random.Generator, rate: float, d: int) -> _Floats:
    """One draw of the noise, an array of d floats: a uniform direction times a Gamma(d) norm."""
    check(rate, d)
    # A normal vector has a uniform direction; one of zeros has none.
    direction = rng.standard_normal(d)
    while not (norm := float(np.linalg.norm(direction))):
        direction = rng.standard_normal(d)
    return direction * (rng.standard_gamma(d) / (rate * norm))


def _target(delta_: float) -> float:
    real("delta", delta_, 0.0, 1.0, closed=(True, False))
    return math.log(delta_) - 1e-13 if delta_ else -math.inf


def _largest(log_delta: Callable[[float], float], target: float, start: float) -> float:
    """The largest gap with log_delta(gap) <= target, rounded down; 0 where it is negligible.

    log_delta rises, and for small gaps it is about linear in log(gap).
    """
    if target <= _LEAST:
        return 0.0
    low = high = start
    while log_delta(high) <= target:
        high *= 4
    while log_delta(low) > target:
        low /= 4
    root = scipy.optimize.brentq(
        lambda u: log_delta(math.exp(u)) - target, math.log(low), math.log(high), xtol=1e-13
    )
    gap, less = math.exp(float(root)), 1e-13
    while log_delta(gap) > target:
        gap, less = gap * (1 - less), min(2 * less, 0.5)
    return gap


@lru_cache(maxsize=4096)
def _log_delta(epsilon: float, rate: float, d: int) -> float:
    """log delta, rounded up; at least -690."""
    gap = rate - epsilon
    if gap <= 0:
        return _LEAST
    if d == 1:
        # ln(1 - e^((epsilon - rate)/2)): the Laplace law (docs: theory, Central noise, "Laplace").
        exact = math.log(-math.expm1(-gap / 2))
    else:
        last = 2 * math.asin(math.sqrt(gap / (2 * rate)))  # cos(last) = epsilon/rate
        exact = _log_integral(rate, d, last, gain=True) - _log_total(rate, d)
    # Doubles are good to 1e-12 at d = 10^5; the tests measure it.
    return min(0.0, max(_LEAST, exact + 1e-9 + 1e-15 * (d + rate)))


@lru_cache(maxsize=64)
def _log_total(rate: float, d: int) -> float:
    return _log_integral(rate, d, math.pi, gain=False)


@lru_cache(maxsize=64)
def _rest(rate: float, d: int) -> float:
    """M - 1 = (d - 1)/x K_{d/2}(x)/K_{d/2-1}(x), by the stable recurrence of the ratio."""
    x, skipped = rate / 2, max(0, d - 4000) // 2  # errors shrink: the last 2000 steps suffice
    first = skipped - d % 2 / 2  # the ratio is K_{first + 1}/K_first, and its order rises by steps
    if skipped:
        ratio = (first + 0.5 + math.hypot(first + 0.5, x)) / x  # good to about 1/first
    else:
        # K_{1/2} = K_{-1/2}.
        ratio = 1.0 if d % 2 else float(scipy.special.k1e(x) / scipy.special.k0e(x))
    # K_{v+1}/K_v = 2 v/x + K_{v-1}/K_v at v = first + step.
    for step in range(1, (d - 1) // 2 - skipped + 1):
        ratio = 2 * (first + step) / x + 1 / ratio
    return (d - 1) / x * ratio


@lru_cache(maxsize=1)
def _panels() -> tuple[_Floats, _Floats]:
    """Gauss-Legendre nodes and weights on [0, 1], denser at 0, where the gain has its zero."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    edges = np.array([0.0, 1 / 512, 1 / 64, 1 / 8, 1.0])
    width = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + width * (1 + nodes)).ravel(), (width * weights).ravel()


def _log_integral(rate: float, d: int, last: float, gain: bool) -> float:
    """log of the integral of f over [0, last], times 1 - e^{epsilon - rate eta} with `gain`.

    f is not normalised; it rises up to its peak and falls after it.
    """
    x, rest = rate / 2, _rest(rate, d)

    def log_density(theta: _Floats) -> _Floats:
        # cos(theta) - 1 = -2 sin(theta/2)^2 keeps its digits at small angles
        sine = np.sin(theta)
        powers = scipy.special.xlogy(d - 2, sine) + np.log1p(sine * sine / rest)
        log_f: _Floats = powers - rate * np.sin(theta / 2) ** 2
        return log_f

    # Where x sin^2 = (d - 2) cos: the peak without the last factor, which hardly moves it.
    cosine = rate / (d - 2 + math.hypot(d - 2, rate))
    peak = min(last, math.atan2(math.sqrt(cosine * (d - 2) / x), cosine))
    top = float(log_density(np.array(peak)))

    def reach(limit: float) -> float:
        """The least of the distances at which f has fallen by e^-60; `limit` if none."""
        far = log_density(peak + limit * _DISTANCES) < top - _DEPTH
        return limit * float(_DISTANCES[max(0, int(far.sum()) - 1)])

    low, high = peak + reach(-peak), peak + reach(last - peak)
    nodes, weights = _panels()
    # From the upper end: there the nodes are densest.
    distance = (high - low) * nodes
    values = np.exp(log_density(high - distance) - top)
    if gain:
        # epsilon = rate cos(last); cos(last) - cos(theta) as a product keeps its digits near last.
        left = last - high + distance
        values *= -np.expm1(-2 * rate * np.sin(last - left / 2) * np.sin(left / 2))
    return top + math.log((high - low) * float(values @ weights))
