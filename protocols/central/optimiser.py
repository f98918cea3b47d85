"""What every optimiser of a trusted curator states, so that it is compared with the others."""

from abc import ABC, abstractmethod
from typing import Any, Generic, Self

from protocols.problems.problem import Problem
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import State
from shuffle_sim.protocol.release import CentralAlgorithm


class CentralOptimiser(CentralAlgorithm[State], ABC, Generic[State]):
    """A central algorithm that minimises a problem; its entry point alone puts it on the axis.

    Attributes:
        problem: what is minimised.
        privacy: asked for.
        bound: proven bound of the expected gap; infinite where none is proven.
        rounds_per_user: in how many releases a user takes part at most.
    """

    problem: Problem
    privacy: Privacy
    bound: float
    rounds_per_user: int

    @classmethod
    @abstractmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """With the parameters of the smallest proven bound.

        Raises:
            ParameterError: what it cannot be had for.
        """

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self.privacy.delta
