"""k-means of a trusted curator: the same steps, with exactly the noise that they need."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.optimisation.lloyd import Lloyd, LloydState
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace, Noise
from shuffle_sim.protocol.base import Query
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic, Total


@dataclass(frozen=True)
class MeanAnswer(Statistic):
    """The average of what a query asks, which proves how far the answers of neighbours are apart.

    Attributes:
        query: what is asked of each row; an answer that is not finite counts as 0.
        users: by which the sum is divided.
    """

    query: Query
    users: int

    @property
    def sensitivity(self) -> Sensitivity:
        proof = "one of the answers differs, by as much as the query lets it"
        return Sensitivity(self.query.apart / self.users, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return np.asarray(total(self.part) / self.users)

    def part(self, rows: Floats) -> Floats:
        """The sum of the answers of some rows."""
        found = np.asarray(self.query(rows))
        return np.asarray(np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 0).sum(0))


class CentralLloyd(Lloyd, CentralAlgorithm[LloydState]):
    """`Lloyd` with a curator's noise: Gaussian, or at delta = 0 of density exp(-rate ||z||).

    Formal guarantee: that of the mechanism, over all rounds: Gaussian releases compose exactly, and
    epsilons of pure ones add up.
    """

    mark = 1.0  # costs nothing here: the sensitivity is that of the distances

    def _noise(self) -> float:
        apart = self.query(self.init()).apart
        self.mechanism: Noise
        if self.privacy.delta > 0:
            self.mechanism = Gaussian.calibrated(self.privacy, self.rounds)
        else:
            # Pure epsilons of rounds add up; Gaussians compose by their squares, in `calibrated`.
            self.mechanism = L2Laplace(self.privacy.epsilon / self.rounds, self.coordinates)
        # Of one coordinate: an l2 error over sqrt(d).
        return self.mechanism.error(apart / self.n, self.coordinates) / math.sqrt(self.coordinates)

    def plan(self, state: LloydState) -> Release | None:
        if state.round >= self.rounds:
            return None
        mean: Any = MeanAnswer(self.query(state), self.n)
        return Release.of(Cohort.of(0, self.n), mean, self.mechanism)
