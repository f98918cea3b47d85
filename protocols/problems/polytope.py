"""Polytopes: bounded sets of linear inequalities, with projections that are proven one by one."""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from protocols.problems.domains import _UNIT, Box, Domain
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, ShuffleSimError

_ROUNDINGS = 2
"""Of one operation: how many a projection may be wrong by."""


class ProjectionError(ShuffleSimError, RuntimeError):
    """A projection's certificate is above what the domain states. Nothing is released then."""


@dataclass(init=False, eq=False)
class Polytope(Domain):
    """A theta <= b.

    Diameter, radius and reach are those of the smallest box around it, which are at most sqrt(d)
    times its own. The center is that of a largest ball in it.
    """

    d: int
    matrix: Floats
    bounds: Floats

    def __init__(self, matrix: ArrayLike, bounds: ArrayLike) -> None:
        """A polytope in R^d from A, (rows, d), and b, (rows,).

        Raises:
            ParameterError: numbers of other shapes, a row of zeros, or a set that is empty, flat
                or unbounded.
        """
        try:
            self.matrix = np.array(matrix, np.float64, ndmin=2)
            self.bounds = np.array(bounds, np.float64, ndmin=1)
        except (ValueError, TypeError) as error:
            raise ParameterError("matrix", matrix, "numbers (rows, d), as b (rows,)") from error
        rows, self.d = self.matrix.shape
        if self.bounds.shape != (rows,):
            raise ParameterError("bounds", self.bounds.shape, f"of shape ({rows},), as A's rows")
        lengths = np.hypot.reduce(self.matrix, axis=1)
        if not (np.isfinite(lengths) & np.isfinite(self.bounds) & (lengths > 0)).all():
            raise ParameterError("matrix", self.matrix.tolist(), "finite, as b, and no row only 0")
        self._normals, self._offsets = self.matrix / lengths[:, None], self.bounds / lengths
        self._center, self._depth = self._largest_ball()
        self._hull = self._smallest_box()
        self._rounding = _ROUNDINGS * (self.d + 8) * _UNIT * self.radius

    def _largest_ball(self) -> tuple[Floats, float]:
        """Center and radius of a ball in the set, by a linear program; the radius is computed."""
        scale = float(np.abs(self._offsets).max()) or 1.0
        solved = scipy.optimize.linprog(
            np.append(np.zeros(self.d), -1.0),
            np.column_stack([self._normals, np.ones(len(self._normals))]),
            self._offsets / scale,
            # The ball of an unbounded set would grow for ever; what is unbounded is refused by the
            # box.
            bounds=[(None, None)] * self.d + [(None, 2.0)],
        )
        center = np.zeros(self.d) if solved.x is None else solved.x[:-1] * scale
        # Of the center that was found, whatever the solver says of its optimum.
        depth = float((self._offsets - self._normals @ center).min())
        if not depth > 1e-9 * scale:
            allowed = "of a set with an inside: no theta has A theta < b, it is empty or flat"
            raise ParameterError("bounds", self.bounds.tolist(), allowed)
        return center, depth

    def _smallest_box(self) -> Box:
        """No theta_j is above b y + |e_j - A^T y| max |theta| for any y >= 0: duals prove it."""
        tops, errors, limits = [], [], self._offsets - self._normals @ self._center
        for at in range(2 * self.d):
            way = np.zeros(self.d)
            way[at // 2] = 1 - 2 * (at % 2)
            solved = scipy.optimize.linprog(-way, self._normals, limits, bounds=(None, None))
            if solved.status:
                allowed = f"of a bounded set: theta[{at // 2}] has no {('most', 'least')[at % 2]}"
                raise ParameterError("matrix", self.matrix.tolist(), allowed)
            duals = np.maximum(-solved.ineqlin.marginals, 0.0)
            tops.append(float(duals @ limits))
            errors.append(float(np.abs(way - duals @ self._normals).sum()))
        error = max(errors) + (len(self._normals) + self.d) * _UNIT
        # max |theta| <= max(tops)/(1 - error) itself, as each theta_j is at most tops + error max
        # |theta|.
        spread = np.array(tops) + error / (1 - error) * max(tops)
        return Box(self.d, self._center - spread[1::2], self._center + spread[::2])

    def project(self, theta: Floats) -> Floats:
        """The nearest point, with multipliers y >= 0 that prove it.

        For z of the set and w the result, <theta - w, z - w> is at most
        ||theta - w - A^T y|| D + y (b - A w). The active rows are found by least distance
        programming (Lawson and Hanson 1974, chapter 23).

        Raises:
            ProjectionError: the proof is above `slack`, or w is outside by more than roundings.
        """
        gaps = self._normals @ theta - self._offsets
        far, worst = float(gaps.max()), np.inf
        if far <= self._rounding:
            return theta
        if not np.isfinite(far):
            raise ProjectionError("a point that is not finite has no projection")
        unit = np.append(np.zeros(self.d), 1.0)
        for _ in range(4):
            # Scaled by the distance to the set: first the largest gap, then what the last try
            # found.
            system = np.vstack([-self._normals.T, gaps / far])
            weights = scipy.optimize.nnls(system, unit)[0]
            active = weights > 0
            point = theta + self._onto(active, theta)
            # Once more from near: the first step has lost digits by its length.
            point = point + self._onto(active, point)
            length = float(np.linalg.norm(theta - point))
            worst = self._unproven(theta, point, length)
            if worst <= 1:
                return np.asarray(point)
            far = length
        raise ProjectionError(f"a projection on the polytope is {worst:.3g} times its stated error")

    def _onto(self, active: np.typing.NDArray[np.bool_], point: Floats) -> Floats:
        """The shortest way to where the active rows hold with equality."""
        missing = self._offsets[active] - self._normals[active] @ point
        return np.asarray(np.linalg.lstsq(self._normals[active], missing)[0])

    def _unproven(self, theta: Floats, point: Floats, length: float) -> float:
        """What is proven of a projection, over what is stated: at most 1."""
        rooms = self._offsets - self._normals @ point
        near = rooms <= self._rounding
        if not (near.any() and length > 0):
            return np.inf
        duals, error = scipy.optimize.nnls(self._normals[near].T, (theta - point) / length)
        error = max(0.0, length * error - 4 * _UNIT * self.radius)  # beyond a rounding of points
        proven = error * self.diameter + length * float(duals @ np.maximum(rooms[near], 0.0))
        outside = -float(rooms.min()) / self._rounding
        # Half of the stated slack: what is computed here is rounded, too.
        return float(max(2 * proven / self.slack(length), outside))

    def slack(self, far: float) -> float:
        """Multipliers sum to far D/depth at most, so roundings of A w count so often."""
        steepness = 1 + self.diameter / self._depth
        roundings = 2 * _ROUNDINGS * (self.d + 8) * _UNIT
        return roundings * far * (self.radius + far) * steepness

    @property
    def center(self) -> Floats:
        return self._center

    @property
    def diameter(self) -> float:
        return self._hull.diameter

    @property
    def widest(self) -> float:
        # Rows off by r reach far beyond a sharp corner, but {A theta <= b + r} lies within the set
        # enlarged by 1 + r/depth about the center: b - A center is at least depth in every row.
        return super().widest + self.diameter * self._rounding / self._depth

    @property
    def radius(self) -> float:
        return self._hull.radius

    def reach(self, theta: Floats) -> float:
        return self._hull.reach(theta)
