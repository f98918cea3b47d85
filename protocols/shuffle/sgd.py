"""P_SGD: sequentially interactive stochastic gradient descent (Cheu et al. 2022, Algorithm 3)."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from protocols.optimisation.base import AverageState
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting, batching
from protocols.problems.problem import Problem
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.one_round import claim_of
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import positive


@dataclass(kw_only=True, eq=False)
class Averaged(FirstOrder[AverageState]):
    """Projected descent with a constant step; the result is the average of theta_0 to theta_{T-1}.

    Attributes:
        eta: the step.
    """

    eta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eta", self.eta)

    def init_at(self, theta: Floats) -> AverageState:
        return AverageState(0, theta, np.zeros(self.problem.d))

    def point(self, state: AverageState) -> Floats:
        return state.theta

    def step(self, state: AverageState, gradient: Floats) -> AverageState:
        """theta_{t+1} = Proj(theta_t - eta g_t): the paper prints ascent."""
        after = self.problem.domain.project(state.theta - self.eta * gradient)
        return AverageState(state.round + 1, after, state.total + state.theta)

    def result(self, state: AverageState) -> Floats:
        return state.total / state.round if state.round else state.theta


class ShuffleSGD(Averaged):
    """Each user answers once, in one of T disjoint batches.

    Formal guarantee: each round's, by the domination lemma; disjoint batches compose in parallel.
    Gap: Lemma 4.2 of the paper, E f(average) - min f <= R^2/(2 eta T) + eta L_G^2/2 for R the
    distance to start from and L_G^2 = L^2 + rho^2.
    """

    tuned = True
    takes = ("batch", "rounds", "eta")
    """Users in a round; T, by default floor(n / batch); the step, by default R/(L_G sqrt T)."""
    paper_cost = "Corollary B.8"

    @staticmethod
    def gap(problem: Problem, distance: float, eta: float, rounds: int, noise: float) -> float:
        """The proven bound for noise rho^2."""
        second = problem.objective_root**2 + noise
        # The ridge's gradient is in it: nobody sends it, but descent follows it.
        return distance**2 / (2 * eta * rounds) + eta * second / 2

    @classmethod
    def best(cls, setting: Setting, choices: Choices) -> tuple[int, int, float]:
        """The smallest bound R sqrt(L_G^2/T)."""
        second, distance = setting.problem.objective_root**2, setting.distance

        def bound(batch: int, rounds: int) -> float:
            return distance * math.sqrt((second + setting.squared_noise(batch)) / rounds)

        return setting.best_batch(choices, bound)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        problem, distance = setting.problem, setting.distance
        batch, rounds, _ = cls.best(setting, choices)
        mean = NoisyMean.calibrated_for(setting, batch)
        noise = mean.bounded_noise_in(setting)
        length = math.sqrt(problem.objective_root**2 + noise)
        facts = f"rho = {math.sqrt(noise):.4g}, L_G = {length:.4g}, R = {distance:.4g}"
        choices.choose("trust", setting.trust, facts)
        choices.choose("batch", batch, "smallest proven bound R sqrt((L^2 + rho^2) n_b/n)")
        choices.choose("rounds", rounds, "floor(n / batch), each user asked once")
        # R^2/(2 eta T) = eta L_G^2/2.
        best = distance / (length * math.sqrt(rounds))
        eta = positive("eta", choices.choose("eta", best, "R/(L_G sqrt T) minimises Lemma 4.2"))
        bound = cls.gap(problem, distance, eta, rounds, noise)
        return cls.made(setting, mean, choices, rounds=rounds, eta=eta, bound=bound)

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """Theorem 4.1: n_b = sqrt(d) ln(d/delta)/epsilon, with the constants of Theorem 3.2."""
        problem, epsilon, delta = setting.problem, setting.privacy.epsilon, setting.privacy.delta
        d, diameter = problem.d, problem.domain.diameter
        scale = math.sqrt(d) * math.log(d / delta)
        batch, why = max(1, math.ceil(scale / epsilon)), "Theorem 4.1, sqrt(d) ln(d/delta)/epsilon"
        batch, rounds = batching(setting.n, choices.choose("batch", batch, why), choices["rounds"])
        choices.choose("rounds", rounds, "floor(n / batch)")
        # Printed with one L too many in the second term: sqrt(d) L ln(d/delta).
        printed = epsilon * batch * diameter / (
            problem.objective_lipschitz * math.sqrt(rounds) * (epsilon * batch + scale)
        )  # fmt: skip
        eta = choices.choose("eta", printed, "Theorem 4.1 without its superfluous L")
        mean = NoisyMean.paper(batch, d, problem.lipschitz, epsilon, delta)
        bound = cls.gap(problem, diameter, positive("eta", eta), rounds, mean.squared_noise)
        claim = claim_of(setting.privacy, "Theorem 4.1")
        return cls.made(setting, mean, choices, rounds=rounds, eta=eta, bound=bound, claim=claim)
