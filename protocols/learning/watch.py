"""A training under way: loss and epsilon after its rounds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol as Interface
from typing import runtime_checkable

from protocols.learning.splits import Split
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ShuffleSimError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.protocol.base import Query

MOMENTS = 100
"""Most rounds of a run that are looked at: each epsilon takes some milliseconds to compute."""


@dataclass(frozen=True)
class Moment:
    """What is known after a round.

    Attributes:
        round: rounds over.
        loss: training loss where the analyzer asked for gradients: the simulator's own view.
        epsilon: spent so far, at the run's delta.
        wire_bytes: sent by users so far.
    """

    round: int
    loss: float = field(metadata=SIMULATOR_VIEW)
    epsilon: float
    wire_bytes: int


@runtime_checkable
class AtPoint(Interface):
    """A query at a point."""

    theta: Floats


class Watch:
    """Looks at a run after each round, as `on_round` of `run`; keeps and shows some moments."""

    def __init__(
        self, split: Split, rounds: int, delta: float, show: Callable[[Moment], None]
    ) -> None:
        """Of a run of so many rounds."""
        self.moments: list[Moment] = []
        self._split, self._rounds, self._delta, self._show = split, rounds, delta, show

    def __call__(self, index: int, ledger: PrivacyLedger, costs: Costs, query: Query) -> None:
        """Keep and show the moment, if it is one of those to be looked at.

        Raises:
            ShuffleSimError: the loss is not finite.
        """
        done = index + 1
        if (
            # Only where a hundredth of the rounds is completed, and after the last.
            done < self._rounds
            and done * MOMENTS // self._rounds == index * MOMENTS // self._rounds
        ):
            return
        if not isinstance(query, AtPoint) or self._split.source.by is not None:
            return  # a histogram, or the like; or rows whose bounds the run chooses
        loss = self._split.trainer.risk(query.theta, self._split.train)
        if not math.isfinite(loss):
            raise ShuffleSimError(
                f"round {index}: the training loss is {loss}; take smaller steps or a smaller ball"
            )
        self.moments.append(
            Moment(done, loss, ledger.guarantee(self._delta).epsilon, costs.wire_bytes)
        )
        self._show(self.moments[-1])
