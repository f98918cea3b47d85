"""What every shuffle result is held against: the same optimiser under another trust model.

A baseline translates each round of an optimiser into a release of the curator: the same average of
the same clipped gradients, with another trust model's noise. The curator draws it in one place: a
baseline of the local model simulates it, and does not deploy it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.base import Optimiser
from protocols.selection.bounds import ChosenBounds
from protocols.sums.encoding import SumRandomizer
from shuffle_sim.arrays import Floats, Scaled
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian, LocalGaussian, Noise, WithoutNoise
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic, Total
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.kernels import fortran

BASELINES = Trust.CENTRAL, Trust.LOCAL, Trust.NONE


@dataclass(frozen=True)
class ClippedMean(Statistic):
    """The average over a cohort of what a round asks, brought into the randomizer's l2 ball.

    Attributes:
        query: what is asked of each row.
        norm_bound: L, to which longer values are clipped; values that are not finite count as 0.
        users: n, by which the sum is divided.
        randomizer: whose ball it is.

    Raises:
        ParameterError: the randomizer's ball has another radius, or no users.
    """

    query: Query
    norm_bound: float
    users: int
    randomizer: SumRandomizer

    def __post_init__(self) -> None:
        """Check that the stated sensitivity is that of the value."""
        integer("users", self.users)
        if self.norm_bound != self.randomizer.norm_bound:
            allowed = f"that of the randomizer, {self.randomizer.norm_bound}"
            raise ParameterError("norm_bound", self.norm_bound, allowed)

    @property
    def sensitivity(self) -> Sensitivity:
        """2 L / n."""
        proof = "two vectors of norm at most L are at most 2 L apart; one of n summands differs"
        return Sensitivity(2 * self.norm_bound / self.users, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return total(self.part) / self.users

    def part(self, rows: Floats) -> Floats:
        """The sum of the clipped values of some rows."""
        values, _, _ = admitted(self.query(fortran(rows)), self.randomizer)
        if isinstance(values, Scaled):
            return np.asarray(values.factors @ values.rows)
        return np.asarray(values.sum(axis=0))


class Baseline(CentralAlgorithm[Any]):
    """An optimiser's own plan and updates with another trust model's noise on its averages.

    Steps and batches are the optimiser's; `calibrated(..., trust=...)` chooses them for the
    baseline's noise. Formal guarantee: analytic Gaussian noise on each average (central), or on
    each user's vector (local), composed over the rounds that a user answers in; nothing for none.

    Attributes:
        optimiser: whose rounds are translated.
        trust: central, local or none.
    """

    def __init__(
        self,
        optimiser: Optimiser[Any],
        trust: Trust | str,
        privacy: Privacy | None = None,
    ) -> None:
        """Translate the rounds of `optimiser`; by default for the privacy that it was made for.

        Raises:
            ParameterError: not an optimiser, or the trust of the shuffle model.
        """
        self.trust = Trust.of(trust)
        if self.trust not in BASELINES:
            raise ParameterError("trust", trust, f"one of {', '.join(BASELINES)}")
        if not (isinstance(optimiser, Optimiser) and isinstance(optimiser, Protocol)):
            allowed = "a shuffle optimiser, such as ShuffleSGD.calibrated(...)"
            raise ParameterError("optimiser", type(optimiser).__name__, allowed)
        self.optimiser, self.unit = optimiser, optimiser.unit
        self._steps: Any = optimiser  # whose states these are
        self.privacy = optimiser.privacy if privacy is None else privacy
        if self.trust is not Trust.NONE:
            times = optimiser.rounds_per_user
            # One multiplier for all rounds of a user: the sensitivity of each round scales it.
            self._multiplier = Gaussian.calibrated(self.privacy, times).noise_multiplier

    @property
    def users(self) -> int:
        return self.optimiser.users

    @property
    def delta(self) -> float:
        return self.privacy.delta

    @property
    def bound(self) -> float:
        """The optimiser's, for the noise that its steps were chosen for."""
        return self.optimiser.bound

    @property
    def assumes(self) -> str:
        """What the optimiser's bound does."""
        return self.optimiser.assumes

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen, and why: the optimiser's."""
        choices: dict[str, str] = self._steps.choices
        return choices

    @property
    def rounds_per_user(self) -> int:
        """In how many releases a user takes part at most."""
        return int(self._steps.rounds_per_user)

    def check(self, rows: NDArray[Any]) -> None:
        self._steps.check(rows)

    @property
    def most_records(self) -> int:
        return self.optimiser.most_records

    @property
    def believed(self) -> tuple[str, ...]:
        return self.optimiser.believed

    def check_records(self, records: NDArray[Any]) -> None:
        self.optimiser.check_records(records)

    def init(self) -> Any:
        return self._steps.init()

    def plan(self, state: Any) -> Release | None:
        spec = self._steps.plan(state)
        return None if spec is None else self.translated(spec)

    def translated(self, spec: RoundSpec) -> Release:
        """The release of a round's average under the baseline's trust.

        Raises:
            ParameterError: the round is no sum of vectors in an l2 ball.
        """
        randomizer, users = spec.randomizer, spec.cohort.size
        if not isinstance(randomizer, SumRandomizer) or randomizer.norm_bound is None:
            raise ParameterError("randomizer", randomizer, "that of a sum in an l2 ball")
        mean = ClippedMean(spec.query, randomizer.norm_bound, users, randomizer)
        return Release.of(spec.cohort, mean, self._mechanism(users))

    def _mechanism(self, users: int) -> Noise:
        if self.trust is Trust.NONE:
            return WithoutNoise()
        if self.trust is Trust.LOCAL:
            # Noise of each of so many users: their mean has it over sqrt(users).
            return LocalGaussian(self._multiplier, users)
        return Gaussian(self._multiplier)

    def update(self, state: Any, estimate: Any) -> Any:
        return self._steps.update(state, estimate)

    def result(self, state: Any) -> Any:
        return self._steps.result(state)


class CuratedBounds(Baseline):
    """A private choice of bounds and the optimiser behind it, both with a curator's noise.

    Formal guarantee: the histogram has analytic Gaussian noise for its part of the budget, and the
    rounds share what is left; Gaussian releases compose exactly.
    """

    def __init__(self, chosen: ChosenBounds) -> None:
        """Translate the histogram and the rounds."""
        inner: Any = chosen.inner
        super().__init__(inner, Trust.CENTRAL)
        self.chosen = self._steps = chosen
        self._histogram = Gaussian.calibrated(chosen.part, 1)

    def plan(self, state: Any) -> Release | None:
        made = super().plan(state)
        if made is None or state.results:
            return made
        # The first release: its part of the budget is its own, not a round's.
        return replace(made, mechanism=self._histogram)

    def update(self, state: Any, estimate: Any) -> Any:
        # A release is a mean; bins are chosen by counts, and later stages want the reports, too.
        counts = np.asarray(estimate) * self.users
        return super().update(state, (estimate, self.users) if state.results else counts)
