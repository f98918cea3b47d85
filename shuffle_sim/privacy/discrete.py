"""Discrete Laplace noise by exact integer arithmetic: mechanisms.

A pure guarantee of continuous noise does not hold for doubles (Mironov 2012). Here the value is
rounded to a public grid, and the noise is an integer, drawn from its exact law (Canonne, Kamath and
Steinke 2020). No step of the release rests on floating point.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.events import PrivacyEvent, PureEvent
from shuffle_sim.privacy.mechanisms import Noise, Norm, PureMechanism, checked

PROOF = "discrete Laplace noise, exact in integers (Canonne, Kamath and Steinke 2020)"
_FINENESS = 1000
"""Grid steps in a sensitivity, at least."""


@dataclass(frozen=True)
class DiscreteLaplace(PureMechanism[Floats], Noise):
    """Discrete Laplace noise on arrays of integers, for an integer l1 sensitivity."""

    norm: ClassVar[Norm] = "l1"
    exact: ClassVar[bool] = True

    @property
    def event(self) -> PrivacyEvent:
        return PureEvent(self.epsilon, PROOF)

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        return np.array(draw(rng, Fraction(self.epsilon), d), float)

    def spread(self, d: int) -> float:
        return math.sqrt(d * variance(self.epsilon))

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        """The integers plus noise.

        Raises:
            ParameterError: before any draw, if the value or the sensitivity is not of integers.
        """
        whole = checked(value, sensitivity)
        if (whole != np.rint(whole)).any() or sensitivity != round(sensitivity):
            raise ParameterError("value", f"of shape {whole.shape}", "integers, as the sensitivity")
        noise = draw(rng, Fraction(self.epsilon) / round(sensitivity), whole.size)
        moved = [int(each) + z for each, z in zip(whole.flat, noise, strict=True)]
        return np.array(moved, float).reshape(whole.shape)  # rounded once the noise is in it


@dataclass(frozen=True)
class GridLaplace(Noise):
    """An array rounded to a public grid, plus discrete Laplace noise in each coordinate.

    The grid's step s is the largest power of two with s <= sensitivity/1000. Rounding moves each
    coordinate by s/2 at most. So neighbours' integers differ by at most K = floor(sqrt(d) S/s + d)
    in l1, where S is the l2 sensitivity. K is computed without rounding.

    Attributes:
        epsilon: above 0.
        coordinates: d.

    Raises:
        ParameterError: epsilon not finite and above 0, coordinates not in 1 ... 10^6.
    """

    norm: ClassVar[Norm] = "l2"
    exact: ClassVar[bool] = True
    epsilon: float
    coordinates: int

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        integer("coordinates", self.coordinates, 1, 10**6)

    @property
    def event(self) -> PrivacyEvent:
        return PureEvent(self.epsilon, PROOF)

    @staticmethod
    def step(sensitivity: float) -> float:
        """s."""
        return math.ldexp(1.0, math.frexp(sensitivity / _FINENESS)[1] - 1)

    def shift(self, sensitivity: float) -> int:
        """K, exactly: the floor of a square root of a fraction is that of integers."""
        ratio = Fraction(sensitivity) / Fraction(self.step(sensitivity))
        # floor(sqrt(p/q)) = floor(sqrt(p q)/q). Each of d roundings adds at most 1 to a difference.
        squared = self.coordinates * ratio * ratio
        root = math.isqrt(squared.numerator * squared.denominator) // squared.denominator
        return root + self.coordinates

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        if d != self.coordinates:
            raise ParameterError("d", d, f"{self.coordinates}, as the mechanism states")
        drawn = draw(rng, Fraction(self.epsilon) / self.shift(1.0), d)
        return self.step(1.0) * np.array(drawn, float)

    def spread(self, d: int) -> float:
        step = self.step(1.0)
        noise = step * math.sqrt(d * variance(self.epsilon / self.shift(1.0)))
        # Rounding moves a coordinate by half a step at most.
        return math.hypot(noise, math.sqrt(d) * step / 2)

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        array, step = checked(value, sensitivity), Fraction(self.step(sensitivity))
        if array.size != self.coordinates:
            raise ParameterError("d", array.size, f"{self.coordinates}, as the mechanism states")
        whole = [round(Fraction(each) / step) for each in array.ravel().tolist()]
        noise = draw(rng, Fraction(self.epsilon) / self.shift(sensitivity), array.size)
        moved = [nearest((each + z) * step) for each, z in zip(whole, noise, strict=True)]
        return np.array(moved).reshape(array.shape)


def nearest(value: Fraction) -> float:
    """The nearest double; infinite beyond the largest, where an error would tell of the value."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def variance(rate: float) -> float:
    """2 e^-rate/(1 - e^-rate)^2, of the law with pmf ~ e^{-rate |z|}."""
    return 0.5 / math.sinh(rate / 2) ** 2


def draw(rng: np.random.Generator, rate: Fraction, count: int) -> list[int]:
    """Independent integers of pmf ~ e^{-rate |z|}, exactly (Canonne et al. 2020, Algorithm 2)."""
    return [_laplace(rng, rate) for _ in range(count)]


def _laplace(rng: np.random.Generator, rate: Fraction) -> int:
    # part + top whole is geometric of ratio e^(-1/top); its multiples of bottom: of e^-rate.
    top, bottom = rate.denominator, rate.numerator  # the scale is top/bottom
    while True:
        part = below(rng, top)
        if not _bernoulli_exp(rng, Fraction(part, top)):
            continue
        whole = 0
        while _bernoulli_exp(rng, Fraction(1)):
            whole += 1
        size, negative = (part + top * whole) // bottom, bool(below(rng, 2))
        # -0 is drawn anew: else 0 would count twice.
        if size or not negative:
            return -size if negative else size


def _bernoulli_exp(rng: np.random.Generator, gamma: Fraction) -> bool:
    """True with probability e^-gamma, for gamma in [0, 1] (Algorithm 1)."""
    # Ends at k with chance gamma^(k-1)/(k-1)! - gamma^k/k!: over odd k the series of e^-gamma.
    k = 1
    while below(rng, gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def below(rng: np.random.Generator, bound: int) -> int:
    """A uniform integer in [0, bound), by rejection of whole random bits."""
    # At least half of the numbers of so many bits are below `bound`.
    bits = (bound - 1).bit_length()
    size, spare = -(-bits // 8), -bits % 8
    while bits:
        found = int.from_bytes(rng.bytes(size), "big") >> spare
        if found < bound:
            return found
    return 0
