"""Sums by digits under floods of carries: the release and its theorem (docs: theory, Floods)."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, positive, real
from shuffle_sim.privacy.bounds.floods import Digits, FloodNoise, ends, losses
from shuffle_sim.privacy.bounds.losses import LossLaw
from shuffle_sim.privacy.composition import least_epsilon, turn
from shuffle_sim.privacy.events import NonPrivateEvent, PrivacyEvent
from shuffle_sim.privacy.theorems import Releases, Theorem

FINE, ROUGH = 60.0, 12.0
"""Grid steps in a standard deviation of the floods' losses: to state epsilon, and to search."""
_TILTS = np.geomspace(1e-4, 1.0, 200)


@dataclass(frozen=True)
class LaplaceSumEvent(PrivacyEvent):
    """Numbers of users in digits, with their shares of floods and of one two-sided noise.

    Attributes:
        planned: m honest users, who have `noise` together.
        users: all who may report.
        digits: how a number is written.
        noise: of m users.
        coordinates: d, each with a noise of its own; all may change.
        cap: the most messages of a user; who draws more draws anew.
    """

    planned: int
    users: int
    digits: Digits
    noise: FloodNoise
    coordinates: int
    cap: int

    def __post_init__(self) -> None:
        integer("m", self.planned, 2, 2**40)
        integer("n", self.users, self.planned, 2**40)
        integer("d", self.coordinates, 1, 64)
        digits, noise = self.digits, self.noise
        integer("base", digits.base, 2, 2**10)
        integer("low", digits.low, 0, 16)
        integer("high", digits.high, 0, 16)
        integer("top", digits.top, 1, 2**16)
        integer("g", digits.steps, 1, 2**53 // self.users)
        positive("decay", noise.decay)
        real("smooth", noise.smooth, 0.0, 1e6, closed=(digits.low == 0, True))
        positive("flood", noise.flood)
        positive("pairs", noise.pairs)
        integer("batch", noise.batch, 1, 2**20)
        integer("pair_batch", noise.pair_batch, 1, 2**20)
        integer("cap", self.cap, self.data_messages, 2**31)

    def with_honest(self, honest: int) -> PrivacyEvent:
        """Fewer shares than were planned are no Laplace noise: then nothing is promised."""
        return self if honest >= self.planned else NonPrivateEvent()

    @property
    def data_messages(self) -> int:
        """The most messages that a user's datum makes."""
        return self.coordinates * most_data(self.digits)

    @cached_property
    def capped(self) -> float:
        """Total variation of each world: the chance that anybody draws more than the cap."""
        # From the decay on the geometric noise has no E e^(tilt N). Every tilt gives a bound.
        tilts = self.noise.decay * 0.999 * _TILTS
        # Whoever draws so much noise may be above the cap: its data are at their most.
        free = self.cap + 1 - self.data_messages
        logs = self.coordinates * growth(self.digits, self.noise, self.planned, tilts)
        return min(1.0, self.users * math.exp(float((logs - tilts * free).min())))


def most_data(digits: Digits) -> int:
    """Of one coordinate: messages of the largest digits."""
    if digits.packed:
        return digits.planes
    return (digits.planes - 1) * (digits.base - 1) + digits.top


def growth(digits: Digits, noise: FloodNoise, users: int, tilts: Floats) -> Floats:
    """ln E e^(tilt N) of a user's noise messages N in a coordinate; tilts below the decay."""

    def batched(mean: float, batch: int, messages: int) -> Floats:
        each = np.exp(messages * tilts)
        # (1/J) sum of e^(M t s) over s = 1 .. J; the compound law's ln is rate (sizes - 1).
        sizes = each * np.expm1(messages * tilts * batch) / np.expm1(messages * tilts) / batch
        return np.asarray(2 * mean / (batch + 1) * (sizes - 1))

    rho = math.exp(-noise.decay)
    with np.errstate(over="ignore"):
        total = digits.low * noise.smooth * np.expm1(tilts)
        # A and B, each negative binomial of shape 1 over all users.
        total += 2 * np.log((1 - rho) / (1 - rho * np.exp(tilts)))
        total += batched(noise.pairs * digits.units, noise.pair_batch * digits.units, 2)
        for reach in digits.reach:
            for messages in (digits.base + 1, 2):
                total += batched(noise.flood * reach, noise.batch * reach, messages)
        for _, v in digits.splits:
            total += batched(noise.flood, noise.batch, 2 + v)
            total += batched(noise.flood, noise.batch, 1 + v)
    # All laws are infinitely divisible: a share of 1/m has 1/m of the logarithm.
    return np.asarray(total / users)


def cap_for(
    digits: Digits, noise: FloodNoise, planned: int, users: int, d: int, failure: float
) -> int:
    """The least cap that nobody draws more than, but for `failure`, by Chernoff's bound."""
    tilts = noise.decay * 0.999 * _TILTS
    # users e^(log - tilt noise) <= failure, solved for the noise; a message more is granted.
    logs = d * growth(digits, noise, planned, tilts) + math.log(users / failure)
    with np.errstate(invalid="ignore"):
        most = float(np.nanmin(logs / tilts))
    return d * most_data(digits) + math.ceil(most)


class LaplaceSum(Theorem[LaplaceSumEvent]):
    """The losses of shifted floods add up: one convolution for all kinds, coordinates, rounds."""

    event = LaplaceSumEvent
    source = "shifted floods of carries, exact losses on a grid (docs: theory, Floods)"
    examples = (
        LaplaceSumEvent(
            2000, 2000, Digits(2, 0, 0, 2), FloodNoise(0.45, 0.0, 300.0, 300.0, 8, 8), 1, 400
        ),
        LaplaceSumEvent(
            900, 1000, Digits(2, 1, 0, 2), FloodNoise(0.4, 2.0, 300.0, 300.0, 8, 8), 1, 165
        ),
    )

    def exact(self, event: LaplaceSumEvent, delta: float) -> float | None:
        """Of the two ends of the range, on one plane, where the view is two counts."""
        digits, noise = event.digits, event.noise
        if digits.planes > 1 or digits.packed or delta == 0:
            return None
        step = spread_of(digits, noise) / FINE
        return least_epsilon(ends(digits, noise, step).times(event.coordinates).delta, delta)

    def epsilon(self, events: Releases[LaplaceSumEvent], delta: float) -> float:
        return math.inf if delta == 0 else _epsilon(events, delta)

    def delta(self, events: Releases[LaplaceSumEvent], epsilon: float) -> float:
        return _delta(events, min(epsilon, _turn(events)))


def _delta(events: Releases[LaplaceSumEvent], epsilon: float) -> float:
    lost = (1 + math.exp(min(epsilon, 700.0))) * _changed(events)
    return min(1.0, _law(events).delta(epsilon) + lost)


def _changed(events: Releases[LaplaceSumEvent]) -> float:
    return sum(count * event.capped for event, count in events)


@lru_cache(maxsize=256)
def _turn(events: Releases[LaplaceSumEvent]) -> float:
    return turn(lambda epsilon: _delta(events, epsilon), _changed(events))


@lru_cache(maxsize=256)
def _epsilon(events: Releases[LaplaceSumEvent], delta: float) -> float:
    return least_epsilon(lambda epsilon: LaplaceSum().delta(events, epsilon), delta)


@lru_cache(maxsize=64)
def _law(events: Releases[LaplaceSumEvent]) -> LossLaw:
    spread = math.sqrt(
        sum(n * e.coordinates * spread_of(e.digits, e.noise) ** 2 for e, n in events)
    )
    laws = (losses(e.digits, e.noise, spread / FINE).times(n * e.coordinates) for e, n in events)
    return reduce(LossLaw.then, laws)


def spread_of(digits: Digits, noise: FloodNoise) -> float:
    """About the standard deviation of the floods' losses: a move of t adds 2 t^2/variance."""
    moves = digits.planes - 1 + digits.split_moves
    # Two floods of variance s (2 J + 1)/3 move by 1; below, one moves, the pairs'.
    each = 3 / (noise.flood * (noise.batch + 0.5))
    pairs = 1.5 / (noise.pairs * (noise.pair_batch + 0.5))
    return math.sqrt(moves * each + pairs)
