"""Theorems of the shuffle model's sums: binomial noise, split and mix, randomised response."""

import math
from functools import lru_cache
from typing import Any, TypeVar

import scipy

from shuffle_sim.privacy.bounds import binomial, blanket, laplace, renyi
from shuffle_sim.privacy.bounds.domination import least_delta, nus_near
from shuffle_sim.privacy.bounds.rounding import (
    delta_many_rounds,
    delta_one_round,
    epsilon_many_rounds,
    mu_of_rounds,
)
from shuffle_sim.privacy.composition import least_epsilon
from shuffle_sim.privacy.events import BinomialEvent, BinomialSumEvent, BlanketEvent, SplitMixEvent
from shuffle_sim.privacy.theorems import Releases, Theorem, alone

EXACT = "exact two-sided binomial accounting (docs: theory, Scalar sum)"
ONE_ROUND = (
    "binomial-Gaussian domination with the rounding bound (docs: theory, Domination and Rounding)"
)
MANY_ROUNDS = (
    "binomial-Gaussian domination, adaptive Gaussian composition (docs: theory, Composition)"
)
FEW_COINS = (
    "; or, where that says less, the Renyi bound of the whole round with its rounding "
    "(docs: theory, Few coins)"
)
BASIC = (
    "exact binomial accounting per coordinate, basic composition (too little noise for the "
    "domination lemma)"
)
_Sums = Releases[BinomialSumEvent]
_USUAL = 1e-12  # total variation at which a rule is named where no delta is given


BinomialT = TypeVar("BinomialT", bound=BinomialEvent)


def units_of(events: Releases[Any]) -> int:
    """Coordinates of all rounds."""
    return sum(count * event.moves[2] for event, count in events)


def rounds_of(events: Releases[Any], nu: float) -> list[tuple[float, float, int, int]]:
    """(sigma, g, d, count) as `rounding` takes them; what is not dominated has sigma 0."""
    return [(*event.round(nu)[:3], count) for event, count in events]


class Dominated(Theorem[BinomialT]):
    """Rounds of binomial noise, each dominated by a Gaussian pair."""

    near_gaussian = True

    def gaussian(self, events: Releases[BinomialT], share: float) -> tuple[float, float]:
        if share <= 0:
            return math.inf, share
        units = units_of(events)
        # The share for the tail, and about a hundredth of it for what domination reveals.
        nu = nus_near(share, units)[0]
        return float(mu_of_rounds(rounds_of(events, nu), share)), share + nu * units


class BinomialSumTheorem(Dominated[BinomialSumEvent]):
    """Binomial sums: exact for one scalar, else dominated by Gaussians (docs: theory)."""

    event = BinomialSumEvent
    source = ONE_ROUND
    examples = (
        BinomialSumEvent(1000, 20, 0.5, 10),
        BinomialSumEvent(10_000, 14, 0.5, 44, 10),
        BinomialSumEvent(300, 4, 0.01, 2, 2),
        BinomialSumEvent(3, 4, 0.5, 2, 2),
        BinomialSumEvent(10, 10, 0.5, 2, 2),
        BinomialSumEvent(500, 9, 0.3, 3),
    )

    def exact(self, event: BinomialSumEvent, delta: float) -> float:
        return binomial.epsilon(event.trials, event.p, event.steps, delta)

    def basis(self, events: _Sums) -> str:
        return _rule(events, _USUAL) + (FEW_COINS if _few_coins(events) else "")

    def epsilon(self, events: _Sums, delta: float) -> float:
        if delta == 0:
            return math.inf
        # Both bounds hold: the least of two deltas, or of two epsilons, is one.
        few = _few_coins(events)
        return min(
            _epsilon(events, delta), renyi.epsilon_few_coins(delta, *few) if few else math.inf
        )

    def delta(self, events: _Sums, epsilon: float) -> float:
        few = _few_coins(events)
        return min(_delta(events, epsilon), renyi.delta_few_coins(epsilon, *few) if few else 1.0)


@lru_cache(maxsize=4096)
def _rule(events: _Sums, nu: float) -> str:
    # A scalar and a single round: no domination is needed, and the number is exact.
    if units_of(events) == 1:
        return EXACT
    if not all(event.round(nu)[0] > 0 for event, _ in events):
        return BASIC
    return ONE_ROUND if alone(events) else MANY_ROUNDS


def _few_coins(events: _Sums) -> tuple[int, float, int, int] | None:
    """(m, p, g, d) of the only round there is, if `renyi` says something about it."""
    if (event := alone(events)) is None:
        return None
    shape = (event.trials, event.p, event.steps, event.coordinates)
    return shape if renyi.applies(*shape) else None


@lru_cache(maxsize=4096)
def _epsilon(events: _Sums, delta: float) -> float:
    event, units = events[0][0], units_of(events)
    if units == 1:
        return binomial.epsilon(event.trials, event.p, event.steps, delta)
    found = math.inf
    for nu in nus_near(delta, units):
        found = min(found, _epsilon_at(events, delta, nu, found))
    return found


def _epsilon_at(events: _Sums, delta: float, nu: float, most: float) -> float:
    """Of this nu; infinite where that of one round is more than `most`."""
    rule = _rule(events, nu)
    if rule == BASIC:
        return _basic_epsilon(events, delta)
    if rule == MANY_ROUNDS:
        return epsilon_many_rounds(delta, rounds_of(events, nu), nu)
    ((sigma, g, d, _),) = rounds_of(events, nu)
    if delta <= d * nu:
        return math.inf
    return least_epsilon(lambda epsilon: delta_one_round(epsilon, sigma, g, d, nu), delta, most)


@lru_cache(maxsize=4096)
def _delta(events: _Sums, epsilon: float) -> float:
    event, units = events[0][0], units_of(events)
    if units == 1:
        return binomial.delta(event.trials, event.p, event.steps, epsilon)
    return least_delta(lambda nu: _delta_at(events, epsilon, nu), units)


def _delta_at(events: _Sums, epsilon: float, nu: float) -> float:
    rule = _rule(events, nu)
    if rule == MANY_ROUNDS:
        return delta_many_rounds(epsilon, rounds_of(events, nu), nu)
    if rule == ONE_ROUND:
        return events[0][0].delta_alone(epsilon, nu)
    return _basic_delta(events, epsilon)


@lru_cache(maxsize=4096)
def _basic_delta(events: _Sums, epsilon: float) -> float:
    # The least delta whose basic-composition epsilon is enough, by bisection on its logarithm.
    low, high = math.log(1e-300), 0.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = _basic_epsilon(events, math.exp(middle)) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return math.exp(high)


def _basic_epsilon(events: _Sums, delta: float) -> float:
    # Each coordinate of each round is a step of its own.
    share = delta / units_of(events)
    if share >= 1:
        return 0.0
    return sum(
        count * e.coordinates * binomial.epsilon(e.trials, e.p, e.steps, share)
        for e, count in events
    )


class SplitAndMix(Theorem[SplitMixEvent]):
    """Discrete Laplace noise behind a sum that is secure but for 2^-s in total variation.

    The 2^-s holds per coordinate and round. With V the view, S what could be simulated from the
    noisy sums, and T the sum of the 2^-s: P(V in E) <= P(S in E) + T
    <= e^epsilon P(S' in E) + delta + T <= e^epsilon P(V' in E) + delta + (1 + e^epsilon) T.
    """

    event = SplitMixEvent
    source = "split and mix (Balle et al. 2020)"
    examples = (
        SplitMixEvent(10_000, 10_000, 0.02, 50, 9, 2**30),
        SplitMixEvent(900, 1000, 0.01, 60, 12, 2**40, 3),
    )

    def exact(self, event: SplitMixEvent, delta: float) -> float:
        return laplace.epsilon(event.shape, event.rate, event.steps, delta)

    def basis(self, events: Releases[SplitMixEvent]) -> str:
        security = min(event.security for event, _ in events)
        noise = "exact" if _releases(events) == 1 else "pure or zero-concentrated"
        return (
            f"{self.source}: {noise} accounting of discrete Laplace shares, "
            f"security 2^-{security:.1f}"
        )

    def epsilon(self, events: Releases[SplitMixEvent], delta: float) -> float:
        # delta is granted (1 + e^cap) T, which is enough for every epsilon up to the cap.
        cap = 0.5
        while (left := delta - _revealed(events, cap)) > 0:
            found = _noise_epsilon(events, left)
            if found <= cap:
                # `found` is at most the cap, so less is revealed: that lowers epsilon again.
                return min(found, _noise_epsilon(events, delta - _revealed(events, found)))
            cap *= 2
        if delta <= _revealed(events, 0.0):
            return math.inf
        return least_epsilon(lambda epsilon: self.delta(events, epsilon), delta)

    def delta(self, events: Releases[SplitMixEvent], epsilon: float) -> float:
        """The noise's delta and what the statistical security adds, the least up to `epsilon`."""

        def at(e: float) -> float:
            return _noise_delta(events, e) + _revealed(events, e)

        # What is revealed grows with epsilon: beyond a point a smaller epsilon says more.
        if epsilon == 0:
            return min(1.0, at(0.0))
        least = scipy.optimize.minimize_scalar(
            at, bounds=(0.0, epsilon), method="bounded", options={"xatol": 1e-10}
        )
        return min(1.0, at(epsilon), float(least.fun))


def _releases(events: Releases[Any]) -> int:
    return sum(getattr(event, "coordinates", 1) * count for event, count in events)


def _revealed(events: Releases[SplitMixEvent], epsilon: float) -> float:
    # At most 2^-1000: never 0, and more than 1 from the epsilon on at which e^epsilon is cut off.
    total = sum(count * e.coordinates * 2 ** -min(e.security, 1000.0) for e, count in events)
    return (1 + math.exp(min(epsilon, 700.0))) * total


def _pure_and_rho(events: Releases[SplitMixEvent]) -> tuple[float, float]:
    """The largest loss of the noisy sums, and their zero-concentrated rho; shifts are rounded at
    their worst.
    """
    pure = rho = 0.0
    for event, count in events:
        step = laplace.pure_epsilon(event.shape, event.rate, 1)
        root = math.sqrt(event.coordinates)
        # A scalar moves by at most k steps, whatever the rounding.
        reach = step * (event.steps + root * (root > 1))
        # l1 is at most sqrt(d) times l2, which is k + sqrt(d) after rounding.
        pure, rho = pure + count * root * reach, rho + count * reach**2 / 2
    return pure, rho


def _noise_epsilon(events: Releases[SplitMixEvent], delta: float) -> float:
    """Of the noisy sums alone: exact for one, else the least of three bounds."""
    pure, rho = _pure_and_rho(events)
    share = delta / _releases(events)
    basic = sum(
        n * e.coordinates * laplace.epsilon(e.shape, e.rate, e.steps, share) for e, n in events
    )
    if _releases(events) == 1:
        return basic
    return min(pure, laplace.epsilon_zcdp(rho, delta), basic)


def _noise_delta(events: Releases[SplitMixEvent], epsilon: float) -> float:
    pure, rho = _pure_and_rho(events)
    share = epsilon / _releases(events)
    basic = sum(
        n * e.coordinates * laplace.delta(e.shape, e.rate, e.steps, share) for e, n in events
    )
    if _releases(events) == 1:
        return basic
    # From the pure epsilon on nothing exceeds: the other bounds would still be above 0.
    return 0.0 if epsilon >= pure else min(laplace.delta_zcdp(rho, epsilon), basic)


class Blanket(Theorem[BlanketEvent]):
    """Randomised response under the privacy blanket; rounds by basic composition."""

    event = BlanketEvent
    near_gaussian = True
    source = "privacy blanket by exact sums (Balle et al. 2019)"
    examples = (BlanketEvent(1000, 0.2, 8), BlanketEvent(200, 0.5, 2))

    def basis(self, events: Releases[BlanketEvent]) -> str:
        return self.source + (", basic composition" if _releases(events) > 1 else "")

    def epsilon(self, events: Releases[BlanketEvent], delta: float) -> float:
        if delta == 0:
            return math.inf
        share = delta / _releases(events)
        return sum(
            count * blanket.epsilon(e.honest, e.gamma, e.symbols, share) for e, count in events
        )

    def delta(self, events: Releases[BlanketEvent], epsilon: float) -> float:
        share = epsilon / _releases(events)
        return min(
            1.0,
            sum(count * blanket.delta(e.honest, e.gamma, e.symbols, share) for e, count in events),
        )
