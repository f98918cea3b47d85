"""Choosing digits and floods: the fewest bits at an error near the central Laplace noise's.

The digits fix the rounding, and with the wished error the two-sided noise. What is left of epsilon
goes to the floods: the more it is, the fewer messages they take.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds.floods import Digits, FloodNoise, losses, skew
from shuffle_sim.privacy.laplace_sum import ROUGH, LaplaceSumEvent, cap_for, spread_of
from shuffle_sim.privacy.planner import Plan, SumSpec, one_wish

ERROR = 1.15
"""Error over the central Laplace noise's where none is asked for."""
_CAPPED = 1e-3
"""Of delta, for users who draw more messages than the cap."""
_MOST_PLANES, _BASES, _MOST_TOP = 8, range(2, 13), (64, 16)  # of one plane, of several
_SMOOTH = (0.36, 0.44, 0.28)
"""lambda over beta^2 of the low planes."""
_BATCH, _PAIR_BATCH = 5.0, 3.0
"""J_t and J_c, times what is left of epsilon for the floods."""
_SOLVED = 4
_FINER = ((0.7, 1.0, 1.0), (1.2, 1.0, 1.0), (1.0, 0.7, 1.0), (1.0, 1.4, 1.0), (1.0, 1.0, 1.4))
"""Factors of pairs and batches that are tried for the best digits."""
_LEAST_ROOM = 0.01  # of epsilon
_STEPS, _ABOVE = 8, 2e-3


@dataclass(frozen=True)
class LaplacePlan(Plan):
    """Of a sum by digits under floods.

    Attributes:
        digits: how a number is written.
        noise: of all users who are planned to be honest.
        cap: the most messages of a user.
    """

    digits: Digits
    noise: FloodNoise
    cap: int

    @property
    def parameters(self) -> dict[str, Any]:
        return vars(self.digits) | vars(self.noise) | {"cap": self.cap}

    @property
    def event(self) -> LaplaceSumEvent:
        spec = self.spec
        return LaplaceSumEvent(spec.honest, spec.n, self.digits, self.noise, spec.d, self.cap)

    @property
    def messages(self) -> float:
        """Mean of a user and coordinate, at uniform digits."""
        return messages(self.digits, self.noise, self.spec.honest)

    @property
    def bits(self) -> float:
        return self.messages * symbol_bits(self.digits, self.spec.d)

    @property
    def std(self) -> float:
        """Of each coordinate, in units of its range: all may change by it."""
        return self.noise_ratio * self.spec.central * math.sqrt(self.spec.d)


def symbols(digits: Digits) -> int:
    """Of one coordinate: a plane with its sign, and with packed digits their values."""
    if digits.packed:
        return (digits.planes - 1) * (digits.base - 1) + digits.top + digits.planes
    return 2 * digits.planes - (digits.low > 0)


def symbol_bits(digits: Digits, d: int) -> int:
    """Of one message."""
    return (d * symbols(digits) - 1).bit_length()


def messages(digits: Digits, noise: FloodNoise, users: int) -> float:
    """Mean of a user, at uniform digits."""
    if digits.packed:
        data = (digits.planes - 1) * (1 - 1 / digits.base) + digits.top / (digits.top + 1)
    else:
        data = (digits.planes - 1) * (digits.base - 1) / 2 + digits.top / 2
    return data + noise.messages(digits) / users


def choose_floods(
    spec: SumSpec,
    noise_ratio: float | None = None,
    max_bits: float | None = None,
    error: float | None = None,
) -> LaplacePlan:
    """The fewest bits at an error over the central Gaussian's, or the least error in max_bits.

    `error`, in place of both, is the error over that of central Laplace noise.

    Numbers lie in [0, 1]; of several coordinates each may change by 1. The central Gaussian is that
    of the l2 sensitivity, the root of d.

    Raises:
        ParameterError: if not exactly one is given, or what is asked for cannot be had.
    """
    if error is None:
        one_wish(noise_ratio, max_bits)
    elif noise_ratio is not None or max_bits is not None:
        raise ParameterError("error", error, "left out where noise_ratio or max_bits is given")
    if spec.turned or spec.d > 64:
        raise ParameterError("d", spec.d, "at most 64 numbers, without rotation and span")
    if error is not None:
        return _fewest(spec, positive("error", error), ("error", error))
    if noise_ratio is not None:
        # Pure epsilons of d coordinates and all rounds add up.
        laplace = math.sqrt(2) * spec.d * spec.rounds / spec.privacy.epsilon
        unit = spec.central * math.sqrt(spec.d) / laplace
        target = positive("noise_ratio", noise_ratio) * unit
        return _fewest(spec, target, ("noise_ratio", noise_ratio))
    return _least(spec, positive("max_bits", max_bits))


def _least(spec: SumSpec, max_bits: float) -> LaplacePlan:
    """By bisection over the error."""
    low, high, found = 1.001, 16.0, None
    # Each plan is private by the accountant: the search decides about the error only.
    for _ in range(8):
        middle = high if found is None else math.sqrt(low * high)
        try:
            plan = _fewest(spec, middle, ("max_bits", max_bits))
        except ParameterError:
            plan = None
        if plan is not None and plan.bits <= max_bits:
            found, high = plan, middle
        elif found is None:
            break
        else:
            low = middle
    if found is None:
        raise ParameterError("max_bits", max_bits, "more: floods of zero-sum messages take them")
    return found


def _fewest(spec: SumSpec, target: float, asked: tuple[str, float]) -> LaplacePlan:
    """The fewest bits at `target` times the central Laplace noise's error; `asked` names it."""
    allowed = f"larger ({target:.4g} x central Laplace), or take carries or split and mix"
    refusal = ParameterError(*asked, allowed)
    # Below the central Laplace noise nothing is left for rounding and floods.
    if target <= 1:
        raise refusal
    guesses = sorted(_guesses(spec, target), key=lambda each: each[0])[:_SOLVED]
    solved = [
        (_bits(spec, *found), found)
        for _, digits, noise in guesses
        if (found := _solved(spec, digits, noise)) is not None
    ]
    for pairs, batch, pair_batch in _FINER if solved else ():
        digits, noise = min(solved, key=lambda each: each[0])[1]
        finer = replace(
            noise,
            pairs=noise.pairs * pairs,
            batch=max(1, round(noise.batch * batch)),
            pair_batch=max(1, round(noise.pair_batch * pair_batch)),
        )
        better = _solved(spec, digits, finer)
        if better is not None:
            solved.append((_bits(spec, *better), better))
    for _, (digits, noise) in sorted(solved, key=lambda each: each[0]):
        plan = _finished(spec, digits, noise)
        if plan is not None:
            return plan
    raise refusal


def _bits(spec: SumSpec, digits: Digits, noise: FloodNoise) -> float:
    return messages(digits, noise, spec.honest) * symbol_bits(digits, spec.d)


def _writings(steps: float) -> Iterator[Digits]:
    """All ways to write numbers of about so many steps, up to four times as many."""
    for low, high in product(range(_MOST_PLANES + 1), repeat=2):
        for base in _BASES if low + high else (2,):
            least = math.ceil(steps / base ** (low + high))
            most = min(math.floor(4 * steps / base ** (low + high)), _MOST_TOP[low + high > 0])
            for top in range(max(1, least), most + 1):
                yield Digits(base, low, high, top)
                yield Digits(base, low, high, top, True)


def _guesses(spec: SumSpec, target: float) -> Iterator[tuple[float, Digits, FloodNoise]]:
    """Digits and noise of the wished error, with a rule of thumb for the floods and their bits."""
    epsilon, copies = spec.privacy.epsilon, spec.d * spec.rounds
    # Rounding alone, n/(4 g^2), must leave 2 (copies/epsilon)^2 of the variance: least steps g.
    variance = 2 * (target * copies / epsilon) ** 2
    least = epsilon / copies * math.sqrt(spec.n / (8 * (target**2 - 1)))
    depth = math.log(1 / spec.privacy.delta) / 18.4
    for digits in _writings(max(least, 1.0)):
        # Of the m planned users: all n have n/m of it.
        wanted = (variance - spec.n / (4 * digits.steps**2)) * spec.honest / spec.n
        for part in _SMOOTH if digits.low else _SMOOTH[:1]:
            smooth = part * digits.base**2 if digits.low else 0.0
            two_sided = wanted * digits.units**2 - smooth * sum(
                digits.base ** (-2.0 * j) for j in range(1, digits.low + 1)
            )
            if two_sided <= 0:
                continue
            # two_sided = 1/(2 sinh(a/2)^2), solved for a.
            decay = 2 * math.asinh(1 / math.sqrt(2 * two_sided))
            unsmooth = digits.low * skew(smooth, digits.base) if digits.low else 0.0
            # The two-sided noise takes a G at most, the low planes z: the rest is for floods.
            room = epsilon - copies * (decay * digits.units + unsmooth)
            if room < _LEAST_ROOM * epsilon:
                continue
            moves = copies * (digits.planes - 1 + digits.split_moves + 1)
            # A rule of thumb: `_solved` finds the flood that is private.
            flood = 35 * depth * moves**0.6 / room
            batches = (max(1, round(each / room)) for each in (_BATCH, _PAIR_BATCH))
            noise = FloodNoise(decay, smooth, flood, flood, *batches)
            yield _bits(spec, digits, noise), digits, noise


def _delta(spec: SumSpec, digits: Digits, noise: FloodNoise) -> float:
    copies = spec.d * spec.rounds
    step = spread_of(digits, noise) * math.sqrt(copies) / ROUGH
    return losses(digits, noise, step, quick=True).times(copies).delta(spec.privacy.epsilon)


def _solved(spec: SumSpec, digits: Digits, noise: FloodNoise) -> tuple[Digits, FloodNoise] | None:
    """With as much flood as privacy takes; None where none is found near."""
    goal = math.log(spec.privacy.delta * (1 - 2 * _CAPPED))

    def excess(log: float) -> float:
        factor = math.exp(log)
        more = replace(noise, flood=noise.flood * factor, pairs=noise.pairs * factor)
        return math.log(max(_delta(spec, digits, more), 1e-300)) - goal

    # ln delta is nearly linear in the logarithm: secants, each a little above the root.
    places, values = [0.0], [excess(0.0)]
    for _ in range(_STEPS):
        slope = -40.0 if len(places) < 2 else (values[-1] - values[-2]) / (places[-1] - places[-2])
        if not slope < 0:
            return None
        step = min(0.7, max(-0.7, -values[-1] / slope)) + _ABOVE
        places.append(places[-1] + step)
        values.append(excess(places[-1]))
        if values[-1] <= 0 and abs(step) < 4 * _ABOVE:
            break
    if values[-1] > 0 or abs(places[-1]) > 3:
        return None
    factor = math.exp(places[-1])
    return digits, replace(noise, flood=noise.flood * factor, pairs=noise.pairs * factor)


def _finished(spec: SumSpec, digits: Digits, noise: FloodNoise) -> LaplacePlan | None:
    """On the fine grid, with the cap, as the accountant finds it."""
    epsilon, delta = spec.privacy.epsilon, spec.privacy.delta
    # The cap costs (1 + e^epsilon) times it in each round: a thousandth of delta in all.
    failure = _CAPPED * delta / spec.rounds / (1 + math.exp(epsilon))
    std = math.sqrt(spec.n / spec.honest * noise.variance(digits) + spec.n / (4 * digits.steps**2))
    ratio = std / (spec.central * math.sqrt(spec.d))
    # The search was quick and on a rough grid: by hundredths up to what the accountant accepts.
    for _ in range(6):
        cap = cap_for(digits, noise, spec.honest, spec.n, spec.d, failure)
        plan = LaplacePlan(spec, ratio, epsilon, digits, noise, cap)
        accountant = ShuffleAccountant().compose(plan.event, spec.rounds)
        if accountant.get_delta(epsilon) <= delta:
            return plan.proven()
        noise = replace(noise, flood=noise.flood * 1.01, pairs=noise.pairs * 1.01)
    return None
