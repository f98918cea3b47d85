"""A strongly convex loss without its bowl: what is left is convex, and often far less steep.

Proofs: docs/theory/user-level.md, "Strongly convex losses".
"""

import math
from dataclasses import dataclass

import numpy as np

from protocols.problems.loss import Loss, OfLoss
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import ParameterError, real


@dataclass(frozen=True)
class Flattened(OfLoss):
    """l(theta; row) - (bowl/2) ||theta||^2 of a loss l that is bowl-strongly convex.

    Attributes:
        loss: l.
        bowl: above 0, and at most what l states.
    """

    loss: Loss
    bowl: float

    def __post_init__(self) -> None:
        most = self.loss.strong_convexity()
        if not most > 0:
            raise ParameterError("bowl", self.bowl, "0: the loss is not strongly convex")
        real("bowl", self.bowl, 0.0, most, closed=(False, True))

    @property
    def classification(self) -> bool:
        """As of l: whether labels are -1 and +1."""
        return bool(getattr(self.loss, "classification", False))

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return np.asarray(self.loss.values(theta, rows) - self.bowl / 2 * float(theta @ theta))

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        if smoothing is not None:
            raise ParameterError("smoothing", smoothing, "None: the bowl is that of l itself")
        return np.asarray(dense(self.loss.gradients(theta, rows)) - self.bowl * theta)

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        squares = np.einsum("ij,ij->i", thetas, thetas)
        return np.asarray(self.loss.values_at(thetas, rows) - self.bowl / 2 * squares)

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        return np.asarray(dense(self.loss.gradients_at(thetas, rows)) - self.bowl * thetas)

    def lipschitz(self, radius: float) -> float:
        # Wide: rounding errors are those of both terms, whatever is left. `steepest` is tight.
        return self.loss.lipschitz(radius) + self.bowl * radius

    def strong_convexity(self) -> float:
        return self.loss.strong_convexity() - self.bowl

    def steepest(self, radius: float) -> float:
        """No gradient is longer where ||theta|| <= radius; at most sqrt(2) times l's own bound.

        At 0 it is that of l. From there it grows by beta - bowl at most; and that of l grows along
        theta by bowl at least.
        """
        own, at, beta = self.loss.lipschitz(radius), self.loss.start_norm(), self.loss.smoothness()
        # ||g - bowl theta||^2 <= L^2 + rise (2 L_0 - rise), rise = bowl ||theta||: most at L_0.
        rise = min(self.bowl * radius, at)
        found = math.sqrt(own**2 + rise * (2 * at - rise))
        if beta is None:
            return found
        return min(found, at + (beta - self.bowl) * radius)
