"""Parameters of binomial sums: the fewest bits at a noise ratio, the least noise
at a bit budget.

With p = 1/2 and for given g, the noise is least at the least b that is private; the bits g + b grow
with b on both sides. So the search runs over b alone, upward from the b that even a Gaussian needs;
nothing is ever of size n.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds.binomial import first
from shuffle_sim.privacy.events import BinomialSumEvent
from shuffle_sim.privacy.planner import P, Plan, SumSpec, one_wish

_MAX_B = 2**40
_BELOW = 64  # values of b looked at below the first that fills a bit budget
_SCAN = 1000  # values of b tried one by one before the search goes on by doubling and halving
_MANY = 10_000  # values of b from which one more or less makes no difference


@dataclass(frozen=True)
class BinomialPlan(Plan):
    """Of a binomial sum.

    Attributes:
        g: rounding steps.
        b: noise bits per user and coordinate.
    """

    g: int
    b: int

    @property
    def parameters(self) -> dict[str, Any]:
        return {"g": self.g, "b": self.b, "p": P}

    @property
    def event(self) -> BinomialSumEvent:
        return self.spec.event(self.g, self.b)

    @property
    def bits(self) -> int:
        return self.g + self.b


def choose_binomial(
    spec: SumSpec, noise_ratio: float | None = None, max_bits: float | None = None
) -> BinomialPlan:
    """The fewest bits at a noise ratio over the central Gaussian's, or the least noise in max_bits.

    Raises:
        ParameterError: if both or neither are given, or what is asked for cannot be had.
    """
    one_wish(noise_ratio, max_bits)
    if spec.turned:
        allowed = "None with unary sums: carries and buckets take them"
        raise ParameterError("rotation, span", (spec.rotation, spec.span), allowed)
    if noise_ratio is not None:
        return fewest_bits(spec, noise_ratio)
    return least_noise(spec, math.floor(real("max_bits", max_bits, 0.0, 2.0**31)))


def _plan(spec: SumSpec, g: int, b: int) -> BinomialPlan:
    return BinomialPlan(spec, spec.noise_ratio(g, b), math.inf, g, b).proven()


def fewest_bits(spec: SumSpec, noise_ratio: float) -> BinomialPlan:
    """The fewest bits whose noise is at most `noise_ratio` times the central Gaussian's.

    Raises:
        ParameterError: the ratio is not above 1, or so close to 1 that neither 2^40 bits nor 2^53
            of all users reach it.
    """
    real("noise_ratio", noise_ratio, 0.0, 1e6)
    # Even a Gaussian needs honest b g-steps: n (b + 1) <= (2 g ratio central)^2 and honest b >= (2
    # g central)^2.
    room = noise_ratio**2 * spec.honest / spec.n - 1
    if room <= 1e-9:
        least = math.sqrt(spec.n / spec.honest)
        raise ParameterError(
            "noise_ratio",
            noise_ratio,
            f"above {least:g}: the honest users' noise alone must protect",
        )

    def steps(b: int) -> int:
        # The fewest steps whose noise, rounding at its worst, is as small as wished.
        return max(1, math.ceil(math.sqrt(spec.n * (b + 1)) / (2 * noise_ratio * spec.central)))

    def works(b: int) -> bool:
        return spec.private(steps(b), b)

    # Both lines together give b >= 1/room.
    # Trials are counted exactly.
    least_b, most = max(1, math.floor(0.98 / room)), min(_MAX_B, 2**53 // spec.honest)
    allowed = f"larger: not reached within {most:,} bits"
    refusal = ParameterError("noise_ratio", noise_ratio, allowed)
    if least_b + _SCAN > most:
        raise refusal
    tried = range(least_b, least_b + (_SCAN if least_b < _MANY else 1))
    found = next(filter(works, tried), None)
    if found is None:
        # From the last one tried, which is not private: doubled until one is, then halved.
        low, high = tried[-1], min(2 * tried[-1] + 2, most)
        while not works(high):
            if high == most:
                raise refusal
            low, high = high, min(2 * high, most)
        found = first(works, low, high)
    return _plan(spec, steps(found), found)


def least_noise(spec: SumSpec, max_bits: int) -> BinomialPlan:
    """The least noise with at most `max_bits` bits per user, coordinate and round.

    Raises:
        ParameterError: if no parameters within the budget keep the privacy asked for.
    """
    integer("max_bits", max_bits, 2, 2**31 - 1)

    def works(b: int) -> bool:
        return spec.private(max_bits - b, b)

    if not works(max_bits - 1):
        raise ParameterError(
            "max_bits",
            max_bits,
            "larger: even one rounding step and all else noise is not private enough",
        )
    b = first(works, 1, max_bits - 1)
    g, best = max_bits - b, spec.noise_ratio(max_bits - b, b)
    # Fewer noise bits leave steps over; integers make some of them the better choice, while even a
    # Gaussian could be.
    for fewer in range(b - 1, max(0, b - _BELOW), -1):
        if 0.98 * math.sqrt((fewer + 1) / fewer * spec.n / spec.honest) > best:
            break
        better = math.floor(math.sqrt(spec.n * (fewer + 1)) / (2 * spec.central * best)) + 1
        if better <= max_bits - fewer and spec.private(better, fewer):
            g, b = _most_steps(spec, fewer, better, max_bits - fewer), fewer
            best = spec.noise_ratio(g, b)
    # With many rounds rounding has a price of its own, and a few steps more or fewer with just
    # enough noise bits may do better.
    for steps in range(max(1, g - 2), g + 3):
        enough = b if spec.private(steps, b) else max_bits - steps
        if enough > 0 and spec.private(steps, enough):
            least = first(partial(spec.private, steps), max(1, enough * 9 // 10), enough)
            if spec.noise_ratio(steps, least) < best:
                best, g, b = spec.noise_ratio(steps, least), steps, least
    return _plan(spec, g, b)


def _most_steps(spec: SumSpec, b: int, low: int, high: int) -> int:
    """The largest g in [low, high] that b noise bits still protect; they do at `low`."""
    return first(lambda g: not spec.private(g, b), low, high + 1) - 1
