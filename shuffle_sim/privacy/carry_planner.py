"""Choosing parameters of sums with carries: fewest bits at a noise ratio, least noise in bits.

The noise falls with g at no cost but bits and privacy. So for every choice of the small integers r,
b and L either the g that a noise ratio needs is private, or the choice is out.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.bounds.domination import nus_near
from shuffle_sim.privacy.events import CarrySumEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import Plan, SumSpec, one_wish

_BITS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Fair bits b that are tried: rounding alone is enough noise but for few users."""
_SHAPES = ((carry.ONE_BIT, 0), *product(carry.UNIFORMS, _BITS))
_LEVELS = 40
_TINY = 1e-9  # of a step: any sum is private then, if one is
_MOST_OF_A_STEP = 1 - 1e-6  # that one bit's numbers span: at all of it some would have no noise


def top(steps: float, r: int, b: int, levels: int) -> int:
    """The largest rest of a number after so many levels, each a fair carry: rounded up halves.

    `steps` is the range of a coordinate, g times the span.
    """
    return -(-(math.ceil(steps) + r - 1 + b) // (1 << levels))


def bits(steps: float, r: int, b: int, levels: int) -> int:
    """One-bit messages per user and coordinate."""
    return 2 * levels + top(steps, r, b, levels)


@dataclass(frozen=True)
class CarryPlan(Plan):
    """Of a sum with carries.

    Attributes:
        g: rounding steps over the range.
        r: uniforms.
        b: fair bits.
        levels: L.
    """

    g: float
    r: int
    b: int
    levels: int

    @property
    def parameters(self) -> dict[str, Any]:
        own = {"g": self.g, "r": self.r, "b": self.b, "levels": self.levels}
        return own | self.spec.turned

    @property
    def event(self) -> CarrySumEvent:
        shape = self.g, self.r, self.b, self.levels
        return CarrySumEvent(self.spec.honest, *shape, self.spec.sent, self.spec.clip)

    @property
    def bits(self) -> int:
        return bits(self.g * self.spec.clip, self.r, self.b, self.levels)

    @property
    def error_ratio(self) -> float:
        return math.hypot(self.noise_ratio, self.spec.bias_ratio(self.spec.clip))


def keeps(each: carry.Carries, rounds: int, privacy: Privacy) -> bool:
    """Whether so many rounds are proven to be private, by a few of the nu of the accountant."""
    # (1 + e^epsilon) tau of the theorem, for nu = 1.
    cost = each.revealed * rounds * (1 + math.exp(privacy.epsilon))
    nus = nus_near(2 * privacy.delta, cost)
    return carry.delta(((each, rounds),), privacy.epsilon, nus) <= privacy.delta


@dataclass(frozen=True)
class _Search:
    """The choices for a spec."""

    spec: SumSpec

    def ratio(self, g: float, r: int, b: int) -> float:
        """Noise over the central Gaussian's."""
        return math.sqrt(self.spec.n * carry.variance(r, b)) / (g * self.spec.central)

    def private(self, g: float, r: int, b: int, levels: int) -> bool:
        """Whether a choice keeps the privacy asked for; the accountant tries more than here."""
        spec = self.spec
        if r == carry.ONE_BIT and g * self.spec.clip > _MOST_OF_A_STEP:
            return False
        each = carry.Carries(spec.honest - 1, g, r, b, levels, spec.sent, spec.clip)
        return keeps(each, spec.rounds, spec.privacy)

    def most_steps(self, r: int, b: int, levels: int, private: float, most: float) -> float:
        """The largest private g from one that is private up to `most`."""
        if self.private(most, r, b, levels):
            return most
        while most - private > 1e-5 * most:
            middle = (private + most) / 2
            enough = self.private(middle, r, b, levels)
            private, most = (middle, most) if enough else (private, middle)
        return private

    def fitting(self, most: int) -> Iterator[tuple[float, int, int, int]]:
        """The (most steps, r, b, L) that fit so many bits; not more than a Gaussian would allow."""
        # `bits` solved for the steps; the rest takes a bit, so 2 L is less than what there is.
        for (r, b), levels in product(_SHAPES, range(min((most + 1) // 2, _LEVELS + 1))):
            steps = float(((most - 2 * levels) << levels) - (r - 1) - b)
            if r == carry.ONE_BIT:
                # One bit is all that it sends: nothing to carry.
                steps = 0.0 if levels else _MOST_OF_A_STEP
            if steps > 0:
                whole = steps / self.spec.clip * (1 - 1e-15)  # times the span, it must not be above
                # The noise is ratio(1)/g: beyond it less than the central Gaussian's.
                yield min(whole, self.ratio(1.0, r, b)), r, b, levels

    def plan(self, g: float, r: int, b: int, levels: int) -> CarryPlan:
        """With what it costs and gives."""
        return CarryPlan(self.spec, self.ratio(g, r, b), math.inf, g, r, b, levels).proven()


def choose_carries(
    spec: SumSpec, noise_ratio: float | None = None, max_bits: float | None = None
) -> CarryPlan:
    """The fewest bits at a noise ratio over the central Gaussian's, or the least noise in max_bits.

    Args:
        spec: what is to be summed.
        noise_ratio: standard deviation over the central Gaussian's.
        max_bits: bits per user and coordinate that is sent.

    Raises:
        ParameterError: if both or neither are given, or what is asked for cannot be had.
    """
    one_wish(noise_ratio, max_bits)
    search = _Search(spec)
    if not any(search.private(_TINY, r, b, 0) for r, b in _SHAPES):
        allowed = "more: the honest users' randomness does not protect any sum"
        raise ParameterError("n", spec.n, allowed)
    if noise_ratio is None:
        found = _least_noise(search, math.floor(real("max_bits", max_bits, 0.0, 2**31)), math.inf)
        if found is None:
            least = min(r + b for r, b in _SHAPES if search.private(_TINY, r, b, 0))
            raise ParameterError("max_bits", max_bits, f"at least {least}")
        return found
    most = _fewest_bits(search, real("noise_ratio", noise_ratio, 0.0, 1e6))
    found = _least_noise(search, most, noise_ratio) if most else None
    if found is None:
        least_noise = _least_noise(search, 2**31, math.inf)
        assert least_noise is not None
        allowed = f"at least {least_noise.noise_ratio * 1.001:.4g}: less is not proven private"
        raise ParameterError("noise_ratio", noise_ratio, allowed)
    return found


def _fewest_bits(search: _Search, noise_ratio: float) -> int | None:
    choices: list[tuple[int, float, int, int, int]] = []
    for r, b in _SHAPES:
        g = search.ratio(1.0, r, b) / noise_ratio  # the fewest steps with so little noise
        steps = g * search.spec.clip
        # More levels than the top has bits only add messages.
        for levels in range(min(top(steps, r, b, 0).bit_length(), _LEVELS + 1)):
            choices.append((bits(steps, r, b, levels), g, r, b, levels))
    return next((choice[0] for choice in sorted(choices) if search.private(*choice[1:])), None)


def _least_noise(search: _Search, most: int, least: float) -> CarryPlan | None:
    """The choice of the least noise ratio below `least`."""
    best, out = None, set[tuple[int, int]]()
    # Levels cost privacy: the fewest that a range needs come first, and no more follow what failed.
    for steps, r, b, levels in sorted(search.fitting(most), key=lambda choice: choice[3]):
        worth = max(_TINY, search.ratio(1.0, r, b) / least)  # the fewest steps that would be better
        if worth > steps or (r, b) in out:
            continue
        if not search.private(worth, r, b, levels):
            out.add((r, b))
        else:
            g = search.most_steps(r, b, levels, worth, steps)
            best, least = (g, r, b, levels), search.ratio(g, r, b)
    return search.plan(*best) if best else None


def check_proven(event: CarrySumEvent, delta: float) -> None:
    """Refuse a release about which the theorem says nothing at `delta`.

    Raises:
        ParameterError: naming what is too large or too small, and what fits.
    """

    def proven(**changed: int) -> bool:
        changed_event = replace(event, **changed)
        return ShuffleAccountant().compose(changed_event).get_epsilon(delta) < math.inf

    if proven():
        return
    if proven(levels=0):
        most = next(levels for levels in range(event.levels, -1, -1) if proven(levels=levels))
        allowed = f"at most {most}: too few of {event.honest} honest users carry"
        raise ParameterError("levels", event.levels, allowed)
    enough = next((b for b in _BITS if b > event.bits and proven(levels=0, bits=b)), None)
    hint = f", or b at least {enough}" if enough else ""
    raise ParameterError(
        "n", event.honest, f"more honest users at r = {event.uniforms}, b = {event.bits}{hint}"
    )
