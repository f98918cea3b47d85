"""Where the parameters may be: closed convex sets with their Euclidean projections.

A domain states its diameter D and the largest norm in it; algorithms that start at its centre pay
for `reach`, not for D.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive

_UNIT = 2.0**-53  # roundoff of doubles
_FINEST = 2.0**-40
"""A diameter over the norm of points, below which doubles tell too few points apart."""


class Domain(ABC):
    """A closed convex set in R^d, bounded but for `RealSpace`."""

    d: int
    """Number of parameters."""

    @abstractmethod
    def project(self, theta: Floats) -> Floats:
        """The nearest point of the set."""

    def slack(self, far: float) -> float:
        """How wrong `project` may be beyond a rounding of its point: certificates count on it.

        With w = project(theta) and ||theta - w|| <= far, <theta - w, z - w> is at most this for
        every z of the set. At the nearest point it is at most 0. A set whose projection has no
        such bound says infinity, and no minimiser over it is certified.
        """
        return 0.0

    @property
    @abstractmethod
    def center(self) -> Floats:
        """A point of the set from which none is far: where optimisation starts."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """D: no two points are farther apart."""

    @property
    def widest(self) -> float:
        """No two points that `project` returns are farther apart: D, and roundings."""
        return self.diameter + 4 * (self.d + 8) * _UNIT * self.radius

    @property
    @abstractmethod
    def radius(self) -> float:
        """No point has a larger l2 norm."""

    @abstractmethod
    def reach(self, theta: Floats) -> float:
        """No point of the set is farther from `theta`."""

    @property
    def bounded(self) -> bool:
        """Whether the diameter is finite."""
        return math.isfinite(self.diameter)


class RealSpace(Domain):
    """All of R^d; a ridge then bounds the minimisers, and releases of gradients are refused."""

    def __init__(self, d: int) -> None:
        """R^d.

        Raises:
            ParameterError: d below 1.
        """
        self.d = integer("d", d)

    def project(self, theta: Floats) -> Floats:
        return theta

    @property
    def center(self) -> Floats:
        return np.zeros(self.d)

    @property
    def diameter(self) -> float:
        return math.inf

    @property
    def radius(self) -> float:
        return math.inf

    def reach(self, theta: Floats) -> float:
        return math.inf


def _point(name: str, value: ArrayLike, d: int) -> Floats:
    """`value` as d finite numbers; one number stands for all coordinates."""
    try:
        point = np.array(np.broadcast_to(np.asarray(value, np.float64), (d,)))
    except (ValueError, TypeError) as error:
        raise ParameterError(name, value, f"a number or {d} numbers") from error
    if not np.isfinite(point).all():
        raise ParameterError(name, value, "finite: the domain must be bounded")
    point.flags.writeable = False  # descent in place from the center would move the domain
    return point


def _demand_width(domain: Domain) -> None:
    """Refuse a set that is a point in doubles: nothing computed there is certain.

    Raises:
        ParameterError: naming the least diameter.
    """
    least = _FINEST * domain.radius
    if not domain.diameter >= least:
        raise ParameterError("diameter", domain.diameter, f"at least {least:.3g}, or nearer to 0")


@dataclass(init=False, eq=False)  # its fields are what is public of it
class L2Ball(Domain):
    """||theta - center||_2 <= radius."""

    d: int
    size: float
    _center: Floats

    def __init__(self, d: int, radius: float, center: ArrayLike = 0.0) -> None:
        """A ball in R^d.

        Raises:
            ParameterError: naming the parameter.
        """
        self.d = integer("d", d)
        self.size = positive("radius", radius)
        self._center = _point("center", center, self.d)
        _demand_width(self)

    def project(self, theta: Floats) -> Floats:
        offset = theta - self._center
        length = float(np.linalg.norm(offset))
        # A point inside keeps its bits.
        return theta if length <= self.size else self._center + offset * (self.size / length)

    @property
    def center(self) -> Floats:
        return self._center

    @property
    def diameter(self) -> float:
        return 2 * self.size

    @property
    def radius(self) -> float:
        """Of the ball around 0 that holds it."""
        return float(np.linalg.norm(self._center)) + self.size

    def reach(self, theta: Floats) -> float:
        return float(np.linalg.norm(theta - self._center)) + self.size


@dataclass(init=False, eq=False)
class Box(Domain):
    """lower <= theta <= upper in every coordinate."""

    d: int
    lower: Floats
    upper: Floats

    def __init__(self, d: int, lower: ArrayLike, upper: ArrayLike) -> None:
        """A box in R^d; a single number stands for all coordinates.

        Raises:
            ParameterError: naming the parameter.
        """
        self.d = integer("d", d)
        self.lower, self.upper = _point("lower", lower, self.d), _point("upper", upper, self.d)
        if not (self.lower < self.upper).all():
            raise ParameterError(
                "lower", self.lower.tolist(), f"below upper = {self.upper.tolist()}"
            )
        _demand_width(self)

    def project(self, theta: Floats) -> Floats:
        return np.asarray(np.clip(theta, self.lower, self.upper))

    @property
    def center(self) -> Floats:
        return np.asarray((self.lower + self.upper) / 2)

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.upper - self.lower))

    @property
    def radius(self) -> float:
        """Of the corner farthest from 0."""
        return self.reach(np.zeros(self.d))

    def reach(self, theta: Floats) -> float:
        return float(
            np.linalg.norm(np.maximum(np.abs(theta - self.lower), np.abs(self.upper - theta)))
        )


@dataclass(init=False, eq=False)
class Simplex(Domain):
    """theta >= 0 with sum `total`: mixtures, portfolios."""

    d: int
    total: float

    def __init__(self, d: int, total: float = 1.0) -> None:
        """The simplex in R^d, d at least 2.

        Raises:
            ParameterError: naming the parameter.
        """
        self.d = integer("d", d, 2)
        self.total = positive("total", total)

    def project(self, theta: Floats) -> Floats:
        """max(theta - tau, 0) for the tau that gives the sum (Held, Wolfe and Crowder 1974)."""
        theta = theta - theta.max()  # as near to the simplex; far from 0 the sum has no digits
        descending = np.sort(theta)[::-1]
        # levels[j - 1] is tau where j numbers stay above 0: the most for which all j do.
        levels = (np.cumsum(descending) - self.total) / np.arange(1, self.d + 1)
        tau = levels[np.flatnonzero(descending > levels)[-1]]
        return np.asarray(np.maximum(theta - tau, 0.0))

    @property
    def center(self) -> Floats:
        return np.full(self.d, self.total / self.d)

    @property
    def diameter(self) -> float:
        return math.sqrt(2) * self.total

    @property
    def radius(self) -> float:
        return self.total

    def reach(self, theta: Floats) -> float:
        # Farthest is a corner: ||theta - total e_j||^2.
        squares = float(theta @ theta) - 2 * self.total * theta + self.total**2
        return math.sqrt(max(float(squares.max()), 0.0))


@dataclass(init=False, eq=False)
class Intersection(Domain):
    """A domain inside an l2 ball."""

    d: int
    _sets: tuple[Domain, L2Ball]

    def __init__(self, domain: Domain, ball: L2Ball) -> None:
        """Both sets must share more than a point.

        Raises:
            ParameterError: they are of different dimensions, or do not meet.
        """
        if domain.d != ball.d:
            raise ParameterError("ball.d", ball.d, f"{domain.d}, as the domain's")
        self.d = domain.d
        self._sets = (domain, ball)
        # The sets meet iff the domain's point nearest to the ball's centre is in the ball.
        apart = float(np.linalg.norm(domain.project(ball.center) - ball.center))
        if not apart < ball.size:
            raise ParameterError(
                "ball", (ball.center.tolist(), ball.size), "a ball that meets the domain inside"
            )
        # 1 + 2 rho/(rho - dist(c, K)) of the theory's slack s ("Intersections").
        self._steepness = 1 + 2 * ball.size / (ball.size - apart)
        self._start = self.project((domain.center + ball.center) / 2)

    def project(self, theta: Floats) -> Floats:
        """The domain's point nearest to c + t (theta - c), for the largest t that is in the ball.

        With mu = 1/t - 1 that is what Karush, Kuhn and Tucker ask for: theta - w = mu (w - c) + a
        normal of the domain at w. Its distance to c rises with t, and by ||theta - c|| dt at most.
        So bisection finds t; the end inside the ball is kept.
        """
        domain, ball = self._sets
        offset, point = theta - ball.center, domain.project(theta)
        if float(np.linalg.norm(point - ball.center)) <= ball.size:
            return point
        # The distance to c rises by ||theta - c|| dt at most: a finer t moves no digit of it.
        finest = _UNIT * ball.size / float(np.linalg.norm(offset))
        low, high, point = 0.0, 1.0, domain.project(ball.center)
        while low < (middle := (low + high) / 2) < high and high - low > finest:
            tried = domain.project(ball.center + middle * offset)
            if float(np.linalg.norm(tried - ball.center)) <= ball.size:
                low, point = middle, tried
            else:
                high = middle
        return point

    def slack(self, far: float) -> float:
        domain, ball = self._sets
        size = float(np.linalg.norm(ball.center))
        if domain.bounded:  # the same for every ball with its centre in the domain
            size = max(size, domain.radius)
        own = (self.d + 8) * _UNIT * far * (size + ball.size + far) * self._steepness
        return own + domain.slack(far * self._steepness)

    @property
    def center(self) -> Floats:
        return self._start

    @property
    def diameter(self) -> float:
        return min(each.diameter for each in self._sets)

    @property
    def widest(self) -> float:
        return min(each.widest for each in self._sets)

    @property
    def radius(self) -> float:
        return min(each.radius for each in self._sets)

    def reach(self, theta: Floats) -> float:
        return min(each.reach(theta) for each in self._sets)
