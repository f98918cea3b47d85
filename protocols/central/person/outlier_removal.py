"""Outlying gradients left out: the friendly mean of persons' gradients, behind above-threshold.

The alternative to clipping around a center in `AcceleratedPhasedERM`, as in Lowy, Liu and Asi 2024,
Algorithm 2. It asks for some thousands of persons: the margins of two Laplace noises are paid in
points.
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.central.person.chained_mean import clipped
from protocols.central.person.friendly import MAX_POINTS, FriendlyMean
from protocols.central.person.gathering import gathered
from protocols.problems.per_person import MeanGradient
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.guarded_threshold import GuardedThreshold
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total

SCORE_SENSITIVITY = 3.0
"""Of Q: one point moves it by 3 - 2/C at most."""
SHARES = 0.2, 0.1
"""Of epsilon for the threshold, and of delta for its tail."""


@dataclass(frozen=True)
class FriendlyScore(Statistic):
    """Q of the persons' gradients: how many of them agree.

    Attributes:
        query: of each person.
        mean: of the persons.
        limit: L, to which a person's gradient is clipped.
    """

    query: MeanGradient
    mean: FriendlyMean
    limit: float

    @property
    def sensitivity(self) -> Sensitivity:
        """3."""
        proof = "one point changes weights by at most 3 - 2/C together"
        return Sensitivity(SCORE_SENSITIVITY, "l2", proof)

    def __call__(self, total: Total, users: int) -> float:
        friends = self.mean.friends(gathered(total, _Asked(self.query, self.limit)))
        C = self.mean.points
        # Q = C - sum_j min(1, 2 (1 - h_j/C)), whole numbers up to the quotient.
        return C - float(np.minimum(C, 2 * (C - friends)).sum()) / C


@dataclass(frozen=True)
class FriendlyGradient(Statistic):
    """The friendly mean of the persons' gradients.

    Attributes:
        query: of each person.
        mean: of the persons; its K is of the score that above-threshold assures.
        limit: L, to which a person's gradient is clipped. What means of such points round off is
            in the sensitivity.
    """

    query: MeanGradient
    mean: FriendlyMean
    limit: float

    @property
    def sensitivity(self) -> Sensitivity:
        proof = "friendly mean (docs: theory, Friendly mean), assured by above-threshold"
        return Sensitivity(self.mean.rounded(self.limit), "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return self.mean(gathered(total, _Asked(self.query, self.limit)))[1]


@dataclass(frozen=True)
class Removal:
    """What a phase's rounds are asked by.

    Attributes:
        guard: above-threshold on Q.
        mean: of persons' gradients.
        mechanism: of each round.

    Raises:
        ParameterError: the guard does not assure the score that the mean's sensitivity needs.
    """

    guard: GuardedThreshold
    mean: FriendlyMean
    mechanism: Gaussian

    def __post_init__(self) -> None:
        """C - 3 K of both neighbours is needed, and the guard assures it of one."""
        least = self.mean.points - 3 * self.mean.largest + SCORE_SENSITIVITY
        if not self.guard.assured >= least:
            allowed = f"of a guard that assures Q = {least:g}; it assures {self.guard.assured:.6g}"
            raise ParameterError("removal.mean", self.mean, allowed)

    @classmethod
    def calibrated(cls, privacy: Privacy, persons: int, rounds: int, radius: float) -> "Removal":
        """The least noise with which so many rounds are private together.

        Args:
            privacy: of a phase.
            persons: of it.
            rounds: queries, and releases.
            radius: r of friends.

        Raises:
            ParameterError: too few persons for the margins of the two noises, or too many to look
                at all pairs.
        """
        integer("n", persons, 1, MAX_POINTS)
        epsilon, tail = SHARES[0] * privacy.epsilon, SHARES[1] * privacy.delta
        guard = GuardedThreshold(epsilon, float(persons), SCORE_SENSITIVITY, rounds, tail)
        # Q = C passes half of the time at a threshold of C: one margin lower it nearly always does.
        threshold = persons - guard.margin
        guard = GuardedThreshold(epsilon, threshold, SCORE_SENSITIVITY, rounds, tail)
        least = guard.assured - SCORE_SENSITIVITY  # of both neighbours
        missing = math.ceil((persons - least) / 3)
        try:
            mean = FriendlyMean(persons, radius, missing)
        except ParameterError as error:
            # K = ceil((2 margin + 3)/3) here, and 3 K + 3 is below 2 margin + 9.
            allowed = f"at least {math.ceil(2 * guard.margin + 9)} in a phase: both margins"
            raise ParameterError("n", persons, allowed) from error

        def lost(mu: float) -> float:
            return Parts(((epsilon, 0.0, 1),), mu, tail).delta(privacy.epsilon)

        low, high = 1e-9, 1e3  # mu of all gradients together; `low` stays on the private side
        for _ in range(200):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if lost(middle) <= privacy.delta else (low, middle)
        if lost(low) > privacy.delta:
            raise ParameterError("privacy", privacy, "larger: the guard alone costs more")
        # Squares of mu add up over the rounds.
        return cls(guard, mean, Gaussian(math.sqrt(rounds) / low))


class _Asked:
    """A query and its clip as a function that can be sent to shards."""

    def __init__(self, query: MeanGradient, limit: float) -> None:
        self._query, self._limit = query, limit

    def __call__(self, rows: Floats) -> Floats:
        with np.errstate(all="ignore"):  # records may be anything
            return clipped(np.asarray(self._query(rows)), self._limit)
