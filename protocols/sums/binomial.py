"""The randomizers R_1D and R_vec of Cheu et al. (2022), and faster samplers of their law."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.sums.encoding import Box, Rounding, round_at_random, rounded_law
from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.events import BinomialSumEvent
from shuffle_sim.privacy.grid_noise import BinomialShiftEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.sampling.bits import add_half_binomial
from shuffle_sim.sampling.kernels import MAX_STEPS, rounded_sum, rounded_values
from shuffle_sim.wire.messages import Alphabet, Messages, Tally


def randomize_scalar(
    w: float, width: float, g: int, b: int, p: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """R_1D(w) for w in [0, width], line by line of Algorithm 1: g + b bits, the ones first."""
    scaled = min(
        w * g / width, float(g)
    )  # in floats w g / width may exceed g by one rounding error
    floor = int(scaled)
    eta_1 = int(rng.random() < scaled - floor)
    rounded = floor + eta_1
    eta_2 = int(rng.binomial(b, p))
    ones = rounded + eta_2
    return np.array([1] * ones + [0] * (g + b - ones), np.uint8)


@dataclass(frozen=True)
class BinomialRandomizer(Rounding):
    """Per coordinate R_1D on [lower, lower + width], the bits labelled by coordinate.

    Attributes:
        labels: coordinates d.
        g: rounding steps over the range.
        b: noise bits per coordinate.
        p: their success probability, in (0, 1/2].
        lower: least value of a coordinate.
        width: length of its range.
        norm_bound: l2 bound of the vector, to which longer ones are scaled; None: coordinates are
            clipped to the range.
    """

    scales = True

    labels: int
    g: int
    b: int
    p: float
    lower: float
    width: float
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        integer("d", self.labels)
        integer("g", self.g)
        integer("b", self.b)
        real("p", self.p, 0.0, 0.5)
        self.box.check()
        # Estimates are doubles, which tell no more apart.
        integer("g + b", self.g + self.b, high=2**53)

    @cached_property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.labels)

    @property
    def per_label(self) -> int:
        return self.g + self.b

    @property
    def box(self) -> Box:
        return Box(self.labels, self.lower, self.width, self.norm_bound)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        """R_vec(x), line by line of Algorithm 2: R_1D on each shifted coordinate."""
        return self._each(x, self.p, rng)

    def noiseless(self, x: Floats, rng: np.random.Generator) -> Messages:
        """The report with all noise bits zero; the rounding is that of R_vec(x)."""
        return self._each(x, 0.0, rng)

    def _each(self, x: Floats, p: float, rng: np.random.Generator) -> Messages:
        bits = [
            randomize_scalar(w, self.width, self.g, self.b, p, rng)
            for w in (np.atleast_1d(x) - self.lower).tolist()
        ]
        return Messages.from_symbols(self.alphabet, np.array(bits, np.uint8)[None])

    def _rounded(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        """The stochastically rounded encodings, (users, labels), in [0, g]."""
        if self._quick(xs):
            return rounded_values(*self._columns(xs), rng).T
        return round_at_random(
            (dense(xs).reshape(len(xs), self.labels) - self.lower) * (self.g / self.width),
            self.g,
            rng,
        )

    def _quick(self, xs: Values) -> bool:
        """Whether the kernels can round the values."""
        # A ball lies around 0 (`Box.check`): a range far from it would lose digits in the
        # kernels' value * scale + offset.
        return self.norm_bound is not None and self.g <= MAX_STEPS and len(xs) > 0

    def _columns(self, xs: Values) -> tuple[Floats, Floats | None, float, float]:
        """What the kernels take: columns, factors, steps per unit, offset in steps."""
        rows, factors = (xs.rows, xs.factors) if isinstance(xs, Scaled) else (xs, None)
        steps = self.g / self.width
        return rows.T, factors, steps, -self.lower * steps

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        return Messages.from_ones(self.counts(xs, rng), self.per_label)

    def counts(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        rounded = self._rounded(xs, rng)
        if self.p == 0.5 and self.b <= 512:
            # Drawn in the memory order of the roundings, and added in the narrowest type that holds
            # g + b.
            counts: NDArray[np.integer] = rounded.T.astype(
                np.uint16 if self.per_label < 2**16 else np.int64, copy=False
            )
            add_half_binomial(counts, self.b, rng)
            return counts.T
        noise: NDArray[np.int64] = rng.binomial(self.b, self.p, rounded.shape)
        return rounded + noise

    def tally(self, xs: Values, rng: np.random.Generator) -> NDArray[np.int64]:
        if self._quick(xs):
            return np.asarray(rounded_sum(*self._columns(xs), rng) + self._noise(len(xs), rng))
        return np.asarray(self._rounded(xs, rng).sum(axis=0) + self._noise(len(xs), rng))

    def _noise(self, users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        # Bin(b, p) of all users together are one binomial: nobody needs them one by one.
        noise: NDArray[np.int64] = rng.binomial(self.b * users, self.p, self.labels)
        return noise

    def estimate(self, tally: Tally) -> Floats:
        """The analyzer: (width/g) (ones - p b R) + R lower for R reports received, shape (labels,).

        With the number of users planned in place of R it would be biased by every dropout
        (docs/theory/dropouts.md, "Dropouts").
        """
        noise = self.p * self.b * tally.reports
        return np.asarray(
            (self.width / self.g) * (tally.sums - noise) + tally.reports * self.lower, np.float64
        )

    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """Variance of each coordinate of a sum over `reports` users, shape (labels,).

        (width/g)^2 (sum_i f_i (1 - f_i) + R b p (1 - p)), f_i the fractional parts of the users'
        scaled values `xs`; without them the rounding part is at its largest, R/4.
        """
        noise = np.full(self.labels, reports * self.b * self.p * (1 - self.p))
        if xs is None:
            return (self.width / self.g) ** 2 * (noise + reports / 4)
        scaled = (xs.reshape(reports, self.labels) - self.lower) * (self.g / self.width)
        fraction = scaled - np.floor(scaled)
        rounding: Floats = (fraction * (1 - fraction)).sum(axis=0)
        return (self.width / self.g) ** 2 * (noise + rounding)

    def reach(self) -> tuple[float, float]:
        """How far only ones move a coordinate up from datum 0, and only zeros down."""
        step = self.width / self.g
        up = step * (self.g + self.b * (1 - self.p)) + self.lower
        return up, step * self.b * self.p - self.lower

    def manipulation(self, attackers: int, reports: int) -> float:
        return attackers * math.sqrt(self.labels) * max(self.reach())

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of the number of ones under `label` in one report on `x`, on 0, ..., g + b."""
        scaled = float(
            np.clip((np.atleast_1d(x)[label] - self.lower) * self.g / self.width, 0.0, self.g)
        )
        noise = scipy.stats.binom.pmf(np.arange(self.b + 1), self.b, self.p)
        return rounded_law(scaled, self.g, noise)

    def total_law(self, sums: NDArray[np.int64], users: int) -> tuple[NDArray[np.int64], Floats]:
        """The noise alone, Bin(users b, p), within 12 standard deviations."""
        mean = users * self.b * self.p
        spread = 12 * math.sqrt(mean * (1 - self.p)) + 12
        places = np.arange(max(0, math.floor(mean - spread)), math.ceil(mean + spread) + 1)
        return sums - places[0], scipy.stats.binom.pmf(places, users * self.b, self.p)

    def event(self, users: int, query: Query) -> BinomialSumEvent | BinomialShiftEvent:
        """The release of the view, with the noise of `users` honest users.

        Of values that a query proves to move by less than the ball, for g apart/width steps.
        """
        self.box.check_ball()
        if query.apart < self.width:
            # The values of neighbours are less than a range apart, so fewer steps.
            shift = self.g * (query.apart / self.width)
            return BinomialShiftEvent(users, self.b, self.p, shift, self.labels)
        return BinomialSumEvent(users, self.b, self.p, self.g, self.labels)
