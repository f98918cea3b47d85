"""What a curator's release is held against: how far statistics are apart, and the law of the noise.

The law is that of the event, which is what is charged; the mechanism's own words are not asked.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.scores import LEVELS, judge, scores
from shuffle_sim.privacy.events import GammaEvent, GaussianEvent, LaplaceEvent, RangeEvent
from shuffle_sim.privacy.mechanisms import Exponential, LocalGaussian, Noise
from shuffle_sim.protocol.release import Release

_SLACK = 1e-6  # of floating point, relative
_PAIRS = 40  # coordinates of which every two are compared


def check_distance(release: Release, first: Any, second: Any) -> bool:
    """The values of two neighbours are no farther apart than stated; False: cannot be checked.

    Raises:
        LawError: they are.
    """
    if (distance := _DISTANCES.get(release.sensitivity.norm)) is None:
        return False
    found = float(distance(np.ravel(np.asarray(second, float) - np.asarray(first, float))))
    stated = release.sensitivity.value
    if found > stated * (1 + _SLACK):
        raise LawError(f"the statistics are {found:.6g} apart, stated is {stated:.6g}")
    return True


_DISTANCES: dict[str, Callable[[Floats], Any]] = {
    "l2": np.linalg.norm,
    "l1": lambda apart: np.abs(apart).sum(),
    "range": lambda apart: apart.max(initial=0.0) - apart.min(initial=0.0),
}


def check_release(release: Release, value: Any, drawn: list[Any], alarm: float) -> bool:
    """Releases of one value have the law that the event states; False: cannot be checked.

    Raises:
        LawError: they have another; by chance with probability `alarm`.
    """
    event, size = release.event, release.sensitivity.value
    if isinstance(event, RangeEvent) and isinstance(release.mechanism, Exponential):
        utilities = event.epsilon / size * np.asarray(value, float)
        law = np.exp(utilities - scipy.special.logsumexp(utilities))
        check_pmf(np.array(drawn), law, false_alarm=alarm)
        return True
    if not isinstance(release.mechanism, Noise):
        return False
    uniform = uniform_noise(release, np.array(drawn, float) - np.asarray(value, float))
    if uniform is not None:
        check_uniform(uniform, alarm)
    return uniform is not None


def uniform_noise(release: Release, noise: Floats) -> Floats | None:
    """Noise (draws, ...) by the law of the event that is charged, uniform then, (draws, columns).

    None: that law is not known here.
    """
    event = release.event
    if type(event) not in _UNIFORM:
        return None
    each = noise.reshape(len(noise), -1) / release.sensitivity.value
    if isinstance(release.mechanism, LocalGaussian):
        each = each / np.sqrt(release.mechanism.users)
    found = _UNIFORM[type(event)](event, each)
    return found.reshape(len(noise), -1)


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
    few = (found - means)[..., :_PAIRS]
    upper = np.triu_indices(few.shape[2], 1)
    if len(upper[0]):
        # A product is at most LEVELS times as large as a score, which is what `judge` expects.
        products = np.stack([(each.T @ each)[upper] for each in few]) / LEVELS
        most = np.broadcast_to(len(numbers) * variances**2 / LEVELS**2, products.shape)
        judge(products, 0 * products, most, alarm / 3, "noise: score, two coordinates")


def _gaussian(event: Any, noise: Floats) -> Floats:
    return np.asarray(scipy.special.ndtr(noise / event.noise_multiplier))


def _laplace(event: Any, noise: Floats) -> Floats:
    return np.asarray(scipy.stats.laplace.cdf(noise * event.rate))


def _gamma(event: Any, noise: Floats) -> Floats:
    """Of the norm, and of one coordinate of the direction, which does not depend on it."""
    d = noise.shape[1]
    if d == 1:
        return np.asarray(scipy.stats.laplace.cdf(noise * event.rate))
    norms = np.linalg.norm(noise, axis=1)
    turned = noise[:, 0] / np.maximum(norms, 1e-300)
    # The law of a coordinate of a uniform direction: (1 + u)/2 is Beta((d-1)/2, (d-1)/2).
    half = (d - 1) / 2
    one = scipy.special.betainc(half, half, np.clip((1 + turned) / 2, 0.0, 1.0))
    return np.stack([scipy.special.gammainc(d, event.rate * norms), one], axis=1)


_UNIFORM: dict[type, Callable[[Any, Floats], Floats]] = {
    GaussianEvent: _gaussian,
    LaplaceEvent: _laplace,
    GammaEvent: _gamma,
}
"""By event, what makes its noise for sensitivity 1 uniform, column by column."""
