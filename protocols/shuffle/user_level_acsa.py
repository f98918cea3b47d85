"""Person-level accelerated descent in the shuffle model, by carried-centre clipping."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from protocols.optimisation.acceleration import (
    AcceleratedState,
    Schedule,
    balanced_smoothing,
    envelope_error,
    smoothing_for,
)
from protocols.optimisation.centring import NEAR, with_drift
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting, batching, powers
from protocols.shuffle.user_level import UserLevel, UserLevelPlan
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError

_APART = 1.4  # numbers of rounds that are tried


@dataclass(kw_only=True, eq=False)
class UserLevelACSA(UserLevel[AcceleratedState]):
    """Accelerated descent: over all persons in every round, or over disjoint batches.

    Gap: that of the schedule for sigma^2 = (kappa rho)^2, the radii weighted by t^2 as the steps
    are, with spread^2/n_b for disjoint batches; plus the envelope's error, plus the clip bias times
    the diameter. Over all persons the gap is that on their own objective, and generalisation is not
    in it.

    Attributes:
        schedule: weights and steps; its rounds are T.
    """

    tuned = True
    takes = "batch", "rounds", "smoothing", "center", "coarse", "deviations", "fail"
    """Persons in a round, below n for disjoint batches; else as of `UserLevelGD`."""

    schedule: Schedule

    @property
    def assumes(self) -> str:
        own = "the loss is the mean over the persons asked" if self.rounds_per_user > 1 else ""
        near = NEAR if self.centring.carried else ""
        return ", and ".join(each for each in (self.stated, own, near) if each)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule.rounds != self.steps:
            raise ParameterError("schedule.rounds", self.schedule.rounds, f"{self.steps} steps")

    def begin(self, theta: Floats) -> AcceleratedState:
        return AcceleratedState(0, theta, theta)

    def where(self, inner: AcceleratedState) -> Floats:
        return inner.aggregate if inner.round >= self.steps else self.schedule.middle(inner)

    def advance(self, inner: AcceleratedState, gradient: Floats) -> AcceleratedState:
        return self.schedule.step(inner, gradient, self.problem.domain)

    def output(self, inner: AcceleratedState) -> Floats:
        return inner.aggregate

    @classmethod
    def _cases(cls, setting: Setting, choices: Choices) -> Iterator[tuple[int, int]]:
        batch, rounds, n = choices["batch"], choices["rounds"], setting.n
        if batch is None or batch == n:
            yield from super()._cases(setting, choices)
        if batch == n:
            return
        if batch is None and rounds is None:
            # The same for all n: batches of so many rounds only grow.
            yield from ((n // t, t) for t in powers(_APART, n) if t > 1)
        elif batch is not None or rounds <= n:
            size, times_of = batching(n, batch, rounds)
            if size < n:
                yield size, times_of

    @classmethod
    def _planned(
        cls, setting: Setting, choices: Choices, case: UserLevelPlan, noise: float
    ) -> UserLevelPlan:
        problem, T, R = setting.problem, case.steps, setting.distance
        smoothing = choices["smoothing"]
        if smoothing is None and not problem.smooth:
            smoothing = balanced_smoothing(problem, R, T)
        beta = problem.planned_smoothness(smoothing)
        centring = with_drift(case.centring, beta)
        square = noise * centring.accelerated_radius(T, problem.domain.diameter) ** 2
        if case.batch < setting.n:
            square += problem.spread**2 / case.batch
        schedule = Schedule(T, beta, math.sqrt(square), R)
        error = envelope_error(problem, smoothing) + case.bias * problem.domain.diameter
        bound = schedule.gap + error
        facts = (schedule.sigma, math.nan if smoothing is None else smoothing)
        return dataclasses.replace(case, bound=bound, centring=centring, facts=facts)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        plan, mean = cls._prepared(setting, choices)
        problem, (sigma, beta) = setting.problem, plan.facts
        smoothing = smoothing_for(problem, choices, beta, "L sqrt(T (T+1))/(2R)")
        schedule = Schedule(
            plan.steps, problem.planned_smoothness(smoothing), sigma, setting.distance
        )
        facts = f"beta = {schedule.beta:.4g}, sigma = {sigma:.4g}, R = {setting.distance:.4g}"
        choices.choose("schedule", "default", facts)
        own = {"rounds": plan.rounds, "schedule": schedule, "smoothing": smoothing}
        own |= {"bound": plan.bound, "centring": plan.centring}
        return cls.made(setting, mean, choices, **own)
