"""Losses whose rows count by public or private weights, each within a public bound."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.problems.loss import ROUNDING, Loss, OfLoss, refuse_rows
from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.errors import ParameterError, positive


@dataclass(frozen=True)
class Weighted(OfLoss):
    """w l(theta; row) with 0 <= w <= bound; rows are those of l, then w.

    Formal guarantee: a user's weight is a part of its row, and private with it. The gradient is at
    most bound times as long as that of l, and the noise is for that. Nobody divides by the sum of
    the weights: it is private.

    Attributes:
        loss: l.
        bound: public; of the weights.
    """

    loss: Loss
    bound: float = 1.0
    more: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss) or isinstance(self.loss, Weighted):
            raise ParameterError("loss", self.loss, "a Loss without weights")
        positive("weight_bound", self.bound)

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return rows[:, -1] * self.loss.values(theta, rows[:, :-1])

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        """Weighted; with `smoothing` beta those of w times the envelope of l for beta/bound.

        That is beta-smooth and at most (bound L)^2/(2 beta) below w l, as an envelope would be.
        """
        # w times what is beta/bound-smooth is beta-smooth, as w is at most bound.
        inner = None if smoothing is None else smoothing / self.bound
        return _times(self.loss.gradients(theta, rows[:, :-1], inner), rows[:, -1])

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        return rows[:, -1] * self.loss.values_at(thetas, rows[:, :-1])

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        return _times(self.loss.gradients_at(thetas, rows[:, :-1]), rows[:, -1])

    def lipschitz(self, radius: float) -> float:
        return self.bound * self.loss.lipschitz(radius)

    def start_norm(self) -> float:
        return self.bound * self.loss.start_norm()

    def smoothness(self) -> float | None:
        beta = self.loss.smoothness()
        return None if beta is None else self.bound * beta

    def pull(self) -> float:
        return self.bound * self.loss.pull()

    def verify(self, radius: float) -> None:
        self.loss.verify(radius)

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        return rows[:, -1] * self.loss.reach_norms(rows[:, :-1], radius)

    def check(self, rows: NDArray[Any], d: int) -> None:
        """As l, and weights from 0 to the bound."""
        self.loss.check(rows[:, :-1], d)
        weights = rows[:, -1]
        bad = ~((weights >= 0) & (weights <= self.bound * ROUNDING))
        refuse_rows(np.asarray(bad), f"weighted from 0 to {self.bound:g} (last column)")


def _times(found: Values, weights: Floats) -> Values:
    if isinstance(found, Scaled):
        return Scaled(found.rows, found.factors * weights, found.squared_norms)
    return found * weights[:, None]
