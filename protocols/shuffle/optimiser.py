"""The loop that all optimisers share: ask a cohort for gradients, average, step."""

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from protocols.optimisation.base import DivergedError, Optimiser, OptimiserState
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import ADAPTABLE, Setting, batching
from protocols.problems.problem import Gradient, Problem, demand
from protocols.shuffle.noisy_mean import NoisyMean
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.bounds.paper import PrintedCost
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.registry import registered_kinds

StateT = TypeVar("StateT", bound=OptimiserState)


@dataclass(kw_only=True, eq=False)
class FirstOrder(Optimiser[StateT], Protocol[StateT]):
    """Asks for one private average gradient a round; subclasses say where, of whom and what for.

    Attributes:
        mean: the private average.
        smoothing: beta of the Moreau envelope, or None.
        claim: what the paper's theorem promises, where `paper` set the parameters.
    """

    adapts = ADAPTABLE
    one_shot: ClassVar[bool] = True
    """Whether every user is asked once at most, in disjoint batches."""
    tuned: ClassVar[bool] = False
    """Whether choose="practice" has tuned steps to put in place of its own."""

    problem: Problem
    n: int
    rounds: int
    mean: NoisyMean
    privacy: Privacy
    smoothing: float | None = None
    bound: float = math.inf
    choices: dict[str, str] = field(default_factory=dict)
    claim: Guarantee | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        demand(self.problem, self.privacy)
        self.n, self.rounds = integer("n", self.n), integer("rounds", self.rounds)
        if self.mean.batch > self.n:
            allowed = f"at most the number of users ({self.n})"
            raise ParameterError("batch", self.mean.batch, allowed)
        # Refused here, not in the round in which users run out.
        if self.one_shot:
            batching(self.n, self.mean.batch, self.rounds)
        if self.smoothing is not None:
            positive("smoothing", self.smoothing)
        self.honest_fraction = self.mean.honest_fraction
        self.choices = self.choices or dict.fromkeys(self.takes, "given")

    @classmethod
    def made(cls, setting: Setting, mean: NoisyMean, choices: Choices, **own: Any) -> Self:
        """In a setting, with the parameters of its own that a subclass has chosen."""
        problem, n, privacy = setting.problem, setting.n, setting.privacy
        each = f"{mean.sum.encoding}: {mean.sum.bits:,} bits per user, coordinate and round"
        why = choices.reasons | {"encoding": each}
        return cls(problem=problem, n=n, privacy=privacy, mean=mean, choices=why, **own)

    @classmethod
    def printed_cost(cls, *, n: int, d: int, privacy: Privacy) -> PrintedCost | None:
        """What the paper's constants would send; None: they are no further from what runs."""
        return None

    @classmethod
    @abstractmethod
    def best(cls, setting: Setting, choices: Choices) -> tuple[int, int, float]:
        """(batch, rounds, bound) with the smallest bound, before any bits are searched."""

    @classmethod
    def expected_bound(cls, setting: Setting, choices: Choices) -> float:
        return cls.best(setting, choices)[2]

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (Gradient, type(self.mean.randomizer), *self.problem.loss.vocabulary)

    @abstractmethod
    def point(self, state: StateT) -> Floats:
        """Where the next gradient is asked for."""

    @property
    def everybody(self) -> bool:
        """Whether all users answer in every round."""
        return self.mean.batch == self.n

    @property
    def rounds_per_user(self) -> int:
        return self.rounds if self.everybody else 1

    def cohort(self, state: StateT) -> Cohort:
        """Everybody, or the next batch of users not asked before."""
        if self.everybody:
            return Cohort.of(0, self.n)
        # By the round alone: disjoint batches, whatever the answers were.
        return Cohort.of(state.round * self.mean.batch, (state.round + 1) * self.mean.batch)

    @abstractmethod
    def step(self, state: StateT, gradient: Floats) -> StateT:
        """The state after a gradient of the objective at `point`."""

    def plan(self, state: StateT) -> RoundSpec | None:
        if state.round >= self.rounds:
            return None
        return self.mean.spec(
            self.cohort(state), Gradient(self.problem.loss, self.point(state), self.smoothing)
        )

    def update(self, state: StateT, estimate: Any) -> StateT:
        """One step of descent along the estimated average gradient.

        Raises:
            DivergedError: if the state is not finite any more.
        """
        # The ridge is public: nobody sends it, so it has no noise and no part in the clip.
        gradient = np.asarray(estimate, np.float64) + self.problem.ridge * self.point(state)
        if not np.isfinite(gradient).all():
            raise DivergedError(state.round)
        after = self.step(state, gradient)
        # Of both: a finite gradient may still take a state out of the doubles.
        values = [getattr(after, each.name) for each in dataclasses.fields(after)]
        if not all(np.isfinite(value).all() for value in values if isinstance(value, np.ndarray)):
            raise DivergedError(state.round)
        return after


def optimisers(unit: Unit = Unit.RECORD) -> dict[str, type[FirstOrder[Any]]]:
    """All registered optimisers whose users are records, or persons, by name."""
    kinds = registered_kinds("protocol", FirstOrder)
    return {name: kind for name, kind in kinds.items() if kind.unit is unit}


def optimiser(name: str, unit: Unit = Unit.RECORD) -> type[FirstOrder[Any]]:
    """The optimiser registered under a name.

    Raises:
        ParameterError: there is none for the unit.
    """
    kinds = optimisers(unit)
    if name not in list(kinds):  # a list: what is not a name need not be hashable
        raise ParameterError("protocol", name, f"an optimiser: one of {', '.join(kinds)}")
    return kinds[name]
