"""What every optimiser of a trusted curator states, so that it is compared with the others."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Self

from numpy.typing import NDArray

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
        rounds: releases at most; 0 where that is not known before.
        choices: what was chosen, and why.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be given to `calibrated` in place of being chosen."""
    own_objective: ClassVar[bool] = False
    """Whether another objective than the mean loss is minimised; the bound is then of that one."""

    problem: Problem
    privacy: Privacy
    bound: float
    rounds_per_user: int
    rounds: int = 0
    choices: Mapping[str, str] = {}

    @classmethod
    @abstractmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """With the parameters of the smallest proven bound.

        Raises:
            ParameterError: what it cannot be had for.
        """

    @classmethod
    def settings(
        cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any
    ) -> Iterator[tuple[str, Callable[[], Self]]]:
        """The settings that a comparison shows, by name; "" for the calibrated one alone."""
        yield "", partial(cls.calibrated, n=n, problem=problem, privacy=privacy, **given)

    @property
    def assumes(self) -> str:
        """What the bound assumes of the data beside the problem's constants; "" for nothing."""
        return ""

    @property
    def most_records(self) -> int:
        return self.problem.most_records

    def check_records(self, records: NDArray[Any]) -> None:
        self.problem.loss.check(records, self.problem.d)

    @property
    def delta(self) -> float:
        return self.privacy.delta
