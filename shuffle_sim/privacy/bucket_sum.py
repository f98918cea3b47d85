"""Sums by a secret coordinate in each bucket: the release, its theorem (docs: theory, Buckets)."""

import math
from dataclasses import dataclass, replace
from functools import partial

from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds import buckets as bounds
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.bounds.losses import Finite, together
from shuffle_sim.privacy.carry_theorem import Carry
from shuffle_sim.privacy.composition import Parts, least_epsilon
from shuffle_sim.privacy.events import CarrySumEvent, HonestEvent
from shuffle_sim.privacy.theorems import Releases, Theorem

_COUNTED = 10_000_000  # users whose counts are enumerated
_MOST_BIAS = 0.5 * (1 - 1e-9)  # nearer to 1/2 no user hides another


@dataclass(frozen=True)
class BucketSumEvent(HonestEvent):
    """One message of each user in each bucket: a uniform coordinate of it, and a sign.

    Attributes:
        honest: users whose randomness is counted on, the one who changes among them.
        buckets: s; each is shuffled by itself.
        size: B coordinates of a bucket.
        bias: a; a sign is + with probability in [1/2 - a, 1/2 + a].
        span: a coordinate reaches a at this part of the norm bound.
    """

    buckets: int
    size: int
    bias: float
    span: float = 1.0

    def __post_init__(self) -> None:
        integer("honest", self.honest, 1, 2**53)
        integer("buckets", self.buckets, 1, 2**40)
        integer("size", self.size, 1, 2**40)
        real("a", self.bias, 0.0, 0.5, closed=(False, False))
        real("span", self.span, 0.0, 1.0)

    @property
    def flatness(self) -> float:
        """k: coordinates are clipped to k over the root of their number, in norm bounds."""
        return self.span * math.sqrt(self.buckets * self.size)

    @property
    def of_one(self) -> "BucketSumEvent":
        """What one coordinate tells that reaches the span, where it is a bucket of its own."""
        return replace(self, buckets=1, span=1.0) if self.size == 1 else self

    @property
    def reached(self) -> int:
        """Coordinates in which one row may reach the span, or nearly."""
        every = self.buckets * self.size
        return every if self.span**2 * every <= 1 else math.ceil(self.span**-2 - 1e-9)

    @property
    def bound(self) -> bounds.Buckets:
        """As the bounds take it."""
        return bounds.Buckets(self.honest, self.buckets, self.bias, self.flatness)

    @property
    def one_bit(self) -> CarrySumEvent | None:
        """The same release as one bit of each coordinate, where a bucket is one coordinate."""
        if self.size > 1 or self.bias > _MOST_BIAS:
            return None
        # Two norm bounds are 2 a/span. The cube |v| <= a alone bounds what k < 1 does not.
        span = max(self.flatness, 1.0) / math.sqrt(self.buckets)
        return CarrySumEvent(
            self.honest, 2 * self.bias / span, carry.ONE_BIT, coordinates=self.buckets, span=span
        )


class BucketSum(Theorem[BucketSumEvent]):
    """Rényi divergences of whole rounds add up; queries may be chosen adaptively.

    Where all buckets are of one coordinate, the theorem of one bit holds as well (docs: theory,
    Carries). The least is taken.
    """

    event = BucketSumEvent
    source = "uniform messages hide a secret coordinate's sign, by Rényi (docs: theory, Buckets)"
    bits = Carry()
    examples = (
        BucketSumEvent(10_000, 4096, 4, 0.2, 3.5 / 128),
        BucketSumEvent(10_000, 1024, 1024, 0.19, 1.5 / 1024),
        BucketSumEvent(200, 2, 2, 0.02),
        BucketSumEvent(1000, 2, 1, 0.4),
    )

    def exact(self, event: BucketSumEvent, delta: float) -> float | None:
        """Of one bit a coordinate, in all that a row reaches, where all others are at one end."""
        if event.size > 1 or event.honest > _COUNTED or delta == 0:
            return None
        bias = event.bias * min(1.0, event.reached**-0.5 / event.span)
        pair = Finite(*bounds.ends(event.honest, bias))
        law = pair if event.reached == 1 else together([(pair, event.reached)])
        return least_epsilon(law.delta, delta)

    def epsilon(self, events: Releases[BucketSumEvent], delta: float) -> float:
        # The event that is left out has a probability: nothing is pure.
        if delta == 0:
            return math.inf
        rounds = _rounds(events)
        # Each fixed one is valid, so the least epsilon of a few holds.
        shares = bounds.lost_near(delta, sum(count for _, count in rounds))
        found = [least_epsilon(partial(bounds.delta, rounds, lost=lost), delta) for lost in shares]
        as_bits = _as_bits(events)
        return min(*found, self.bits.epsilon(as_bits, delta) if as_bits else math.inf)

    def delta(self, events: Releases[BucketSumEvent], epsilon: float) -> float:
        found = min(bounds.delta(_rounds(events), epsilon, lost) for lost in bounds.LOST)
        as_bits = _as_bits(events)
        return min(found, self.bits.delta(as_bits, epsilon) if as_bits else 1.0)

    def parts(self, events: Releases[BucketSumEvent], share: float) -> list[Parts]:
        as_bits = _as_bits(events)
        own = self.bits.parts(as_bits, share) if as_bits else []
        return own + super().parts(events, share)


def _as_bits(events: Releases[BucketSumEvent]) -> Releases[CarrySumEvent]:
    """All of them as bits of coordinates; none, where one of them is not."""
    found = [(event.one_bit, count) for event, count in events]
    known = tuple((bit, count) for bit, count in found if bit is not None)
    return known if len(known) == len(found) else ()


def _rounds(events: Releases[BucketSumEvent]) -> bounds.Rounds:
    return tuple((event.bound, count) for event, count in events)
