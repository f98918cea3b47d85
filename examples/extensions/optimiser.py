"""A shuffle optimiser of your own: descent with a fixed step that returns its last iterate."""

import math
from dataclasses import dataclass

from protocols.optimisation.base import OptimiserState
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from shuffle_sim.arrays import Floats


@dataclass(frozen=True)
class LastState(OptimiserState):
    """theta_t."""

    theta: Floats


@dataclass(kw_only=True, eq=False)
class LastIterate(FirstOrder[LastState]):
    """Each user answers once, in one of T disjoint batches; no bound is proven here."""

    takes = ("batch", "rounds", "eta")
    eta: float

    def init_at(self, theta):
        return LastState(0, theta)

    def point(self, state):
        return state.theta

    def step(self, state, gradient):
        after = self.problem.domain.project(state.theta - self.eta * gradient)
        return LastState(state.round + 1, after)

    def result(self, state):
        return state.theta

    @classmethod
    def best(cls, setting, choices):
        batch, rounds, _ = setting.best_batch(choices, lambda b, t: abs(t - 20))
        return batch, rounds, math.inf

    @classmethod
    def calibrated_for(cls, setting, choices):
        batch, rounds, bound = cls.best(setting, choices)
        eta = choices.choose("eta", 1 / math.sqrt(rounds), "1/sqrt(T)")
        mean = NoisyMean.calibrated_for(setting, batch)
        return cls.made(setting, mean, choices, rounds=rounds, eta=eta, bound=bound)
