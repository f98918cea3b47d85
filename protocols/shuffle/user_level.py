"""Person-level optimisation in the shuffle model: carried-centre clipping.

A person sends the mean gradient over its records, less a public center, clipped to a public radius
(`Centring`). The theory, with proofs, is in docs/theory/user-level.md. Prior art in the central
model: Levy et al. 2021; Ghazi et al. 2023; Asi and Liu 2024; Lowy, Liu and Asi 2024.
"""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from protocols.optimisation.base import DivergedError, OptimiserState
from protocols.optimisation.centring import (
    NEAR,
    Centring,
    candidates,
    squared_unit,
)
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import MAX_ROUNDS, Setting, batching
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import demand_bounded
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.protocol.base import RoundSpec

_SLACK = 1.05  # of the bound, for fewer rounds
GRID = 40

InnerT = TypeVar("InnerT", bound=OptimiserState)


@dataclass(frozen=True)
class CarriedState(OptimiserState, Generic[InnerT]):
    """The optimiser's own state, and what the next round clips with.

    Attributes:
        inner: of the optimiser.
        center: c.
        radius: rho.
    """

    inner: InnerT
    center: Floats
    radius: float


@dataclass(frozen=True)
class UserLevelPlan:
    """What is chosen before any bits are searched.

    Attributes:
        bound: of the excess loss.
        batch: persons of a round.
        rounds: of interaction.
        steps: T.
        centring: with its drift.
        bias: of a released mean by clipping, at most.
        facts: what the optimiser's own parameters follow from.
    """

    bound: float
    batch: int
    rounds: int
    steps: int
    centring: Centring
    bias: float
    facts: tuple[float, ...] = ()


@dataclass(kw_only=True, eq=False)
class UserLevel(FirstOrder[CarriedState[InnerT]], Generic[InnerT]):
    """What the person-level optimisers share: centres, radii, and the round's query.

    Formal guarantee, for persons with all their records: whatever the data, the center and the
    radius are functions of earlier releases, and a person's clipped value lies in the ball of that
    radius. So each round costs the event of its private mean, whatever the radius. Rounds compose
    adaptively where persons answer again, in parallel where batches are disjoint.

    Attributes:
        centring: how center and radius follow.
    """

    unit = Unit.PERSON
    one_shot = False
    takes: ClassVar[tuple[str, ...]]

    centring: Centring

    def __post_init__(self) -> None:
        super().__post_init__()
        self.records_read = self.problem.records
        if not self.everybody:
            batching(self.n, self.mean.batch, self.rounds)
        d, bound = self.problem.d, self.centring.limit
        if (self.mean.d, self.mean.norm_bound) != (d, bound):
            allowed = f"of {d} coordinates with norm bound {bound:g}"
            raise ParameterError("mean", (self.mean.d, self.mean.norm_bound), allowed)
        # The theorem needs an event that is the same for every radius.
        if self.mean.within(bound / 2).event != self.mean.event:
            raise ParameterError("mean", self.mean, "without a rotation: radii change")
        if self.rounds < self.centring.rounds(1):
            allowed = f"at least {self.centring.rounds(1)}: one step after the coarse rounds"
            raise ParameterError("rounds", self.rounds, allowed)

    @property
    def steps(self) -> int:
        """T."""
        return (self.rounds - self.centring.coarse) // (self.centring.recentring + 1)

    @property
    def assumes(self) -> str:
        if not self.centring.carried:
            return self.stated
        again = "clipped descent is as stable as plain descent" * (self.rounds_per_user > 1)
        return ", and ".join(each for each in (self.stated, NEAR, again) if each)

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (MeanGradient, type(self.mean.randomizer), *self.problem.loss.vocabulary)

    @abstractmethod
    def begin(self, theta: Floats) -> InnerT:
        """The optimiser's own state there."""

    @abstractmethod
    def where(self, inner: InnerT) -> Floats:
        """Where it asks for a gradient."""

    @abstractmethod
    def advance(self, inner: InnerT, gradient: Floats) -> InnerT:
        """Its state after a gradient of the objective."""

    @abstractmethod
    def output(self, inner: InnerT) -> Floats:
        """Its result."""

    def init_at(self, theta: Floats) -> CarriedState[InnerT]:
        """Nothing is known: the center is 0, and nobody is cut."""
        zero, limit = np.zeros(self.problem.d), self.centring.limit
        return CarriedState(0, self.begin(theta), zero, limit)

    def point(self, state: CarriedState[InnerT]) -> Floats:
        return self.where(state.inner)

    def step(self, state: CarriedState[InnerT], gradient: Floats) -> CarriedState[InnerT]:
        return dataclasses.replace(state, inner=self.advance(state.inner, gradient))

    def result(self, state: CarriedState[InnerT]) -> Floats:
        return self.output(state.inner)

    def plan(self, state: CarriedState[InnerT]) -> RoundSpec | None:
        if state.round >= self.rounds:
            return None
        query = MeanGradient(self.problem.loss, self.point(state), self.smoothing, state.center)
        return self.mean.within(state.radius).spec(self.cohort(state), query)

    def update(self, state: CarriedState[InnerT], estimate: Any) -> CarriedState[InnerT]:
        """The center is added; a step where one is due; then the next center and radius.

        Raises:
            DivergedError: if the state is not finite any more.
        """
        # Center and point of the round that was asked; both move below.
        mean, asked_at = np.asarray(estimate, np.float64) + state.center, self.point(state)
        after = state
        if self.centring.is_step(state.round):
            after = self.step(state, mean + self.problem.ridge * asked_at)
        moved = float(np.linalg.norm(self.point(after) - asked_at))
        if not (np.isfinite(mean).all() and math.isfinite(moved)):
            raise DivergedError(state.round)
        center, radius = self.centring.following(mean, state.radius, moved)
        return CarriedState(state.round + 1, after.inner, center, radius)

    @classmethod
    @abstractmethod
    def _planned(
        cls, setting: Setting, choices: Choices, case: UserLevelPlan, noise: float
    ) -> UserLevelPlan:
        """A case with its bound, drift and facts.

        Args:
            setting: what for.
            choices: what is given.
            case: with batch, rounds, steps and centring.
            noise: kappa^2 of a round, for values in the unit ball.
        """

    @classmethod
    def _cases(cls, setting: Setting, choices: Choices) -> Iterator[tuple[int, int]]:
        """(batch, rounds) to be tried."""
        most = min(setting.max_rounds_per_user, MAX_ROUNDS)
        if choices["rounds"] is not None:
            yield setting.n, integer("rounds", choices["rounds"])
            return
        for rounds in np.unique(np.geomspace(1, most, GRID).round().astype(int)).tolist():
            yield setting.n, rounds

    @classmethod
    def _plan_for(cls, setting: Setting, choices: Choices) -> tuple[UserLevelPlan, float]:
        """The fewest rounds whose bound is within 5 % of the best; and the best with these 5 %.

        A plan's own bound lies anywhere in between. It may rise where more persons allow fewer
        rounds. Where rounds and center are given nothing is allowed, and the best is taken.
        """
        demand_bounded(setting.problem)
        found = [
            plan
            for batch, rounds in cls._cases(setting, choices)
            for plan in cls._plans(setting, choices, batch, rounds, None)
        ]
        if not found:
            allowed = (
                "fixed: the center would be noise, or the spread is no smaller than L; it takes "
                "more persons, more records or a larger epsilon"
            )
            raise ParameterError("center", choices["center"], allowed)
        free = choices["rounds"] is None or choices["center"] is None
        slack = _SLACK if free else 1.0
        return _fewest(found, slack), slack * min(plan.bound for plan in found)

    @classmethod
    def _plans(
        cls, setting: Setting, choices: Choices, batch: int, rounds: int, noise: float | None
    ) -> list[UserLevelPlan]:
        """All cases of a batch and a number of rounds; `noise` kappa^2 if the bits are known."""
        # In disjoint batches a person is asked once, whatever the rounds.
        times = rounds if batch == setting.n else 1
        if noise is None:
            noise = squared_unit(setting, batch, times)
        return [
            cls._planned(
                setting,
                choices,
                UserLevelPlan(math.inf, batch, rounds, steps, centring, bias),
                noise,
            )
            for centring, steps, bias in candidates(setting, choices, batch, rounds, noise)
        ]

    @classmethod
    def best(cls, setting: Setting, choices: Choices) -> tuple[int, int, float]:
        plan, most = cls._plan_for(setting, choices)
        return plan.batch, plan.rounds, most

    @classmethod
    def _prepared(cls, setting: Setting, choices: Choices) -> tuple[UserLevelPlan, NoisyMean]:
        """The plan, for no less noise than is used, told in the choices; and the private mean."""
        plan, most = cls._plan_for(setting, choices)
        times = plan.rounds if plan.batch == setting.n else 1
        problem, spec = setting.problem, setting.sum_of(plan.batch, times)
        mean = NoisyMean.calibrated(spec, problem.lipschitz, setting.noise_ratio, setting.encoding)
        noise = mean.bounded_noise_in(setting, times) / problem.lipschitz**2
        plans = cls._plans(setting, choices, plan.batch, plan.rounds, noise)
        # More than was planned may be a little too much for any center: then the plan stands.
        if plans and noise > squared_unit(setting, plan.batch, times) * (1 + 1e-12):
            plan = _fewest(plans, _SLACK)
        own, most = plan.bound, max(most, plan.bound)
        plan, centring = dataclasses.replace(plan, bound=most), plan.centring
        loss = f"kappa = {math.sqrt(noise):.4g}, m = {problem.records}"
        choices.choose("trust", setting.trust, loss)
        choices.choose("batch", plan.batch, "smallest bound")
        choices.choose("rounds", plan.rounds, f"fewest within 5 % of the best bound, {most:.4g}")
        fixed = [each.bound for each in plans if not each.centring.carried]
        beside = f"; fixed at L: {fixed[0]:.4g}" if fixed else ""
        kind = "carried" if centring.carried else "fixed"
        if centring.carried and fixed and fixed[0] < own:
            beside += f", within {_SLACK - 1:.0%}: losses as measured favour the center"
        choices.choose("center", kind, f"bound {own:.4g}{beside}")
        if centring.carried:
            facts = f"a = {centring.contraction:.3g}, tau = {centring.spread:.3g}"
            choices.choose("coarse", centring.coarse, f"{facts}, L = {centring.limit:.3g}")
            choices.choose("recentring", centring.recentring, "smallest bound")
            if plan.batch == setting.n:
                choices.reasons["bound"] = "assumes that clipped descent is as stable as plain one"
        return plan, mean


def _fewest(plans: list[UserLevelPlan], slack: float) -> UserLevelPlan:
    """Within a slack of the least bound: centred if there are such; then the fewest rounds.

    Bounds are loose in how far steps move, and measured losses favour the center.
    """
    least = slack * min(plan.bound for plan in plans)
    near = [plan for plan in plans if plan.bound <= least]
    if any(plan.centring.carried for plan in near):
        near = [plan for plan in near if plan.centring.carried]
    return min(near, key=lambda plan: (plan.rounds * plan.batch, plan.centring.spread, plan.bound))
