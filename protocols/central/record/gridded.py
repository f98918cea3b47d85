"""Draws as uniform numbers, by their density on a grid: of one or two parameters, or given the line
on which a draw of more lies. For audits only.

A grid covers the domain by a chart of the unit square, so that it ends where the domain does. It
zooms in on what has weight: nothing need be known of the density's place or width.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import scipy  # parts by attribute: they load when used

from protocols.central.record.proposals import near_least, within
from protocols.erm.cells import RowsMean
from protocols.erm.smooth import ERM
from protocols.problems.domains import Box, Domain, L2Ball, RealSpace
from shuffle_sim.arrays import Floats

POINTS, FEW = 181, 25
"""Of an axis; and where a mean is enough, with steps of 0.75 deviations: trapezia err by e^-35."""
_NOTHING = 40.0
"""Below e^-40 of the most a density is left out of the next, finer grid."""


class Chart:
    """Points of a set by numbers in [0, 1]: the first, then the second as a share of its chord."""

    def __init__(self, domain: Domain, near: Floats, reach: float) -> None:
        """Of a ball, a box, or a cube of half width reach around near, which holds what matters."""
        self.ball = domain if isinstance(domain, L2Ball) else None
        low, high = near - reach, near + reach
        if isinstance(domain, Box):
            low, high = domain.lower, domain.upper
        elif self.ball is not None:
            low, high = self.ball.center - self.ball.size, self.ball.center + self.ball.size
        elif not isinstance(domain, RealSpace):
            middle, half = domain.project(near), domain.diameter
            low, high = np.maximum(low, middle - half), np.minimum(high, middle + half)
        self.low, self.long = low, high - low

    def points(self, units: Floats) -> tuple[Floats, Floats]:
        """(points, d), and the logarithm of the volume that a unit has there."""
        ball = self.ball
        if ball is None or ball.d == 1:
            return self.low + self.long * units, np.zeros(len(units))
        # An angle in place of the first coordinate: no grid ends at a chord of infinite slope.
        angle = np.pi * (units[:, 0] - 0.5)
        half = ball.size * np.maximum(np.cos(angle), 0)
        at = np.stack([ball.size * np.sin(angle), half * (2 * units[:, 1] - 1)], axis=1)
        with np.errstate(divide="ignore"):
            # The unit square's image has the volume pi half times 2 half; constants are left out.
            return ball.center + at, 2 * np.log(half)

    def units(self, point: Floats) -> Floats:
        """Of one point, (d,)."""
        ball = self.ball
        if ball is None or ball.d == 1:
            return np.asarray((point - self.low) / self.long)
        first, second = (point - ball.center) / ball.size
        angle = np.arcsin(np.clip(first, -1, 1))
        return np.array([angle / np.pi + 0.5, (second / max(np.cos(angle), 1e-300) + 1) / 2])


class Chord:
    """Points of a set on a line through one of them, by numbers in [0, 1]."""

    def __init__(self, domain: Domain, through: Floats, way: Floats, reach: float) -> None:
        """Along a way of length 1; up to the ends of a ball or a box, or to the reach."""
        self.through, self.way = through, way
        low, high = -reach, reach
        if isinstance(domain, L2Ball):
            along = float((through - domain.center) @ way)
            far = domain.size**2 - float(((through - domain.center) ** 2).sum())
            half = float(np.sqrt(max(along**2 + far, 0.0)))
            low, high = max(low, -along - half), min(high, half - along)
        elif isinstance(domain, Box):
            ends = np.sort(
                [(each - through) / way for each in (domain.lower, domain.upper)], axis=0
            )
            low, high = max(low, float(ends[0].max())), min(high, float(ends[1].min()))
        self.low, self.long = low, high - low

    def points(self, units: Floats) -> tuple[Floats, Floats]:
        """(points, d), and the logarithm of the length that a unit has there."""
        along = self.low + self.long * units[:, 0]
        return self.through + along[:, None] * self.way, np.zeros(len(units))

    def units(self, point: Floats) -> Floats:
        """Of one point on the line, (1,)."""
        return np.array([((point - self.through) @ self.way - self.low) / self.long])


class Gridded:
    """A density of one or two parameters, or along a line, on a grid in units of a chart."""

    def __init__(
        self, chart: Chart | Chord, log: Callable[[Floats], Floats], d: int, many: int = POINTS
    ) -> None:
        """log: the log density at (points, d), but for a constant; -infinity outside."""
        self.chart, ends = chart, [(0.0, 1.0)] * d
        while True:
            self.axes = [np.linspace(*each, many) for each in ends]
            mesh = np.meshgrid(*self.axes, indexing="ij")
            self.points, volumes = chart.points(np.stack([each.ravel() for each in mesh], axis=1))
            parts = [log(each) for each in np.array_split(self.points, len(self.points) // many)]
            self.logs = (np.concatenate(parts) + volumes).reshape(mesh[0].shape)
            inside = self.logs > self.logs.max() - _NOTHING
            before, ends = ends, []
            for axis, each in zip(self.axes, mesh, strict=True):
                seen, step = each[inside], axis[1] - axis[0]
                # One cell more on each side: the border lies between two points.
                ends.append((max(seen.min() - step, 0.0), min(seen.max() + step, 1.0)))
            # No axis was halved: another zoom would show the same.
            if np.all(np.ptp(ends, axis=1) > np.ptp(before, axis=1) / 2):
                return

    def log_mean(self, gain: Callable[[Floats], Floats]) -> float:
        """ln of the mean of e^gain under the law, by trapezia; gain: of (points, d)."""
        weights = np.exp(self.logs - self.logs.max())
        for axis in range(weights.ndim):
            ends = np.moveaxis(weights, axis, 0)
            ends[0] /= 2
            ends[-1] /= 2
        inside = weights.ravel() > 0
        found, kept = gain(self.points[inside]), weights.ravel()[inside]
        return float(scipy.special.logsumexp(found, b=kept / kept.sum()))

    def uniform(self, point: Floats) -> Floats:
        """One number for each parameter, independent and uniform if drawn by the law.

        The first by its marginal, the second by its law given the first.
        """
        at, (first, *others) = self.chart.units(point), self.axes
        if not others:
            return np.array([_below(first, self.logs, at[0])])
        place = (at[0] - first[0]) / (first[1] - first[0])
        # Up to the last but one, so that row + 1 is a row.
        row = int(np.clip(place, 0, len(first) - 2))
        line = (row + 1 - place) * self.logs[row] + (place - row) * self.logs[row + 1]
        below = _below(first, scipy.special.logsumexp(self.logs, axis=1), at[0])
        # 0 times -infinity, outside the domain, is NaN.
        return np.array([below, _below(others[0], np.nan_to_num(line, nan=-np.inf), at[1])])


def _below(axis: Floats, logs: Floats, x: float) -> float:
    """The mass below x of a density on a grid, by trapezia."""
    weights = np.exp(logs - logs.max())
    steps = np.concatenate([[0.0], np.cumsum((weights[1:] + weights[:-1]) / 2)])
    return float(np.interp(x, axis, steps) / steps[-1])


def _log_density(objective: ERM | RowsMean, k: float, near: Floats, points: Floats) -> Floats:
    """-k F at each point, but for a constant; -infinity outside the domain."""
    if isinstance(objective, RowsMean):
        logs = -k * objective.at(points)[0]
    else:
        apart, ridge = points - near, objective.strong_convexity
        # F less its value at `near`, in parts: as a difference of two values it would lose its
        # digits.
        logs = -k * objective.bregman(near, points)
        logs -= k * (apart @ objective.gradient(near) + ridge / 2 * (apart**2).sum(axis=1))
    if isinstance(objective.domain, RealSpace | L2Ball | Box):  # a chart ends where they do
        return np.asarray(logs)
    return np.asarray(np.where(within(objective.domain, points), logs, -np.inf))


@lru_cache(maxsize=4)
def _around(objective: ERM | RowsMean, k: float) -> tuple[Floats, float]:
    """A point, and how far from it, at most, there is what matters."""
    if isinstance(objective, RowsMean):
        return objective.domain.center, math.inf
    # Nine standard deviations of a Gaussian of curvature k lambda: e^-40.5, of which a grid sees
    # nothing.
    return near_least(objective, k), 9 / math.sqrt(k * objective.strong_convexity)


@lru_cache(maxsize=4)
def gridded(objective: ERM | RowsMean, k: float, many: int = POINTS) -> Gridded:
    """The density e^(-k F) of one or two parameters."""
    near, reach = _around(objective, k)
    log = partial(_log_density, objective, k, near)
    return Gridded(Chart(objective.domain, near, reach), log, objective.d, many)


def on_line(objective: ERM | RowsMean, k: float, point: Floats, way: Floats) -> Floats:
    """A point as a uniform number, by the law given the line through it, (1,)."""
    near, reach = _around(objective, k)
    reach = min(reach + float(np.linalg.norm(point - near)), objective.domain.diameter)
    log = partial(_log_density, objective, k, near)
    return Gridded(Chord(objective.domain, point, way, reach), log, 1).uniform(point)


@lru_cache(maxsize=4)
def gain_of(
    value: ERM | RowsMean, other: ERM | RowsMean, k: float
) -> tuple[Callable[[Floats], Floats], float]:
    """By how much e^(-k F') is above e^(-k F), but for a constant; and ln of its mean under F."""
    near, _ = _around(value, k)

    def gain(points: Floats) -> Floats:
        found = (_log_density(each, k, near, points) for each in (other, value))
        return np.subtract(*found)

    return gain, gridded(value, k, FEW).log_mean(gain)
