"""k-means in the shuffle model: a private sum a round."""

from typing import Any

from protocols.optimisation.lloyd import ClusterSpread, Lloyd, LloydState, Nearest
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.sums.planned import planned_sum
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Protocol, RoundSpec


class ShuffleLloyd(Lloyd, Protocol[LloydState]):
    """`Lloyd` with noise of all users: each answers in every round.

    Formal guarantee: the domination lemma with adaptive Gaussian composition over the rounds.

    Attributes:
        mean: of the answers of a round.
    """

    def __init__(
        self,
        *,
        encoding: str | None = None,
        honest_fraction: float = 1.0,
        **given: Any,
    ) -> None:
        """As of `Lloyd`.

        Args:
            encoding: of numbers as messages; None: that of the fewest bits.
            honest_fraction: of the users that add their noise.
            given: of `Lloyd`.
        """
        self.encoding, self.honest_fraction = encoding, honest_fraction
        super().__init__(**given)

    def _noise(self) -> float:
        # Planned for all rounds at once: each user answers in every one.
        args = self.n, self.coordinates, self.privacy, self.rounds, self.honest_fraction
        self.mean = NoisyMean(planned_sum(SumSpec(*args), self.encoding, self.length))
        return self.mean.sum.standard_error / self.n

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (ClusterSpread, Nearest, type(self.mean.randomizer))

    def plan(self, state: LloydState) -> RoundSpec | None:
        if state.round >= self.rounds:
            return None
        return self.mean.spec(Cohort.of(0, self.n), self.query(state))
