"""One model against the rest for each class, minimised together: one joint sensitivity."""

import math
from dataclasses import dataclass

import numpy as np

from protocols.erm.kinked import KinkedERM
from protocols.erm.objective import Kinked, Objective
from protocols.erm.risk import Risk
from protocols.problems.domains import Domain, RealSpace
from protocols.problems.losses import Hinge
from protocols.problems.multiclass import OneVsRestHinge
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive


class Stacked(Objective):
    """A sum of objectives of parameters of their own, over R^d."""

    def __init__(self, parts: list[Objective]) -> None:
        """Of the parts, in order."""
        self.parts, self.n = parts, parts[0].n
        self.domain: Domain = RealSpace(sum(part.d for part in parts))
        self.strong_convexity = min(part.strong_convexity for part in parts)
        self.smoothness = max(part.smoothness for part in parts)

    def split(self, w: Floats) -> list[tuple[Objective, Floats]]:
        """The parts, each with its parameters."""
        ends = np.cumsum([part.d for part in self.parts])[:-1]
        return list(zip(self.parts, np.split(w, ends), strict=True))

    def value(self, w: Floats) -> float:
        return sum(part.value(each) for part, each in self.split(w))

    def gradient(self, w: Floats) -> Floats:
        return np.concatenate([part.gradient(each) for part, each in self.split(w)])

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        found, low = np.zeros((self.d, self.d)), 0
        for part, each in self.split(w):
            block = part.hessian(each, stride)
            if block is None:
                return None
            found[low : low + part.d, low : low + part.d] = block
            low += part.d
        return found

    def rounding(self, w: Floats) -> float:
        # Parts have parameters of their own: the squares of their errors add up.
        return math.hypot(*(part.rounding(each) for part, each in self.split(w)))

    @property
    def least_radius(self) -> float:
        return math.hypot(*(part.least_radius for part in self.parts))


class KinkedStack(Stacked, Kinked):
    """`Stacked` of objectives with kinks."""

    def smoothed(self, width: float) -> Stacked:
        return Stacked([part.smoothed(width) for part in self._kinked])

    def witness(self, w: Floats, width: float) -> tuple[Floats, float]:
        pairs = [
            part.witness(each, width)
            for part, (_, each) in zip(self._kinked, self.split(w), strict=True)
        ]
        return np.concatenate([point for point, _ in pairs]), math.hypot(*(r for _, r in pairs))

    @property
    def width(self) -> float:
        return max(part.width for part in self._kinked)

    @property
    def _kinked(self) -> list[Kinked]:
        return [part for part in self.parts if isinstance(part, Kinked)]


@dataclass(frozen=True)
class OneVsRestRisk(Risk):
    """The risk of `OneVsRestHinge` over R^d: classes are minimised apart, and charged once.

    A row moves the minimiser of every class by 2 B/(lambda n), all together by sqrt(K) times that.
    """

    certified = False  # class by class

    def __post_init__(self) -> None:
        if self.shape[0] != "real" or not isinstance(self.loss, OneVsRestHinge):
            raise ParameterError("domain", self.shape[0], "RealSpace, for one model a class")
        positive("ridge", self.ridge)

    def objective(self, rows: Floats) -> Objective:
        assert isinstance(self.loss, OneVsRestHinge)
        x, y, classes = rows[:, :-1], rows[:, -1], self.loss.classes
        space, hinge = RealSpace(self.d // classes), Hinge(self.loss.features)
        signed = [np.column_stack([x, np.where(y == k, 1.0, -1.0)]) for k in range(classes)]
        return KinkedStack([KinkedERM(hinge, each, self.ridge, space) for each in signed])
