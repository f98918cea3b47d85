"""Adaptive inexact projected subgradient (Lowy 2026, Algorithm 3) on the joint problem.

It needs no Lipschitz constant, and its stop certifies the gap. It is for fidelity: on the joint
problem of m rows it takes some m^3 steps and more, so m is at most 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError, positive

MOST_ROWS = 3


def adaptive_subgradient(
    subgradient: Callable[[Floats], Floats],
    project: Callable[[Floats], Floats],
    start: Floats,
    gap: float,
    diameter: float,
    exact: bool = False,
) -> tuple[Floats, int]:
    """(a point whose value is within `gap` of the least, steps).

    eta_t = D/sqrt(S_t), S_t the sum of the squared subgradients; the average of the points is
    returned at the first t with 3 D sqrt(S_t) <= gap t. With exact projections 1.5 will do.

    Args:
        subgradient: of a convex function.
        project: on the domain, to min(D, gap eta_t/(6 D)).
        start: a point of the domain.
        gap: alpha.
        diameter: D of the domain.
        exact: whether projections are exact and the shorter stop is taken.
    """
    positive("gap", gap)
    factor = 1.5 if exact else 3.0
    point, total, squares, steps = start, np.zeros_like(start), 0.0, 0
    while True:
        slope = subgradient(point)
        size = float(slope @ slope)
        steps += 1
        if size == 0:
            return point, steps
        total, squares = total + point, squares + size
        if factor * diameter * math.sqrt(squares) <= gap * steps:
            return total / steps, steps
        point = project(point - diameter / math.sqrt(squares) * slope)


@dataclass(frozen=True)
class JointExtension:
    """mean_i [f(y_i, z_i) + C ||w - y_i||] + (lambda/2) ||w - w_0||^2 over (w, y_1, ..., y_m).

    Its minimum over the y is the problem of the Lipschitz extension f_C (Lowy 2026, Lemma 2.7), of
    any convex loss.

    Attributes:
        loss: f.
        rows: (m, columns), m at most 3.
        domain: W, of w and of every y.
        center: w_0.
        strong: lambda.
        clip: C.

    Raises:
        ParameterError: more rows.
    """

    loss: Loss
    rows: Floats
    domain: Domain
    center: Floats
    strong: float
    clip: float

    def __post_init__(self) -> None:
        """Refuse what would not end."""
        if len(self.rows) > MOST_ROWS:
            allowed = f"at most {MOST_ROWS}: take the clipped surrogate for more (HeavyTailedERM)"
            raise ParameterError("rows", len(self.rows), allowed)

    def minimise(self, gap: float, exact: bool = False) -> tuple[Floats, int]:
        """(w, steps) of `adaptive_subgradient` from the centre."""
        m, d = len(self.rows), self.domain.d

        def subgradient(joint: Floats) -> Floats:
            w, ys = joint[:d], joint[d:].reshape(m, d)
            apart = w - ys
            norms = np.linalg.norm(apart, axis=1, keepdims=True)
            s = apart / np.where(norms > 0, norms, 1.0)
            own = self._own(ys)
            first = self.clip / m * s.sum(axis=0) + self.strong * (w - self.center)
            return np.concatenate([first, ((own - self.clip * s) / m).ravel()])

        def project(joint: Floats) -> Floats:
            blocks = joint.reshape(m + 1, d)
            return np.concatenate([self.domain.project(each) for each in blocks])

        start = np.tile(self.domain.project(self.center), m + 1)
        diameter = self.domain.diameter * math.sqrt(m + 1)
        found, steps = adaptive_subgradient(subgradient, project, start, gap, diameter, exact)
        return found[:d], steps

    def _own(self, ys: Floats) -> Floats:
        """A subgradient of f(y_i, z_i) for each i, (m, d)."""
        if isinstance(self.loss, LinearLoss):
            x, labels = self.rows[:, :-1], self.rows[:, -1]
            return np.asarray(self.loss.derivative((x * ys).sum(axis=1), labels)[:, None] * x)
        pairs = zip(ys, self.rows, strict=True)
        return np.stack([dense(self.loss.gradients(y, row[None], None))[0] for y, row in pairs])
