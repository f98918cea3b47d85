"""The theorem of sums with spline rounding and fair carries."""

import math
from functools import lru_cache

from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.composition import Parts, least_epsilon
from shuffle_sim.privacy.events import CarrySumEvent
from shuffle_sim.privacy.theorems import Releases, Theorem

_CHANGED = (0.25, 1e-5)
"""Of a share of delta: total variation that a Gaussian pair may miss."""


class Carry(Theorem[CarrySumEvent]):
    """Totals and carries dominated by Gaussians; rounds compose as Gaussians, fully adaptively.

    What is given up is a total variation tau of each world. It costs (1 + e^epsilon) tau in delta.
    """

    event = CarrySumEvent
    near_gaussian = True
    source = "spline rounding and fair carries, dominated by Gaussians (docs: theory, Carries)"
    examples = (
        CarrySumEvent(10_000, 11.397, 2, 0, 1, 10),
        CarrySumEvent(1438, 0.588129, 2, 0, 0, 65),
        CarrySumEvent(569, 3.112, 3),
        CarrySumEvent(100, 2.0, 5, 2),
        CarrySumEvent(200, 1.5, 2, 16, 0, 3),
        CarrySumEvent(1_000_000, 110.0, 2, 0, 5, 10),
        CarrySumEvent(10_000, 11.0, 2, 0, 0, 128, 0.31),
        CarrySumEvent(10_000, 11.0, 1, 0, 0, 16_384, 0.026),
    )

    def exact(self, event: CarrySumEvent, delta: float) -> float | None:
        """Of one total, the worst of a few positions of all others: below the worst of all data.

        None with a span: data that are clipped in no total may be told apart by several. And none
        below delta = 1e-12, where the sums of doubles say nothing.
        """
        if event.span < 1 or delta < 1e-12:
            return None
        shape = event.sensitivity * event.span, event.uniforms, event.bits
        return carry.exact_epsilon(event.honest - 1, *shape, delta)

    def epsilon(self, events: Releases[CarrySumEvent], delta: float) -> float:
        return _epsilon(events, delta) if delta > 0 else math.inf

    def delta(self, events: Releases[CarrySumEvent], epsilon: float) -> float:
        return carry.delta(_rounds(events), epsilon)

    def parts(self, events: Releases[CarrySumEvent], share: float) -> list[Parts]:
        """Also the Gaussian pair, from which each world is a total variation away.

        That costs the share of delta at an epsilon of about 1, or of 11.
        """
        rounds = _rounds(events)
        units = sum(each.revealed * count for each, count in rounds)
        # nu such that the total variation of all is this part of the share.
        pairs = [carry.composed(rounds, part * share / units) for part in _CHANGED if share > 0]
        gaussians = [Parts((), mu, changed=changed) for mu, changed in pairs]
        return [each for each in gaussians if each.finite] + super().parts(events, share)


@lru_cache(maxsize=4096)
def _epsilon(events: Releases[CarrySumEvent], delta: float) -> float:
    rounds = _rounds(events)
    return least_epsilon(lambda epsilon: carry.delta(rounds, epsilon), delta)


def _rounds(events: Releases[CarrySumEvent]) -> carry.Rounds:
    return tuple((event.bound, count) for event, count in events)
