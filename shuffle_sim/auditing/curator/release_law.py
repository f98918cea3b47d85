"""What a curator's release is held against: how far statistics are apart, and the law of the noise.

The law is that of the event, which is what is charged; the mechanism's own words are not asked.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.curator.distances import check_event_of, distance
from shuffle_sim.auditing.laws.scores import LEVELS, judge, scores
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.privacy.bounds.pass_curve import pass_curve
from shuffle_sim.privacy.discrete import DiscreteLaplace, GridLaplace
from shuffle_sim.privacy.events import (
    GammaEvent,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    RangeEvent,
)
from shuffle_sim.privacy.grid_noise import BinomialShiftEvent, GridBinomial
from shuffle_sim.privacy.mechanisms import Exponential, Noise
from shuffle_sim.privacy.sparse_vector import SHARE, AboveThreshold
from shuffle_sim.privacy.tested_release import TestedGaussian, TestedReleaseEvent
from shuffle_sim.protocol.release import Release

_SLACK = 1e-6  # of floating point, relative
_PAIRS = 300  # coordinates of which every two are compared, at most
_ENDS = np.exp2(-np.arange(3.0, 15.0))  # tails of the noise
_DIGITS = 26  # binary digits behind the point of noise in units of its spread
_MANY = 2, 3, 5, 7  # integers in a row, among which each is looked at
DIGITS = len(_MANY)
"""Columns of `digits_of`."""
_LEAST = 1e-10  # of a law on integers in a row
_SURE = 1e3  # times the spread: of larger numbers those digits are lost
_LEVELS = 2000  # of the noise of a threshold


def check_distance(release: Release, first: Any, second: Any) -> bool:
    """The values of two neighbours are no farther apart than stated; False: cannot be checked.

    Raises:
        LawError: they are.
    """
    check_event_of(release, first, second)
    if (found := distance(release.sensitivity.norm, first, second)) is None:
        return False
    stated = release.sensitivity.value
    if not found <= stated * (1 + _SLACK):  # nor no number
        raise LawError(f"the statistics are {found:.6g} apart, stated is {stated:.6g}")
    return True


def check_release(release: Release, values: list[Any], drawn: list[Any], alarm: float) -> bool:
    """Releases of values have the law that the event states; False: cannot be checked.

    Raises:
        LawError: they have another; by chance with probability `alarm`.
    """
    rng = np.random.default_rng(len(drawn))
    pairs = list(zip(values, drawn, strict=True))
    found = [uniform_of(release, value, each, rng) for value, each in pairs]
    if any(each is None for each in found):
        return False
    check_uniform(np.array(found), alarm / 4)
    check_tails(np.array(found), alarm / 4)
    fine = [digits_of(release, value, each, rng) for value, each in pairs]
    check_digits(np.concatenate(fine), alarm / 2)
    return True


def uniform_of(
    release: Release, value: Any, released: Any, rng: np.random.Generator
) -> Floats | None:
    """A release as uniform, independent numbers, by the law of the event that is charged.

    An outcome of a discrete law is spread over its share of [0, 1]. None: no law is known here. A
    mechanism that adds no noise to the value may have these numbers as `uniform(value, sensitivity,
    released, rng)`, or what it adds elsewhere as `added(value, sensitivity, released)`: an event
    and its noise.
    """
    mechanism, event, size = release.mechanism, release.event, release.sensitivity.value
    if (inverse := getattr(mechanism, "uniform", None)) is not None:
        return cast("Floats | None", inverse(value, size, released, rng))
    if isinstance(event, RangeEvent) and isinstance(mechanism, Exponential):
        utilities = event.epsilon / size * np.asarray(value, float)
        law = np.exp(utilities - scipy.special.logsumexp(utilities))
        place = int(released)
        # Spread over its share of [0, 1] an outcome of any law is uniform.
        return np.array([law[:place].sum() + rng.random() * law[place]])
    if isinstance(event, TestedReleaseEvent) and isinstance(mechanism, TestedGaussian):
        return _tested(event, np.asarray(value, float), size, released, rng)
    if isinstance(mechanism, Noise) and (grid := _grid(release, value, released)) is not None:
        drawn, chance = grid
        before = chance(drawn - 1)
        return np.asarray(before + rng.random(drawn.size) * (chance(drawn) - before))
    law_of, noise = _added(release, value, released)
    if isinstance(law_of, GaussianEvent) and isinstance(mechanism, Noise):
        # What adds more than is charged must have it.
        noise = noise / max(1.0, mechanism.spread(1) / law_of.noise_multiplier)
    return uniform_noise(law_of, noise)


def uniform_noise(event: Any, noise: Floats) -> Floats | None:
    """Noise for sensitivity 1 by the law of an event, as uniform numbers; None: none is known."""
    return _UNIFORM[type(event)](event, noise) if type(event) in _UNIFORM else None


def _added(release: Release, value: Any, released: Any) -> tuple[Any, Floats]:
    """The noise in a release for sensitivity 1, and the event of its law; (None, ...): none."""
    mechanism, size = release.mechanism, release.sensitivity.value
    if (inverse := getattr(mechanism, "added", None)) is not None:
        event, noise = inverse(value, size, released)
        return event, np.asarray(noise)
    if not isinstance(mechanism, Noise):
        return None, np.empty(0)
    return release.event, np.ravel(np.asarray(released, float) - np.asarray(value, float)) / size


def odds(release: Release, value: Any, other: Any, released: Any) -> tuple[float, bool] | None:
    """How a release speaks for another value, and whether exactly; None: unknown.

    Exactly is the log-likelihood ratio of the law that is charged. Else it is nearly that, or a
    constant may be missing: attackers compare runs.
    """
    mechanism, size = release.mechanism, release.sensitivity.value
    if isinstance(mechanism, Exponential):
        mine, others = (mechanism.epsilon / size * np.asarray(x, float) for x in (value, other))
        mine, others = (each - scipy.special.logsumexp(each) for each in (mine, others))
        return float(others[int(released)] - mine[int(released)]), True
    if (speaks := getattr(mechanism, "odds", None)) is not None:
        return cast("tuple[float, bool]", speaks(value, other, size, released))
    (event, one), (_, two) = (_added(release, each, released) for each in (value, other))
    if event is None:
        return None
    noise = isinstance(mechanism, Noise)  # else it may not be all that is released
    if isinstance(event, GammaEvent):
        return float(event.rate * (np.linalg.norm(one) - np.linalg.norm(two))), noise
    if isinstance(event, LaplaceEvent | PureEvent):
        rate = getattr(event, "rate", 1.0)  # of a grid's noise the scale is unknown
        found = float(rate * (np.abs(one).sum() - np.abs(two).sum()))
        return found, noise and isinstance(event, LaplaceEvent)
    wide = getattr(event, "noise_multiplier", 0.0)
    if isinstance(mechanism, Noise):  # of one coordinate; some know all of theirs only
        wide = mechanism.spread(one.size) / math.sqrt(one.size)
    return float((one**2 - two**2).sum() / 2 / max(wide, 1e-300) ** 2), False


def _tested(
    event: Any, value: Floats, size: float, released: Any, rng: np.random.Generator
) -> Floats:
    """Whether the test passed, and the noise of what is released then."""
    curve = pass_curve(event.epsilon, event.delta)
    passes, spread = curve[min(int(value[0]), curve.size - 1)], rng.random()
    if released is None:
        return np.concatenate([[passes + spread * (1 - passes)], rng.random(value.size - 1)])
    noise = (np.asarray(released, float) - value[1:]) / size / event.noise_multiplier
    return np.concatenate([[spread * passes], scipy.special.ndtr(noise)])


def _grid(
    release: Release, value: Any, released: Any
) -> tuple[Floats, Callable[[Floats], Floats]] | None:
    """Integers that were drawn, and the chance of at most x; None: no grid."""
    mechanism, event, size = release.mechanism, release.event, release.sensitivity.value
    value, shown = (np.ravel(np.asarray(each, float)) for each in (value, released))
    if isinstance(mechanism, GridBinomial) and isinstance(event, BinomialShiftEvent):
        step = size / event.shift
        floor = np.floor(value / step)
        up, p = value / step - floor, event.p
        drawn = shown / step - floor + event.trials / 2  # ones, and one for rounding up

        def ones(x: Floats) -> Floats:
            inside = scipy.special.bdtr(np.clip(x, 0, event.trials), event.trials, p)
            return np.asarray(np.where(x < 0, 0.0, inside))

        def chance(x: Floats) -> Floats:
            return np.asarray((1 - up) * ones(x) + up * ones(x - 1))

    elif isinstance(mechanism, GridLaplace | DiscreteLaplace) and isinstance(event, PureEvent):
        step, rate, d = 1.0, event.epsilon / size, value.size
        if isinstance(mechanism, GridLaplace):
            step = math.ldexp(1.0, math.frexp(size / 1000)[1] - 1)
            # Rounding moves neighbours by one step more in each coordinate.
            rate = event.epsilon / (math.floor(math.sqrt(d) * size / step * (1 + 1e-15)) + d)
        drawn = shown / step - np.rint(value / step)

        def chance(x: Floats) -> Floats:
            tail = np.exp(-rate * np.where(x < 0, -x - 1, x)) / (math.exp(rate) + 1)
            return np.asarray(np.where(x < 0, tail, 1 - tail))

    else:
        return None
    whole = np.rint(drawn)
    if (np.abs(drawn - whole) > 1e-6).any():
        raise LawError("noise of integers is off their grid")
    return whole, chance


def on_grid(release: Release, value: Any, released: Any) -> bool:
    """Whether what is released has a law on a grid that is known."""
    return _grid(release, value, released) is not None


def digits_of(release: Release, value: Any, released: Any, rng: np.random.Generator) -> Floats:
    """Digits of noise far behind the point, (numbers, DIGITS), or rests of integers: uniform.

    They are not where noise takes few values, as in single precision. Empty: noise is not added.
    """
    mechanism, size = release.mechanism, release.sensitivity.value
    if not isinstance(mechanism, Noise):
        return np.empty((0, DIGITS))
    array, shown = np.ravel(np.asarray(value, float)), np.ravel(np.asarray(released, float))
    if (grid := _grid(release, value, released)) is not None:
        return _rests(*grid, rng)
    scale = size * mechanism.spread(array.size) / math.sqrt(array.size)
    if type(release.event) not in _UNIFORM or not scale:
        return np.empty((0, DIGITS))
    # 2^10 x 2^26 = 2^36 of 53 bits: what is left are digits, not rounding.
    sure = np.maximum(np.abs(shown), np.abs(array)) < _SURE * scale
    noise, seen = (shown - array)[sure], shown[sure]
    if type(release.event) is GammaEvent and sure.all() and noise.size > 1:  # its norm, too
        norm = np.linalg.norm(noise) * release.event.rate * scale / size
        noise, seen = np.append(noise, norm), np.append(seen, norm)
    power, whole = math.ldexp(1.0, _DIGITS - math.frexp(scale)[1]), noise / scale * 2.0**_DIGITS
    tens = noise * 10.0 ** math.floor(math.log10(power))
    return np.stack([whole, noise * power, seen * power, tens], axis=1) % 1.0


def _rests(drawn: Floats, chance: Callable[[Floats], Floats], rng: np.random.Generator) -> Floats:
    """Where integers lie among so many neighbours, by their law: uniform, given which these are."""
    found = np.empty((drawn.size, DIGITS))
    for place, many in enumerate(_MANY):
        first = np.floor(drawn / many) * many - 1
        below, here, above = chance(drawn - 1), chance(drawn), chance(first + many)
        whole, spread = above - chance(first), rng.random(drawn.size)
        inside = below - chance(first) + spread * (here - below)
        sure = whole > _LEAST  # else it is what is left of rounding
        found[:, place] = np.where(sure, inside / np.where(sure, whole, 1.0), spread)
    return np.clip(found, 0.0, 1.0)


def check_digits(digits: Floats, alarm: float) -> None:
    """Columns of uniform numbers, each alone: they may tell of each other.

    Raises:
        LawError: they are not: noise takes few values.
    """
    for column in digits.T if len(digits) else ():
        with naming("digits of the noise"):
            check_uniform(column[:, None], alarm / len(digits.T))


def chances_above(mechanism: AboveThreshold, values: list[float]) -> list[Floats]:
    """With which chance each value is above each of many equally likely thresholds."""
    share = (np.arange(_LEVELS) + 0.5) / _LEVELS
    unit = mechanism.sensitivity / mechanism.epsilon
    levels = mechanism.threshold + scipy.stats.laplace.ppf(share, scale=unit / SHARE)
    # Answers have 2/epsilon of what the threshold left (`privacy.sparse_vector`).
    scale = 2 * unit / (1 - SHARE)
    return [scipy.stats.laplace.sf(levels - float(each), scale=scale) for each in values]


def threshold_uniform(
    mechanism: AboveThreshold, values: list[float], answers: list[bool], rng: np.random.Generator
) -> Floats:
    """The answers of one session, each by its law after those before: uniform numbers."""
    weights, found = np.full(_LEVELS, 1 / _LEVELS), []
    for above, answer in zip(chances_above(mechanism, values), answers, strict=True):
        passes, spread = float(weights @ above), rng.random()
        found.append(passes * spread if answer else passes + (1 - passes) * spread)
        # Bayes: answers of a session share its threshold, and tell of it.
        weights = weights * (above if answer else 1 - above)
        weights /= weights.sum()
    return np.array(found)


def check_uniform(numbers: Floats, alarm: float) -> None:
    """Uniform and independent numbers (draws, columns): each column, their sum, and every two."""
    cells = np.clip(np.floor(LEVELS * numbers), 0, LEVELS - 1).astype(np.int64)
    both = scores(np.full(LEVELS, 1 / LEVELS))
    found = np.stack([score.of[cells] for score in both])
    means = np.array([score.mean for score in both])[:, None, None]
    variances = np.array([score.variance for score in both])[:, None]
    sums = (found - means).sum(axis=1)
    spread = np.broadcast_to(len(numbers) * variances, sums.shape)
    judge(sums, 0 * sums, spread, alarm / 3, "noise: score, coordinate")
    judge(sums.sum(1), 0 * sums[:, 0], spread.sum(1), alarm / 3, "noise of all: score")
    chosen = np.random.default_rng(found.shape[2]).permutation(found.shape[2])[:_PAIRS]
    few = (found - means)[..., chosen]
    upper = np.triu_indices(few.shape[2], 1)
    if len(upper[0]):
        # Scores are LEVELS/2 from their mean at most; `judge` expects no more than LEVELS.
        products = np.stack([(each.T @ each)[upper] for each in few]) / (LEVELS / 4)
        most = np.broadcast_to(len(numbers) * variances**2 / (LEVELS / 4) ** 2, products.shape)
        judge(products, 0 * products, most, alarm / 3, "noise: score, two coordinates")


def check_tails(numbers: Floats, alarm: float) -> None:
    """Uniform and independent numbers come to both ends as often: noise is not cut.

    Counts are held to Chernoff's bound of Poisson's law, which holds for independent events.
    """
    ends = np.array([[(x < depth).sum() for depth in _ENDS] for x in (numbers, 1 - numbers)])
    found = np.stack([*ends, ends.sum(axis=0)]).astype(float)
    # The ends are apart, so both together are independent events of twice the chance.
    means = numbers.size * _ENDS * np.array([[1.0], [1.0], [2.0]])
    exponent = scipy.special.xlogy(found, found / means) - found + means
    if (exponent > math.log(2 * exponent.size / alarm)).any():
        end, depth = np.unravel_index(int(np.argmax(exponent)), exponent.shape)
        raise LawError(
            f"noise comes {found[end, depth]:,.0f} times to a tail of {_ENDS[depth]:.2g}, "
            f"expected is {means[end, depth]:,.1f}"
        )


def _gaussian(event: Any, noise: Floats) -> Floats:
    return np.asarray(scipy.special.ndtr(noise / event.noise_multiplier))


def _laplace(event: Any, noise: Floats) -> Floats:
    return np.asarray(scipy.stats.laplace.cdf(noise * event.rate))


def _gamma(event: Any, noise: Floats) -> Floats:
    """Of the norm, and of the direction: each coordinate given those before, then an angle."""
    d = noise.size
    if d == 1:
        return _laplace(event, noise)
    rest = np.sqrt(np.cumsum(noise[::-1] ** 2)[::-1])  # norms of what is left
    half = (np.arange(d, 2, -1) - 1) / 2
    # (1 + u)/2 of a coordinate u of a uniform direction in k coordinates is Beta of (k - 1)/2.
    share = np.clip((1 + noise[: d - 2] / np.maximum(rest[: d - 2], 1e-300)) / 2, 0.0, 1.0)
    angle = np.mod(np.arctan2(noise[-1], noise[-2]) / (2 * np.pi), 1.0)
    # Density exp(-rate |z|) in R^d: the norm is Gamma(d), and apart from the direction.
    norm = scipy.special.gammainc(d, event.rate * rest[0])
    return np.concatenate([[norm], scipy.special.betainc(half, half, share), [angle]])


_UNIFORM: dict[type, Callable[[Any, Floats], Floats]] = {
    GaussianEvent: _gaussian,
    LaplaceEvent: _laplace,
    GammaEvent: _gamma,
}
"""By event, what makes its noise for sensitivity 1 uniform and independent."""
