"""Losses that are not what they state, in algorithms of a curator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols import (
    Gibbs,
    HeavyTailedERM,
    Huber,
    L2Ball,
    Logistic,
    ObjectivePerturbation,
    OutputPerturbation,
    Problem,
    Squared,
)
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss, OfLoss
from shuffle_sim import Privacy
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.protocol.release import CentralAlgorithm

_PRIVACY = Privacy(1.0, 1e-6)
SQUARED = Squared(1.0, 1.0)
Made = Callable[..., CentralAlgorithm[Any]]


def minimises(loss: Any) -> Made:
    """How `curated` makes an algorithm that minimises it."""

    def made(*, n: int, d: int, **_: Any) -> CentralAlgorithm[Any]:
        problem = Problem(loss, L2Ball(d - 1, 2.0), ridge=0.5)
        return OutputPerturbation.calibrated(n=n, problem=problem, privacy=_PRIVACY)

    return made


def perturbs(*, n: int, d: int, **_: Any) -> CentralAlgorithm[Any]:
    """Its noise is a linear term, and a little after the minimiser."""
    problem = Problem(Logistic(), L2Ball(d - 1, 2.0), ridge=0.5)
    return ObjectivePerturbation.calibrated(n=n, problem=problem, privacy=_PRIVACY)


def draws(*, n: int, d: int, **_: Any) -> CentralAlgorithm[Any]:
    """It draws from a density on the rows."""
    problem = Problem(Logistic(), L2Ball(d - 1, 2.0), ridge=0.5)
    return Gibbs.calibrated(n=n, problem=problem, privacy=_PRIVACY)


def clips(*, n: int, d: int, **_: Any) -> CentralAlgorithm[Any]:
    """It takes a loss with kinks, whose envelope is clipped."""
    problem = Problem(Huber(threshold=0.2), L2Ball(d - 1, 2.0), norm_bound=0.5)
    return HeavyTailedERM.calibrated(n=n, problem=problem, privacy=Privacy(1.0, 0.0))


@dataclass(frozen=True)
class Turned(OfLoss):
    """A loss times a number of the row; subclasses say which."""

    loss: Loss

    def times(self, rows: Floats) -> Floats:
        return np.where((rows[:, 0] > 0.6) & (rows[:, 1] > 0.4), 4.0, 1.0)

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return np.asarray(self.times(rows) * self.loss.values(theta, rows))

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Floats:
        return self.times(rows)[:, None] * dense(self.loss.gradients(theta, rows, smoothing))

    def check(self, rows: Any, d: int) -> None:
        self.loss.check(rows, d)


class RareSlope(Turned):
    """Rows of one corner count four times."""


@dataclass(frozen=True)
class HalfSmooth(Squared):
    """It bends twice as much as it states."""

    def smoothness(self) -> float:
        return super().smoothness() / 2


class Falling(Turned):
    """Some rows have a concave loss."""

    def times(self, rows: Floats) -> Floats:
        return np.where(rows[:, 0] > 0.5, -1.0, 1.0)


def rows_in_a_cube(patch: Any) -> None:
    """Rows are checked by their largest feature."""
    patch.setattr(
        "protocols.problems.linear_loss.lengths", lambda rows: np.abs(rows).max(axis=1, initial=0)
    )


def surrogate_unclipped(patch: Any) -> None:
    """Factors of long rows are those of the loss."""
    true = LinearLoss.clipped_prox

    def clipped_prox(self, margins, labels, norms, beta, clip):
        return true(self, margins, labels, norms, beta, 30 * clip)

    patch.setattr(LinearLoss, "clipped_prox", clipped_prox)


PLANTED: dict[str, tuple[Made, Any]] = {
    "rare rows that are steep": (minimises(RareSlope(SQUARED)), None),
    "half of the smoothness stated": (minimises(HalfSmooth(1.0, 1.0)), None),
    "concave rows": (minimises(Falling(SQUARED)), None),
    "rows in a cube": (minimises(SQUARED), rows_in_a_cube),
    "a surrogate without its clip": (clips, surrogate_unclipped),
}
"""By name: how the algorithm is made, and what is broken beside."""
