"""Losses of the residual <x, theta> - y: squared, Huber, pinball, absolute."""

import math
from dataclasses import dataclass

import numpy as np

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import ramp
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import positive, real


@dataclass(frozen=True)
class Regression(LinearLoss):
    """A loss of the residual margin - y.

    Attributes:
        features: l2 bound of the features.
        labels: bound of |y|; None: none, where L does not need it.
    """

    labels: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None:
            positive("labels", self.labels)

    @property
    def label_bound(self) -> float:
        return math.inf if self.labels is None else self.labels


@dataclass(frozen=True)
class Squared(Regression):
    """(margin - y)^2/2; Lipschitz only on a bounded domain and with bounded labels."""

    def value(self, margins: Floats, labels: Floats) -> Floats:
        return np.asarray((margins - labels) ** 2 / 2)

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        return margins - labels

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        return np.asarray((margins - labels) / (1 + squared_norms / beta))

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        return np.ones_like(margins)

    def pull(self) -> float:
        """(y - m) m is at most y^2/4."""
        return self.label_bound**2 / 4

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        norms = np.hypot.reduce(rows[:, :-1], axis=1)
        return np.asarray(norms * (norms * radius + np.abs(rows[:, -1])))

    def slope(self, reach: float) -> float:
        return reach + self.label_bound

    def curvature(self) -> float | None:
        return 1.0


@dataclass(frozen=True)
class Huber(Regression):
    """Squared up to a residual of `threshold`, linear above (Huber 1964).

    Attributes:
        features: l2 bound of the features.
        labels: bound of |y|, or None.
        threshold: where it becomes linear.
    """

    threshold: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("threshold", self.threshold)

    def value(self, margins: Floats, labels: Floats) -> Floats:
        """r^2/2 up to the threshold k, then k |r| - k^2/2."""
        size = np.abs(margins - labels)
        inside = np.minimum(size, self.threshold)
        # Both branches in one: size^2/2, and k size - k^2/2.
        return np.asarray(inside * (size - inside / 2))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        return np.asarray(np.clip(margins - labels, -self.threshold, self.threshold))

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        return np.asarray(
            np.clip(
                (margins - labels) / (1 + squared_norms / beta), -self.threshold, self.threshold
            )
        )

    def second(self, margins: Floats, labels: Floats) -> Floats | None:
        return np.where(np.abs(margins - labels) <= self.threshold, 1.0, 0.0)

    def pull(self) -> float:
        """(y - m) m is at most y^2/4, and a slope at most the threshold."""
        # Beyond the label the slope points back: m counts up to y.
        return min(self.label_bound**2 / 4, self.threshold * self.label_bound)

    def slope(self, reach: float) -> float:
        return min(self.threshold, reach + self.label_bound)

    def curvature(self) -> float | None:
        return 1.0


@dataclass(frozen=True)
class Pinball(Regression):
    """The quantile loss: `quantile` of y - margin above the prediction, 1 - quantile below.

    Attributes:
        features: l2 bound of the features.
        labels: bound of |y|, or None.
        quantile: in (0, 1); which conditional quantile of y is fitted.
    """

    quantile: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        real("quantile", self.quantile, 0.0, 1.0, closed=(False, False))

    def value(self, margins: Floats, labels: Floats) -> Floats:
        r = margins - labels
        return np.asarray(np.maximum((1 - self.quantile) * r, -self.quantile * r))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        """1 - q above the label, -q below."""
        r = margins - labels
        return np.where(r > 0, 1 - self.quantile, np.where(r < 0, -self.quantile, 0.0))

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        return ramp(margins - labels, squared_norms / beta, -self.quantile, 1 - self.quantile)

    def kink(self, labels: Floats) -> tuple[Floats, Floats, float, float] | None:
        return np.ones_like(labels), labels, -self.quantile, 1 - self.quantile

    def pull(self) -> float:
        return max(self.quantile, 1 - self.quantile) * self.label_bound

    def slope(self, reach: float) -> float:
        return max(self.quantile, 1 - self.quantile)

    def curvature(self) -> float | None:
        return None


@dataclass(frozen=True)
class Absolute(Regression):
    """|margin - y|."""

    def value(self, margins: Floats, labels: Floats) -> Floats:
        return np.asarray(np.abs(margins - labels))

    def derivative(self, margins: Floats, labels: Floats) -> Floats:
        return np.asarray(np.sign(margins - labels))

    def prox(self, margins: Floats, labels: Floats, squared_norms: Floats, beta: float) -> Floats:
        return ramp(margins - labels, squared_norms / beta, -1.0, 1.0)

    def kink(self, labels: Floats) -> tuple[Floats, Floats, float, float] | None:
        return np.ones_like(labels), labels, -1.0, 1.0

    def pull(self) -> float:
        return self.label_bound

    def slope(self, reach: float) -> float:
        return 1.0

    def curvature(self) -> float | None:
        return None
