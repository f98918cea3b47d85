"""P_SGD: sequentially interactive stochastic gradient descent (Cheu et al. 2022, Algorithm 3 and
Theorem 4.1).
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.optimisation.base import OptimiserState, batching, grid
from protocols.problems.problem import Problem, demand
from protocols.shuffle.noisy_mean import NOISE_RATIO, Noise, NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.one_round import claim_of
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, positive
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust


@dataclass(frozen=True)
class AverageState(OptimiserState):
    """theta_t, and the sum of the iterates before it."""

    theta: Floats
    total: Floats


class Averaged(FirstOrder[AverageState]):
    """Projected descent with a constant step; the result is the average of theta_0, ...,
    theta_{T-1}.

    Attributes:
        eta: the step.
    """

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        rounds: int,
        eta: float,
        mean: NoisyMean,
        privacy: Privacy,
        smoothing: float | None = None,
        bound: float = math.inf,
        choices: dict[str, str] | None = None,
        claim: Guarantee | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones, `paper` the paper's.

        Raises:
            ParameterError: naming the parameter, its value and the allowed range.
        """
        super().__init__(
            problem=problem,
            n=n,
            rounds=rounds,
            mean=mean,
            privacy=privacy,
            smoothing=smoothing,
            bound=bound,
            choices={"eta": "given", **(choices or {})},
            claim=claim,
        )
        self.eta = positive("eta", eta)

    def init_at(self, theta: Floats) -> AverageState:
        """Nothing averaged yet."""
        return AverageState(0, theta, np.zeros(self.problem.d))

    def point(self, state: AverageState) -> Floats:
        """theta_t."""
        return state.theta

    def step(self, state: AverageState, gradient: Floats) -> AverageState:
        """theta_{t+1} = Proj(theta_t - eta g_t): the paper prints ascent."""
        after = self.problem.domain.project(state.theta - self.eta * gradient)
        return AverageState(state.round + 1, after, state.total + state.theta)

    def result(self, state: AverageState) -> Floats:
        """The average; before any round, the start."""
        return state.total / state.round if state.round else state.theta


class ShuffleSGD(Averaged):
    """Each user answers once, in one of T disjoint batches.

    Formal guarantee: each round's, by the domination lemma; disjoint batches compose in parallel.
    Gap: Lemma 4.2 of the paper, E f(average) - min f <= R^2/(2 eta T) + eta L_G^2/2 for R the
    distance to start from and L_G^2 = L^2 + rho^2.
    """

    @staticmethod
    def gap(problem: Problem, distance: float, eta: float, rounds: int, noise: float) -> float:
        """The proven bound for noise rho^2."""
        second = problem.objective_lipschitz**2 + noise
        return distance**2 / (2 * eta * rounds) + eta * second / 2

    @classmethod
    def plan_for(
        cls,
        n: int,
        problem: Problem,
        noise: Noise,
        distance: float,
        batch: int | None = None,
        rounds: int | None = None,
    ) -> tuple[int, int, float]:
        """(batch, rounds, bound): the smallest bound D sqrt(L_G^2/T), before any bits are
        searched.
        """
        second = problem.objective_lipschitz**2
        bounds = [
            (distance * math.sqrt((second + noise.squared(b)) / t), -b, t)
            for b, t in grid(n, batch, rounds)
        ]
        bound, minus, rounds = min(bounds)
        return -minus, rounds, bound

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        batch: int | None = None,
        rounds: int | None = None,
        eta: float | None = None,
        initial_distance: float | None = None,
        noise_ratio: float = NOISE_RATIO,
        honest_fraction: float = 1.0,
        trust: Trust | str = Trust.SHUFFLE,
    ) -> "ShuffleSGD":
        """The batch with the smallest proven bound for the noise really used, and its step.

        Args:
            n: users.
            problem: loss and domain.
            privacy: of the whole run.
            batch: users in a round; chosen where not given.
            rounds: T; floor(n / batch) where not given.
            eta: step; R/(L_G sqrt T) where not given.
            initial_distance: R, if better known than from the domain.
            noise_ratio: of the noise over the central Gaussian's.
            honest_fraction: of the users that add their noise, in every batch.
            trust: whose noise the parameters are chosen for (for baselines).
        """
        noise = Noise.of_problem(problem, privacy, noise_ratio, trust, honest_fraction)
        distance = (
            problem.reach
            if initial_distance is None
            else positive("initial_distance", initial_distance)
        )
        size, times, _ = cls.plan_for(integer("n", n), problem, noise, distance, batch, rounds)
        mean = noise.mean(size)
        squared = noise.of(mean)
        length = math.sqrt(problem.objective_lipschitz**2 + squared)
        step = distance / (length * math.sqrt(times)) if eta is None else positive("eta", eta)
        choices = {
            "trust": f"{trust}: rho = {math.sqrt(squared):.4g}, L_G = "
            f"{length:.4g}, R = {distance:.4g}",
            **(
                {}
                if batch is not None
                else {"batch": f"{size}: smallest proven bound R sqrt((L^2 + rho^2) n_b/n)"}
            ),
            **(
                {}
                if rounds is not None
                else {"rounds": f"{times}: floor(n / batch), each user asked once"}
            ),
            **(
                {}
                if eta is not None
                else {"eta": f"{step:.4g}: R/(L_G sqrt T) minimises Lemma 4.2"}
            ),
        }
        bound = cls.gap(problem, distance, step, times, squared)
        return cls(
            problem=problem,
            n=n,
            rounds=times,
            eta=step,
            mean=mean,
            privacy=privacy,
            bound=bound,
            choices=choices,
        )

    @classmethod
    def paper(
        cls,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        batch: int | None = None,
        rounds: int | None = None,
        eta: float | None = None,
    ) -> "ShuffleSGD":
        """The parameters of Theorem 4.1: n_b = sqrt(d) ln(d/delta)/epsilon, constants of Theorem
        3.2; for comparison.
        """
        demand(problem, privacy)
        epsilon, d = privacy.epsilon, problem.d
        scale = math.sqrt(d) * math.log(d / privacy.delta)
        size = max(1, math.ceil(scale / epsilon)) if batch is None else batch
        size, times = batching(integer("n", n), size, rounds)
        # Printed with one L too many in the second term: sqrt(d) L ln(d/delta).
        printed = epsilon * size * problem.domain.diameter / (
            problem.objective_lipschitz * math.sqrt(times) * (epsilon * size + scale)
        )  # fmt: skip
        step = printed if eta is None else positive("eta", eta)
        mean = NoisyMean.paper(size, d, problem.lipschitz, epsilon, privacy.delta)
        choices = {
            "batch": f"{size}: "
            + ("Theorem 4.1, sqrt(d) ln(d/delta)/epsilon" if batch is None else "given"),
            "rounds": f"{times}: floor(n / batch)" if rounds is None else "given",
            "eta": f"{step:.4g}: "
            + ("Theorem 4.1 without its superfluous L" if eta is None else "given"),
        }
        return cls(
            problem=problem,
            n=n,
            rounds=times,
            eta=step,
            mean=mean,
            privacy=privacy,
            choices=choices,
            bound=cls.gap(problem, problem.domain.diameter, step, times, mean.squared_noise),
            claim=claim_of(privacy, "Theorem 4.1"),
        )
