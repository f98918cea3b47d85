"""A central algorithm of your own: a curator's gradient descent under pure differential privacy."""

from dataclasses import dataclass
from functools import partial

from protocols.optimisation.base import Optimiser
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.mechanisms import L2Laplace
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic

ROUNDS, STEP = 10, 0.5


@dataclass(frozen=True)
class MeanGradient(Statistic):
    """The average gradient of a loss at theta, of gradients that are clipped."""

    slopes: Clipped
    theta: Floats
    users: int

    @property
    def sensitivity(self):
        proof = "one of n gradients differs, by at most 2 clip"
        return Sensitivity(2 * self.slopes.clip / self.users, "l2", proof)

    def __call__(self, total, users):
        return total(partial(self.slopes.gradient, self.theta)) / users


class PureDescent(Optimiser[tuple[Floats, ...]], CentralAlgorithm[tuple[Floats, ...]]):
    """ROUNDS releases with l2-Laplace noise, at an equal share of epsilon each."""

    bound, rounds, rounds_per_user = float("inf"), ROUNDS, ROUNDS

    def __init__(self, n, problem, privacy):
        self.n, self.problem, self.privacy, self.choices = n, problem, privacy, {}
        self.mechanism = L2Laplace(privacy.epsilon / ROUNDS, problem.d)

    @classmethod
    def calibrated_for(cls, setting, choices):
        return cls(setting.n, setting.problem, setting.privacy)

    def init_at(self, theta):
        return (theta,)

    def plan(self, state):
        if len(state) > ROUNDS:
            return None
        slopes = Clipped(self.problem.loss, self.problem.lipschitz)
        gradient = MeanGradient(slopes, state[-1], self.n)
        return Release.of(Cohort.of(0, self.n), gradient, self.mechanism)

    def update(self, state, estimate):
        return (*state, self.problem.domain.project(state[-1] - STEP * estimate))

    def result(self, state):
        return state[-1]
