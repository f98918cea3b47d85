"""What events cost, beside formulas of known pairs that no accountant has a part in."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.settled import check_settled, check_together
from shuffle_sim.auditing.laws.losses import Losses, hockey
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.counts import FixedBlanketEvent, PollutionEvent
from shuffle_sim.privacy.events import (
    BlanketEvent,
    GammaEvent,
    GaussianEvent,
    LaplaceEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    PureObjectiveEvent,
    RangeEvent,
)
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian

_DELTAS = 0.2, 0.05, 1e-2, 1e-4
_EVENTS = 6  # that are looked at
_NEAR, _ROUNDED = 1e-3, 1e-9  # of delta, by quadrature; by roundings
_LEAST = 5e-3  # of delta, of laws that are integrated
_GRID = 1000  # quantiles of a radius, and of a direction
_CELLS, _RATE = 1500, 700.0  # outcomes of a cell, at most; a rate at which e^-rate is a double
_MORE = 1.2  # times the cost of one is that of two that cost the same


def check_curves(events: Iterable[PrivacyEvent], delta: float) -> None:
    """Each event costs what a pair that it allows is apart; two together cost more than one.

    Args:
        events: of releases; only some of many are looked at.
        delta: of the run.

    Raises:
        LawError: an event costs less.
    """
    every = list(dict.fromkeys(events))
    kinds = dict.fromkeys(map(type, every))
    for kind in kinds:
        check_settled(kind)
    if len(kinds) > 1:
        check_together({kind.__name__ for kind in kinds})
    for event in every[:_EVENTS]:
        known, name = _KNOWN.get(type(event), _unknown), type(event).__name__
        alone = ShuffleAccountant().compose(event)
        for level in _DELTAS:
            epsilon = alone.get_epsilon(level)
            if not 0 < epsilon < math.inf or (type(event) is GammaEvent and level < _LEAST):
                continue
            if (least := known(event, epsilon)) > level * (1 + _NEAR) + _ROUNDED:
                raise LawError(f"{name} states delta {level:g} at {epsilon:.6g}: it is {least:.6g}")
        most, stated = _pure_of(event), alone.get_epsilon(0.0)
        if stated < most * (1 - _ROUNDED):
            raise LawError(f"{name} states {stated:.6g} at delta 0: it is {most:.6g}")
        epsilon = alone.get_epsilon(delta) if delta else math.inf
        # What was found at one delta must not be told at another one.
        stricter = alone.get_epsilon(delta / 100) if delta else math.inf
        if stricter < math.inf and alone.get_delta(stricter) > delta / 50:
            raise LawError(
                f"{name} states {stricter:.6g} at delta {delta / 100:g}: its own is more"
            )
        if 1e-3 < epsilon < 50:
            other = GaussianEvent(Gaussian.calibrated(Privacy(epsilon, delta)).noise_multiplier)
            both = ShuffleAccountant().compose(event).compose(other).get_epsilon(delta)
            if both < _MORE * epsilon:
                raise LawError(
                    f"{name} costs {epsilon:.6g}, and with Gaussian noise of the "
                    f"same cost {both:.6g}"
                )


def _unknown(event: PrivacyEvent, epsilon: float) -> float:
    """No pair of it is known here, so nothing is demanded."""
    return 0.0


def _pure_of(event: PrivacyEvent) -> float:
    """The largest loss of a known pair."""
    match event:
        case LaplaceEvent() | GammaEvent():
            return event.rate
        case PureEvent():
            return event.epsilon
        case PureObjectiveEvent():
            # A row of slope s L bends by 4 s (1 - s) of the most; else by all. The Jacobian of one
            # that comes in place of a flat one, on the side that its slope makes likelier.
            s = np.linspace(0.5, 1.0, _GRID)
            bend, steep = (4 * s * (1 - s), (1 + s) / 2) if event.coupled else (1.0, 1.0)
            losses = np.log1p(bend * event.curvature) + steep * event.tilt
            return float(np.max(losses)) + event.rate
    return 0.0


def _objective(event: ObjectiveEvent, epsilon: float) -> float:
    """Of linear losses, which do not bend."""
    return gaussian(GaussianEvent(event.noise_multiplier), epsilon)


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


def _blanket(event: BlanketEvent, epsilon: float) -> float:
    """All others hold a third symbol: of the first two there is the blanket, and one message."""
    uniform = event.gamma / event.symbols
    kept = 1 - event.gamma + uniform
    return _apart(_worlds(_trinomial(event.honest - 1, uniform), kept, uniform), epsilon)


def _fixed_blanket(event: FixedBlanketEvent, epsilon: float) -> float:
    """The same, where a user's own message is always sent."""
    others = _trinomial(event.honest * event.each, 1 / event.bins)
    return _apart(_worlds(others, 1.0, 0.0), epsilon)


def _pollution(event: PollutionEvent, epsilon: float) -> float:
    """Two bins of each set under compound Poisson noise."""
    worlds = list[Floats]()
    for rate in event.rates:
        law = _compound(rate * event.part, event.batch)
        if law.size > _CELLS:
            return 0.0
        worlds.append(_worlds(np.outer(law, law), 1 - event.kept_back, 0.0))
    if len(worlds) == 1:
        return _apart(worlds[0], epsilon)
    every = ((first.ravel(), second.ravel()) for first, second in worlds)
    return Losses.of(every, step=1e-5).delta(epsilon)


def _compound(rate: float, batch: int) -> Floats:
    """The law of a Poisson number of batches, of sizes 1 to `batch` alike (Panjer 1981)."""
    size = rate * (batch + 1) / 2
    law = np.zeros(math.ceil(size + 12 * math.sqrt(size * batch) + 20 * batch))
    if law.size > _CELLS or rate > _RATE:
        return np.zeros(_CELLS + 1)  # none is known
    law[0], sizes = math.exp(-rate), np.arange(1, batch + 1)
    for k in range(1, law.size):
        few = sizes[:k]
        law[k] = rate / batch / k * float(few @ law[k - few])
    return law


def _trinomial(balls: int, share: float) -> Floats:
    """How many of so many fall into each of two cells; without what is beyond 12 deviations."""
    far: int = math.ceil(balls * share + 12 * math.sqrt(balls * share) + 30)
    if far > _CELLS:
        return np.zeros((1, 1))
    cells = np.arange(far)
    first, second = cells[:, None], cells[None, :]
    # The first cell's law, and the second's given that: those left fall there by share/(1 - share).
    left = scipy.stats.binom.pmf(second, np.maximum(balls - first, 0), share / (1 - share))
    return np.asarray(scipy.stats.binom.pmf(first, balls, share) * left)


def _worlds(others: Floats, likely: float, unlikely: float) -> Floats:
    """Laws of two cells with one more message in the first or in the second, by these chances."""
    worlds = np.zeros((2, *(int(each) + 1 for each in others.shape)))
    for world, chances in zip(worlds, ((likely, unlikely), (unlikely, likely)), strict=True):
        world[1:, :-1] += chances[0] * others
        world[:-1, 1:] += chances[1] * others
        world[:-1, :-1] += (1 - likely - unlikely) * others
    return worlds


def _apart(worlds: Floats, epsilon: float) -> float:
    return hockey(worlds[0], worlds[1], epsilon)


_KNOWN: dict[type[PrivacyEvent], Callable[[Any, float], float]] = {
    GaussianEvent: gaussian,
    PureEvent: _pure,
    RangeEvent: _range,
    LaplaceEvent: _laplace,
    GammaEvent: _gamma,
    ObjectiveEvent: _objective,
    BlanketEvent: _blanket,
    FixedBlanketEvent: _fixed_blanket,
    PollutionEvent: _pollution,
}
