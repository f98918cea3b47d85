"""The private average of gradients over a cohort: its noise, its bits, and what it costs."""

from dataclasses import dataclass, field
from functools import lru_cache

from protocols.optimisation.setting import NOISE_RATIO, Setting
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import integer, positive
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.events import BinomialSumEvent
from shuffle_sim.privacy.planner import P, Plan, SumSpec, fewest_bits, honest_users
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Query, RoundSpec
from shuffle_sim.wire.messages import Tally

_fewest_bits = lru_cache(fewest_bits)


@dataclass(frozen=True)
class NoisyMean:
    """The average of a batch of vectors in an l2 ball: P_vec, divided by the reports received.

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
        """The fewest bits with at most `noise_ratio` times the central Gaussian's noise.

        spec.n is the batch.
        """
        plan: Plan = _fewest_bits(spec, noise_ratio)
        return cls(spec.n, spec.d, norm_bound, plan.g, plan.b, honest_fraction=spec.honest_fraction)

    @classmethod
    def calibrated_for(cls, setting: Setting, batch: int, rounds: int = 1) -> "NoisyMean":
        """For the gradients of a setting, where each user answers in `rounds` rounds."""
        problem = setting.problem
        spec = SumSpec(batch, problem.d, setting.privacy, rounds, setting.honest_fraction)
        return cls.calibrated(spec, problem.lipschitz, setting.noise_ratio)

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
        """rho^2 = d (2L/g)^2 (n_b b p (1-p) + n_b/4)/n_b^2, with rounding at its worst."""
        return float(self.randomizer.variance(self.batch).sum()) / self.batch**2

    def squared_noise_in(self, setting: Setting, rounds: int = 1) -> float:
        """rho^2 of a setting, once the bits are known: exact in the shuffle model."""
        if setting.trust is Trust.SHUFFLE:
            return self.squared_noise
        return setting.squared_noise(self.batch, rounds)

    def estimate(self, tally: Tally) -> Floats:
        """The average over the reports received."""
        return self.randomizer.estimate(tally) / max(tally.reports, 1)

    def spec(self, cohort: Cohort, query: Query) -> RoundSpec:
        """A round of it."""
        # Only an honest fraction below 1 agrees on a floor; at 1 any dropout is stated in the
        # result's epsilon instead.
        minimum = self.honest if self.honest_fraction < 1 else 1
        return RoundSpec(cohort, query, self.randomizer, self.event, self.estimate, minimum)
