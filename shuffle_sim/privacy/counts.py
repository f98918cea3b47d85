"""What a histogram under noise that users share costs: three kinds of releases, with theorems.

All are exact for one release, and compose by the laws of their losses (docs: theory, Counts). They
hold for any data of the others, and are attained.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds import cells, clones
from shuffle_sim.privacy.bounds.losses import Finite, Pair, together
from shuffle_sim.privacy.composition import Parts, least_epsilon, turn
from shuffle_sim.privacy.events import HonestEvent
from shuffle_sim.privacy.theorems import ByParts, Releases


@dataclass(frozen=True, kw_only=True)
class CountEvent(HonestEvent):
    """Messages by bin: a user's own, and noise that no bin tells from it.

    Attributes:
        honest: users whose noise is counted on, the one who changes among them.
        redrawn: total variation of all users' noise from its law, as it is drawn again where a user
            would send more messages than it may.
    """

    honest: int
    redrawn: float = 0.0

    def __post_init__(self) -> None:
        integer("honest", self.honest, 1, 2**53)
        real("redrawn", self.redrawn, 0.0, 1.0, closed=(True, True))


@dataclass(frozen=True, kw_only=True)
class SharedNoiseEvent(CountEvent):
    """Noise in shares of `planned` users: each has 1/planned of what a bin gets.

    Attributes:
        planned: users whose shares make the noise that was planned.
    """

    planned: int

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("planned", self.planned, self.honest, 2**53)

    @property
    def part(self) -> float:
        """Of the noise planned that there is."""
        return self.honest / self.planned


@dataclass(frozen=True, kw_only=True)
class PollutionEvent(SharedNoiseEvent):
    """Counts under compound Poisson noise: a user moves one message in each of some sets of bins.

    Attributes:
        rates: of each set: batches that each of its bins gets; one set in a histogram, levels in a
            tree, planes in sums by group.
        batch: sizes are uniform on 1 .. batch.
        kept_back: probability with which a user's own message is not sent.
    """

    rates: tuple[float, ...]
    batch: int = 1
    kept_back: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rates:
            raise ParameterError("rates", self.rates, "at least one")
        for rate in self.rates:
            real("rate", rate * (self.batch + 1) / 2, 0.0, cells.MAX_UNITS)
        integer("batch", self.batch, 1, 2**20)
        real("kept_back", self.kept_back, 0.0, 1.0, closed=(True, False))


@dataclass(frozen=True, kw_only=True)
class TwoSidedEvent(SharedNoiseEvent):
    """Messages for and against each bin: discrete Laplace noise under a compound Poisson flood.

    Attributes:
        decay: rho of the noise, P(z) ~ rho^|z|.
        rate: of the flood: batches of pairs that each bin gets.
        batch: sizes are uniform on 1 .. batch.
    """

    decay: float
    rate: float
    batch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        real("decay", self.decay, 0.0, 1.0, closed=(False, False))
        integer("batch", self.batch, 1, 2**20)
        real("rate", self.rate * (self.batch + 1) / 2, 0.0, cells.MAX_UNITS, closed=(True, True))


@dataclass(frozen=True, kw_only=True)
class FixedBlanketEvent(CountEvent):
    """Counts under so many messages of each user, each of a uniform bin.

    Attributes:
        each: messages.
        bins: k.
    """

    each: int
    bins: int

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("each", self.each, 1, 2**20)
        integer("bins", self.bins, 2, 2**62)


CountT = TypeVar("CountT", bound=CountEvent)


class ByPair(ByParts[CountT]):
    """Releases with a worst pair each, which does not depend on other users' data."""

    @abstractmethod
    def pairs(self, event: CountT) -> tuple[tuple[Pair, int], ...]:
        """What one release lets be told apart: independent pairs, so often each."""

    def together(self, events: Releases[CountT]) -> Parts:
        return _parts(self, events)

    def epsilon(self, events: Releases[CountT], delta: float) -> float:
        return least_epsilon(lambda epsilon: self.delta(events, epsilon), delta)

    def delta(self, events: Releases[CountT], epsilon: float) -> float:
        ((event, count), *more) = events
        ((pair, times), *others) = self.pairs(event)
        # One pair has an exact sum; several go over the grid.
        if more or others or count * times > 1:
            return super().delta(events, epsilon)
        return self._alone(event, pair, min(epsilon, _turn(self, event)))

    def _alone(self, event: CountT, pair: Pair, epsilon: float) -> float:
        lost = (1 + math.exp(min(epsilon, 700.0))) * event.redrawn
        return min(1.0, self.exactly(event, pair, epsilon) + lost)

    def exactly(self, event: CountT, pair: Pair, epsilon: float) -> float:
        """delta of one release of one pair."""
        return pair.delta(epsilon)


@lru_cache(maxsize=256)
def _parts(theorem: ByPair[CountT], events: Releases[CountT]) -> Parts:
    """Kept, as the law of many releases takes long, and `Parts` keep where their delta is least."""
    # Both worlds are changed: noise drawn again has another law (docs: theory, Composition).
    changed = sum(count * event.redrawn for event, count in events)
    every = [(pair, n * count) for event, count in events for pair, n in theorem.pairs(event)]
    return Parts(changed=changed, losses=together(every))


@lru_cache(maxsize=256)
def _turn(theorem: ByPair[CountT], event: CountT) -> float:
    ((pair, _),) = theorem.pairs(event)
    return turn(lambda epsilon: theorem._alone(event, pair, epsilon), event.redrawn)


class Pollution(ByPair[PollutionEvent]):
    """Compound Poisson noise on counts."""

    event = PollutionEvent
    source = "exact pairs of noisy counts (docs: theory, Counts)"
    examples = (
        PollutionEvent(honest=100, planned=100, rates=(42.7,)),
        PollutionEvent(honest=90, planned=100, redrawn=1e-5, rates=(9.0, 30.0, 9.0), batch=2),
        PollutionEvent(honest=100, planned=100, rates=(4.6,), kept_back=0.05),
    )

    def pairs(self, event: PollutionEvent) -> tuple[tuple[Pair, int], ...]:
        return tuple(
            (
                cells.one_sided(rate * event.part, event.batch, event.kept_back),
                event.rates.count(rate),
            )
            for rate in sorted(set(event.rates))
        )


class TwoSidedTheorem(ByPair[TwoSidedEvent]):
    """Discrete Laplace noise on counts under a flood."""

    event = TwoSidedEvent
    source = "exact pairs of two-sided noisy counts (docs: theory, Counts)"
    examples = (
        TwoSidedEvent(honest=100, planned=100, decay=math.exp(-0.4), rate=18.5, batch=12),
        TwoSidedEvent(honest=90, planned=100, redrawn=1e-4, decay=0.6, rate=7.0),
    )

    def pairs(self, event: TwoSidedEvent) -> tuple[tuple[Pair, int], ...]:
        part = event.part
        # The part of the honest users: their flood's rate, and the shape of their A and B.
        return ((cells.two_sided(event.decay, event.rate * part, event.batch, part), 1),)


class FixedBlanketTheorem(ByPair[FixedBlanketEvent]):
    """A fixed number of uniform messages a user: clones of a user who never lies."""

    event = FixedBlanketEvent
    source = "uniform messages by exact sums (docs: theory, Counts)"
    examples = (
        FixedBlanketEvent(honest=1000, each=2, bins=10),
        FixedBlanketEvent(honest=50, redrawn=1e-7, each=1, bins=2),
    )

    def pairs(self, event: FixedBlanketEvent) -> tuple[tuple[Finite, int], ...]:
        return ((_blanket(event.honest * event.each, event.bins), 1),)

    def exactly(self, event: FixedBlanketEvent, pair: Pair, epsilon: float) -> float:
        return clones.blanket_delta(event.honest * event.each, event.bins, epsilon)


_blanket = lru_cache(maxsize=64)(clones.blanket_pair)
