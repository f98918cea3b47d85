"""What the algorithms for gradients without a bound share: moments, checks, the aggregate."""

import math
from abc import ABC
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.base import Optimiser
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.moments import Moments
from protocols.problems.multiclass import MultiClass
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import WITHHELD, ParameterError
from shuffle_sim.protocol.base import State
from shuffle_sim.protocol.release import CentralAlgorithm

TIMING = "running time is not covered"


class Unbounded(Optimiser[State], CentralAlgorithm[State], ABC, Generic[State]):
    """A curator's optimiser for rows of any length."""

    bounded = False

    def check(self, rows: NDArray[Any]) -> None:
        check_shape(self.problem, rows, self.n)


class PureUnbounded(Unbounded[State], ABC, Generic[State]):
    """A pure one."""

    @property
    def delta(self) -> float:
        """0: pure."""
        return 0.0


def bounded_moments(problem: Problem) -> Moments:
    """The problem's own bound in place of moments.

    Raises:
        ParameterError: it has none.
    """
    bound = problem.loss.lipschitz(problem.domain.radius)
    if problem.norm_bound is not None:
        bound = min(bound, problem.norm_bound)
    if math.isinf(bound):
        allowed = (
            "given where gradients have no bound: moments=Moments(k, gk, g2, g1), or pilot=True "
            "for a private histogram of a tenth of the users"
        )
        raise ParameterError("moments", None, allowed)
    return Moments.bounded(bound)


def check_shape(problem: Problem, rows: NDArray[Any], n: int) -> None:
    """Refuse rows that are no numbers or of another shape, and labels that are no classes.

    Rows of any length are taken; those with NaN or infinity add nothing and are counted.
    """
    shape = (n, problem.loss.columns(problem.d))
    if rows.dtype.kind not in "fiub":
        raise ParameterError("data.dtype", str(rows.dtype), "a real number type")
    if rows.shape != shape:
        raise ParameterError("data.shape", rows.shape, str(shape))
    if isinstance(problem.loss, LinearLoss) and problem.loss.classification:
        finite = np.isfinite(rows).all(axis=1)
        wrong = finite & (np.abs(rows[:, -1]) != 1)
        if wrong.any():
            first = int(np.argmax(wrong))
            allowed = "labelled -1 or +1 (last column)"
            raise ParameterError(f"data[{first}]", WITHHELD, allowed)
    if isinstance(problem.loss, MultiClass):
        # Rows that are not finite add nothing, so their label is not looked at: 0 is a class.
        problem.loss.check_labels(np.where(np.isfinite(rows).all(axis=1), rows[:, -1], 0.0))


def aggregate(outputs: tuple[Floats, ...]) -> Floats:
    """The output whose distance to its (floor(J/2) + 1)-th nearest is least, counting itself.

    If more than half lie within r of a point, the result is within 3 r of it.
    """
    points = np.stack(outputs)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    # A point is its own nearest, at place 0.
    middle = np.sort(apart, axis=1)[:, len(points) // 2]
    return np.asarray(points[int(np.argmin(middle))])
