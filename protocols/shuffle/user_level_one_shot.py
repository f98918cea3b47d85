"""One-shot person-level optimisation in the shuffle model: persons send their own minimisers.

A few rounds of a centre chain average them (docs/theory/user-level.md, "One shot"). Privacy holds
for any local solver: only clipping counts.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from protocols.optimisation.base import DivergedError, Optimiser
from protocols.optimisation.centring import Centring
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import ADAPTABLE, Setting
from protocols.problems.per_person import LocalMinimiser
from protocols.problems.problem import Problem, demand, demand_bounded
from protocols.shuffle.noisy_mean import NoisyMean
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Protocol, RoundSpec

DEVIATIONS, FAIL, STEPS = 3.0, 1e-3, 100
_MOST_ROUNDS = 6


@dataclass(frozen=True)
class ChainState:
    """Rounds over, and the center and radius of the next one."""

    round: int
    center: Floats
    radius: float


@dataclass(kw_only=True, eq=False)
class UserLevelOneShot(Optimiser[ChainState], Protocol[ChainState]):
    """The mean of persons' own minimisers, found by a chain of centres.

    For strongly convex problems with many records for each person: the error of averaging is of
    the order 1/m^2 in the squared distance, and no bound here contains it.
    Formal guarantee: as of `UserLevelGD`.

    Attributes:
        mean: the private average.
        centring: how center and radius follow; the radius starts at the problem's diameter.
        steps: of every person's descent.
    """

    takes = "rounds", "steps"
    """Of the chain; of every person's descent."""
    adapts = ADAPTABLE
    unit = Unit.PERSON

    problem: Problem
    n: int
    rounds: int
    mean: NoisyMean
    privacy: Privacy
    centring: Centring
    steps: int = STEPS
    bound: float = math.inf
    choices: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the parameters."""
        demand(self.problem, self.privacy)
        self.n, self.rounds = integer("n", self.n), integer("rounds", self.rounds)
        integer("steps", self.steps)
        if not self.problem.smooth or not self.problem.strong_convexity > 0:
            allowed = "smooth, with a ridge or strongly convex itself"
            raise ParameterError("problem", self.problem, allowed)
        if (self.mean.batch, self.mean.norm_bound) != (self.n, self.centring.limit):
            allowed = f"of {self.n} persons with norm bound {self.centring.limit:g}"
            raise ParameterError("mean", (self.mean.batch, self.mean.norm_bound), allowed)
        self.honest_fraction = self.mean.honest_fraction
        self.records_read = self.problem.records * self.steps

    @property
    def rounds_per_user(self) -> int:
        return self.rounds

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (LocalMinimiser, type(self.mean.randomizer), *self.problem.loss.vocabulary)

    def init_at(self, theta: Floats) -> ChainState:
        return ChainState(0, self.problem.domain.center, self.centring.limit)

    def plan(self, state: ChainState) -> RoundSpec | None:
        if state.round >= self.rounds:
            return None
        problem = self.problem
        query = LocalMinimiser(
            problem.loss, problem.ridge, problem.domain.radius, state.center, self.steps
        )
        return self.mean.within(state.radius).spec(Cohort.of(0, self.n), query)

    def update(self, state: ChainState, estimate: Any) -> ChainState:
        """The released mean is the next center.

        Raises:
            DivergedError: if it is not finite.
        """
        center = np.asarray(estimate, np.float64) + state.center
        if not np.isfinite(center).all():
            raise DivergedError(state.round)
        centring = self.centring
        radius = min(state.radius, centring.spread + centring.contraction * state.radius)
        return ChainState(state.round + 1, center, radius)

    def result(self, state: ChainState) -> Floats:
        return self.problem.domain.project(state.center)

    @classmethod
    def expected_bound(cls, setting: Setting, choices: Choices) -> float:
        return math.inf

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        problem, n = setting.problem, setting.n
        demand_bounded(problem)
        # Two points of the ball around 0, a minimiser and a center, are no farther apart.
        limit, strong = 2 * problem.domain.radius, problem.strong_convexity
        if not strong > 0:
            raise ParameterError("strong_convexity", strong, "above 0: take a ridge")
        spread = problem.spread / strong * (math.sqrt(2) + DEVIATIONS)
        tail = math.sqrt(problem.d) + math.sqrt(2 * math.log(1 / FAIL))

        def made(rounds: int) -> tuple[float, float, float]:
            """(last noise, tau, a)."""
            unit = math.sqrt(setting.squared_noise(n, rounds) / problem.d) / problem.lipschitz
            # `Centring` refuses 1; a chain that does not contract is of one round, unless more are
            # asked for.
            a, radius = min(unit * tail, 0.999), limit
            tau = min(limit, spread * (1 + 1 / math.sqrt(n)))
            for _ in range(rounds - 1):
                radius = min(radius, tau + a * radius)
            return unit * radius, tau, a

        asked = choices["rounds"]
        rounds = integer("rounds", asked) if asked else min(
            range(1, _MOST_ROUNDS + 1), key=lambda each: made(each)[0]
        )  # fmt: skip
        _, tau, a = made(rounds)
        choices.choose("rounds", rounds, "least noise of the last one")
        spec = setting.sum_of(n, rounds)
        mean = NoisyMean.calibrated(spec, limit, setting.noise_ratio, setting.encoding)
        steps = choices.choose("steps", STEPS, "of every person's descent")
        return cls(
            problem=problem,
            n=n,
            rounds=rounds,
            mean=mean,
            privacy=setting.privacy,
            centring=Centring(limit=limit, spread=tau, contraction=a),
            steps=integer("steps", steps),
            choices=choices.reasons,
        )
