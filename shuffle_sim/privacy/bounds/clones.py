"""Amplification by shuffling: one message a user by a local randomiser, permuted.

Every user but one draws, with probability C/n, as if it were one of two clones of that one. The
changing user's densities R0, R1 lie, over the density m that everybody is above, in the square
[1, e]^2, e = e^epsilon0. Written as a mixture of its corners, with masses

    a at (e, 1), a at (1, e), h at (e, e), l at (1, 1),      (1 + e) a + e h + l = 1,

the divergence of the two views is at most, with E = e^epsilon,

    delta(epsilon) = (1/n) E [(e - E) A + (1 - e E)(C - A) + e (1 - E) H + (1 - E) L]_+,

(C, H, L) multinomial of n with masses (2a, h, l), A ~ Bin(C, 1/2) (docs: theory, Amplification).
h = l = 0 is the largest: the stronger clones, which serve every
randomiser. Where all other users have one law of density m, it is an equality: a lower bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import scipy

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds.losses import Finite

MAX_EPSILON0 = 30.0
"""Beyond it a report hides nothing, and e^epsilon0 is no longer an exact matter of doubles."""
NUMERICAL_ERROR = 1e-9
"""Relative, of every delta and epsilon: measured ones are ten times less (the tests)."""
_LOST = 1e-18  # mass outside the windows; it is added
_CHORDS, _POINTS = (10, 40), 1_000_000  # cells of what is spread, by how many tails there are
_SPARSE = 2000  # counts of a first look
_BINS, _REACH = (20, 400), 18.0  # of a pair: bins of C, and standard deviations of A


@dataclass(frozen=True)
class Corners:
    """Masses of a randomiser's likelihoods at two corners of the square; zeros: not known.

    Attributes:
        both: h, at (e, e).
        neither: l, at (1, 1).
    """

    both: float = 0.0
    neither: float = 0.0

    def single(self, epsilon0: float) -> float:
        """The mass a at (e, 1), and at (1, e).

        Raises:
            ParameterError: the masses are not those of densities.
        """
        e = math.exp(epsilon0)
        for name, mass in (("both", self.both), ("neither", self.neither)):
            real(name, mass, 0.0, 1.0, closed=(True, False))
        left = 1 - e * self.both - self.neither
        if not left > 0:
            allowed = f"such that e^epsilon0 both + neither is below 1, for epsilon0 = {epsilon0:g}"
            raise ParameterError("corners", self, allowed)
        return left / (1 + e)

    def sampled(self, rate: float) -> "Corners":
        """Of a cohort that each user secretly joins with this probability: others say nothing."""
        real("sampling", rate, 0.0, 1.0)
        return Corners(rate * self.both, rate * self.neither + 1 - rate)

    @classmethod
    def of_response(cls, epsilon0: float, symbols: int) -> "Corners":
        """Of k-ary randomised response."""
        return cls(0.0, (integer("symbols", symbols, 2) - 2) / (math.exp(epsilon0) + symbols - 1))


CLONES = Corners()


def check(users: int, epsilon0: float, corners: Corners = CLONES) -> None:
    """Refuse what no theorem speaks of.

    Raises:
        ParameterError: no user, epsilon0 not in (0, 30], masses of no randomiser.
    """
    integer("n", users)
    real("epsilon0", epsilon0, 0.0, MAX_EPSILON0)
    corners.single(epsilon0)


def delta(users: int, epsilon0: float, epsilon: float, corners: Corners = CLONES) -> float:
    """delta of one round of `users` honest users, the changing one among them; rounded upward."""
    check(users, epsilon0, corners)
    real("epsilon", epsilon, 0.0, math.inf, closed=(True, False))
    return _view(users, epsilon0, corners).delta(epsilon)


def epsilon(users: int, epsilon0: float, delta_: float, corners: Corners = CLONES) -> float:
    """The least epsilon proven at `delta_`, rounded up; epsilon0 where shuffling proves no less."""
    check(users, epsilon0, corners)
    return _root(partial(_view, users, epsilon0, corners), epsilon0, delta_, 1)


def least_delta(users: int, epsilon0: float, epsilon: float, symbols: int = 3) -> float:
    """The exact delta of k-ary randomised response where all others hold a third symbol.

    No theorem about every randomiser can promise less; none about that response can. It is rounded
    downward; for k > 3 users of other symbols count as their mean.
    """
    check(users, epsilon0)
    return _lower(users, epsilon0, integer("symbols", symbols, 3)).delta(epsilon)


def least_epsilon(users: int, epsilon0: float, delta_: float, symbols: int = 3) -> float:
    """An epsilon that no theorem can be below (see `least_delta`), rounded down."""
    check(users, epsilon0)
    integer("symbols", symbols, 3)
    return _root(partial(_lower, users, epsilon0, symbols), epsilon0, delta_, -1)


def pair(users: int, epsilon0: float) -> Finite:
    """A pair of laws of the views' counts that dominates a round of any randomiser.

    Exchanging the laws changes nothing.
    """
    check(users, epsilon0)
    lies = float(scipy.special.expit(-epsilon0))  # not 1 less the truth, which loses its digits
    return _binned(*_counts(users - 1, lies, None), lies)


def blanket_pair(messages: int, bins: int) -> Finite:
    """A datum's own message in a histogram of so many others, each of a uniform bin.

    Clones of a user who never lies: those in the two bins in question are Bin(messages, 2/bins).
    """
    return _binned(*_counts(messages, 1 / bins, None), 0.0)


def blanket_delta(messages: int, bins: int, epsilon: float) -> float:
    """delta of it, by one sum; rounded upward."""
    counts, weights = _counts(messages, 1 / bins, None)
    # x/(C + 1 - x) > E from x = t on, and there P(A + 1 >= t) - E P(A >= t) is what is summed.
    # All of them show the bin, whatever epsilon is; where expit rounds to 1, too.
    t = np.minimum(np.floor((counts + 1) * float(scipy.special.expit(epsilon))), counts) + 1
    tail = np.where(t > counts, 0.0, scipy.special.betainc(t, np.maximum(counts - t + 1, 1), 0.5))
    gains = scipy.stats.binom.pmf(t - 1, counts, 0.5) - math.expm1(min(epsilon, 700.0)) * tail
    return min(1.0, float(weights @ np.maximum(gains, 0.0)) * (1 + NUMERICAL_ERROR) + _LOST)


def _binned(clones: Floats, weights: Floats, q: float) -> Finite:
    """(A + X, C + 1 - A - X) against X exchanged, 1 - X ~ Ber(q), A ~ Bin(C, 1/2).

    C clones are binned downward: one more is post-processing.
    """
    # Points of a bin: 18 deviations of A, sqrt(C)/2 each, to either side.
    width = _REACH * math.sqrt(float(clones[-1]) + 1)
    bins = int(np.clip(_POINTS * 4 // width, *_BINS))
    edges = np.unique(np.linspace(0, clones.size, bins + 1).astype(int))
    here, there = [], []
    for low, high in pairwise(edges.tolist()):
        c, weight = float(clones[low]), float(weights[low:high].sum())
        reach = _REACH / 2 * math.sqrt(c) + 1
        a = np.arange(max(0.0, math.floor(c / 2 - reach)), min(c, math.ceil(c / 2 + reach)) + 2)
        one, none = (scipy.stats.binom.pmf(a - shift, c, 0.5) for shift in (1, 0))
        here.append(weight * ((1 - q) * one + q * none))
        there.append(weight * (q * one + (1 - q) * none))
    return Finite(np.concatenate(here), np.concatenate(there))


@dataclass(frozen=True)
class _View:
    """The law of (C, what the rest adds), on which a divergence is one sum.

    Attributes:
        e: e^epsilon0.
        users: n.
        side: 1 rounds upward, -1 downward.
        counts: of C, (counts,).
        weights: of each count and value of the rest, (cells, counts).
        rest: what the rest takes away, over E - 1, (cells, counts).
    """

    e: float
    users: int
    side: int
    counts: Floats
    weights: Floats
    rest: Floats

    def delta(self, epsilon: float) -> float:
        """(1/n) E [..]_+, with the numerical error and what lies outside the window.

        Given C and the rest's r, A counts from t on, and by the identity
        E[A - C/2; A >= t] = (t/2) P(A = t) the sum is
        alpha t/2 P(A = t) - (r + C middle) P(A >= t).
        """
        e, grown = self.e, math.expm1(epsilon)  # E - 1
        # From epsilon0 on nothing is lost: the reports alone promise it.
        if grown >= e - 1:
            return 0.0
        alpha, middle = (e - 1) * (2 + grown), (e + 1) / 2 * grown
        total = 0.0
        for weights, rest in zip(self.weights, self.rest, strict=True):
            # The first A with (e - E) A - (e E - 1)(C - A) - (E - 1) r > 0; alpha is A's factor.
            # e E - 1 = e (E - 1) + e - 1 keeps the digits of a small epsilon.
            t = np.floor(((e * grown + e - 1) * self.counts + grown * rest) / alpha) + 1
            # A's law has no place beyond C: such cells gain nothing, and are set to 0 below.
            inside = np.minimum(t, self.counts)
            point = scipy.stats.binom.pmf(inside, self.counts, 0.5)
            tail = scipy.special.betainc(np.maximum(inside, 1), self.counts - inside + 1, 0.5)
            gain = alpha * inside / 2 * point - (grown * rest + self.counts * middle) * tail
            total += float(weights @ np.where(t > self.counts, 0.0, np.maximum(gain, 0.0)))
        found = total / self.users * (1 + self.side * NUMERICAL_ERROR) + self.side * _LOST
        return min(1.0, max(0.0, found))


def _counts(users: int, a: float, points: int | None) -> tuple[Floats, Floats]:
    """C and its probabilities, but for a mass of _LOST; only some of them for a first look."""
    p, room = min(2 * a, 1.0), -math.log(_LOST)
    reach = room / 3 + math.sqrt(room * room / 9 + 2 * users * p * (1 - p) * room)  # Bernstein
    low, high = max(0, math.floor(users * p - reach)), min(users, math.ceil(users * p + reach))
    step = 1 if points is None else 1 + (high - low) // points
    counts = np.arange(low, high + 1.0, step)
    return counts, scipy.stats.binom.pmf(counts, users, p) * step


@lru_cache(maxsize=8)
def _view(users: int, epsilon0: float, corners: Corners, points: int | None = None) -> _View:
    """Of the theorem; outward."""
    e, a = math.exp(epsilon0), corners.single(epsilon0)
    counts, weights = _counts(users, a, points)
    # Where there are both kinds, the smaller value is spread onto 0 and the larger: never less.
    unit = e if corners.both else 1.0
    # Of those who are no clones. With both kinds e gets the chance h + l/e: of one mean.
    rate = (corners.both * e + corners.neither) / unit / (1 - 2 * a) if a < 0.5 else 0.0
    shares, values = _spread(users - counts, min(rate, 1.0))
    return _View(e, users, 1, counts, shares * weights, unit * values)


@lru_cache(maxsize=8)
def _lower(users: int, epsilon0: float, symbols: int, points: int | None = None) -> _View:
    """Of k-ary randomised response, all others at a third symbol; inward."""
    e = math.exp(epsilon0)
    q = 1 / (e + symbols - 1)
    counts, weights = _counts(users, q, points)
    # Over the density of the others the third symbol has 1/e of a user's, the k - 3 rest all.
    mean = q * (symbols - 2) / (1 - 2 * q)
    return _View(e, users, -1, counts, weights[None], mean * (users - counts)[None])


def _spread(rest: Floats, rate: float) -> tuple[Floats, Floats]:
    """Bin(rest, rate) spread outward onto a few points of the same mean: (cells, counts) each.

    The positive part is convex, so its mean does not become less.
    """
    if rate in (0.0, 1.0):
        return np.ones((1, rest.size)), rate * rest[None]
    cells = int(np.clip(_POINTS // rest.size, *_CHORDS))
    mean, sd = rest * rate, np.sqrt(rest * rate * (1 - rate))
    inner = np.floor(mean + np.linspace(-7.0, 7.0, cells - 1)[:, None] * sd)
    edges = np.vstack([np.zeros_like(rest), np.clip(inner, 0.0, rest), rest])
    # P(X < edge) and E[X; X < edge]; the last cell has its end.
    below, moment = np.zeros_like(edges), np.zeros_like(edges)
    below[1:-1] = scipy.stats.binom.cdf(edges[1:-1] - 1, rest, rate)
    # E[X; X < k] of Bin(m, p) is m p P(Bin(m - 1, p) < k - 1).
    moment[1:-1] = mean * scipy.stats.binom.cdf(edges[1:-1] - 2, np.maximum(rest - 1, 0), rate)
    below[-1], moment[-1] = 1.0, mean
    mass, first, width = (np.diff(each, axis=0) for each in (below, moment, edges))
    # A cell's mass goes to its two ends so that its mean stays.
    up = np.clip((first - edges[:-1] * mass) / np.maximum(width, 1.0), 0.0, np.maximum(mass, 0.0))
    weights = np.zeros_like(edges)
    weights[:-1] += mass - up
    weights[1:] += up
    return weights, edges


def _root(view: Callable[[int | None], _View], epsilon0: float, delta_: float, side: int) -> float:
    """Where a falling curve meets `delta_`, to NUMERICAL_ERROR; `side` says to which one rounds.

    The whole sum is asked a few times only, near the root of a sparse one.
    """
    real("delta", delta_, 0.0, 1.0, closed=(False, False))
    whole, sparse = view(None), view(_SPARSE)
    top = epsilon0 * (1 - 1e-12)
    if sparse.delta(0.0) <= delta_ and whole.delta(0.0) <= delta_:
        return 0.0
    if sparse.delta(top) > delta_ and whole.delta(top) > delta_:
        return epsilon0

    def excess(logarithm: float) -> float:
        return math.log(max(sparse.delta(math.exp(logarithm)), 1e-300) / delta_)

    low, high = math.log(1e-15), math.log(top)
    found = (
        math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-12)) if excess(low) > 0 else 0.0
    )
    error = NUMERICAL_ERROR
    # The whole sum decides; where a sparse one was too rough, the step away from it grows.
    while (at := found * (1 + side * error) + side * 1e-15) and at < epsilon0:
        if side * (whole.delta(at) - delta_) <= 0:
            return max(0.0, at)
        error *= 4
    return epsilon0 if side > 0 else 0.0
