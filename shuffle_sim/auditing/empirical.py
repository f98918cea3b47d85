"""Lower bounds of epsilon from samples."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.privacy.bounds.gaussian import delta_gdp, epsilon_gdp

DOUBT = 1e-4
"""With what probability a bound is wrong, where nothing else is said."""
_TAILS = 40  # thresholds
_NEAREST = 1e-6  # a distance below which no epsilon is computed


def clopper_pearson(
    likely: NDArray[Any],
    unlikely: NDArray[Any],
    threshold: float,
    delta: float,
    doubt: float = DOUBT,
) -> float:
    """ln((P - delta) / Q) for the event sample >= threshold, P from below, Q from above."""
    hits, misses = int((likely >= threshold).sum()), int((unlikely >= threshold).sum())
    alpha = doubt / 2
    lower = scipy.stats.beta.ppf(alpha, hits, likely.size - hits + 1) if hits else 0.0
    upper = (
        scipy.stats.beta.ppf(1 - alpha, misses + 1, unlikely.size - misses)
        if misses < unlikely.size
        else 1.0
    )
    return math.log((lower - delta) / upper) if lower > delta else -math.inf


def sampled(samples: Floats, shares: Floats) -> Floats:
    """Quantiles that are samples themselves: between two infinite ones there is nothing."""
    return np.asarray(np.sort(samples)[(shares * (len(samples) - 1)).astype(int)])


def best_threshold(
    low: NDArray[Any], high: NDArray[Any], delta: float, doubt: float = DOUBT
) -> float:
    """Clopper-Pearson of the best threshold, which is chosen on the first fifth of the samples."""
    half = len(low) // 5
    if np.median(low[:half]) > np.median(high[:half]):
        low, high = high, low
    thresholds = np.unique(sampled(np.concatenate([low, high]), np.linspace(0.002, 0.998, 250)))
    # Both sides: one end may show itself by small values only.
    tests = [(high, low, t) for t in thresholds] + [(-low, -high, -t) for t in thresholds]
    a, b, t = max(
        tests, key=lambda test: clopper_pearson(test[0][:half], test[1][:half], test[2], delta)
    )
    return max(0.0, clopper_pearson(a[half:], b[half:], t, delta, doubt))


def exact_odds(
    low: NDArray[Any],
    high: NDArray[Any],
    delta: float,
    doubt: float = DOUBT,
    mu: float = 0.0,
) -> float:
    """epsilon that exact odds show, by the delta that they leave at each.

    That delta is the mean of a function of the odds, on draws of the likely side alone. So only how
    often odds are reached is bounded (Clopper and Pearson), for some at once. Beside it a Gaussian
    pair may be seen, of independent noise. What is assumed, not tested here, is the law that the
    odds are of; an audit tests it by itself.

    Args:
        low: logarithms of the odds of the second table over the first, of draws on the first.
        high: the same, of draws on the second.
        delta: at which the bound holds.
        doubt: with what probability it may be wrong.
        mu: distance of the Gaussian pair, from below.
    """
    alpha, best = doubt / (2 * _TAILS), 0.0
    far = mu > _NEAREST
    beside = (epsilon_gdp(delta, mu) if delta else math.inf) if far else 0.0
    if math.isinf(beside):  # noise that is missing, or Gaussian noise for delta = 0
        return math.inf
    for odds in (high, -low):
        hits = np.unique(np.geomspace(1, len(odds), _TAILS).astype(int))
        # The number of draws above is fixed here, not the threshold: the bound is that of an order
        # statistic, which has the same law (Wilks 1941).
        shares = np.diff(scipy.stats.beta.ppf(alpha, hits, len(odds) - hits + 1), prepend=0.0)
        reached = np.sort(odds)[::-1][hits - 1]
        if delta == 0:
            best = max(best, float(reached[0]))
            continue

        def above(
            epsilon: float, shares: Floats = shares, reached: Floats = reached
        ) -> float:  # delta rises with the odds, so the sum is below its mean
            return float(shares @ _delta(epsilon - reached, mu)) - delta

        if above(best) > 0:
            sure = np.isposinf(reached)  # they leave their shares of delta at every epsilon
            if float(shares[sure].sum()) > delta:
                return math.inf
            top = float(reached[~sure].max(initial=best)) + beside + 1
            while above(top) > 0:
                top *= 2
            best = float(scipy.optimize.brentq(above, best, top))
    return best


def _delta(epsilon: Floats, mu: float) -> Floats:
    """Of a Gaussian pair, or of none, at each epsilon; these may be below 0."""
    if mu > _NEAREST:
        return np.asarray(delta_gdp(epsilon, np.full_like(epsilon, mu)))
    return np.asarray(-np.expm1(np.minimum(epsilon, 0.0)))


def gaussian_estimate(
    low: NDArray[Any], high: NDArray[Any], delta: float, doubt: float = DOUBT
) -> float:
    """epsilon of the Gaussian pair of `gaussian_distance`, at delta."""
    mu = gaussian_distance(low, high, doubt)
    return epsilon_gdp(delta, mu) if mu > _NEAREST else 0.0


def gaussian_distance(low: NDArray[Any], high: NDArray[Any], doubt: float = DOUBT) -> float:
    """mu of the Gaussian pair that pairs of samples show: means apart, over the spread.

    Samples of a pair may share their randomness: what is between their means is then known well.
    The spread is that of whole samples, or that of their parts added up, whichever is less: with
    parts few samples tell it well. All are bounds that hold together but for the doubt. What is
    assumed, not tested here, is that the noise is Gaussian, and drawn anew for each part; an audit
    tests the law and the independence of rounds by themselves.

    Args:
        low: samples of one end, (samples,), or by their parts, (samples, parts).
        high: of the other end.
        doubt: with what probability the distance may be less.
    """
    # One for the means, two ends by two estimates of the spread.
    alpha, size = doubt / 5, len(low)
    z = float(scipy.stats.norm.isf(alpha))
    ends = [each.reshape(size, -1) for each in (low, high)]
    between = (ends[1] - ends[0]).sum(axis=1)
    apart = abs(float(between.mean())) - z * float(between.std(ddof=1)) / math.sqrt(size)
    spread = min(
        max(_most_variance(each, alpha) for each in ends),
        max(_most_variance(each.sum(axis=1, keepdims=True), alpha) for each in ends),
    )
    if spread == 0:
        return math.inf if apart > 0 else 0.0
    return max(0.0, apart / math.sqrt(spread))


def _most_variance(samples: NDArray[Any], alpha: float) -> float:
    """An upper bound, with probability 1 - alpha, of the variance of a sum of independent parts.

    The sum of the estimates is taken for chi-square, with the degrees of freedom that its own
    variance says (Welch and Satterthwaite).
    """
    found, free = samples.var(axis=0, ddof=1), len(samples) - 1
    total = float(found.sum())
    if total == 0:
        return 0.0
    freedom = total**2 / float((found**2).sum() / free)
    return total * freedom / float(scipy.stats.chi2.ppf(alpha, freedom))


@dataclass(frozen=True)
class Seen:
    """What was seen of canaries at their first and at their second ends.

    Attributes:
        low: samples of the first ends, by parts of a run, (samples, parts).
        high: of the second ends.
        delta: at which epsilon is bounded.
        gaussian: whether samples come in pairs, of noise that is nearly Gaussian.
        single: whether a canary moves in one coordinate.
        exact: whether samples are logarithms of the odds of the second ends over the first.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    delta: float
    gaussian: bool
    single: bool = True
    exact: bool = False

    def epsilon(self, doubt: float = DOUBT) -> float:
        """A lower bound of epsilon, wrong with probability `doubt` at most."""
        if not self.exact:
            return self.counted(doubt)
        low, high = self._ends
        return max(self.counted(doubt / 2), exact_odds(low, high, self.delta, doubt / 2))

    def counted(self, doubt: float) -> float:
        """The same, by what was seen of both ends alone: odds may be those of another law."""
        if self.gaussian:
            return gaussian_estimate(self.low, self.high, self.delta, doubt)
        low, high = self._ends
        even = min(len(low), len(high))
        return best_threshold(low[:even], high[:even], self.delta, doubt)

    @property
    def _ends(self) -> tuple[Floats, Floats]:
        return self.low.sum(axis=1), self.high.sum(axis=1)
