"""P_AGD: sequentially interactive accelerated stochastic approximation (Cheu et al. 2022, Algorithm
4, Theorems 4.3, 4.7).

AC-SA (Lan 2012) takes noisy gradients of a beta-smooth function. A loss with kinks is replaced by
its Moreau envelope, whose gradient every user computes alone.
"""

import math
from dataclasses import dataclass

from protocols.optimisation.acceleration import Schedule, gap_of, smoothing_of
from protocols.optimisation.base import OptimiserState, batching, grid
from protocols.problems.problem import Problem, demand
from protocols.shuffle.noisy_mean import NOISE_RATIO, Noise, NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.one_round import claim_of
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust


@dataclass(frozen=True)
class AcceleratedState(OptimiserState):
    """theta_t and the aggregate theta_ag."""

    theta: Floats
    aggregate: Floats


class ShuffleACSA(FirstOrder[AcceleratedState]):
    """Each user answers once, in one of T disjoint batches; T accelerated steps.

    Formal guarantee: each round's, by the domination lemma; disjoint batches compose in parallel.
    Gap: `Schedule.gap`, plus L^2/(2 beta) for the envelope.

    Attributes:
        schedule: weights and steps.
    """

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        schedule: Schedule,
        mean: NoisyMean,
        privacy: Privacy,
        smoothing: float | None = None,
        choices: dict[str, str] | None = None,
        claim: Guarantee | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones, `paper` the paper's.

        Raises:
            ParameterError: naming the parameter, its value and the allowed range.
        """
        error = (
            0.0
            if smoothing is None
            else problem.lipschitz**2 / (2 * positive("smoothing", smoothing))
        )
        super().__init__(
            problem=problem,
            n=n,
            rounds=schedule.rounds,
            mean=mean,
            privacy=privacy,
            smoothing=smoothing,
            bound=schedule.gap + error,
            choices={"schedule": "given", **(choices or {})},
            claim=claim,
        )
        self.schedule = schedule
        if smoothing is None and not problem.smooth:
            raise ParameterError(
                "smoothing", None, f"above 0: {type(problem.loss).__name__} has kinks"
            )

    def init_at(self, theta: Floats) -> AcceleratedState:
        """Both sequences start there."""
        return AcceleratedState(0, theta, theta)

    def point(self, state: AcceleratedState) -> Floats:
        """theta_md."""
        return self.schedule.middle(state.round + 1, state.theta, state.aggregate)

    def step(self, state: AcceleratedState, gradient: Floats) -> AcceleratedState:
        """One step of the schedule."""
        t, domain = state.round + 1, self.problem.domain
        return AcceleratedState(
            t, *self.schedule.step(t, state.theta, state.aggregate, gradient, domain)
        )

    def result(self, state: AcceleratedState) -> Floats:
        """theta_ag."""
        return state.aggregate

    @classmethod
    def plan_for(
        cls,
        n: int,
        problem: Problem,
        noise: Noise,
        distance: float,
        batch: int | None = None,
        rounds: int | None = None,
        smoothing: float | None = None,
    ) -> tuple[int, int, float]:
        """(batch, rounds, bound): the smallest bound, before any bits are searched."""

        def bound(size: int, times: int) -> float:
            sigma = math.sqrt(problem.spread**2 / size + noise.squared(size))
            beta = smoothing_of(problem, distance, times, smoothing)
            error = 0.0 if beta is None else problem.lipschitz**2 / (2 * beta)
            return gap_of(times, problem.smoothness(beta), sigma, distance) + error

        best, minus, times = min((bound(b, t), -b, t) for b, t in grid(n, batch, rounds))
        return -minus, times, best

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        batch: int | None = None,
        rounds: int | None = None,
        smoothing: float | None = None,
        schedule: str = "default",
        initial_distance: float | None = None,
        noise_ratio: float = NOISE_RATIO,
        honest_fraction: float = 1.0,
        trust: Trust | str = Trust.SHUFFLE,
    ) -> "ShuffleACSA":
        """The batch and the smoothing with the smallest proven bound for the noise really used.

        Args:
            n: users.
            problem: loss and domain.
            privacy: of the whole run.
            batch: users in a round; chosen where not given.
            rounds: T; floor(n / batch) where not given.
            smoothing: beta of the Moreau envelope; chosen for a loss with kinks, none for a smooth
                one.
            schedule: "default", or "paper" where it is sound.
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
        size, times, _ = cls.plan_for(
            integer("n", n), problem, noise, distance, batch, rounds, smoothing
        )
        mean = noise.mean(size)
        squared = noise.of(mean)
        sigma = math.sqrt(problem.spread**2 / size + squared)
        beta = smoothing_of(problem, distance, times, smoothing)
        chosen = Schedule(
            times,
            problem.smoothness(beta),
            sigma,
            problem.domain.diameter if schedule == "paper" else distance,
            schedule,
        )
        choices = {
            "trust": f"{trust}: rho = {math.sqrt(squared):.4g}, sigma = "
            f"{sigma:.4g}, R = {distance:.4g}",
            **(
                {}
                if batch is not None
                else {"batch": f"{size}: smallest proven bound {chosen.gap:.4g} before smoothing"}
            ),
            **(
                {}
                if rounds is not None
                else {"rounds": f"{times}: floor(n / batch), each user asked once"}
            ),
            "schedule": f"{schedule}: beta = {chosen.beta:.4g}",
            "smoothing": _why(problem, beta, smoothing),
        }
        return cls(
            problem=problem,
            n=n,
            schedule=chosen,
            mean=mean,
            privacy=privacy,
            smoothing=beta,
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
        smoothing: float | None = None,
        schedule: str = "paper",
    ) -> "ShuffleACSA":
        """The parameters of Theorem 4.3, or of 4.7 for a loss with kinks; constants of Theorem 3.2;
        for comparison.
        """
        demand(problem, privacy)
        epsilon, d, diameter = privacy.epsilon, problem.d, problem.domain.diameter
        log = math.log(d / privacy.delta)
        integer("n", n)
        length = problem.lipschitz
        beta = smoothing
        if beta is None and not problem.smooth:
            beta = (epsilon * n) ** (2 / 3) * length / (d ** (1 / 3) * diameter * log ** (2 / 3))
        smoothness = problem.smoothness(beta)
        if batch is None and smoothness == 0:
            raise ParameterError(
                "declared_smoothness", 0.0, "above 0: the batch of Theorem 4.3 grows without bound"
            )
        size = batch
        if size is None:
            size = math.ceil(
                n**0.6 * d**0.2 * (length * log) ** 0.4 / (epsilon * smoothness * diameter) ** 0.4
            )
        size, times = batching(n, size, rounds)
        mean = NoisyMean.paper(size, d, length, epsilon, privacy.delta)
        sigma = math.sqrt(problem.spread**2 / size + mean.squared_noise)
        theorem = "Theorem 4.3" if beta is None else "Theorem 4.7"
        choices = {
            "batch": f"{size}: " + (theorem if batch is None else "given"),
            "rounds": f"{times}: floor(n / batch)" if rounds is None else "given",
            "schedule": f"{schedule}: sigma = {sigma:.4g} of the noise of Theorem 3.2",
            "smoothing": f"{beta:.4g}: " + ("given" if smoothing is not None else theorem)
            if beta is not None
            else "none",
        }
        return cls(
            problem=problem,
            n=n,
            schedule=Schedule(times, smoothness, sigma, diameter, schedule),
            mean=mean,
            privacy=privacy,
            smoothing=beta,
            choices=choices,
            claim=claim_of(privacy, theorem),
        )


def _why(problem: Problem, beta: float | None, given: float | None) -> str:
    if given is not None:
        return "given"
    return (
        "none: the loss is smooth"
        if beta is None
        else f"{beta:.4g}: L sqrt(T (T+1))/(2R) minimises the bound"
    )
