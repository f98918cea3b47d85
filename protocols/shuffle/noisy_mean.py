"""The private average of gradients over a cohort: its noise, its bits, and what it costs."""

import math
from dataclasses import dataclass, field
from functools import lru_cache

from protocols.problems.problem import Problem, demand
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import integer, positive
from shuffle_sim.privacy.bounds import gaussian, paper
from shuffle_sim.privacy.events import BinomialSumEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import P, Plan, SumSpec, fewest_bits, honest_users
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Query, RoundSpec
from shuffle_sim.wire.messages import Tally

NOISE_RATIO = 1.05
"""Noise over the central Gaussian's that the calibrations aim at."""


@dataclass(frozen=True)
class Noise:
    """How much noise an average of gradients will carry, before any parameters are searched.

    Attributes:
        d: coordinates.
        norm_bound: L.
        privacy: of the whole run.
        ratio: of the shuffle model's noise over the central Gaussian's.
        trust: whose noise it is.
        honest_fraction: of the users that add their noise.
    """

    d: int
    norm_bound: float
    privacy: Privacy
    ratio: float = NOISE_RATIO
    trust: Trust = Trust.SHUFFLE
    honest_fraction: float = 1.0

    @classmethod
    def of_problem(
        cls,
        problem: Problem,
        privacy: Privacy,
        ratio: float,
        trust: Trust | str,
        honest_fraction: float,
    ) -> "Noise":
        """For the gradients of a problem."""
        demand(problem, privacy)
        return cls(problem.d, problem.lipschitz, privacy, ratio, Trust.of(trust), honest_fraction)

    def squared(self, batch: int, rounds: int = 1) -> float:
        """rho^2 = E ||noise of the average of `batch` gradients||^2 where each user answers in
        `rounds` rounds.
        """
        unit = math.sqrt(rounds) / gaussian_mu(self.privacy.epsilon, self.privacy.delta)
        unit *= self.trust.noise(batch, self.ratio)
        return self.d * (2 * self.norm_bound * unit / batch) ** 2

    def mean(self, batch: int, rounds: int = 1) -> "NoisyMean":
        """The shuffle model's average with that noise."""
        spec = SumSpec(batch, self.d, self.privacy, rounds, self.honest_fraction)
        return NoisyMean.calibrated(spec, self.norm_bound, self.ratio)

    def of(self, mean: "NoisyMean", rounds: int = 1) -> float:
        """rho^2 once the parameters are known: exact in the shuffle model."""
        return (
            mean.squared_noise if self.trust is Trust.SHUFFLE else self.squared(mean.batch, rounds)
        )


gaussian_mu = lru_cache(gaussian.mu_of)
_fewest_bits = lru_cache(fewest_bits)


@dataclass(frozen=True)
class NoisyMean:
    """The average of a batch of vectors in an l2 ball, from one-bit messages (P_vec, divided by the
    reports received).

    Attributes:
        batch: users n_b in a round.
        d: coordinates.
        norm_bound: L.
        g: rounding steps.
        b: noise bits per user and coordinate.
        p: their success probability.
        honest_fraction: of the users that add their noise, in every batch.
    """

    batch: int
    d: int
    norm_bound: float
    g: int
    b: int
    p: float = P
    honest_fraction: float = 1.0
    randomizer: BinomialRandomizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the ranges."""
        integer("batch", self.batch)
        width = 2 * positive("norm_bound", self.norm_bound)
        made = BinomialRandomizer(
            self.d, self.g, self.b, self.p, -self.norm_bound, width, self.norm_bound
        )
        object.__setattr__(self, "randomizer", made)
        honest_users(self.honest_fraction, self.batch)
        made.event(self.batch)  # refuses trials beyond exact arithmetic

    @classmethod
    def calibrated(
        cls, spec: SumSpec, norm_bound: float, noise_ratio: float = NOISE_RATIO
    ) -> "NoisyMean":
        """The fewest bits with at most `noise_ratio` times the central Gaussian's noise; spec.n is
        the batch.
        """
        plan: Plan = _fewest_bits(spec, noise_ratio)
        return cls(spec.n, spec.d, norm_bound, plan.g, plan.b, honest_fraction=spec.honest_fraction)

    @classmethod
    def paper(
        cls, batch: int, d: int, norm_bound: float, epsilon: float, delta: float
    ) -> "NoisyMean":
        """The constants of Theorem 3.2 with n the batch."""
        chosen = paper.theorem_3_2(batch, d, epsilon, delta)
        return cls(batch, d, norm_bound, chosen.g, chosen.b, chosen.p)

    @property
    def honest(self) -> int:
        """Users whose noise is counted on."""
        return honest_users(self.honest_fraction, self.batch)

    @property
    def event(self) -> BinomialSumEvent:
        """What a round costs."""
        return self.randomizer.event(self.honest)

    @property
    def squared_noise(self) -> float:
        """rho^2 = E ||noise of the average||^2 = d (2L/g)^2 (n_b b p (1-p) + n_b/4)/n_b^2, rounding
        at its worst.
        """
        return float(self.randomizer.variance(self.batch).sum()) / self.batch**2

    def estimate(self, tally: Tally) -> Floats:
        """The average over the reports received."""
        return self.randomizer.estimate(tally) / max(tally.reports, 1)

    def spec(self, cohort: Cohort, query: Query) -> RoundSpec:
        """A round of it."""
        # Only an honest fraction below 1 agrees on a floor; at 1 any dropout is stated in the
        # result's epsilon instead.
        minimum = self.honest if self.honest_fraction < 1 else 1
        return RoundSpec(cohort, query, self.randomizer, self.event, self.estimate, minimum)
