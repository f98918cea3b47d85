"""An event of your own, with its theorem."""

from dataclasses import dataclass

from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.theorems import Theorem


@dataclass(frozen=True)
class StaircaseEvent(PrivacyEvent):
    """A release by the staircase mechanism."""

    epsilon: float


class Staircase(Theorem[StaircaseEvent]):
    """It is pure; how it composes with other releases follows from that."""

    event = StaircaseEvent
    source = "staircase mechanism (Geng and Viswanath 2014)"
    examples = (StaircaseEvent(0.5), StaircaseEvent(3.0))

    def pure(self, event):
        return event.epsilon
