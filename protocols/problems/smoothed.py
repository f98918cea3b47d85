"""Losses of linear models whose kinks are rounded off by the Moreau envelope in the margin."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Hinge
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive

_NEAR = 1e-4  # of differences, in units of 1/b: a ramp is as long as its rise of slope


@dataclass(frozen=True)
class Smoothed(LinearLoss):
    """phi_b(t, y) = min over s of phi(s, y) + (b/2) (t - s)^2, at most phi and nowhere steeper.

    As a function of theta it is beta-smooth for beta = features^2 b, and at most L^2/(2 beta) below
    the loss. It is again a loss of a linear model, which the envelope over R^d is not.

    Attributes:
        loss: phi.
        curve: b.
    """

    loss: LinearLoss = field(default_factory=Hinge)
    curve: float = 1.0

    def __post_init__(self) -> None:
        """Check the curve; labels are those of the loss."""
        super().__post_init__()
        positive("smoothing", self.curve)
        object.__setattr__(self, "classification", self.loss.classification)

    @classmethod
    def of(cls, loss: object, beta: float) -> Self:
        """With smoothness beta.

        Raises:
            ParameterError: no loss of a linear model with kinks, or no bound of its features.
        """
        if not isinstance(loss, LinearLoss) or loss.smoothness() is not None:
            allowed = (
                "a LinearLoss with kinks: no other has an envelope of values. Take output, or of "
                "persons AcceleratedPhasedERM"
            )
            raise ParameterError("loss", loss, allowed)
        if not loss.features < np.inf:
            raise ParameterError("features", loss.features, "finite for an envelope")
        return cls(loss.features, loss, positive("smoothing", beta) / loss.features**2)

    @property
    def label_bound(self) -> float:
        return self.loss.label_bound

    def value(self, margins: Floats, labels: Floats) -> Floats:
        # The best s is t - c/b, and b/2 (t - s)^2 = c^2/(2 b).
        c = self.derivative(margins, labels)
        return np.asarray(
            self.loss.value(margins - c / self.curve, labels) + c * c / 2 / self.curve
        )

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        # The prox with rows of length 1 and beta = b is that of the margin alone.
        return self.loss.prox(margins, labels, np.ones_like(margins), self.curve)

    def second(self, margins: Floats, labels: Floats) -> Floats:
        """b between the ends of a kink, else 0; by differences where there are several kinks.

        It steers Newton's method, and no certificate rests on it.
        """
        if (kink := self.loss.kink(labels)) is None:
            near = _NEAR / self.curve
            rises = self.derivative(margins + near, labels) - self.derivative(
                margins - near, labels
            )
            return np.asarray(np.clip(rises / (2 * near), 0.0, self.curve))
        sign, _, low, high = kink
        c = sign * self.derivative(margins, labels)
        return np.where((c > low) & (c < high), self.curve, 0.0)

    def slope(self, reach: float) -> float:
        return self.loss.slope(reach)

    def curvature(self) -> float:
        return self.curve

    def pull(self) -> float:
        # At t, c is a slope of phi at s = t - c/b, and -c t = -c s - c^2/b.
        return self.loss.pull()

    def check(self, rows: NDArray[Any], d: int) -> None:
        self.loss.check(rows, d)
