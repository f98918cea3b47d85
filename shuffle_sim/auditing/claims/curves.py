"""What events cost, beside formulas of known pairs that no accountant has a part in."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.settled import check_settled, check_together
from shuffle_sim.auditing.laws.losses import hockey, repeated
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.amplification import ShuffledEvent
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
_GRID, _PARTS = 1000, 4001  # quantiles of a radius, and of a direction; of a way
_CELLS, _FAR = 1500, 8.0  # outcomes of a cell, at most, and deviations that these reach
_LONG, _RATE = 20_000, 700.0  # outcomes of a recursion; a rate at which e^-rate is a double
Pair = tuple[Floats, Floats, int]
"""Laws of a number that neighbours' releases have, and how often it is drawn."""
_ROOM = 1e-10  # of delta, by roundings of laws and transforms
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
        name, alone = type(event).__name__, ShuffleAccountant().compose(event)
        for level in _DELTAS:
            epsilon = alone.get_epsilon(level)
            if not 0 < epsilon < math.inf or (type(event) is GammaEvent and level < _LEAST):
                continue
            if (least := _alone(event, epsilon)) > level * (1 + _NEAR) + _ROUNDED:
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


@lru_cache(maxsize=64)
def least_delta(history: Iterable[tuple[PrivacyEvent, int]], epsilon: float) -> float:
    """What releases of known pairs cost at least, so often each; 0 where none is known.

    Gaussian releases alone, and those alone whose pairs are finite: others only add to them.
    """
    every = tuple(history)
    gaussians = [
        (event.noise_multiplier, n) for event, n in every if isinstance(event, GaussianEvent)
    ]
    found = 0.0
    if gaussians:
        mu = math.sqrt(math.fsum(count / sigma**2 for sigma, count in gaussians))
        found = gaussian(GaussianEvent(1 / mu), epsilon)
    finite = [(p, q, n * each) for event, n in every for p, q, each in pairs_of(event)]
    if sum(many for *_, many in finite) > 1:
        return max(found, repeated(finite, epsilon) - _ROOM)
    return max([found, *(hockey(p, q, epsilon) - _ROOM for p, q, _ in finite)])


def _alone(event: PrivacyEvent, epsilon: float) -> float:
    """What one release costs at least; 0 where nothing is known of it."""
    known = _KNOWN.get(type(event))
    return known(event, epsilon) if known else least_delta(((event, 1),), epsilon)


@lru_cache(maxsize=4)
def pairs_of(event: PrivacyEvent) -> list[Pair]:
    """Laws of neighbours that an event allows, of independent numbers; none: they are not known."""
    return _PAIRS.get(type(event), lambda _: [])(event)


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


def _pure(event: PureEvent) -> list[Pair]:
    """Of randomised response."""
    told = np.array([1.0, math.exp(-event.epsilon)]) / (1 + math.exp(-event.epsilon))
    return [(told, told[::-1], 1)]


def _range(event: RangeEvent, epsilon: float) -> float:
    """Of two outcomes whose losses are t and t - range, for the worst t."""
    wide = event.epsilon
    t = np.linspace(epsilon, wide, _GRID)[:-1] if epsilon < wide else np.empty(0)
    likely = -np.expm1(t - wide) / (np.exp(t) - np.exp(t - wide))
    return float((likely * (np.exp(t) - math.exp(epsilon))).max(initial=0.0))


def _laplace(event: LaplaceEvent) -> list[Pair]:
    """In one coordinate: which part of the way between two values a release is in."""
    cuts = np.linspace(0.0, 1.0, _PARTS)
    below = np.concatenate([[0.0], 1 - np.exp(-event.rate * cuts) / 2, [1.0]])
    law = np.diff(below)
    return [(law, law[::-1], 1)]


def _gamma(event: GammaEvent, epsilon: float) -> float:
    """By quadrature over quantiles of the radius and of the angle with the shift."""
    middle = (np.arange(_GRID) + 0.5) / _GRID
    radius = scipy.stats.gamma(event.coordinates, scale=1 / event.rate).ppf(middle)[:, None]
    way = np.array([-1.0, 1.0])
    if (half := (event.coordinates - 1) / 2) > 0:
        way = 2 * scipy.stats.beta(half, half).ppf(middle) - 1
    losses = event.rate * (np.sqrt(radius**2 - 2 * radius * way + 1) - radius)
    return float(np.maximum(0.0, -np.expm1(epsilon - losses)).mean())


def _blanket(event: BlanketEvent) -> list[Pair]:
    """All others hold a third symbol: of the first two there is the blanket, and one message."""
    uniform = event.gamma / event.symbols
    return _worlds(_trinomial(event.honest - 1, uniform), 1 - event.gamma + uniform, uniform)


def _fixed_blanket(event: FixedBlanketEvent) -> list[Pair]:
    """The same, where a user's own message is always sent."""
    return _worlds(_trinomial(event.honest * event.each, 1 / event.bins), 1.0, 0.0)


def _shuffled(event: ShuffledEvent) -> list[Pair]:
    """The same of any randomiser: others have what is least, and one of two messages is its own."""
    ratio = math.exp(event.epsilon0)
    least = (1 - ratio * event.both - event.neither) / (1 + ratio)
    return _worlds(_trinomial(event.honest - 1, least), ratio * least, least)


def _pollution(event: PollutionEvent) -> list[Pair]:
    """Two bins of each set under compound Poisson noise, where its law can be said."""
    found = list[Pair]()
    for rate, sets in Counter(event.rates).items():
        law = _compound(rate * event.part, event.batch)
        pairs = _worlds(np.outer(law, law), 1 - event.kept_back, 0.0)
        found += [(p, q, sets) for p, q, _ in pairs]
    return found


def _compound(rate: float, batch: int) -> Floats:
    """The law of a Poisson number of batches, of sizes 1 to `batch` alike (Panjer 1981).

    Without what is beyond eight deviations of its mean; empty where it takes too long.
    """
    mean = rate * (batch + 1) / 2
    far = _FAR * math.sqrt(mean * (2 * batch + 1) / 3) + 20 * batch
    low, high = max(0, math.floor(mean - far)), math.ceil(mean + far)
    if high - low > _CELLS or (batch > 1 and (high > _LONG or rate > _RATE)):
        return np.zeros(0)
    if batch == 1:
        return np.asarray(scipy.stats.poisson.pmf(np.arange(low, high), rate), np.float64)
    law, sizes = np.zeros(high), np.arange(1, batch + 1)
    law[0] = math.exp(-rate)
    for k in range(1, high):
        few = sizes[:k]
        law[k] = rate / batch / k * float(few @ law[k - few])
    return law[low:]


def _trinomial(balls: int, share: float) -> Floats:
    """How many of so many fall into each of two cells; without what is beyond 8 deviations."""
    mean = balls * share
    far = _FAR * math.sqrt(mean) + 30
    cells = np.arange(max(0, math.floor(mean - far)), min(balls, math.ceil(mean + far)) + 1)
    if cells.size > _CELLS:
        return np.zeros((0, 0))
    first, second = cells[:, None], cells[None, :]
    # The first cell's law, and the second's given that: those left fall there by share/(1 - share).
    left = scipy.stats.binom.pmf(second, np.maximum(balls - first, 0), share / (1 - share))
    return np.asarray(scipy.stats.binom.pmf(first, balls, share) * left)


def _worlds(others: Floats, likely: float, unlikely: float) -> list[Pair]:
    """Laws of two cells with one more message in the first or in the second, by these chances."""
    if not others.size:
        return []
    worlds = np.zeros((2, *(int(each) + 1 for each in others.shape)))
    for world, chances in zip(worlds, ((likely, unlikely), (unlikely, likely)), strict=True):
        world[1:, :-1] += chances[0] * others
        world[:-1, 1:] += chances[1] * others
        world[:-1, :-1] += (1 - likely - unlikely) * others
    return [(worlds[0].ravel(), worlds[1].ravel(), 1)]


_KNOWN: dict[type[PrivacyEvent], Callable[[Any, float], float]] = {
    RangeEvent: _range,
    GammaEvent: _gamma,
    ObjectiveEvent: _objective,
}
"""By formulas of delta, of one release."""
_PAIRS: dict[type[PrivacyEvent], Callable[[Any], list[Pair]]] = {
    PureEvent: _pure,
    LaplaceEvent: _laplace,
    BlanketEvent: _blanket,
    FixedBlanketEvent: _fixed_blanket,
    PollutionEvent: _pollution,
    ShuffledEvent: _shuffled,
}
"""By laws of finite outcomes, of any number of releases."""
