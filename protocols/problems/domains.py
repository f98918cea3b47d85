"""Where the parameters may be: closed convex sets with their Euclidean projections.

A domain states its diameter D and the largest norm in it; algorithms that start at its centre pay
for `reach`, not for D.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive

_DYKSTRA, _TOLERANCE = 100_000, 1e-12


class Domain(ABC):
    """A closed convex set in R^d, bounded but for `RealSpace`."""

    d: int
    """Number of parameters."""
    exact: ClassVar[bool] = True
    """Whether `project` is exact but for rounding; certificates of minimisers need it."""

    @abstractmethod
    def project(self, theta: Floats) -> Floats:
        """The nearest point of the set."""

    @property
    @abstractmethod
    def center(self) -> Floats:
        """A point of the set from which none is far: where optimisation starts."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """D: no two points are farther apart."""

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
        """The point itself."""
        return theta

    @property
    def center(self) -> Floats:
        """The origin."""
        return np.zeros(self.d)

    @property
    def diameter(self) -> float:
        """Infinite."""
        return math.inf

    @property
    def radius(self) -> float:
        """Infinite."""
        return math.inf

    def reach(self, theta: Floats) -> float:
        """Infinite."""
        return math.inf


def _point(name: str, value: ArrayLike, d: int) -> Floats:
    """`value` as d finite numbers; one number stands for all coordinates."""
    try:
        point = np.array(np.broadcast_to(np.asarray(value, np.float64), (d,)))
    except (ValueError, TypeError) as error:
        raise ParameterError(name, value, f"a number or {d} numbers") from error
    if not np.isfinite(point).all():
        raise ParameterError(name, value, "finite: the domain must be bounded")
    return point


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

    def project(self, theta: Floats) -> Floats:
        """Shortened to the radius."""
        offset = theta - self._center
        length = float(np.linalg.norm(offset))
        return theta if length <= self.size else self._center + offset * (self.size / length)

    @property
    def center(self) -> Floats:
        """The centre."""
        return self._center

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.size

    @property
    def radius(self) -> float:
        """Of the ball around 0 that holds it."""
        return float(np.linalg.norm(self._center)) + self.size

    def reach(self, theta: Floats) -> float:
        """To the far side."""
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

    def project(self, theta: Floats) -> Floats:
        """Clipped."""
        return np.asarray(np.clip(theta, self.lower, self.upper))

    @property
    def center(self) -> Floats:
        """The centre."""
        return np.asarray((self.lower + self.upper) / 2)

    @property
    def diameter(self) -> float:
        """The diagonal."""
        return float(np.linalg.norm(self.upper - self.lower))

    @property
    def radius(self) -> float:
        """Of the corner farthest from 0."""
        return self.reach(np.zeros(self.d))

    def reach(self, theta: Floats) -> float:
        """To the farthest corner."""
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
        descending = np.sort(theta)[::-1]
        levels = (np.cumsum(descending) - self.total) / np.arange(1, self.d + 1)
        tau = levels[np.flatnonzero(descending > levels)[-1]]
        return np.asarray(np.maximum(theta - tau, 0.0))

    @property
    def center(self) -> Floats:
        """All coordinates equal."""
        return np.full(self.d, self.total / self.d)

    @property
    def diameter(self) -> float:
        """Between two corners."""
        return math.sqrt(2) * self.total

    @property
    def radius(self) -> float:
        """Of a corner."""
        return self.total

    def reach(self, theta: Floats) -> float:
        """To the farthest corner: a convex function is largest at one."""
        squares = float(theta @ theta) - 2 * self.total * theta + self.total**2
        return math.sqrt(max(float(squares.max()), 0.0))


@dataclass(init=False, eq=False)
class Intersection(Domain):
    """A domain inside an l2 ball."""

    d: int
    _sets: tuple[Domain, L2Ball]

    exact = False

    def __init__(self, domain: Domain, ball: L2Ball) -> None:
        """Both sets must share a point.

        Raises:
            ParameterError: if they are of different dimensions, or do not meet.
        """
        if domain.d != ball.d:
            raise ParameterError("ball.d", ball.d, f"{domain.d}, as the domain's")
        self.d = domain.d
        self._sets = (domain, ball)
        nearest = domain.project(
            ball.center
        )  # the sets meet iff the domain's point nearest to the centre is in the ball
        if float(np.linalg.norm(nearest - ball.center)) > ball.size * (1 + 1e-9):
            raise ParameterError(
                "ball", (ball.center.tolist(), ball.size), "a ball that meets the domain"
            )
        self._start = self.project((domain.center + ball.center) / 2)

    def project(self, theta: Floats) -> Floats:
        """Dykstra's alternating projections (Boyle and Dykstra 1986), to 1e-12 of theta's size."""
        first, second = self._sets
        point, left, right = theta, np.zeros(self.d), np.zeros(self.d)
        scale = _TOLERANCE * (1 + float(np.abs(theta).max()))
        for _ in range(_DYKSTRA):
            middle = first.project(point + left)
            left = point + left - middle
            point = second.project(middle + right)
            right = middle + right - point
            # Both sets agree on the point: then it is the projection, as theta = point + left +
            # right with normals left, right.
            if float(np.abs(point - middle).max()) <= scale:
                return point
        return point

    @property
    def center(self) -> Floats:
        """A point near the centres of both."""
        return self._start

    @property
    def diameter(self) -> float:
        """At most that of the smaller set."""
        return min(each.diameter for each in self._sets)

    @property
    def radius(self) -> float:
        """At most that of the smaller set."""
        return min(each.radius for each in self._sets)

    def reach(self, theta: Floats) -> float:
        """At most that of either set."""
        return min(each.reach(theta) for each in self._sets)


@dataclass(init=False, eq=False)
class Localised(Intersection):
    """A domain inside an l2 ball whose centre is in the domain (Lowy 2026, Lemma 2.8)."""

    def __init__(self, domain: Domain, ball: L2Ball) -> None:
        """As `Intersection`; the centre is projected on the domain first."""
        super().__init__(domain, L2Ball(ball.d, ball.size, domain.project(ball.center)))

    def project(self, theta: Floats) -> Floats:
        """Bisection for the multiplier mu of the ball; the feasible end is kept."""
        domain, ball = self._sets
        centre, radius = ball.center, ball.size
        point = domain.project(theta)
        if float(np.linalg.norm(point - centre)) <= radius:
            return point
        far = float(np.linalg.norm(theta - centre))
        low, high = 0.0, far / radius
        for _ in range(math.ceil(math.log2(1 + far * far / (radius * radius * _TOLERANCE)))):
            middle = (low + high) / 2
            point = domain.project((theta + middle * centre) / (1 + middle))
            inside = float(np.linalg.norm(point - centre)) <= radius
            low, high = (low, middle) if inside else (middle, high)
        return domain.project((theta + high * centre) / (1 + high))
