"""Binomial noise on a public grid, by integers alone: event, mechanism and theorem.

For those who do not trust floating point: the value is rounded at random to a grid, and the noise
is the number of ones among random bits. The bound is that of the vector sum, for neighbours that
are nearer than the whole range. Docs: theory, Vector sum, "Nearer neighbours".
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.bounds.domination import MIN_VARIANCE, NUS, least_delta, nus_near
from shuffle_sim.privacy.bounds.rounding import delta_many_rounds, epsilon_many_rounds
from shuffle_sim.privacy.composition import least_epsilon
from shuffle_sim.privacy.discrete import below, nearest
from shuffle_sim.privacy.events import BinomialEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Noise, Norm, checked
from shuffle_sim.privacy.sum_theorems import Dominated, rounds_of, units_of
from shuffle_sim.privacy.theorems import Releases, alone

LEAST_STEPS = 64
"""Grid steps in a sensitivity, at least: rounding then costs less than 0.2 % of the noise."""
_LARGEST = 2**50  # trials
_BLOCK = 1 << 24  # random bytes at a time


@dataclass(frozen=True)
class BinomialShiftEvent(BinomialEvent):
    """Vectors in grid steps, rounded at random, plus Bin(honest bits, p) in each coordinate.

    Attributes:
        shift: l2 distance of neighbours' vectors before rounding, in grid steps; a real number.
        coordinates: d.
    """

    shift: float
    coordinates: int

    def __post_init__(self) -> None:
        super().__post_init__()
        real("shift", self.shift, 0.0, 2.0**40)
        integer("d", self.coordinates)

    @property
    def moves(self) -> tuple[int, float, int]:
        """One coordinate counts as two, of which the other does not move.

        The better bound of one is for data whose whole range is the shift.
        """
        return math.ceil(self.shift) + 1, self.shift, max(2, self.coordinates)


class BinomialShift(Dominated[BinomialShiftEvent]):
    """Dominated by a Gaussian pair, with the bound of the rounding."""

    event = BinomialShiftEvent
    source = (
        "binomial-Gaussian domination for nearer neighbours "
        "(docs: theory, Vector sum, Nearer neighbours)"
    )
    examples = (
        BinomialShiftEvent(1, 320_000, 0.5, 64.0, 1),
        BinomialShiftEvent(1000, 80, 0.5, 20.5, 3),
    )

    def epsilon(self, events: Releases[BinomialShiftEvent], delta: float) -> float:
        if not delta:
            return math.inf
        found = []
        for nu in nus_near(delta, units_of(events)):
            found.append(epsilon_many_rounds(delta, rounds_of(events, nu), nu))
            if alone(events) and delta > nu * units_of(events):
                found.append(least_epsilon(partial(self._delta, events, nu=nu), delta))
        return min(found)

    def delta(self, events: Releases[BinomialShiftEvent], epsilon: float) -> float:
        return least_delta(partial(self._delta, events, epsilon), units_of(events))

    def _delta(self, events: Releases[BinomialShiftEvent], epsilon: float, nu: float) -> float:
        """One round alone has the better bound."""
        if event := alone(events):
            return event.delta_alone(epsilon, nu)
        return delta_many_rounds(epsilon, rounds_of(events, nu), nu)


@dataclass(frozen=True)
class GridBinomial(Noise):
    """An array rounded at random to a public grid, plus centred binomial noise, all in integers.

    The grid's step is sensitivity/steps. Quotients are exact fractions, roundings compare integers,
    and the noise counts ones among random bits.

    Attributes:
        steps: grid steps in the sensitivity.
        trials: m of the noise Bin(m, 1/2) in each coordinate.
        coordinates: d.

    Raises:
        ParameterError: naming which is out of range.
    """

    norm: ClassVar[Norm] = "l2"
    exact: ClassVar[bool] = True
    steps: int
    trials: int
    coordinates: int

    def __post_init__(self) -> None:
        integer("steps", self.steps, 1, 2**30)
        integer("trials", self.trials, 1, _LARGEST)
        integer("coordinates", self.coordinates, 1, 10**6)

    @classmethod
    def calibrated(cls, privacy: Privacy, coordinates: int) -> Self:
        """The least noise of one release, on a grid so fine that rounding costs little.

        Raises:
            ParameterError: delta below what the arithmetic can certify; at 0 take `GridLaplace`.
        """
        units = max(2, coordinates)
        least = 1e10 * NUS[-1] * units
        if privacy.delta < least:
            allowed = f"at least {least:g} for binomial noise; at 0 take GridLaplace"
            raise ParameterError("delta", privacy.delta, allowed)
        # Rounding adds d/4 to the squared shift: at 10 sqrt(d) steps 1/400 of it.
        steps = max(LEAST_STEPS, math.ceil(10 * math.sqrt(coordinates)))

        nu = nus_near(privacy.delta, units)[-1]  # there is much noise

        def enough(trials: int) -> bool:
            event = cls(steps, trials, coordinates).event
            return event.delta_alone(privacy.epsilon, nu) <= privacy.delta

        # Of a Gaussian: sqrt(m)/2 = steps sigma; and m/4 is MIN_VARIANCE or more.
        low = math.ceil((2 * steps * gaussian.sigma(privacy.epsilon, privacy.delta)) ** 2)
        low, high = max(low, 4 * math.ceil(MIN_VARIANCE)), 2 * max(low, 4 * math.ceil(MIN_VARIANCE))
        while not enough(high):
            low, high = high, 2 * high
            if high > _LARGEST:
                allowed = "larger: so much noise cannot be counted"
                raise ParameterError("epsilon", privacy.epsilon, allowed)
        # Within 1/2048 of the least trials; `high` is always one that is enough.
        while high - low > max(1, high >> 11):
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return cls(steps, high, coordinates)

    @property
    def event(self) -> BinomialShiftEvent:
        """Neighbours are `steps` apart."""
        return BinomialShiftEvent(1, self.trials, 0.5, float(self.steps), self.coordinates)

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        self._check(d)
        return np.array([each / 2 for each in self._drawn(rng)]) / self.steps

    def spread(self, d: int) -> float:
        self._check(d)
        # m/4 of the noise and at most 1/4 of the rounding, in steps.
        return math.sqrt(d * (self.trials + 1)) / (2 * self.steps)

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        array = checked(value, sensitivity)
        self._check(array.size)
        step = Fraction(sensitivity) / self.steps
        whole = [_rounded(Fraction(each) / step, rng) for each in array.ravel().tolist()]
        # In half steps: Bin(m, 1/2) - m/2 is whole there, for odd m, too.
        moved = [2 * z + noise for z, noise in zip(whole, self._drawn(rng), strict=True)]
        return np.array([nearest(each * step / 2) for each in moved]).reshape(array.shape)

    def _drawn(self, rng: np.random.Generator) -> list[int]:
        """2 Bin(trials, 1/2) - trials in each coordinate."""
        return [2 * ones(rng, self.trials) - self.trials for _ in range(self.coordinates)]

    def _check(self, d: int) -> None:
        if d != self.coordinates:
            raise ParameterError("d", d, f"{self.coordinates}, as the mechanism states")


def ones(rng: np.random.Generator, trials: int) -> int:
    """Bin(trials, 1/2): ones among so many random bits."""
    whole, rest = divmod(trials, 8)
    total = 0
    while whole:
        size = min(whole, _BLOCK)
        total += int(np.bitwise_count(np.frombuffer(rng.bytes(size), np.uint8)).sum())
        whole -= size
    return total + (rng.bytes(1)[0] & ((1 << rest) - 1)).bit_count()


def _rounded(value: Fraction, rng: np.random.Generator) -> int:
    """The floor or the ceiling, with mean `value`."""
    floor = value.numerator // value.denominator
    # One integer below the denominator: the probability is the fraction, exactly.
    part = value - floor
    return floor + (below(rng, part.denominator) < part.numerator)
