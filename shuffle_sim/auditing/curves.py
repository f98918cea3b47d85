"""What events cost, beside formulas of known pairs that no accountant has a part in."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import (
    GammaEvent,
    GaussianEvent,
    LaplaceEvent,
    PrivacyEvent,
    PureEvent,
    RangeEvent,
)
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian

_DELTAS = 0.2, 0.05, 1e-2, 1e-4
_EVENTS = 6  # that are looked at
_NEAR, _ROUNDED = 1e-3, 1e-9  # of delta, by quadrature; by roundings
_LEAST = 5e-3  # of delta, of laws that are integrated
_GRID = 1000  # quantiles of a radius, and of a direction
_MORE = 1.2  # times the cost of one is that of two that cost the same


def check_curves(events: Iterable[PrivacyEvent], delta: float) -> None:
    """Each event costs what a pair that it allows is apart; two together cost more than one.

    Args:
        events: of releases; only some of many are looked at.
        delta: of the run.

    Raises:
        LawError: an event costs less.
    """
    for event in list(dict.fromkeys(events))[:_EVENTS]:
        known = _KNOWN.get(type(event))
        alone = ShuffleAccountant().compose(event)
        for level in _DELTAS if known else ():
            epsilon = alone.get_epsilon(level)
            if not 0 < epsilon < math.inf or (type(event) is GammaEvent and level < _LEAST):
                continue
            least = known(event, epsilon)  # type: ignore[misc]
            if least > level * (1 + _NEAR) + _ROUNDED:
                name = type(event).__name__
                raise LawError(f"{name} states delta {level:g} at {epsilon:.6g}: it is {least:.6g}")
        epsilon = alone.get_epsilon(delta) if delta else math.inf
        if 1e-3 < epsilon < 50:
            other = GaussianEvent(Gaussian.calibrated(Privacy(epsilon, delta)).noise_multiplier)
            both = ShuffleAccountant().compose(event).compose(other).get_epsilon(delta)
            if both < _MORE * epsilon:
                raise LawError(
                    f"{type(event).__name__} costs {epsilon:.6g}, and with Gaussian noise of the "
                    f"same cost {both:.6g}"
                )


def gaussian(event: GaussianEvent, epsilon: float) -> float:
    """The formula itself (Balle and Wang 2018)."""
    mu = 1 / event.noise_multiplier
    above, below = scipy.special.log_ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    return float(np.exp(above) - np.exp(epsilon + below))


def _pure(event: PureEvent, epsilon: float) -> float:
    """Of randomised response."""
    return max(0.0, (math.exp(event.epsilon) - math.exp(epsilon)) / (1 + math.exp(event.epsilon)))


def _range(event: RangeEvent, epsilon: float) -> float:
    """Of two outcomes whose losses are t and t - range, for the worst t."""
    wide = event.epsilon
    t = np.linspace(epsilon, wide, _GRID)[:-1] if epsilon < wide else np.empty(0)
    likely = -np.expm1(t - wide) / (np.exp(t) - np.exp(t - wide))
    return float((likely * (np.exp(t) - math.exp(epsilon))).max(initial=0.0))


def _laplace(event: LaplaceEvent, epsilon: float) -> float:
    """In one coordinate."""
    return max(0.0, -math.expm1((epsilon - event.rate) / 2))


def _gamma(event: GammaEvent, epsilon: float) -> float:
    """By quadrature over quantiles of the radius and of the angle with the shift."""
    middle = (np.arange(_GRID) + 0.5) / _GRID
    radius = scipy.stats.gamma(event.coordinates, scale=1 / event.rate).ppf(middle)[:, None]
    way = np.array([-1.0, 1.0])
    if (half := (event.coordinates - 1) / 2) > 0:
        way = 2 * scipy.stats.beta(half, half).ppf(middle) - 1
    losses = event.rate * (np.sqrt(radius**2 - 2 * radius * way + 1) - radius)
    return float(np.maximum(0.0, -np.expm1(epsilon - losses)).mean())


_KNOWN: dict[type[PrivacyEvent], Callable[[Any, float], float]] = {
    GaussianEvent: gaussian,
    PureEvent: _pure,
    RangeEvent: _range,
    LaplaceEvent: _laplace,
    GammaEvent: _gamma,
}
