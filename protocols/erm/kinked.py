"""Empirical risk of a linear model whose loss has a kink: dual points certify its minimiser."""

import math

import numpy as np

from protocols.erm.objective import (
    BLOCK,
    UNIT,
    Kinked,
    mean_of_rows,
)
from protocols.erm.smooth import LinearERM
from protocols.problems.domains import Domain, L2Ball
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import positive

REFINED = 2
"""How often slopes are levelled for a certificate."""


class KinkedERM(LinearERM, Kinked):
    """`ERM` of a linear model whose loss has one kink: hinge, absolute, pinball.

    In the residual r = sign * margin - place, phi is max(low r, high r), and its slope s lies in
    [low, high]. Any slopes s_i give a dual point v = centre - (mean s_i sign_i x_i + linear)/lambda
    and u = Proj(v), and

        F(u) - F* <= mean[(r_i)_+ (high - s_i) + (-r_i)_+ (s_i - low)],    r_i at u:

    a sum of terms that are not negative, so that no digits are lost (docs: theory, Output
    perturbation, "Certificates").
    """

    @property
    def width(self) -> float:
        return 1.0

    @property
    def least_radius(self) -> float:
        norm = self.reach
        low, high = self.residuals(self.domain.center)[2:]
        # At worst every row is touched (`rows_gap`).
        gap = (high - low) * self._margin_error(norm)
        return math.sqrt(2 * gap / self.ridge) + self._dual_error(norm)

    def smoothed(self, width: float) -> "SmoothedObjective":
        return SmoothedObjective(self, width)

    def residuals(self, w: Floats) -> tuple[Floats, Floats, float, float]:
        """(r, sign, low, high)."""
        kink = self.loss.kink(self.labels)
        assert kink is not None
        sign, place, low, high = kink
        return np.asarray(sign * (self.features @ w) - place), sign, low, high

    def slopes(self, w: Floats, width: float) -> Floats:
        """s of the ramps at w, with its sign: what multiplies x."""
        r, sign, low, high = self.residuals(w)
        return np.asarray(sign * np.clip(r / width, low, high))

    def witness(self, w: Floats, width: float) -> tuple[Floats, float]:
        signed = self.slopes(w, width)
        best = self.dual_point(signed)
        for _ in range(REFINED):
            signed = self._refined(signed)
            best = min(best, self.dual_point(signed), key=lambda each: each[1])
        return best

    def _refined(self, signed: Floats) -> Floats:
        """The least change of the slopes between low and high that puts their rows on the kink."""
        domain, far = self.domain, self._dual(signed)
        point = domain.project(far)
        r, sign, low, high = self.residuals(point)
        s = signed * sign
        free = (s > low) & (s < high)
        moved = levelled(domain, far, self.features[free] * sign[free, None], r[free])
        s[free] = np.clip(s[free] + self.ridge * self.n * moved, low, high)
        return np.asarray(s * sign)

    def _dual(self, signed: Floats) -> Floats:
        mean = mean_of_rows(signed, self.features)
        return np.asarray(self.centre - (mean + self.linear) / self.ridge)

    def dual_point(self, signed: Floats) -> tuple[Floats, float]:
        """(u, r) of slopes times signs, each in its range."""
        point = self.domain.project(self._dual(signed))
        r, sign, low, high = self.residuals(point)
        s = signed * sign
        norm = float(np.linalg.norm(point))
        gap = rows_gap(r, s, low, high, self._margin_error(norm))
        # The computed dual point is exact for a linear term that is lambda times its error off,
        # which moves the minimiser by that error.
        return point, math.sqrt(2 * gap / self.ridge) + self._dual_error(norm)

    def _margin_error(self, norm: float) -> float:
        """Of a margin in doubles, and of a projection in it."""
        return UNIT * self.loss.features * ((self.d + 2) * norm + 8 * (norm + self._offset))

    def _dual_error(self, norm: float) -> float:
        """Of a dual point in doubles, at a projection of this norm."""
        sums = (min(self.n, BLOCK + 4) + 8) * self.loss.lipschitz(norm)
        rest = 4 * float(np.linalg.norm(self.linear))
        return UNIT * ((sums + rest) / self.ridge + 8 * (norm + self._offset))


def levelled(domain: Domain, far: Floats, rows: Floats, r: Floats) -> Floats:
    """The least change of slopes that puts rows on their kinks, over lambda n.

    Args:
        domain: of the dual point's projection.
        far: the dual point, which a slope's change moves by -row/(lambda n).
        rows: whose slopes are free.
        r: their residuals at the projection.
    """
    root = np.eye(len(far))  # of how the point moves with the dual one
    if isinstance(domain, L2Ball) and (size := np.linalg.norm(far - domain.center)) > domain.size:
        # Its square is the derivative of the projection, (I - n n') R/||far - center||.
        normal = (far - domain.center) / size
        root = (root - np.outer(normal, normal)) * math.sqrt(domain.size / size)
    rows = rows @ root
    values, vectors = np.linalg.eigh(rows.T @ rows)
    # Directions that no row shows are left alone: they would only add rounding errors.
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    # Residuals fall by rows rows' change: its pseudo-inverse has the least change.
    across = vectors[:, kept] @ ((vectors[:, kept].T @ (rows.T @ r)) / values[kept] ** 2)
    return np.asarray(rows @ across)


def rows_gap(r: Floats, s: Floats, low: float, high: float, loose: float) -> float:
    """The mean of the rows' gaps for residuals r, known to `loose`, and slopes s."""
    gaps = np.maximum(r, 0.0) * (high - s) + np.maximum(-r, 0.0) * (s - low)
    # A residual off by `loose` moves a gap by (high - low) loose at most; none where it is 0 off
    # the kink.
    touched = float(np.mean((gaps > 0) | (np.abs(r) <= loose)))
    return float(gaps.mean()) * (1 + 1e-12) + (high - low) * loose * touched


class SmoothedObjective(LinearERM):
    """A `KinkedERM` with ramps for kinks: the Moreau envelope in the margin."""

    def __init__(self, kinked: KinkedERM, width: float) -> None:
        """Of the kinked objective; slopes rise by 1/width."""
        super().__init__(
            kinked.loss, kinked.rows, kinked.ridge, kinked.domain, kinked.centre, kinked.linear
        )
        self._kinked, self._width = kinked, positive("width", width)
        self.row_smoothness = kinked.loss.features**2 / width
        self.smoothness = self.row_smoothness + kinked.ridge

    def value_and_gradient(self, w: Floats, want_value: bool = True) -> tuple[float, Floats]:
        """s r - width s^2/2 at the slope s, and its gradient."""
        r, sign, low, high = self._kinked.residuals(w)
        s = np.clip(r / self._width, low, high)
        value = float((s * (r - self._width * s / 2)).mean()) + self._quadratic(w)
        mean = mean_of_rows(np.asarray(s * sign), self.features)
        return value, np.asarray(mean + self.regulariser_gradient(w))

    def value(self, w: Floats) -> float:
        return self.value_and_gradient(w)[0]

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        r, _, low, high = self._kinked.residuals(w)
        # phi'' = 1/width on the ramp, and 0 beside it.
        on = (r > low * self._width) & (r < high * self._width)
        x = self.features[on]
        return np.asarray(x.T @ x / (self.n * self._width) + self.ridge * np.eye(self.d))
