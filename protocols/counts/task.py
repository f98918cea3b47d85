"""What comparisons show of a protocol of counts: registered, it stands in those of its task."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Self

from protocols.counts.randomizer import Counting
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.count_planner import OBJECTIVES
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust


class CountsTask(ABC):
    """Answers a question that several protocols, and a curator, can answer.

    Attributes:
        task: the question, by name.
        honest: users whose noise is counted on.
        delta: at which the guarantee is stated.
        trust: who must be trusted.
        usual_size: cells, groups or items where none are asked for: few, of all levels and rounds.
    """

    task: ClassVar[str]
    usual_size: ClassVar[int] = 4
    honest: int
    delta: Any
    trust: Trust

    @classmethod
    @abstractmethod
    def calibrated(cls, *args: Any, **kwargs: Any) -> Self:
        """By `size`; and by `objective`, `honest_fraction` and `rounds`, which have defaults."""

    @classmethod
    @abstractmethod
    def size(cls, n: int, domain: int, privacy: Privacy) -> dict[str, Any]:
        """What `calibrated` must be given; `domain` is how many cells there are, or items."""

    @classmethod
    def settings(cls, n: int, domain: int, privacy: Privacy) -> Mapping[str, Callable[..., Self]]:
        """What comparisons show, by name; each takes `rounds`, where several are planned."""
        return {
            says: partial(cls.calibrated, **cls.size(n, domain, privacy), objective=objective)
            for objective, says in OBJECTIVES.items()
        }

    @property
    @abstractmethod
    def parts(self) -> tuple[Counting, ...]:
        """Randomizers of all rounds, in each of which a user answers."""

    @property
    @abstractmethod
    def error(self) -> float:
        """What the task calls one (docs: Counts)."""

    @property
    def messages_per_user(self) -> float:
        """In all rounds together, on average."""
        return math.fsum(each.usual_messages for each in self.parts)

    @property
    def bits_per_user(self) -> float:
        """Of these messages."""
        return math.fsum(each.usual_bits for each in self.parts)

    def epsilon_of(self, rounds: int = 1) -> float:
        """Proven, of so many runs together."""
        spent = ShuffleAccountant()
        for each in self.parts:
            spent = spent.compose(each.event(self.honest, None), rounds)
        return spent.get_epsilon(self.delta)

    @property
    def epsilon(self) -> float:
        """Of one run."""
        return self.epsilon_of()

    def attacked(self, attackers: int) -> float:
        """The error where so many users send the worst they can."""
        return math.hypot(self.error, self.parts[0].manipulation(attackers))
