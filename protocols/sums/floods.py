"""Digits under floods of carries and a two-sided noise: the randomizer (docs/theory/floods.md)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from protocols.sums.batches import DEPTH, BatchKind, Ints
from protocols.sums.encoding import Box, SumRandomizer
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.privacy.bounds.floods import Digits, FloodNoise, heights, more_odds
from shuffle_sim.privacy.laplace_planner import messages, symbols
from shuffle_sim.privacy.laplace_sum import LaplaceSumEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.sampling.carries import carry_out
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

_SELDOM = 1e-18  # of a law is left out


@dataclass(frozen=True)
class FloodRandomizer(SumRandomizer):
    """Numbers rounded at random to digits, under shares of the noise; words are symbols.

    Of each coordinate there are symbols for + on every plane, for - on every plane but the lowest
    where nothing is taken from it, and with packed digits for every digit above 1.

    Attributes:
        coordinates: d.
        base, low, high, top, packed: as of `Digits`.
        decay, smooth, flood, pairs, batch, pair_batch: as of `FloodNoise`, of `planned` users.
        planned: honest users who have all the noise together.
        users: all who may report.
        cap: the most messages of a user, who draws anew beyond.
        width: numbers are clipped to [0, width].
    """

    view = "counts"
    moves = ("width",)
    norm_bound = None

    coordinates: int
    base: int
    low: int
    high: int
    top: int
    packed: bool
    decay: float
    smooth: float
    flood: float
    pairs: float
    batch: int
    pair_batch: int
    planned: int
    users: int
    cap: int
    width: float

    def __post_init__(self) -> None:
        Box(self.coordinates, 0.0, self.width).check()
        self._event()

    @cached_property
    def digits(self) -> Digits:
        """How a number is written."""
        return Digits(self.base, self.low, self.high, self.top, self.packed)

    @cached_property
    def noise(self) -> FloodNoise:
        """Of `planned` users together."""
        floods = self.flood, self.pairs, self.batch, self.pair_batch
        return FloodNoise(self.decay, self.smooth, *floods)

    @cached_property
    def alphabet(self) -> Alphabet:
        # The wire knows no alphabet of one symbol.
        return Alphabet(1, max(2, self.coordinates * symbols(self.digits)))

    @property
    def per_label(self) -> int:
        return self.cap

    @property
    def usual_messages(self) -> float:
        return self.coordinates * messages(self.digits, self.noise, self.planned)

    @cached_property
    def worth(self) -> Ints:
        """What each symbol adds to a coordinate, in steps, (symbols,)."""
        base, planes = self.base, self.digits.planes
        plus = [base**plane for plane in range(planes)]
        minus = [-(base**plane) for plane in range(self._least, planes)]
        return np.array(plus + minus + [v * base**plane for plane, v in self._whole], np.int64)

    @property
    def _least(self) -> int:
        """The lowest plane with a symbol for -: splits need all, carries those above the lowest."""
        return int(self.low > 0 and not self.packed)

    @property
    def _whole(self) -> tuple[tuple[int, int], ...]:
        """Digits that are one message of their own."""
        return self.digits.splits

    def _plus(self, plane: int, digit: int = 1) -> int:
        """The symbol of a digit; of 1 a plain +."""
        if digit == 1:
            return plane
        return 2 * self.digits.planes - self._least + self._whole.index((plane, digit))

    def _minus(self, plane: int) -> int:
        return self.digits.planes + plane - self._least

    def _of(self, *symbols_: tuple[int, int]) -> Ints:
        found = np.zeros(self.worth.size, np.int64)
        for symbol, times in symbols_:
            # Added: of the split of a 2 both halves are the plain +.
            found[symbol] += times
        return found

    @cached_property
    def kinds(self) -> tuple[BatchKind, ...]:
        """All noise of a coordinate, as section "The protocol" lists it."""
        digits, noise = self.digits, self.noise
        found = [
            BatchKind(noise.smooth, self._of((self._plus(plane), 1))) for plane in range(self.low)
        ]
        rho = math.exp(-noise.decay)
        for symbol in (self._plus(self.low), self._minus(self.low)):
            # Poisson(-ln(1 - rho)) batches of log-series sizes
            # add up to a geometric number ("The protocol").
            found.append(BatchKind(-math.log1p(-rho), self._of((symbol, 1)), ratio=rho))

        def flood(mean: float, batch: int, *symbols_: tuple[int, int]) -> None:
            # Sizes uniform on 1 .. batch have the mean (batch + 1)/2.
            found.append(BatchKind(2 * mean / (batch + 1), self._of(*symbols_), batch))

        both = (self._plus(self.low), 1), (self._minus(self.low), 1)
        flood(noise.pairs * digits.units, noise.pair_batch * digits.units, *both)
        for plane, reach in enumerate(digits.reach):
            shape = noise.flood * reach, noise.batch * reach
            back = self._minus(plane + 1), 1
            # Of Theorem (floods) these two are Move: T + t of the first against C - t of the second
            # says a carry, and leaves the minus signs as they are.
            flood(*shape, (self._plus(plane), self.base), back)
            flood(*shape, (self._plus(plane + 1), 1), back)
        for plane, v in digits.splits:
            whole, back = (self._plus(plane, v), 1), (self._minus(plane), v)
            flood(noise.flood, noise.batch, (self._plus(plane, v - 1), 1), (plane, 1), back)
            flood(noise.flood, noise.batch, whole, back)
        return tuple(found)

    def noise_parts(self) -> Iterator[tuple[str, Callable[..., Ints], Floats]]:
        """Of all planned users: name, draws of so many, and their law; for audits."""
        for place, kind in enumerate(self.kinds):
            yield f"noise of kind {place}", partial(kind.drawn, 1.0), kind.law(1.0)

    def admit(self, values: Values) -> tuple[Values, int]:
        return Box(self.coordinates, 0.0, self.width).admit(values)

    def _numbers(self, xs: Values, rng: np.random.Generator) -> Ints:
        """Rounded at random, in steps, (users, d)."""
        steps = self.digits.steps
        scaled = np.clip(dense(xs).reshape(len(xs), -1) * (steps / self.width), 0.0, steps)
        whole = np.floor(scaled)
        up = carry_out((scaled - whole).ravel(), 1, rng).reshape(whole.shape)
        return whole.astype(np.int64) + up

    def _data(self, numbers: Ints) -> Ints:
        """Messages of each symbol, (numbers, symbols)."""
        counts = np.zeros((numbers.size, self.worth.size), np.int64)
        rest, rows = numbers.ravel(), np.arange(numbers.size)
        for plane in range(self.digits.planes):
            last = plane == self.digits.planes - 1
            digit = rest if last else rest % self.base
            rest = rest // self.base
            if not self.packed:
                counts[:, plane] += digit
                continue
            most = self.top if last else self.base - 1
            places = np.array([0, *(self._plus(plane, v) for v in range(1, most + 1))])
            # A zero sends nothing: it adds 0 to the symbol of 1.
            counts[rows, places[digit]] += digit > 0
        return counts

    def _drawn(self, users: int, rng: np.random.Generator) -> Ints:
        """Noise of so many users together, (d, symbols)."""
        return np.asarray(self._noise(users, 1, rng)[0])

    def _noise(self, users: int, times: int, rng: np.random.Generator) -> Ints:
        """Noise of so many users together, so many times, (times, d, symbols)."""
        total = np.zeros((times, self.coordinates, self.worth.size), np.int64)
        for kind in self.kinds:
            drawn = kind.drawn(users / self.planned, total.shape[:2], rng)
            total += drawn[..., None] * kind.symbols
        return total

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        data = self._data(self._numbers(np.atleast_1d(x)[None], rng))
        counts = data + self._drawn(1, rng)
        # All noise anew, not only what is too much: its law given the cap, whose price is charged.
        while counts.sum() > self.cap:
            counts = data + self._drawn(1, rng)
        return self.singly(np.repeat(np.arange(counts.size), counts.ravel()))

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        users = len(xs)
        data = self._data(self._numbers(xs, rng)).reshape(users, self.coordinates, -1)
        counts = data + self._noise(1, users, rng)
        while (over := np.flatnonzero(counts.sum(axis=(1, 2)) > self.cap)).size:
            counts[over] = data[over] + self._noise(1, over.size, rng)
        flat = counts.reshape(users, -1)
        words = np.repeat(np.arange(flat.size) % flat.shape[1], flat.ravel())
        return self.singly(words, flat.sum(axis=1))

    def tallied(self, xs: Values, rng: np.random.Generator) -> Tally:
        """Without the cap, beyond which hardly any user draws: the event charges for both."""
        users = len(xs)
        data = self._data(self._numbers(xs, rng)).reshape(users, self.coordinates, -1)
        counts = (data.sum(axis=0) + self._drawn(users, rng)).ravel()
        return Tally.counted(np.arange(counts.size), counts, reports=users)

    def estimate(self, tally: Tally) -> Floats:
        """The analyzer: what the symbols are worth, less the mean of the noise on low planes."""
        counts = tally.dense(self.coordinates * self.worth.size).reshape(self.coordinates, -1)
        steps = counts @ self.worth
        mean = self.smooth * sum(self.base**plane for plane in range(self.low))
        # R/m of the mean: who did not report added no noise ("Traps").
        above = steps - tally.reports / self.planned * mean
        return np.asarray(above * (self.width / self.digits.steps), np.float64)

    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """Of the noise, R/m of what was planned; and of the rounding, at its largest R/4 steps."""
        noise = reports / self.planned * self.noise.variance(self.digits)
        steps = self.digits.steps
        if xs is None:
            rounding = np.full(self.coordinates, 0.25)
        else:
            parts = np.mod(dense(xs).reshape(len(xs), -1) * (steps / self.width), 1.0)
            rounding = (parts * (1 - parts)).mean(axis=0)
        return np.asarray(self.width**2 * (noise + reports * rounding / steps**2))

    def manipulation(self, attackers: int, reports: int) -> float:
        """As many of the largest symbol as the shuffler lets through: cap/top ranges, or cap."""
        largest = int(np.abs(self.worth).max())
        return attackers * self.cap * largest * self.width / self.digits.steps

    def worst_pair(self) -> tuple[Floats, Floats]:
        """The ends of the range in every coordinate."""
        return np.zeros(self.coordinates), np.full(self.coordinates, self.width)

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of the messages of a symbol in one report on `x`, but for the cap."""
        place, symbol = divmod(label, self.worth.size)
        steps = self.digits.steps
        scaled = min(max(float(np.atleast_1d(x)[place]) * (steps / self.width), 0.0), steps)
        whole = math.floor(scaled)
        lower, upper = self._data(np.array([whole, min(whole + 1, steps)]))[:, symbol]
        law = np.zeros(max(lower, upper) + 1)
        # Assigned, then added: both numbers may have as many of the symbol.
        law[lower] = whole + 1 - scaled
        law[upper] += scaled - whole
        for kind in self.kinds:
            if times := int(kind.symbols[symbol]):
                drawn = kind.law(1 / self.planned)
                # A batch has `times` of the symbol: the law is on their multiples.
                spread = np.zeros(times * (len(drawn) - 1) + 1)
                spread[::times] = drawn
                law = np.convolve(law, spread)
                law = np.trim_zeros(np.where(law > _SELDOM, law, 0.0), "b")
        return law

    def pair_odds(self, tally: Tally) -> float:
        """ln of how much likelier a tally is if one user holds the second of the worst pair, where
        all others hold the first: by the whole view on one plane, else by the sum alone.
        """
        counts = tally.dense(self.coordinates * self.worth.size).reshape(self.coordinates, -1)
        steps = self.digits.steps
        if self.digits.planes > 1 or self.packed:
            law, zero = self._sum_law
            moved = [counts @ self.worth + zero - k for k in (steps, 0)]
            there, here = (law[np.clip(each, 0, law.size - 1)] for each in moved)
            return float((there - here).sum())
        plus, minus = counts.T
        return float(more_odds(self.decay, self._heights, plus, minus, steps).sum())

    @cached_property
    def _heights(self) -> Floats:
        (pairs,) = (kind.law(1.0) for kind in self.kinds if kind.symbols.all())
        return heights(self.decay, pairs)

    @cached_property
    def _sum_law(self) -> tuple[Floats, int]:
        """ln of the law of the sum's noise in steps, and where 0 is."""
        unit, reach = self.base**self.low, math.ceil(DEPTH / self.decay)
        law = np.zeros(2 * reach * unit + 1)
        law[::unit] = np.exp(-self.decay * np.abs(np.arange(-reach, reach + 1)))
        for plane, kind in enumerate(self.kinds[: self.low]):
            drawn = kind.law(1.0)
            spread = np.zeros(self.base**plane * (drawn.size - 1) + 1)
            spread[:: self.base**plane] = drawn
            law = np.convolve(law, spread)
        with np.errstate(divide="ignore"):
            return np.log(law), reach * unit

    def event(self, users: int, query: Query) -> LaplaceSumEvent:
        # Whoever reports: fewer honest users than planned
        # are refused by `minimum` ("What is claimed").
        return self._event()

    def _event(self) -> LaplaceSumEvent:
        shape: tuple[Any, ...] = self.digits, self.noise, self.coordinates, self.cap
        return LaplaceSumEvent(self.planned, self.users, *shape)
