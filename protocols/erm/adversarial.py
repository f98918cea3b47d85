"""Adversarial training of linear models: every row is moved as badly as a budget allows.

The inner maximum is closed: max over ||v||_p <= r of phi(y <w, x + v>) = phi(y <w, x> - r ||w||_q)
for phi that falls, 1/p + 1/q = 1. So the risk is plain empirical risk with kinks in ||w||_q, and no
saddle problem is solved.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from protocols.erm.kinked import REFINED, levelled, rows_gap
from protocols.erm.objective import (
    UNIT,
    Kinked,
    Objective,
    gradient_rounding,
    mean_of_rows,
)
from protocols.erm.risk import Risk
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.problem import minimiser_norm
from protocols.problems.smoothed import Smoothed
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, one_of, positive, real

Corners = tuple[tuple[float, ...], ...]
NORMS = ("l1", "l2", "linf", "polytope")


@dataclass(frozen=True)
class Perturbation:
    """What a row may be moved by: a ball of a norm, or the convex hull of corners.

    Attributes:
        norm: "l1", "l2", "linf", or "polytope".
        radius: of the ball; of a polytope a factor.
        corners: of a polytope, each of d numbers.

    Raises:
        ParameterError: naming which is out of range.
    """

    norm: str = "l2"
    radius: float = 0.1
    corners: Corners = ()

    def __post_init__(self) -> None:
        one_of("norm", self.norm, NORMS)
        real("radius", self.radius, 0.0, math.inf, closed=(True, False))
        if (self.norm == "polytope") != bool(self.corners):
            raise ParameterError("corners", self.corners, "given for a polytope, and only then")
        if not np.isfinite(np.concatenate([(0.0,), *self.corners])).all():
            raise ParameterError("corners", self.corners, "finite")

    def size(self, d: int) -> float:
        """The largest l2 norm of a perturbation."""
        if self.norm == "polytope":
            return self.radius * float(np.linalg.norm(np.array(self.corners), axis=1).max())
        return self.radius * (math.sqrt(d) if self.norm == "linf" else 1.0)

    def support(self, w: Floats) -> float:
        """max <v, w> over the budget."""
        if self.norm == "polytope":
            return self.radius * float((np.array(self.corners) @ w).max())
        # The dual norm, 1/p + 1/q = 1 (Hoelder).
        order = {"l1": math.inf, "l2": 2, "linf": 1}[self.norm]
        return self.radius * float(np.linalg.norm(w, order))

    def smoothed(self, w: Floats, width: float) -> tuple[float, Floats, Floats]:
        """A smooth support function with its two derivatives; the first is in the budget."""
        d, r = len(w), self.radius
        if self.norm == "l2":
            # No longer than 1, so the perturbation r at stays in the budget whatever the width.
            size = math.hypot(float(np.linalg.norm(w)), width)
            at = w / size
            return r * size, r * at, r * (np.eye(d) - np.outer(at, at)) / size
        if self.norm == "linf":
            sizes = np.hypot(w, width)
            return r * float(sizes.sum()), r * w / sizes, r * np.diag(width**2 / sizes**3)
        corners = self._corners(d)
        scores = corners @ w / width
        # A mixture of corners lies in their hull; at width 0 it is the worst corner.
        p = scipy.special.softmax(scores)
        at = p @ corners
        bend = (corners * p[:, None]).T @ corners - np.outer(at, at)
        return width * float(scipy.special.logsumexp(scores)), at, bend / width

    def bend(self, d: int, width: float) -> float:
        """Bound of the second derivative of `smoothed`."""
        size = self.size(d)
        # Mixtures of corners have a variance of size^2; the other norms are round or separate.
        return size * (max(1.0, size) if self.norm in ("l1", "polytope") else 1.0) / width

    def _corners(self, d: int) -> Floats:
        if self.norm == "polytope":
            return self.radius * np.array(self.corners)
        return self.radius * np.concatenate([np.eye(d), -np.eye(d)])


Kink = tuple[Floats, Floats, float, float]
_SHARP = 1e-9  # of a point's length, over which a support function is smoothed


class RobustERM(Kinked):
    """mean_i phi(y_i <w, x_i> - max over the budget of <v, w>) + (ridge/2) ||w||^2.

    phi falls: logistic, or with a kink the hinge.
    """

    smoothness = math.inf

    def __init__(
        self, loss: LinearLoss, rows: Floats, ridge: float, domain: Domain, budget: Perturbation
    ) -> None:
        """Of rows (x, y), y = -1 or +1."""
        self.loss, self.rows, self.budget = loss, np.asarray(rows, np.float64), budget
        self.domain, self.n = domain, len(self.rows)
        self.ridge = self.strong_convexity = positive("ridge", ridge)
        self.signed = self.rows[:, :-1] * self.rows[:, -1:]
        self.bound = loss.features + budget.size(domain.d)
        self.curvature = loss.curvature() or 0.0

    @property
    def width(self) -> float:
        return min(1.0, self.domain.radius)

    def ramped(self, width: float) -> LinearLoss:
        """phi, with a ramp of this width for its kink."""
        if self.loss.curvature() is not None:
            return self.loss
        return Smoothed(self.loss.features, self.loss, 1 / width)

    def value(self, w: Floats) -> float:
        margins = self.signed @ w - self.budget.support(w)
        mean = float(self.loss.value(margins, np.ones(self.n)).mean())
        return mean + self.ridge / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        # Nearly the worst perturbation, and surely one of the budget: no 0/0 at w = 0.
        at = self.budget.smoothed(w, 1e-12)[1]
        return self.slope(self.loss, w, at, self.budget.support(w))

    def slope(self, loss: LinearLoss, w: Floats, at: Floats, support: float) -> Floats:
        """Of F with the loss and the perturbation `at`, margins less `support`."""
        slopes = loss.derivative(self.signed @ w - support, np.ones(self.n))
        return np.asarray(mean_of_rows(slopes, self.signed) - slopes.mean() * at + self.ridge * w)

    def steep(self, norm: float) -> float:
        """The largest slope of phi where ||w|| is `norm`; 1 at least."""
        return max(1.0, self.loss.slope(self.bound * norm))

    def rounding(self, w: Floats) -> float:
        norm = float(np.linalg.norm(w))
        lipschitz, beta = self.bound * self.steep(norm), self.curvature * self.bound**2
        return 2 * gradient_rounding(self.n, self.d, lipschitz, beta, self.ridge, norm)

    @cached_property
    def _far(self) -> float:
        near = minimiser_norm(self.loss, self.ridge, self.domain)
        return min(self.domain.radius, 2 * near)

    @property
    def least_radius(self) -> float:
        error = self.rounding(np.full(self.d, self._far / math.sqrt(self.d)))
        support = 8 * (self.d + 4) * UNIT * self.bound * self.steep(self._far) * self._far
        # Margins are off by as much where a row lies near the kink.
        support *= 2 if self.loss.curvature() is None else 1  # margins near the kink, too
        return math.sqrt(2 * support / self.ridge) + error / self.ridge

    def smoothed(self, width: float) -> "SmoothedRobust":
        return SmoothedRobust(self, width)

    def witness(self, w: Floats, width: float) -> tuple[Floats, float]:
        """The gap between F(w) and the least value with one fixed perturbation of the budget.

        F >= H(., v) for every v in the budget, and H is lambda-strongly convex in w.
        """
        if self.loss.curvature() is None:
            return self._dual_witness(w, width)
        w = self.domain.project(w)
        found = [self._gap(w, at) for at in (self.budget.smoothed(w, width)[1], self._worst(w))]
        return w, math.sqrt(2 * min(found) / self.ridge)

    def _worst(self, w: Floats) -> Floats:
        """Nearly the worst perturbation: in a small domain a smoothed one is too far from it."""
        return self.budget.smoothed(w, max(_SHARP * float(np.linalg.norm(w)), 1e-90))[1]

    def _gap(self, w: Floats, at: Floats) -> float:
        held = float(at @ w)
        support = self.budget.support(w)
        slack = max(0.0, support - held)
        norm = float(np.linalg.norm(w))
        slack += 4 * (self.d + 4) * UNIT * self.bound * norm
        ones = np.ones(self.n)
        # phi is convex and falls: on the way from one margin to the other it is steepest at the
        # lower.
        steepest = -float(self.loss.derivative(self.signed @ w - support, ones).mean())
        slope, error = self.slope(self.loss, w, at, held), self.rounding(w)
        # H(., v) is above its tangent paraboloid at w, whose minimum over the domain is this
        # projection.
        down = self.domain.project(w - slope / self.ridge) - w
        fall = -float(slope @ down) - self.ridge / 2 * float(down @ down)
        fall += 2 * error * (float(np.linalg.norm(down)) + error / self.ridge)
        return steepest * (1 + 1e-9) * slack + max(0.0, fall)

    def _dual_witness(self, w: Floats, width: float) -> tuple[Floats, float]:
        """With a kink: the gap at the point u of the slopes c and the perturbation v at w.

        phi(m) >= c r for every c in [low, high], and r = <w, s - v> - place is least at the worst
        v, as c <= 0. So F >= mean_i c_i (<., s_i - v> - place) + ridge/2 ||.||^2. That has its
        minimum over the domain at u = Proj((mean c v - mean_i c_i s_i)/ridge), where the gap is
        that of the rows and -mean c (support(u) - <u, v>).
        """
        kink = self.loss.kink(np.ones(self.n))
        assert kink is not None
        _, place, low, high = kink
        support, at, _ = self.budget.smoothed(w, width)
        c = self.ramped(width).derivative(self.signed @ w - support, np.ones(self.n))
        best = self._dual_point(c, at, kink)
        for _ in range(REFINED):
            far = self._dual(c, at)
            u = self.domain.project(far)
            at, free = self.budget.smoothed(u, width)[1], (c > low) & (c < high)
            r = (self.signed @ u - self.budget.support(u) - place)[free]
            moved = levelled(self.domain, far, self.signed[free] - at, r)
            c[free] = np.clip(c[free] + self.ridge * self.n * moved, low, high)
            best = min(best, self._dual_point(c, at, kink), key=lambda each: each[1])
        at = self._worst(best[0])
        return min(best, self._dual_point(c, at, kink), key=lambda each: each[1])

    def _dual(self, c: Floats, at: Floats) -> Floats:
        return np.asarray((float(c.mean()) * at - mean_of_rows(c, self.signed)) / self.ridge)

    def _dual_point(self, c: Floats, at: Floats, kink: Kink) -> tuple[Floats, float]:
        _, place, low, high = kink
        u = self.domain.project(self._dual(c, at))
        support = self.budget.support(u)
        loose = 4 * (self.d + 4) * UNIT * self.bound * float(np.linalg.norm(u))
        gap = rows_gap(self.signed @ u - support - place, c, low, high, loose)
        # c <= 0: the loss falls.
        gap -= float(c.mean()) * (1 + 1e-9) * (max(0.0, support - float(at @ u)) + loose)
        return u, math.sqrt(2 * gap / self.ridge) + self.rounding(u) / self.ridge


class SmoothedRobust(Objective):
    """`RobustERM` with a smooth support function, and a ramp for a kink."""

    def __init__(self, robust: RobustERM, width: float) -> None:
        """Of a width."""
        self._robust, self._width = robust, positive("width", width)
        self.domain, self.n = robust.domain, robust.n
        self.strong_convexity = robust.ridge
        self.loss = robust.ramped(width)
        bend = robust.budget.bend(robust.d, width) * robust.steep(robust._far)
        curvature = self.loss.curvature() or 0.0
        self.smoothness = curvature * robust.bound**2 + bend + robust.ridge

    def value(self, w: Floats) -> float:
        robust = self._robust
        support = robust.budget.smoothed(w, self._width)[0]
        losses = self.loss.value(robust.signed @ w - support, np.ones(robust.n))
        return float(losses.mean()) + robust.ridge / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        support, at, _ = self._robust.budget.smoothed(w, self._width)
        return self._robust.slope(self.loss, w, at, support)

    def hessian(self, w: Floats, stride: int = 1) -> Floats | None:
        robust = self._robust
        support, at, bend = robust.budget.smoothed(w, self._width)
        x = robust.signed[::stride]
        margins, ones = x @ w - support, np.ones(len(x))
        bends = self.loss.second(margins, ones)
        if bends is None:
            return None
        moved = x - at
        slope = float(self.loss.derivative(margins, ones).mean())
        found = (moved * bends[:, None]).T @ moved / len(x) - slope * bend
        return np.asarray(found + robust.ridge * np.eye(robust.d))

    def rounding(self, w: Floats) -> float:
        return self._robust.rounding(w)

    @property
    def least_radius(self) -> float:
        return self._robust.least_radius


@dataclass(frozen=True)
class RobustRisk(Risk):
    """The adversarial risk.

    Attributes:
        budget: of the perturbations.
    """

    budget: Perturbation = Perturbation()

    def __post_init__(self) -> None:
        if not isinstance(self.loss, LinearLoss) or not self.loss.classification:
            allowed = "a LinearLoss of two classes, such as Logistic() or Hinge()"
            raise ParameterError("loss", self.loss, allowed)
        # Convex in the margin: its slope is the largest at the end, or far out.
        most = min(1e9, (self.loss.features + self.budget.size(self.d)) * self.domain.radius)
        if self.loss.derivative(np.array([most]), np.ones(1))[0] > 0:
            allowed = "one that falls, such as Hinge(): else rows are not moved against it"
            raise ParameterError("loss", self.loss, allowed)
        super().__post_init__()
        for corner in self.budget.corners:
            if len(corner) != self.d:
                raise ParameterError("corners", corner, f"of {self.d} numbers")

    @cached_property
    def reach(self) -> float:
        # The perturbed margin m grows with w: <slope, w> is phi'(m) m, as without a budget.
        pulled = math.sqrt(self.loss.pull() / self.ridge)
        off = np.any(self.domain.project(np.zeros(self.d)))
        return self.domain.radius if off else min(self.domain.radius, pulled)

    def lipschitz_within(self, radius: float) -> float:
        """(B + the budget's size) times the slope of phi, 1 at most."""
        assert isinstance(self.loss, LinearLoss)
        bound = self.loss.features + self.budget.size(self.d)
        return bound * self.loss.slope(bound * radius)

    @property
    def smoothness(self) -> float:
        return math.inf

    def sensitivity(self, n: int) -> tuple[float, str]:
        """The slope of phi times max(2 B, B + the budget's size), over lambda n."""
        # At a minimiser both rows may take one worst v, and c (s - v) - c' (s' - v) with c, c' of
        # one sign is c B + c' B + |c - c'| ||v|| long at most: largest at corners of (c, c').
        assert isinstance(self.loss, LinearLoss)
        plain = self.loss.features
        longer = plain + self.budget.size(self.d)
        apart = self.lipschitz / longer * max(2 * plain, longer)
        proof = (
            "Lemma S: slopes of two rows with one perturbation are at most G apart, over lambda n"
        )
        return min(apart / (self.ridge * n), self.domain.diameter), proof

    def objective(self, rows: Floats) -> Objective:
        assert isinstance(self.loss, LinearLoss)
        return RobustERM(self.loss, rows, self.ridge, self.domain, self.budget)
