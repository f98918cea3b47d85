"""The mean over persons of what a query asks, clipped about a center."""

from dataclasses import dataclass

import numpy as np

from protocols.central.person.chained_mean import clipped
from protocols.problems.per_person import MeanGradient
from shuffle_sim.arrays import Floats
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total


@dataclass(frozen=True)
class CenteredMean(Statistic):
    """The mean over persons of what a query asks, clipped to a radius; what is not finite is 0.

    Attributes:
        query: of each person, less the center.
        radius: rho.
        users: n_i.
    """

    query: MeanGradient
    radius: float
    users: int

    @property
    def sensitivity(self) -> Sensitivity:
        """2 rho/n_i."""
        proof = "two vectors of norm at most rho are at most 2 rho apart; one of n_i differs"
        return Sensitivity(2 * self.radius / self.users, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return total(self.part) / self.users

    def part(self, rows: Floats) -> Floats:
        """The sum over some persons."""
        with np.errstate(all="ignore"):  # records may be anything
            values = np.asarray(self.query(rows))
        return np.asarray(clipped(values, self.radius).sum(axis=0))
