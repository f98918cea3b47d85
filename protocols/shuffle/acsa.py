"""P_AGD: sequentially interactive accelerated descent (Cheu et al. 2022, Algorithm 4).

AC-SA (Lan 2012) takes noisy gradients of a beta-smooth function. A loss with kinks is replaced by
its Moreau envelope, whose gradient every user computes alone.
"""

import math
from dataclasses import dataclass, field
from typing import Self

from protocols.optimisation.acceleration import (
    AcceleratedState,
    Schedule,
    accelerated_gap,
    best_batch,
    envelope_error,
    schedule_for,
    smoothing_for,
)
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting, batching
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.one_round import claim_of
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError


@dataclass(kw_only=True, eq=False)
class ShuffleACSA(FirstOrder[AcceleratedState]):
    """Each user answers once, in one of T disjoint batches; T accelerated steps.

    Formal guarantee: each round's, by the domination lemma; disjoint batches compose in parallel.
    Gap: `Schedule.gap`, plus L^2/(2 beta) for the envelope.

    Attributes:
        schedule: weights and steps.
    """

    tuned = True
    takes = ("batch", "rounds", "smoothing", "schedule")
    """Users in a round; T, by default floor(n / batch); beta of the envelope; one of SCHEDULES."""
    paper_cost = "Corollaries B.9 and B.10"

    schedule: Schedule
    rounds: int = field(init=False)
    bound: float = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = self.schedule.rounds
        self.bound = self.schedule.gap + envelope_error(self.problem, self.smoothing)
        super().__post_init__()

    def init_at(self, theta: Floats) -> AcceleratedState:
        return AcceleratedState(0, theta, theta)

    def point(self, state: AcceleratedState) -> Floats:
        return self.schedule.middle(state)

    def step(self, state: AcceleratedState, gradient: Floats) -> AcceleratedState:
        return self.schedule.step(state, gradient, self.problem.domain)

    def result(self, state: AcceleratedState) -> Floats:
        return state.aggregate

    @classmethod
    def best(cls, setting: Setting, choices: Choices) -> tuple[int, int, float]:
        return best_batch(setting, choices, setting.squared_noise)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        batch, rounds, bound = cls.best(setting, choices)
        mean = NoisyMean.calibrated_for(setting, batch)
        noise = mean.bounded_noise_in(setting)
        choices.choose("trust", setting.trust, f"rho = {math.sqrt(noise):.4g}")
        choices.choose("batch", batch, f"smallest proven bound {bound:.4g}")
        choices.choose("rounds", rounds, "floor(n / batch), each user asked once")
        schedule, smoothing = schedule_for(setting, choices, batch, rounds, noise)
        return cls.made(setting, mean, choices, schedule=schedule, smoothing=smoothing)

    printed_power = (6 / 5, 1.0)

    @classmethod
    def printed_gap(cls, setting: Setting) -> float:
        """Theorem 4.3, or 4.7 for a loss with kinks."""
        return accelerated_gap(setting, math.log(setting.problem.d / setting.privacy.delta) ** 2)

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """Theorem 4.3, or 4.7 for a loss with kinks, with the constants of Theorem 3.2."""
        problem, epsilon, delta = setting.problem, setting.privacy.epsilon, setting.privacy.delta
        n, d, diameter, length = setting.n, problem.d, setting.width, problem.lipschitz
        log = math.log(d / delta)
        printed = (epsilon * n) ** (2 / 3) * length / (d ** (1 / 3) * diameter * log ** (2 / 3))
        smoothing = smoothing_for(problem, choices, printed, "Theorem 4.7")
        theorem = "Theorem 4.3" if smoothing is None else "Theorem 4.7"
        beta = problem.planned_smoothness(smoothing)
        if choices["batch"] is None and beta == 0:
            allowed = "above 0: the batch of Theorem 4.3 grows without bound"
            raise ParameterError("declared_smoothness", 0.0, allowed)
        batch = choices["batch"] or math.ceil(
            n**0.6 * d**0.2 * (length * log) ** 0.4 / (epsilon * beta * diameter) ** 0.4
        )
        batch, rounds = batching(n, choices.choose("batch", batch, theorem), choices["rounds"])
        choices.choose("rounds", rounds, "floor(n / batch)")
        mean = NoisyMean.paper(batch, d, length, epsilon, delta)
        # Sampling of a batch and noise of its sum are independent: variances add up.
        sigma = math.sqrt(problem.spread**2 / batch + mean.squared_noise)
        kind = choices.choose("schedule", "paper", f"sigma = {sigma:.4g}, by Theorem 3.2")
        schedule = Schedule(rounds, beta, sigma, diameter, kind)
        claim = claim_of(setting.privacy, theorem)
        return cls.made(setting, mean, choices, schedule=schedule, smoothing=smoothing, claim=claim)
