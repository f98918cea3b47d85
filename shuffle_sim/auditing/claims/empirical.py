"""Lower bounds of epsilon from samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.plan import FALSE_ALARM
from shuffle_sim.privacy.bounds.gaussian import delta_gdp, epsilon_gdp
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.privacy.theorems import theorem_of

DOUBT = 1e-4
"""With what probability a bound is wrong, where nothing else is said."""
_TAILS = 40  # thresholds
_PER_NUMBER, _NONE = 4, 1e-9  # samples, and what is no noise beside a number's own
_NEAREST = 1e-6  # a distance below which no epsilon is computed
_ROUNDED = 1e-6  # of a claim that odds attain
_DECIMALS = 9
"""Of odds. Roundings of noise plus a value tell the value (Mironov 2012), and no guarantee covers
them: odds that are one number must not be parted by them.
"""
Odds = tuple[float, float]
"""How releases speak for the other table: those that are nearly Gaussian, and all others."""
Played = list[list[tuple[Floats, Odds | None]]]
"""By table and run: the numbers that were released, and their odds where they are known."""


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


def weighed(low: Floats, high: Floats, delta: float, doubt: float = DOUBT) -> float:
    """The same of samples of several numbers, (samples, numbers), in their best sum (Fisher 1936).

    Its weights are those of the first third. Numbers whose sum has no noise at all weigh most.
    """
    part = len(low) // 3
    moved = high[:part].mean(axis=0) - low[:part].mean(axis=0)
    first, second = (each[:part] - each[:part].mean(axis=0) for each in (low, high))
    centred = np.concatenate([first, second])
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    together = np.eye(len(scale))  # of too few samples no correlation is known
    if len(centred) > _PER_NUMBER * len(scale):
        together = (centred / scale).T @ (centred / scale) / len(centred)
    weights = np.linalg.solve(together + _NONE * np.eye(len(scale)), moved / scale) / scale
    return best_threshold(low[part:] @ weights, high[part:] @ weights, delta, doubt)


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

    def open_at(self, claimed: float, doubt: float) -> bool:
        """Whether what is shown is above a claim, and what is sure by `doubt` is not."""
        room = claimed * (1 + _ROUNDED)
        return self.epsilon(doubt) <= room < self.epsilon()

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


@dataclass(frozen=True)
class Bound:
    """Lower bounds of epsilon: what is shown may be wrong once in 10^4, what is sure by its share
    of 1e-6 only; the rest as of `CentralAudit`.
    """

    found: float
    sure: float
    repeats: int
    gaussian: bool
    exact: bool

    def open_at(self, claimed: float) -> bool:
        """Whether what is shown is above a claim, and what is sure is not."""
        return self.sure <= claimed * (1 + _ROUNDED) < self.found

    def keeps(self, claimed: float) -> bool:
        """Whether a claim is not refuted."""
        return self.sure <= claimed * (1 + _ROUNDED)


def bound_of(played: Played, charges: Sequence[Charge], delta: float, *, rough: bool) -> Bound:
    """What the draws of both tables say.

    Args:
        played: draws of both.
        charges: of a run.
        delta: at which the bounds hold.
        rough: whether some odds are neither nearly Gaussian nor exact.
    """
    gaussian = all(theorem_of(type(each.event)).near_gaussian for each in charges)
    half = len(played[0]) // 2
    exact = False
    if all(score is not None for side in played for _, score in side):
        ends = [np.array([score for _, score in side], float) for side in played]
        ends[1], half = -ends[1], 0  # of the second table: how it speaks for itself
        low, high = (each.sum(axis=1).round(_DECIMALS) for each in ends)
        exact = not gaussian and not rough
    else:
        draws = _padded([[numbers for numbers, _ in side] for side in played])
        apart = draws[1][:half].mean(axis=0) - draws[0][:half].mean(axis=0)
        spread = draws[0][:half].var(axis=0) + draws[1][:half].var(axis=0)
        weights = np.divide(apart, spread, out=np.sign(apart), where=spread > 0)
        low, high = (each @ weights for each in draws)
        gaussian &= len(charges) == 1
        if not gaussian:  # where it is, what weighs the numbers is drawn apart
            half = 0
    bound = gaussian_estimate if gaussian else best_threshold
    low, high = low[half:], high[half:]
    # Twice, as a bound that is not sure is drawn again.
    doubts = DOUBT / (1 + exact), FALSE_ALARM / 16
    found, sure = (bound(low, high, delta, each) for each in doubts)
    if exact:
        (near, law), (others, others_law) = (each.T for each in ends)
        # That noise has the law that is charged is held by checks of their own.
        by_odds = [
            exact_odds(law, others_law, delta, doubt, gaussian_distance(near, others, doubt))
            for doubt in (DOUBT / 4, FALSE_ALARM / 32)
        ]
        found, sure = max(found, by_odds[0]), max(sure, by_odds[1])
    return Bound(found, sure, len(played[0]), gaussian, exact)


def _padded(runs: list[list[Floats]]) -> list[Floats]:
    """Draws as arrays (repeats, numbers); where a run released fewer, zeros follow."""
    longest = max(len(each) for side in runs for each in side)
    found = []
    for side in runs:
        table = np.zeros((len(side), longest))
        for place, each in enumerate(side):
            table[place, : len(each)] = each
        found.append(table)
    return found
