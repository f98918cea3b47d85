"""Split and mix: the sum of Balle, Bell, Gascon and Nissim (2020) with discrete Laplace noise.

It is after Ishai et al. (2006). Every user rounds its value to k steps and adds its share of
discrete Laplace noise. It splits the result into m numbers that are uniform modulo q but for their
sum. Permuted, the messages of all users say their sum and, up to 2^-s in total variation, no more.

The shares of noise are drawn in floating point (gamma and Poisson, numpy): their law is off by
about 1e-15 in total variation each, which no theorem here is charged for, as for every statistical
generator.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protocols.sums.encoding import Box, Rounding, round_at_random, rounded_law
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds import laplace
from shuffle_sim.privacy.events import MIN_HONEST_SPLIT_MIX, SplitMixEvent
from shuffle_sim.protocol.query import Datum, Query
from shuffle_sim.sampling import exact
from shuffle_sim.sampling.chacha import ChaCha20
from shuffle_sim.wire.messages import Alphabet, Messages, Tally


def messages_for(security: float, modulus: int, honest: int) -> int:
    """m = max(3, ceil((2 s + log2 q)/(log2 n - log2 e) + 1)) (Balle et al. 2020).

    Raises:
        ParameterError: fewer than 19 honest users, for whom the analysis says nothing.
    """
    if honest < MIN_HONEST_SPLIT_MIX:
        raise ParameterError(
            "n", honest, f"at least {MIN_HONEST_SPLIT_MIX} honest users for split and mix"
        )
    return max(3, math.ceil((2 * security + math.log2(modulus)) / math.log2(honest / math.e) + 1))


@dataclass(frozen=True)
class SplitMixRandomizer(Rounding):
    """Per coordinate: rounding, a share of noise, and a split into m summands modulo q.

    Attributes:
        labels: coordinates d.
        steps: k, rounding steps over the range.
        modulus: q.
        messages: m.
        planned: users whose shares of noise add up to discrete Laplace noise.
        rate: of that noise, pmf ~ e^{-rate |z|} in steps.
        lower: least value of a coordinate.
        width: length of its range.
        norm_bound: l2 bound of the vector, to which longer ones are scaled; None: coordinates are
            clipped to the range.
    """

    scales = True

    labels: int
    steps: int
    modulus: int
    messages: int
    planned: int
    rate: float
    lower: float
    width: float
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        integer("steps", self.steps, 1, 2**48)
        integer("modulus", self.modulus, self.steps + 1, 2**52)
        integer("messages", self.messages, 3, 2**10)
        self.box.check()
        if self.planned * self.messages * self.modulus >= 2**63:
            allowed = (
                f"at most {2**63 // (self.planned * self.messages)}: sums over {self.planned} "
                f"users must fit 63 bits"
            )
            raise ParameterError("modulus", self.modulus, allowed)
        self.event(self.planned, Datum())

    @cached_property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.labels, self.modulus)

    @property
    def per_label(self) -> int:
        return self.messages

    @property
    def box(self) -> Box:
        return Box(self.labels, self.lower, self.width, self.norm_bound)

    def _scaled(self, xs: Values) -> Floats:
        return (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.steps / self.width)

    def noise(
        self, users: int, shape: tuple[int, ...], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """The sum of `users` shares: a difference of negative binomials of shape users/planned."""
        if isinstance(rng.bit_generator, ChaCha20):
            size, rate = math.prod(shape), self.rate
            first, second = (
                exact.negative_binomial(users, self.planned, rate, size, rng) for _ in range(2)
            )
            return np.asarray((first - second).reshape(shape))
        # numpy asks for the probability of the outcome that ends the count.
        law = users / self.planned, -math.expm1(-self.rate)
        noise: NDArray[np.int64] = rng.negative_binomial(*law, shape)
        noise -= rng.negative_binomial(*law, shape)
        return noise

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        """Per coordinate m - 1 uniform numbers, and the one that makes the sum right."""
        symbols = np.empty((1, self.labels, self.messages), np.int64)
        for label, value in enumerate(self._scaled(np.atleast_1d(x)[None])[0].tolist()):
            scaled = min(max(value, 0.0), float(self.steps))
            floor = int(scaled)
            fixed = floor + int(rng.random() < scaled - floor)
            noisy = fixed + int(self.noise(1, (), rng))
            # Python integers: nothing wraps around, whatever m and q are.
            uniform = rng.integers(0, self.modulus, self.messages - 1).tolist()
            symbols[0, label] = [*uniform, (noisy - sum(uniform)) % self.modulus]
        return Messages.from_symbols(self.alphabet, symbols)

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        noisy = self.counts(xs, rng)
        symbols = rng.integers(0, self.modulus, (*noisy.shape, self.messages))
        # m q is below 2^63 (checked above), so these sums do not wrap around.
        symbols[..., -1] = (noisy - symbols[..., :-1].sum(axis=-1)) % self.modulus
        return Messages.from_symbols(self.alphabet, symbols)

    def counts(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        fixed = round_at_random(self._scaled(xs), self.steps, rng)
        return np.asarray((fixed + self.noise(1, fixed.shape, rng)) % self.modulus)

    def tally(self, xs: Values, rng: np.random.Generator) -> NDArray[np.int64]:
        fixed = round_at_random(self._scaled(xs), self.steps, rng).sum(axis=0)
        return np.asarray((fixed + self.noise(len(xs), fixed.shape, rng)) % self.modulus)

    def reduced(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        return sums % self.modulus

    def estimate(self, tally: Tally) -> Floats:
        """(width/k) z + R lower, z the sum modulo q as the number nearest to [0, R k]."""
        span = tally.reports * self.steps
        # As much room for negative noise below 0 as above the largest sum.
        below = (self.modulus - span) // 2
        steps = (tally.sums + below) % self.modulus - below
        return np.asarray(
            (self.width / self.steps) * steps + tally.reports * self.lower, np.float64
        )

    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """(width/k)^2 (sum_i f_i (1 - f_i) + 2 a/(1 - a)^2 R/planned), a = e^-rate.

        f are the fractions of the values in steps; without `xs` their sum is at its worst, R/4.
        """
        # expm1: 1 - e^-rate of a small rate would keep few digits.
        noise = 2 * math.exp(-self.rate) / math.expm1(-self.rate) ** 2 * reports / self.planned
        fraction = np.full((1, self.labels), 0.5) if xs is None else self._scaled(xs) % 1.0
        rounding = (fraction * (1 - fraction)).sum(axis=0) * (reports / len(fraction))
        return np.asarray((self.width / self.steps) ** 2 * (noise + rounding))

    @property
    def _reach(self) -> int:
        """Noise of larger size has a probability below e^-42."""
        return math.ceil(42 / self.rate)

    def count_index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        """Sums modulo q, counted from the lowest that noise makes of 0."""
        return (sums + reports * self._reach) % self.modulus

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of `count_index` of one report on `x`: rounding, and a share of noise."""
        scaled = float(np.clip(self._scaled(np.atleast_1d(x)[None])[0, label], 0.0, self.steps))
        return rounded_law(scaled, self.steps, self._noise_law(1))

    def _noise_law(self, users: int) -> Floats:
        """Of the shares of so many users, from -_reach on."""
        half = laplace.pmf(users / self.planned, self.rate, self._reach)
        # The law is symmetric: mirrored, without its middle twice.
        return np.concatenate([half[:0:-1], half])

    def total_law(self, sums: NDArray[np.int64], users: int) -> tuple[NDArray[np.int64], Floats]:
        """The noise alone, of shape users/planned."""
        return self.count_index(sums, 1), self._noise_law(users)

    def manipulation(self, attackers: int, reports: int) -> float:
        # From either end of the honest users' sums to the far end of the window of `estimate`.
        reach = (self.modulus + reports * self.steps) / 2
        return math.sqrt(self.labels) * reach * self.width / self.steps if attackers else 0.0

    def event(self, users: int, query: Query) -> SplitMixEvent:
        self.box.check_ball()
        return SplitMixEvent(
            users, self.planned, self.rate, self.steps, self.messages, self.modulus, self.labels
        )
