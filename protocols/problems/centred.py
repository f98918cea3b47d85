"""Features around a released center: what is asked for it, and gradients in its coordinates.

Bounds that people state are wide, and columns lie anywhere within them. Then all rows share one
direction, which slows descent down and makes gradients long. A few rounds release the mean of the
features and their spread. Each user then subtracts the center from its row and divides by the
spread, clipped to the same ball. Any center and any spread are private.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocols.problems.loss import Loss, OfLoss
from shuffle_sim.arrays import Floats, Values, lengths


@dataclass(frozen=True)
class FeatureMoments(OfLoss):
    """<v, theta> for v = (x, ||x||^2/r) L/(sqrt(2) r), of rows x with ||x|| <= r: linear in theta.

    Its gradient is v, no longer than L. So the round that asks for it costs what one that asks for
    gradients costs. Parameters beyond those of v have the gradient 0.

    Attributes:
        loss: whose rows they are; a constant follows the features.
        features: columns of x.
        reach: r.
        norm: L.
    """

    loss: Loss
    features: int
    reach: float
    norm: float

    @property
    def unit(self) -> float:
        """Of v: L/(sqrt(2) r)."""
        # ||(x, ||x||^2/r)||^2 is at most 2 r^2: each half may be as long as r.
        return self.norm / (math.sqrt(2) * self.reach)

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return np.asarray(self.gradients(theta, rows) @ theta)

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Floats:
        x, found = rows[:, : self.features], np.zeros((len(rows), theta.size), order="F")
        np.multiply(x, self.unit, out=found[:, : self.features])
        found[:, self.features] = np.einsum("ij,ij->i", x, x) * (self.unit / self.reach)
        return found

    def lipschitz(self, radius: float) -> float:
        return self.norm

    def smoothness(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Centred(OfLoss):
    """A loss of rows whose features x became z = (x - center)/scale, clipped to ||z|| <= reach.

    `theta` speaks of x: the margins are those of x where nothing is clipped. Gradients are those in
    the parameters of z, which `inward` and `outward` translate.

    Attributes:
        loss: of rows of z, a constant and whatever follows.
        center: public, (features,).
        scale: public, above 0.
        constant: value of the constant, the same for all users.
        reach: clip of z.
    """

    loss: Loss
    center: Floats
    scale: float
    constant: float
    reach: float
    moves: ClassVar[tuple[str, ...]] = ("center", "scale")

    def inward(self, theta: Floats) -> Floats:
        """Parameters of z, of the same margins."""
        found = theta.reshape(-1, self.center.size + 1).copy()
        # <x - center, .> is less by <center, .>: the constant's parameter, times the constant,
        # makes up for it.
        found[:, -1] += found[:, :-1] @ self.center / self.constant
        found[:, :-1] *= self.scale
        return found.reshape(-1)

    def outward(self, theta: Floats) -> Floats:
        """Parameters of x, of the same margins."""
        found = theta.reshape(-1, self.center.size + 1) / self.scale
        found[:, -1] *= self.scale
        found[:, -1] -= found[:, :-1] @ self.center / self.constant
        return found.reshape(-1)

    def rows(self, rows: Floats) -> Floats:
        """With z in place of x."""
        found = rows.astype(np.float64, order="K")
        z = found[:, : self.center.size]
        z -= self.center
        z /= self.scale
        # The clip that privacy rests on, after any center and scale.
        z *= (self.reach / np.maximum(lengths(z), self.reach))[:, None]
        # So does the constant: a row may hold another, and would leave the ball.
        found[:, self.center.size] = self.constant
        return found

    def values(self, theta: Floats, rows: Floats) -> Floats:
        return self.loss.values(self.inward(theta), self.rows(rows))

    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        return self.loss.gradients(self.inward(theta), self.rows(rows), smoothing)
