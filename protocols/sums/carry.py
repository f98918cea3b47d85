"""Spline rounding and fair carries: the randomizer (docs/theory/carry.md).

A user's number is floor(w + U_1 + ... + U_r): the rounding is the noise. It travels in base 2 with
random carries, so that a range of g steps takes some 2 log2 g one-bit messages. The analyzer gets
the total exactly.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protocols.sums.encoding import Box, Rounding
from protocols.sums.rotation import rotated, unrotated
from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.bounds.clipping import padded
from shuffle_sim.privacy.carry_planner import top
from shuffle_sim.privacy.events import CarrySumEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.sampling.carries import (
    MAX_LEVELS,
    MAX_NUMBER,
    MAX_WORD,
    Split,
    carry_out,
    digit_counts,
    digit_sums,
    pack_reports,
    split_numbers,
)
from shuffle_sim.sampling.kernels import half_binomial
from shuffle_sim.wire.messages import Alphabet, Messages, Tally


@dataclass(frozen=True)
class CarryRandomizer(Rounding):
    """Per coordinate spline rounding on [lower, lower + width], then digits with fair carries.

    Label j (levels + 1) + l is level l of coordinate j: two messages at each level below the last,
    the rest in ones at the last.

    Attributes:
        coordinates: d.
        g: rounding steps over the range; a real number.
        r: uniforms, 1 to 5; with 1 there are no levels and no fair bits, and a coordinate is one
            bit: the range lies in the middle of a step, of which it is less than all.
        b: fair bits, added to the number.
        levels: L, digits before the rest.
        lower: least value of a coordinate.
        width: length of its range.
        norm_bound: l2 bound of the vector, to which longer ones are scaled; None: coordinates are
            clipped to the range.
        span: vectors' coordinates are clipped to this part of the range, around its middle.
        rotation: public seed of a random rotation before that; None: there is none.
    """

    scales = True

    coordinates: int
    g: float
    r: int
    b: int
    levels: int
    lower: float
    width: float
    norm_bound: float | None = None
    span: float = 1.0
    rotation: int | None = None

    def __post_init__(self) -> None:
        self.box.check()
        if self.norm_bound is None and (self.span != 1 or self.rotation is not None):
            raise ParameterError("span, rotation", (self.span, self.rotation), "of vectors only")
        if self.rotation is not None:
            integer("rotation", self.rotation, 0, 2**63 - 1)
        # The event refuses what the theorem does not hold for: g, r, b, levels, span.
        self._event(1)

    @property
    def sent(self) -> int:
        """Coordinates that are sent: a rotation fills up to a power of two."""
        return self.coordinates if self.rotation is None else padded(self.coordinates)

    @property
    def steps(self) -> float:
        """Rounding steps over the range to which a coordinate is clipped."""
        return self.g * self.span

    @property
    def lowest(self) -> float:
        """Its lower end."""
        return self.lower + (1 - self.span) / 2 * self.width

    @cached_property
    def alphabet(self) -> Alphabet:
        columns = (2,) * self.levels + (self.top,)
        return Alphabet(self.sent * (self.levels + 1), 2, columns * self.sent)

    @property
    def per_label(self) -> int:
        return 1

    @property
    def label_group(self) -> int:
        """Labels of one coordinate: its digits depend on each other."""
        return self.levels + 1

    @property
    def largest(self) -> int:
        """The largest number before it is split."""
        return top(self.steps, self.r, self.b, 0)

    @property
    def top(self) -> int:
        """The largest rest at the last level."""
        return top(self.steps, self.r, self.b, self.levels)

    @property
    def bits(self) -> int:
        """Messages per coordinate."""
        return 2 * self.levels + self.top

    @property
    def report_bits(self) -> int:
        return self.sent * self.bits

    @property
    def start(self) -> float:
        """Steps at the lower end."""
        return carry.start(self.steps, self.r)

    @property
    def center(self) -> float:
        """Mean of a number above its steps over the lower end."""
        return (self.r - 1 + self.b) / 2 + self.start

    @property
    def box(self) -> Box:
        return Box(self.coordinates, self.lower, self.width, self.norm_bound)

    def _clipped(self, xs: Values) -> Floats:
        """As they are sent, shape (users, sent): rotated, and clipped to the range."""
        ends = self.lowest, self.lowest + self.span * self.width
        if self.rotation is None:
            return np.clip(dense(xs).reshape(len(xs), self.coordinates), *ends)
        rows = rotated(xs, self.rotation)  # in memory of their own
        return np.clip(rows, *ends, out=rows)

    def _scaled(self, xs: Values) -> Floats:
        """In steps, shape (users, sent)."""
        above = (self._clipped(xs) - self.lowest) * (self.g / self.width)
        # Clipped again: in floats (y - lowest) g/width may pass the last step by a rounding error.
        return np.clip(above, 0.0, self.steps, out=above) + self.start

    def _numbers(self, xs: Values, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rounded, with their fair bits, shape (users, sent)."""
        scaled = self._scaled(xs)
        whole = np.floor(scaled)
        carried = carry_out((scaled - whole).ravel(), self.r, rng).reshape(whole.shape)
        return whole.astype(np.int64) + carried + half_binomial(self.b, whole.shape, rng)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        bits: list[int] = []
        for rounded in self._numbers(np.atleast_1d(x)[None], rng)[0].tolist():
            number = rounded
            for _ in range(self.levels):
                half = (number + int(rng.integers(2))) // 2
                digit = number - 2 * half
                bits += [1] * (digit + 1) + [0] * (1 - digit)
                number = half
            bits += [1] * number + [0] * (self.top - number)
        return Messages.from_symbols(self.alphabet, np.array(bits, np.uint8)[None, :, None])

    def _quick(self, xs: Values) -> bool:
        """Whether the kernels can draw the numbers."""
        small = self.largest <= MAX_NUMBER and self.levels <= MAX_LEVELS
        # Far from 0 the kernels' value * scale + offset would lose the digits that its parts share.
        return small and abs(self.lower) <= self.width and len(xs) > 0

    def _split(self, xs: Values, rng: np.random.Generator) -> Split:
        """Numbers and coins, as the kernels hold them."""
        whole = self.span == 1 and self.rotation is None  # then nothing is left to clip
        if whole and isinstance(xs, Scaled):
            rows, factors = xs.rows, xs.factors
        else:
            rows, factors = dense(xs) if whole else self._clipped(xs), None
        columns, scale = rows.reshape(len(xs), self.sent).T, self.g / self.width
        offset, most = self.start - self.lowest * scale, self.start + self.steps
        return split_numbers(
            columns, factors, scale, offset, most, self.r, self.b, self.levels, rng
        )

    def counts(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        if self._quick(xs):
            kind = np.uint8 if self.top < 256 else np.uint16
            return digit_counts(self._split(xs, rng), self.levels, kind)
        rounded = self._numbers(xs, rng)
        coins = rng.integers(0, 2**self.levels, rounded.shape)
        # T = A + C in place of a loop over carries: "The protocol", closed form.
        rounded += coins
        counts = np.empty((*rounded.shape, self.levels + 1), np.int64)
        for level in range(self.levels):
            counts[..., level] = (rounded >> level & 1) + 1 - (coins >> level & 1)
        counts[..., -1] = rounded >> self.levels
        return counts.reshape(len(counts), self.alphabet.labels)

    def tally(self, xs: Values, rng: np.random.Generator) -> NDArray[np.int64]:
        if self._quick(xs):
            return digit_sums(self._split(xs, rng), self.levels, self.top).ravel()
        return super().tally(xs, rng)

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        if self._quick(xs) and self.bits <= MAX_WORD:
            packed = pack_reports(self._split(xs, rng), self.levels, self.top)
            return Messages(self.alphabet, self.per_label, packed)
        counts, edges = self.counts(xs, rng), self.alphabet.edges
        place = np.arange(self.alphabet.width) - np.repeat(edges[:-1], np.diff(edges))
        # Under each label the ones come first: the order is no secret, the shuffler draws another.
        bits = place < counts[:, self.alphabet.label_of]
        return Messages.from_symbols(self.alphabet, bits.astype(np.uint8)[:, :, None])

    def totals(self, tally: Tally) -> NDArray[np.int64]:
        """The exact sum of the numbers of all reports, shape (sent,)."""
        ones = tally.sums.reshape(self.sent, self.levels + 1)
        # X = 2^L ones(L) + sum 2^l (ones(l) - R), in which all R together count 2^L - 1 times.
        weights = 2 ** np.arange(self.levels + 1, dtype=np.int64)
        return np.asarray(ones @ weights - tally.reports * (2**self.levels - 1))

    def estimate(self, tally: Tally) -> Floats:
        """The analyzer: (width/g) (total - R center) + R lowest for R reports, rotated back."""
        above = self.totals(tally) - tally.reports * self.center
        sums = np.asarray((self.width / self.g) * above + tally.reports * self.lowest, np.float64)
        return sums if self.rotation is None else unrotated(sums, self.rotation, self.coordinates)

    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """(width/g)^2 R ((r + 1)/12 + b/4) in each coordinate, whatever the data are.

        Of one bit (width/g)^2 R/4, less v^2 for a datum v steps from the middle.
        """
        each = np.full(self.coordinates, carry.variance(self.r, self.b))
        if self.r == carry.ONE_BIT and xs is not None:
            squares = ((self._scaled(xs) - 0.5) ** 2).mean(axis=0)
            each -= squares if self.rotation is None else squares.mean()  # all mixed equally
        return np.asarray((self.width / self.g) ** 2 * reports * each)

    def reach(self) -> tuple[float, float]:
        """How far only ones move a coordinate that is sent up from datum 0, and only zeros down."""
        carried, step = 2**self.levels - 1, self.width / self.g
        # Only ones say D = 1 at each level, 2^L - 1 in all,
        # and a full rest; only zeros D = -1 and 0.
        most = carried + 2**self.levels * self.top
        up = step * (most - self.center) + self.lowest
        return up, step * (carried + self.center) - self.lowest

    def manipulation(self, attackers: int, reports: int) -> float:
        """All ones, or all zeros if that is farther from the datum 0."""
        return attackers * math.sqrt(self.sent) * max(self.reach())

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Two data at opposite ends of the range in the first coordinate that is sent."""
        if self.rotation is None or self.norm_bound is None:
            return super().worst_pair()
        first = unrotated(np.eye(1, self.sent)[0], self.rotation, self.coordinates)
        # Cut to d of its coordinates it is shorter than 1.
        end = first * (self.norm_bound / float(np.linalg.norm(first)))
        return -end, end

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of the number of ones under `label` in one report on `x`."""
        coordinate, level = divmod(label, self.levels + 1)
        w = float(self._scaled(np.atleast_1d(x)[None])[0, coordinate])
        pmf = np.zeros(self.largest + self.r + 1)
        spline = carry.law(w, self.r, self.b)
        pmf[math.floor(w) : math.floor(w) + len(spline)] = spline
        for _ in range(level):
            # To an even length, with an empty pair in which the last carry finds room.
            pmf = np.append(pmf, np.zeros(len(pmf) % 2 + 2))
            carried = np.append(0.0, pmf[1:-1:2]) / 2  # an odd number 2 c - 1 comes to c by half
            pmf = pmf[::2] + pmf[1::2] / 2 + carried
        if level == self.levels:
            return pmf[: self.top + 1]
        odd = float(pmf[1::2].sum())
        return np.array([odd / 2, 1 - odd, odd / 2])

    def total_law(self, sums: NDArray[np.int64], users: int) -> tuple[NDArray[np.int64], Floats]:
        """Of the ones under label 0, by convolution."""
        start, pmf = carry.sum_law(self.count_pmf(self.worst_pair()[0], 0), users)
        return sums - start, pmf

    def event(self, users: int, query: Query) -> CarrySumEvent:
        self.box.check_ball()
        return self._event(users)

    def _event(self, users: int) -> CarrySumEvent:
        shape = self.g, self.r, self.b, self.levels, self.sent, self.span
        return CarrySumEvent(users, *shape)
