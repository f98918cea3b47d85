"""Above-threshold that guards releases: they need a score which a passing query assures.

A passing query says that the score is high, but for a tail of its noise. Releases after it need
their sensitivity only where the score is at least some Qmin for both neighbours. With probability
`tail` at most, some query passes below Qmin + D in one run, D being the score's sensitivity. That
is given up once (docs: theory, Guarded releases).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from shuffle_sim.errors import real
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.sparse_vector import SHARE, AboveThreshold
from shuffle_sim.privacy.theorems import ByParts, Releases


@dataclass(frozen=True)
class GuardedThresholdEvent(PrivacyEvent):
    """Above-threshold beside releases whose sensitivity it assures, but for a tail.

    Attributes:
        epsilon: of all its answers together.
        tail: probability that an answer assures nothing.
    """

    epsilon: float
    tail: float

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, 0.0, math.inf, closed=(False, False))
        real("tail", self.tail, 0.0, 1.0, closed=(False, False))


class Guarded(ByParts[GuardedThresholdEvent]):
    """One pure step, and the tail given up."""

    event = GuardedThresholdEvent
    source = "above-threshold that guards releases (docs: theory, Guarded releases)"
    examples = (GuardedThresholdEvent(0.2, 1e-7), GuardedThresholdEvent(1.0, 1e-6))

    def together(self, events: Releases[GuardedThresholdEvent]) -> Parts:
        steps = tuple((event.epsilon, 0.0, count) for event, count in events)
        return Parts(steps, 0.0, math.fsum(event.tail * count for event, count in events))


@dataclass(frozen=True)
class GuardedThreshold(AboveThreshold):
    """`AboveThreshold` whose passing answers assure a score, but for a tail.

    Attributes:
        queries: at most so many are asked.
        tail: that a query passes although its value is below `assured`.
    """

    sessions: ClassVar[bool] = True
    queries: int = 1
    tail: float = 1e-7

    @property
    def event(self) -> PrivacyEvent:
        return GuardedThresholdEvent(self.epsilon, self.tail)

    @property
    def margin(self) -> float:
        """How far below the threshold a value may pass, but for the tail.

        Each noise exceeds its part with probability tail/(2 queries) or tail/2 at most.
        """
        # A Laplace number exceeds s ln(1/t) with probability t/2; the queries' by a union.
        unit = self.sensitivity / self.epsilon
        level = unit / SHARE * math.log(1 / self.tail)
        each = 2 * unit / (1 - SHARE) * math.log(self.queries / self.tail)
        return level + each

    @property
    def assured(self) -> float:
        """The least value that passes, but for the tail."""
        return self.threshold - self.margin
