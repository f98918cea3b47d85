"""A problem as a convex loss and a ridge: which share of a loss's own curvature is the ridge's."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from protocols.erm.extension import valid_records
from protocols.problems.flattened import Flattened
from protocols.problems.held import hold_between
from protocols.problems.loss import Loss
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError

_TRIED = 64  # rows at which a stated curvature is held against gradients


@dataclass(frozen=True, eq=False)
class Parts:
    """The objective as mean_i h_i + (ridge/2) ||theta||^2 with h_i convex.

    Attributes:
        loss: whose means over a person's records the h_i are.
        ridge: the problem's own, and what the loss gave of its curvature.
        slope: bound of the slopes of the loss; the extension enforces it.
        spread: of a person's slope, root mean square, for bounds alone.
        bowl: what the loss gave.
    """

    loss: Loss
    ridge: float
    slope: float
    spread: float
    bowl: float = 0.0

    @classmethod
    def of(cls, problem: Problem, bowl: float = 0.0) -> Self:
        """Where the loss gives `bowl` of its strong convexity to the ridge.

        Raises:
            ParameterError: it has less, or rows refute what it states; or a norm bound, as
                slopes that are clipped are those of no strongly convex loss.
        """
        if not bowl:
            return cls(problem.loss, problem.ridge, problem.lipschitz, problem.spread)
        if problem.norm_bound is not None:
            raise ParameterError("bowl", bowl, "0 with a norm_bound: it clips slopes as they are")
        flat = Flattened(problem.loss, bowl)
        hold_between(problem.loss, _tried(flat, problem.d), problem.d, problem.domain.radius)
        slope = flat.steepest(problem.domain.radius)
        # All rows lose the same slope, so they lie as far apart as before.
        spread = min(problem.spread, slope / problem.records**0.5)
        return cls(flat, problem.ridge + bowl, slope, spread, bowl)

    @classmethod
    def choices(cls, problem: Problem) -> tuple[Self, ...]:
        """Those worth a plan: the loss gives nothing, or all of its curvature."""
        own = problem.loss.strong_convexity()
        plain = cls.of(problem)
        return (
            (plain,) if problem.norm_bound is not None or not own else (plain, cls.of(problem, own))
        )


def _tried(loss: Loss, d: int) -> Floats:
    """Rows of several lengths; those that the loss refuses count as its fixed one."""
    rows = np.random.default_rng(0).normal(size=(_TRIED, loss.columns(d)))
    rows *= np.geomspace(1e-3, 1.0, _TRIED)[:, None] / np.linalg.norm(rows, axis=1)[:, None]
    signed = rows.copy()
    signed[:, -1] = np.where(rows[:, -1] > 0, 1.0, -1.0)  # a label, if it is one
    return valid_records(loss, d, np.concatenate([rows, signed, 0 * rows[:1]]))
