"""The single-message sum of Balle, Bell, Gascon and Nissim (2019)."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.sums.encoding import MAGNITUDES, Box, Rounding, round_at_random, rounded_law
from protocols.sums.one_round import OneRoundSum, SumSetting
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds import blanket
from shuffle_sim.privacy.events import BlanketEvent
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.query import Query
from shuffle_sim.wire.messages import Alphabet, Messages, Tally

_MAX_STEPS = 4096


@dataclass(frozen=True)
class SingleMessageRandomizer(Rounding):
    """The value rounded to one of k + 1 numbers, with probability gamma a uniform one instead.

    Attributes:
        steps: k.
        gamma: probability of a uniform message.
        width: length of the range [0, width].
    """

    norm_bound = None

    steps: int
    gamma: float
    width: float

    def __post_init__(self) -> None:
        integer("steps", self.steps, 1, _MAX_STEPS)
        real("gamma", self.gamma, 0.0, 1.0, closed=(False, False))
        self.box.check()

    @cached_property
    def alphabet(self) -> Alphabet:
        """One label, k + 1 symbols."""
        return Alphabet(1, self.steps + 1)

    @property
    def per_label(self) -> int:
        return 1

    @property
    def box(self) -> Box:
        return Box(1, 0.0, self.width)

    def _scaled(self, xs: Values) -> Floats:
        return dense(xs).reshape(len(xs), 1) * (self.steps / self.width)

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        """Algorithm 1 and 2 of the paper: round, then keep or draw."""
        scaled = min(float(np.atleast_1d(x)[0]) * self.steps / self.width, float(self.steps))
        floor = int(scaled)
        symbol = floor + int(rng.random() < scaled - floor)
        if rng.random() < self.gamma:
            symbol = int(rng.integers(0, self.steps + 1))
        return Messages.from_symbols(self.alphabet, np.array([[[symbol]]]))

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        return Messages.from_symbols(self.alphabet, self.counts(xs, rng)[..., None])

    def counts(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        fixed = round_at_random(self._scaled(xs), self.steps, rng)
        drawn = rng.integers(0, self.steps + 1, fixed.shape)
        return np.where(rng.random(fixed.shape) < self.gamma, drawn, fixed)

    def estimate(self, tally: Tally) -> Floats:
        """(width/k) (z - gamma R k/2)/(1 - gamma)."""
        blurred = tally.sums - self.gamma * tally.reports * self.steps / 2
        return np.asarray((self.width / self.steps) * blurred / (1 - self.gamma), np.float64)

    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """(1 - gamma) (f (1 - f) + gamma (u - k/2)^2) + gamma k (k + 2)/12 a message, in steps.

        u = x k/width is the value in steps, f its fraction. Without `xs` it is at its largest:
        between 0 and 1 step, the last of the parabolas that are farthest from the middle.
        """
        k, gamma = self.steps, self.gamma
        u = (
            # Where u - u^2 + gamma (u - k/2)^2 has its top: on the first step f = u.
            np.array([[min(1.0, max(0.0, (1 - gamma * k) / (2 * (1 - gamma))))]])
            if xs is None
            else self._scaled(xs)
        )
        fraction = u % 1.0
        each = (1 - gamma) * (fraction * (1 - fraction) + gamma * (u - k / 2) ** 2) + gamma * k * (
            k + 2
        ) / 12
        return np.asarray(each.mean(axis=0) * reports * (self.width / k / (1 - gamma)) ** 2)

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of the message on `x`: rounded, or with probability gamma uniform."""
        scaled = float(np.clip(np.atleast_1d(x)[0] * self.steps / self.width, 0.0, self.steps))
        kept = rounded_law(scaled, self.steps, np.ones(1))
        return np.asarray((1 - self.gamma) * kept + self.gamma / (self.steps + 1))

    def manipulation(self, attackers: int, reports: int) -> float:
        """The largest symbol: each moves the sum by width (1 - gamma/2)/(1 - gamma)."""
        return attackers * self.width * (1 - self.gamma / 2) / (1 - self.gamma)

    def event(self, users: int, query: Query) -> BlanketEvent:
        return BlanketEvent(users, self.gamma, self.steps + 1)


class SingleMessageSum(OneRoundSum):
    """The sum of n scalars in [0, upper] from one message a user; data of shape (n,).

    Formal guarantee: the privacy blanket, by exact sums; for `paper` by Theorem 3.1 of the paper.
    """

    scalar, family = True, "single message"
    randomizer: SingleMessageRandomizer

    def __init__(
        self,
        *,
        n: int,
        steps: int,
        gamma: float,
        upper: float = 1.0,
        delta: float = 1e-6,
        honest_fraction: float = 1.0,
    ) -> None:
        self.upper = self.sensitivity = real("upper", upper, *MAGNITUDES, closed=(True, True))
        super().__init__(
            n, SingleMessageRandomizer(steps, gamma, self.upper), delta, honest_fraction
        )

    @classmethod
    def settings(cls, n: int, d: int, privacy: Privacy) -> Iterable[SumSetting]:
        size = cls.size(n, d, privacy)
        return [
            SumSetting("exact blanket", partial(cls.calibrated, **size)),
            SumSetting("Theorem 3.1", partial(cls.paper, **size), paper=True),
        ]

    @classmethod
    def paper(
        cls, *, n: int, privacy: Privacy, upper: float = 1.0, steps: int | None = None
    ) -> "SingleMessageSum":
        """The constants of Theorem 3.1; by default with the steps of the least variance."""

        def gamma_at(k: int) -> float:
            return blanket.theorem(n, k, privacy.epsilon, privacy.delta)

        k = _steps(gamma_at, n, upper, steps)
        protocol = cls(n=n, steps=k, gamma=gamma_at(k), upper=upper, delta=privacy.delta)
        protocol._claim = Guarantee(
            privacy.epsilon,
            privacy.delta,
            basis="Theorem 3.1 of Balle, Bell, Gascon and Nissim (2019)",
        )
        return protocol

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        privacy: Privacy,
        upper: float = 1.0,
        honest_fraction: float = 1.0,
        steps: int | None = None,
    ) -> "SingleMessageSum":
        honest = honest_users(honest_fraction, integer("n", n))
        # The tails that `blanket` cuts off add some 3e-12: below 1e-11 delta would be little else.
        real("delta", privacy.delta, 1e-11, 1.0, closed=(True, False))

        def gamma_at(k: int) -> float:
            return _least_gamma(honest, k, privacy.epsilon, privacy.delta)

        k = _steps(gamma_at, n, upper, steps)
        return cls(
            n=n,
            steps=k,
            gamma=gamma_at(k),
            upper=upper,
            delta=privacy.delta,
            honest_fraction=honest_fraction,
        )


@lru_cache(maxsize=256)
def _least_gamma(honest: int, steps: int, epsilon: float, delta: float) -> float:
    """The least gamma that is private, rounded up; 1 where none is."""

    def excess(log: float) -> float:
        return math.log(blanket.delta(honest, math.exp(log), steps + 1, epsilon) / delta)

    # A start, not a bound: about one blanket message for each symbol.
    high = low = math.log(min(0.5, (steps + 1) / honest))
    while excess(high) > 0:
        high += 1.0
        if high >= -1e-6:
            return 1.0
    while excess(low) <= 0:
        low -= 1.0
    # brentq is within 1e-7 of the root; 2e-7 more is on the private side of it.
    return min(1.0, math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-7) + 2e-7))


def _steps(gamma_at: Callable[[int], float], n: int, upper: float, given: int | None) -> int:
    """The number of steps with the least worst variance, which falls and then rises; or as given.

    Raises:
        ParameterError: no number of steps is private.
    """
    if given is not None:
        return integer("steps", given, 1, _MAX_STEPS)

    def variance(k: int) -> float:
        if (gamma := gamma_at(k)) >= 1:
            return math.inf
        return float(SingleMessageRandomizer(k, gamma, upper).variance(n)[0])

    if variance(1) == math.inf:
        raise ParameterError(
            "n", n, "larger: with so few users not even one bit a message is private"
        )
    high = 2
    # The variance falls, then rises: a doubling that does not help has passed the least.
    while high < _MAX_STEPS and variance(high) < variance(high // 2):
        high *= 2
    low, few = max(1, high // 4), 12 if high <= 16 else 3
    while high - low > few:
        third = (high - low) // 3
        if variance(low + third) <= variance(high - third):
            high -= third
        else:
            low += third
    return min(range(low, high + 1), key=variance)
