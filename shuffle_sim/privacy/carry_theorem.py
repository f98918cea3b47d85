"""The theorem of sums with spline rounding and fair carries."""

import math
from functools import lru_cache

from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.composition import least_epsilon
from shuffle_sim.privacy.events import CarrySumEvent
from shuffle_sim.privacy.theorems import Releases, Theorem


class Carry(Theorem[CarrySumEvent]):
    """Totals and carries dominated by Gaussians; rounds compose as Gaussians, fully adaptively.

    What is given up is a total variation tau of each world. It costs (1 + e^epsilon) tau in delta.
    """

    event = CarrySumEvent
    source = "spline rounding and fair carries, dominated by Gaussians (docs: theory, Carries)"
    examples = (
        CarrySumEvent(10_000, 11.397, 2, 0, 1, 10),
        CarrySumEvent(1438, 0.588129, 2, 0, 0, 65),
        CarrySumEvent(569, 3.112, 3),
        CarrySumEvent(100, 2.0, 5, 2),
        CarrySumEvent(200, 1.5, 2, 16, 0, 3),
        CarrySumEvent(1_000_000, 110.0, 2, 0, 5, 10),
    )

    def exact(self, event: CarrySumEvent, delta: float) -> float:
        """Of the total, where all others hold the lower end of the range."""
        shape = event.sensitivity, event.uniforms, event.bits
        return carry.exact_epsilon(event.honest - 1, *shape, delta)

    def epsilon(self, events: Releases[CarrySumEvent], delta: float) -> float:
        """The least epsilon whose delta is enough."""
        return _epsilon(events, delta) if delta > 0 else math.inf

    def delta(self, events: Releases[CarrySumEvent], epsilon: float) -> float:
        """The least over what may be given up."""
        return carry.delta(_rounds(events), epsilon)


@lru_cache(maxsize=4096)
def _epsilon(events: Releases[CarrySumEvent], delta: float) -> float:
    rounds = _rounds(events)
    return least_epsilon(lambda epsilon: carry.delta(rounds, epsilon), delta)


def _rounds(events: Releases[CarrySumEvent]) -> carry.Rounds:
    return tuple(
        (
            carry.Carries(
                event.honest - 1,
                event.sensitivity,
                event.uniforms,
                event.bits,
                event.levels,
                event.coordinates,
            ),
            count,
        )
        for event, count in events
    )
