"""The mean of clipped gradients: what a curator's descent asks for."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total


@dataclass(frozen=True)
class ClippedGradient(Statistic):
    """The mean of a loss's clipped gradients at theta, shape (d,); bad rows count as 0.

    Attributes:
        slopes: of any loss, and their clip C.
        theta: where, (d,).
        users: m.
    """

    slopes: Clipped
    theta: Floats
    users: int

    @property
    def sensitivity(self) -> Sensitivity:
        """2 C/m."""
        proof = "one of m gradients differs, and each is no longer than C"
        return Sensitivity(2 * self.slopes.clip / self.users, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return np.asarray(total(partial(self.slopes.gradient, self.theta)) / self.users)
