"""Sums by a secret coordinate in each bucket: the release, its theorem (docs: theory, Buckets)."""

import math
from dataclasses import dataclass
from functools import partial

from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.bounds import buckets as bounds
from shuffle_sim.privacy.bounds.losses import Finite
from shuffle_sim.privacy.composition import least_epsilon
from shuffle_sim.privacy.events import HonestEvent
from shuffle_sim.privacy.theorems import Releases, Theorem

_COUNTED = 10_000_000  # users whose counts are enumerated


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
    def bound(self) -> bounds.Buckets:
        """As the bounds take it."""
        return bounds.Buckets(self.honest, self.buckets, self.bias, self.flatness)


class BucketSum(Theorem[BucketSumEvent]):
    """Rényi divergences of whole rounds add up; queries may be chosen adaptively."""

    event = BucketSumEvent
    source = "uniform messages hide a secret coordinate's sign, by Rényi (docs: theory, Buckets)"
    examples = (
        BucketSumEvent(10_000, 4096, 4, 0.2, 3.5 / 128),
        BucketSumEvent(10_000, 1024, 1024, 0.19, 1.5 / 1024),
        BucketSumEvent(200, 2, 2, 0.02),
    )

    def exact(self, event: BucketSumEvent, delta: float) -> float | None:
        """Of one coordinate that is a bucket of its own, where all others are at one end."""
        if event.size > 1 or event.honest > _COUNTED or delta == 0:
            return None
        pair = Finite(*bounds.ends(event.honest, event.bias))
        return least_epsilon(pair.delta, delta)

    def epsilon(self, events: Releases[BucketSumEvent], delta: float) -> float:
        # The event that is left out has a probability: nothing is pure.
        if delta == 0:
            return math.inf
        rounds = _rounds(events)
        # Each fixed one is valid, so the least epsilon of a few holds.
        shares = bounds.lost_near(delta, sum(count for _, count in rounds))
        return min(
            least_epsilon(partial(bounds.delta, rounds, lost=lost), delta) for lost in shares
        )

    def delta(self, events: Releases[BucketSumEvent], epsilon: float) -> float:
        return min(bounds.delta(_rounds(events), epsilon, lost) for lost in bounds.LOST)


def _rounds(events: Releases[BucketSumEvent]) -> bounds.Rounds:
    return tuple((event.bound, count) for event, count in events)
