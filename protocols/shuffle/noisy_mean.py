"""The private average of gradients over a cohort: its noise, its bits, and what it costs."""

from dataclasses import dataclass
from typing import Any

from protocols.optimisation.setting import NOISE_RATIO, Setting
from protocols.sums.encoding import SumRandomizer
from protocols.sums.planned import PlannedVectorSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Datum, Query, RoundSpec
from shuffle_sim.protocol.encodings import choose
from shuffle_sim.registry import registered
from shuffle_sim.wire.messages import Tally


@dataclass(frozen=True)
class NoisyMean:
    """The average of a batch of vectors in an l2 ball: a sum, divided by the reports received.

    Attributes:
        sum: of a batch; its norm bound is L.
    """

    sum: PlannedVectorSum

    @classmethod
    def calibrated(
        cls,
        spec: SumSpec,
        norm_bound: float,
        noise_ratio: float = NOISE_RATIO,
        encoding: str | None = None,
    ) -> "NoisyMean":
        """The fewest bits with at most `noise_ratio` times the central Gaussian's noise.

        spec.n is the batch; where no encoding is given, that of the fewest bits is chosen.
        """
        name, plan = choose(spec, noise_ratio, None, encoding)
        return cls(registered("protocol", name).planned(plan, norm_bound))

    @classmethod
    def calibrated_for(cls, setting: Setting, batch: int, rounds: int = 1) -> "NoisyMean":
        """For the gradients of a setting, where each user answers in `rounds` rounds."""
        spec, norm_bound = setting.sum_of(batch, rounds), setting.problem.lipschitz
        return cls.calibrated(spec, norm_bound, setting.noise_ratio, setting.encoding)

    @classmethod
    def paper(
        cls, batch: int, d: int, norm_bound: float, epsilon: float, delta: float
    ) -> "NoisyMean":
        """The constants of Theorem 3.2 with n the batch."""
        privacy = Privacy(epsilon, delta)
        return cls(VectorSum.paper(n=batch, d=d, privacy=privacy, norm_bound=norm_bound))

    def within(self, norm_bound: float) -> "NoisyMean":
        """The same for vectors of another ball: bits and event are those of this one."""
        made = self.sum
        common = {"n": made.n, "delta": made.delta, "honest_fraction": made.honest_fraction}
        parameters: dict[str, Any] = common | made.parameters
        kind: Any = type(made)
        return NoisyMean(kind(d=made.d, norm_bound=norm_bound, **parameters))

    @property
    def d(self) -> int:
        """Coordinates."""
        return self.sum.d

    @property
    def batch(self) -> int:
        """Users n_b in a round."""
        return self.sum.n

    @property
    def norm_bound(self) -> float:
        """L."""
        return self.sum.norm_bound

    @property
    def honest_fraction(self) -> float:
        """Of the users that add their noise, in every batch."""
        return self.sum.honest_fraction

    @property
    def randomizer(self) -> SumRandomizer:
        """Of each user."""
        return self.sum.randomizer

    @property
    def event(self) -> PrivacyEvent:
        """What a round costs that may ask anything."""
        return self.randomizer.event(self.sum.honest, Datum())

    @property
    def squared_noise(self) -> float:
        """rho^2: the summed variance of the average's coordinates, with rounding at its worst."""
        return float(self.randomizer.variance(self.batch).sum()) / self.batch**2

    def squared_noise_in(self, setting: Setting, rounds: int = 1) -> float:
        """rho^2 of a setting, once the bits are known: exact in the shuffle model."""
        if setting.trust is Trust.SHUFFLE:
            return self.squared_noise
        return setting.squared_noise(self.batch, rounds)

    def bounded_noise_in(self, setting: Setting, rounds: int = 1) -> float:
        """The same as bounds take it: what was planned, or more if that is not kept.

        Bits are whole numbers, so the noise jumps by some percent where n or epsilon grows a
        little. The planned noise does not, and it is no less.
        """
        planned = setting.squared_noise(self.batch, rounds)
        return max(planned, self.squared_noise_in(setting, rounds))

    def estimate(self, tally: Tally) -> Floats:
        """The average over the reports received."""
        # By reports received: dividing by the users planned would shorten the gradient where some
        # drop out.
        return self.randomizer.estimate(tally) / max(tally.reports, 1)

    def spec(self, cohort: Cohort, query: Query) -> RoundSpec:
        """A round of it."""
        return RoundSpec(
            cohort,
            query,
            self.randomizer,
            self.randomizer.event(self.sum.honest, query),
            self.estimate,
            self.sum.minimum,
        )
