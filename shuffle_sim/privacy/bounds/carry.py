"""Gaussians that dominate sums with spline rounding and fair carries (docs/theory/carry.md).

Every user but the one who changes adds floor(w + U_1 + ... + U_r) + Bin(b, 1/2), w any real number
known to the analyzer. That is a constant plus independent Bernoullis. Up to a total variation nu
the total is a post-processed Gaussian of standard deviation `sigma` (Theorem 1). What the carries
tell beside the total is dominated by one of `carry_mu` (Theorem 2). Everything is a closed form, or
monotone on a grid and rounded outward. With r = 1 a coordinate is one bit: w lies within a < 1/2
of the middle of a step (Theorem 1 for one bit).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.privacy.bounds.binomial import first, lower_tail
from shuffle_sim.privacy.bounds.domination import NUS
from shuffle_sim.privacy.bounds.gaussian import delta_gdp

UNIFORMS = (2, 3, 4, 5)
"""Numbers r of uniforms for which the constants below are proven."""
ONE_BIT = 1
"""r of the least noise: its w must lie in the middle of a step, for at a grid point it has none."""
MAX_TILT = 1.0
# A fourth cumulant of a user's rounding is at least minus this times its variance, at all tilts up
# to MAX_TILT: proven for r = 2, certified for the others (the tests).
_FOURTH = {2: 0.5, 3: 0.27, 4: 0.16, 5: 0.11}
_THIRD = {2: 1 / math.sqrt(432), 3: 0.0, 4: 0.0, 5: 0.0}
"""Largest third cumulant of a user's rounding: of t (1/4 - t^2) for r = 2."""
# E |U_2 + ... + U_r - (r-1)/2|, and at level 0 the mean distance to the nearest even integer.
_DISTANCE = {2: 1 / 4, 3: 1 / 3, 4: 13 / 32, 5: 7 / 15}
_DISTANCE_0 = {2: 1 / 4, 3: 1 / 3, 4: 19 / 48, 5: 13 / 30}
_MIN_VARIANCE = 10.0
_POSITIONS = tuple(k / 8 for k in range(8))
_SIDES = (-1.0, -0.5, 0.0, 0.5, 1.0)
MIN_ODD = 100
"""Users with a carry below which Theorem 2 says nothing."""
_INFLATE = 1 + 1e-6
"""Covers the errors of floats, also of data that exceed their bound by 1e-12."""


def kappa(v: float) -> float:
    """Bound of -(second difference of log pmf) of a Poisson-binomial (Lemma 1); it falls with v.

    Args:
        v: at least 4; the variance, tilted to the mean, is at least this.
    """
    # Items 1 to 5 of docs/theory/carry.md, "Curvature": even, odd and lost bound A, J and e_0.
    chord, sixth = math.sqrt(2) - 1, math.pi**6 / 512 - 1
    far = 0.5 * math.sqrt(2 * math.pi * v) * math.exp(-v)
    third = 15 / 8 + chord * 105 / 16 / v  # E (v u)^3 and E (v u)^4 are at most these
    fourth = 105 / 16 + chord * 945 / 32 / v
    lost = (third + sixth * fourth / v) / (9 * v) + 2 * far
    even = (1 / 2 + 1 / (8 * v) + 1 / (4 * v * v)) / v / (1 - lost)
    odd = ((1 / 2 + chord * 5 / 4 / v) / v + max(1.0, v * (math.pi / 2 - 1)) * far) / (1 - lost)
    return -math.log1p(-even * (2 - even) - odd * odd)


def variance(r: int, b: int) -> float:
    """Of a user's number: whatever the datum is, or for one bit its largest."""
    return 0.25 if r == ONE_BIT else (r + 1) / 12 + b / 4


def start(steps: float, r: int) -> float:
    """The least w: 0, or where `steps` lie in the middle of a step."""
    return (1 - steps) / 2 if r == ONE_BIT else 0.0


def least_variance(tilt: float, r: int, b: int) -> float:
    """Lower bound of the variance of a user's number at all tilts up to `tilt`, for every datum.

    Args:
        tilt: in [0, MAX_TILT].
        r: uniforms.
        b: fair bits.
    """
    root = math.sqrt(_FOURTH[r])
    rounding = (r + 1) / 12 * math.cos(root * tilt) - _THIRD[r] / root * math.sin(root * tilt)
    return rounding + b / (4 * math.cosh(tilt / 2) ** 2)


@lru_cache(maxsize=1 << 16)
def sigma(m: int, r: int, b: int, nu: float) -> float:
    """Standard deviation of the Gaussian that dominates the total (Theorem 1).

    Args:
        m: honest users beside the one who changes.
        r: uniforms, of `UNIFORMS`.
        b: fair bits.
        nu: total variation given up in a coordinate.

    Returns:
        In units of one count; 0 where the theorem says nothing.
    """
    steepest, curve = _window(lambda tilt: m * least_variance(tilt, r, b), nu)
    return math.exp(-(steepest**2 + curve) / 8) / math.sqrt(curve) if curve else 0.0


@lru_cache(maxsize=1 << 16)
def one_bit_sigma(m: int, a: float, nu: float) -> float:
    """The same where each number is one bit, 1 with a probability in [1/2 - a, 1/2 + a].

    Args:
        m: honest users beside the one who changes.
        a: below 1/2.
        nu: total variation given up in a coordinate.

    Returns:
        In units of one count; 0 where the theorem says nothing.
    """
    # A bit of chance 1/2 + a, tilted: its logit is at most this and the tilt together. sigma is
    # Theorem 1 for one bit (docs/theory/carry.md): q is `steepest`.
    logit = 2 * math.atanh(2 * a)
    steepest, curve = _window(lambda tilt: m / (4 * math.cosh((tilt + logit) / 2) ** 2), nu)
    if not curve:
        return 0.0
    return math.exp(-curve / 8) / math.sqrt(curve) * (1 - 2 * a * math.tanh(steepest / 2))


def _window(least: Callable[[float], float], nu: float) -> tuple[float, float]:
    """Where all but nu of a total lies: its largest log-ratio and second log-difference.

    `least` is the total's least variance at all tilts up to one. (0, 0) where nothing is proven.
    """
    # Every tilt that is enough is valid. `high` is one, or still the first: checked below.
    rate = math.log(4 / nu)
    low, high = 0.0, MAX_TILT
    for _ in range(50):
        tilt = (low + high) / 2
        enough = least(tilt) * tilt**2 >= 2 * rate
        low, high = (low, tilt) if enough else (tilt, high)
    v = least(high)
    if v < _MIN_VARIANCE or v * high**2 < 2 * rate:
        return 0.0, 0.0
    curve = kappa(v)
    if curve >= high or 0.41 * math.exp(high) > math.sqrt(v) * (high - curve):
        return 0.0, 0.0
    return high + curve, curve


def odd_share(r: int, level: int) -> float:
    """Least probability, over all data, that a user's number at a level is odd."""
    return _DISTANCE_0[r] if level == 0 else _DISTANCE[r] / 2**level


@lru_cache(maxsize=1 << 16)
def odd_users(m: int, r: int, level: int, nu: float) -> int:
    """So many of m users have an odd number at a level, except with probability nu."""
    share = odd_share(r, level)
    log = math.log(1 / nu)
    below = log / 3 + math.sqrt(log * log / 9 + 2 * m * share * (1 - share) * log)
    low = max(0, math.floor(m * share - below))  # enough by Bernstein's inequality
    high = math.ceil(m * share)
    return first(lambda k: float(lower_tail(np.array(k), m, share)) > nu, low, high)


@lru_cache(maxsize=1 << 16)
def step(odd: int, shift: int, nu: float) -> float:
    """C: one more pair of odd users is dominated by mu = C/N for N >= `odd` (Lemma 2).

    Args:
        odd: least number of odd users, at least MIN_ODD.
        shift: K, largest number of pairs by which the two worlds differ.
        nu: probability of the tail that is joined to one point.

    Returns:
        C; infinite where the lemma says nothing.
    """
    # Phi^-1(1 - nu/2) by the lower tail: 1 - nu/2 is 1 in doubles for most nu.
    z = -float(scipy.special.ndtri(nu / 2))
    small = 1 / math.sqrt(odd + 2)
    far = z * math.sqrt((odd + 2 * shift) / (odd + 2)) + 2 * small
    if odd < MIN_ODD or z * math.sqrt(odd + 2 * shift) + 2 > odd - shift:
        return math.inf
    u = np.linspace(1.0, far, 801)
    tails = 2 * scipy.special.ndtr(-u)
    hazard = np.exp(-(scipy.special.ndtri(tails) ** 2) / 2) / math.sqrt(2 * math.pi) / tails
    left = 2 * ((1 - small**2) ** 2 - small**2 * (u + small) ** 2)
    top = (1 - 2 * small**2) * (u + small) * (u + np.sqrt(u**2 + 4 + 4 * u * small))
    if left[-1] <= 0:
        return math.inf
    # The gain grows with u, and so does the hazard: on a cell of the grid, one end of each.
    return max(5.13, float(((top / left)[1:] / hazard[:-1]).max()))


def carry_mu(
    m: int, g: float, r: int, levels: int, d: int, nu: float, widest: float = math.inf
) -> float:
    """mu of what the carries tell beside the totals (Theorem 2); infinite where nothing is proven.

    Args:
        m: honest users beside the one who changes.
        g: sensitivity in counts.
        r: uniforms.
        levels: L.
        d: coordinates.
        nu: as in `sigma`.
        widest: sensitivity of one coordinate, if less than g.
    """
    shift = math.ceil(min(g, widest))
    transfers = min(math.sqrt(d) * shift, g + math.sqrt(d))  # root of the sum of K_j^2
    total = 0.0
    for level in range(levels):
        odd = odd_users(m, r, level, nu) - 2 * shift
        c = step(odd, shift, nu) if odd >= MIN_ODD else math.inf
        total += (transfers * c / odd) ** 2 if c < math.inf else math.inf
    return math.sqrt(total)


@dataclass(frozen=True)
class Carries:
    """A round: m others, sensitivity g in counts, r uniforms, b bits, L levels, d coordinates, of
    which each changes by g span at most.
    """

    m: int
    g: float
    r: int
    b: int
    levels: int
    d: int
    span: float = 1.0

    def mu(self, nu: float) -> float:
        """Of a Gaussian pair that dominates the view, up to `revealed` nu; maybe infinite."""
        one_bit = self.r == ONE_BIT
        spread = (
            one_bit_sigma(self.m, self.widest / 2, nu)
            if one_bit
            else sigma(self.m, self.r, self.b, nu)
        )
        if spread == 0:
            return math.inf
        carries = carry_mu(self.m, self.reach, self.r, self.levels, self.d, nu, self.widest)
        return math.hypot(self.reach / spread, carries) * _INFLATE

    @property
    def widest(self) -> float:
        """Largest difference in one coordinate, in counts."""
        return self.g * self.span

    @property
    def reach(self) -> float:
        """Largest l2 difference: in a ball of g, and in a cube of g span."""
        return min(self.g, math.sqrt(self.d) * self.widest)

    @property
    def revealed(self) -> int:
        """Total variation of each world, in units of nu."""
        return self.d * (1 + 2 * self.levels)


Rounds = tuple[tuple[Carries, int], ...]
"""Rounds over one user, with how many there are of each; queries may be chosen adaptively."""


def delta(rounds: Rounds, epsilon: float, nus: tuple[float, ...] = NUS) -> float:
    """delta of all rounds at `epsilon`, at most 1: the least over nu and over smaller epsilons.

    delta_GDP(e; mu) + (1 + e^e) times the total variation is convex in e^e. Its minimum is where
    Phi(-mu/2 - e/mu) is the total variation.
    """
    pairs, given_up = _pairs(rounds, nus)
    least = pairs * (-scipy.special.ndtri(given_up) - pairs / 2)
    at = np.minimum(epsilon, np.maximum(0.0, least))
    with np.errstate(over="ignore"):
        found = delta_gdp(at, pairs) + (1 + np.exp(at)) * given_up
    return float(found.min(initial=1.0))


@lru_cache(maxsize=1 << 10)
def _pairs(
    rounds: Rounds, nus: tuple[float, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of `composed` at these nu, where it says something."""
    known = [composed(rounds, nu) for nu in nus]
    useful = [each for each in known if each[0] < math.inf and each[1] < 0.5]
    pairs, given_up = np.array(useful).reshape(-1, 2).T
    return pairs, given_up


@lru_cache(maxsize=1 << 12)
def composed(rounds: Rounds, nu: float) -> tuple[float, float]:
    """mu of a Gaussian pair that dominates all rounds, and the total variation given up."""
    squares = math.fsum(count * each.mu(nu) ** 2 for each, count in rounds)
    return math.sqrt(squares), nu * sum(count * each.revealed for each, count in rounds)


def law(w: float, r: int, b: int) -> NDArray[np.float64]:
    """Exact law of floor(w + U_1 + ... + U_r) - floor(w) + Bin(b, 1/2), on 0, ..., r + b."""
    # The density of r + 1 uniforms at j + 1 - w ("Facts on the rounding").
    places = np.arange(r + 1) + 1 - (w - math.floor(w))
    spline = sum(
        (-1) ** k * math.comb(r + 1, k) * np.maximum(places - k, 0.0) ** r for k in range(r + 2)
    )
    masses = np.maximum(spline, 0.0) / math.factorial(r)
    return np.convolve(masses, scipy.stats.binom.pmf(np.arange(b + 1), b, 0.5))


def sum_law(pmf: NDArray[np.float64], count: int) -> tuple[int, NDArray[np.float64]]:
    """The law of the sum of `count` draws of a pmf on 0, 1, ...: where it starts, and its masses.

    By a Fourier transform on a window of 40 standard deviations, to 1e-14.
    """
    places = np.arange(len(pmf))
    mean = float(places @ pmf)
    spread = math.sqrt(count * float((places - mean) ** 2 @ pmf))
    size = 1 << (math.ceil(40 * spread) + 2 * len(pmf) + 64).bit_length()
    first_place = round(count * mean) - size // 2
    angles = 2 * np.pi * np.arange(size // 2 + 1) / size
    # About the mean: powers of a phase that turns fast would lose digits.
    single = np.exp(1j * np.outer(angles, places - mean)) @ pmf
    total = single**count * np.exp(1j * angles * (count * mean - first_place))
    return first_place, np.maximum(np.fft.irfft(total.conj(), size), 0.0)


@lru_cache(maxsize=256)
def exact_epsilon(m: int, g: float, r: int, b: int, delta: float) -> float:
    """epsilon of the total where one user changes from 0 to g, rounded down.

    The m others all hold one position between two steps, the worst of a few: a lower bound over
    all data of the others. The likelihood ratio is monotone, so threshold tests are optimal.
    Infinite where the totals are told apart but for rounding errors.
    """
    middle = tuple(0.5 + side * g / 2 for side in _SIDES)
    positions = middle if r == ONE_BIT else _POSITIONS
    return max(_exact_epsilon(each, m, g, r, b, delta) for each in positions)


def _exact_epsilon(position: float, m: int, g: float, r: int, b: int, delta: float) -> float:
    _, others = sum_law(law(position, r, b), m)
    low = start(g, r)
    whole = math.floor(low + g)
    if whole > len(others):
        return math.inf
    gap = np.zeros(whole)
    one = np.concatenate([np.convolve(others, law(low, r, b)), gap])
    other = np.concatenate([gap, np.convolve(others, law(low + g, r, b))])
    return max(0.0, _epsilon(one, other, delta), _epsilon(other[::-1], one[::-1], delta))


def _epsilon(likely: NDArray[np.float64], unlikely: NDArray[np.float64], delta: float) -> float:
    hits, misses = np.cumsum(likely) - 1e-13, np.cumsum(unlikely) + 1e-13
    most = float(((hits - delta) / misses).max())
    return math.log(most) if most > 0 else -math.inf
