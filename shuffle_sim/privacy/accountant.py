"""The accountant: from the events of one user to (epsilon, delta)."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.bounds import binomial, renyi
from shuffle_sim.privacy.bounds.domination import MIN_VARIANCE, NU, dominating_sigma
from shuffle_sim.privacy.bounds.gaussian import delta_gdp, epsilon_gdp
from shuffle_sim.privacy.bounds.rounding import (
    delta_many_rounds,
    delta_one_round,
    epsilon_many_rounds,
)
from shuffle_sim.privacy.events import (
    BinomialSumEvent,
    GaussianEvent,
    NonPrivateEvent,
    PrivacyEvent,
)
from shuffle_sim.privacy.guarantee import REPLACE_ONE, Guarantee
from shuffle_sim.privacy.theorems import THEOREMS, Theorem

EXACT = "exact two-sided binomial accounting (docs: theory, Scalar sum)"
ONE_ROUND = (
    "binomial-Gaussian domination with the rounding bound (docs: theory, Domination and Rounding)"
)
MANY_ROUNDS = (
    "binomial-Gaussian domination, adaptive Gaussian composition (docs: theory, Composition)"
)
FEW_COINS = (
    "; or, where that says less, the Renyi bound of the whole round with its rounding (docs: "
    "theory, Few coins)"
)
GAUSSIAN = "analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8)"
BASIC = (
    "exact binomial accounting per coordinate, basic composition (too little noise for the "
    "domination lemma)"
)
MIXED = "basic composition of releases of several kinds"
NOTHING = "no theorem: the release is not private"

_KNOWN = (BinomialSumEvent, GaussianEvent, NonPrivateEvent, *THEOREMS)


class ShuffleAccountant:
    """Composes the releases one user takes part in, with adaptively chosen queries; replace-one
    neighbours.

    Knows `BinomialSumEvent`, `GaussianEvent`, `NonPrivateEvent` and the kinds in `THEOREMS`, and
    refuses everything else.
    """

    neighboring_relation = REPLACE_ONE

    def __init__(self) -> None:
        """Start with nothing released."""
        self._events: Counter[PrivacyEvent] = Counter()

    @staticmethod
    def supports(event: PrivacyEvent) -> bool:
        """Whether `compose` takes the event."""
        return type(event) in _KNOWN

    def compose(self, event: PrivacyEvent, count: int = 1) -> "ShuffleAccountant":
        """Add `count` releases of `event` over the same user; returns self.

        Raises:
            ParameterError: for an event it does not know, or a count below 1.
        """
        if not self.supports(event):
            raise ParameterError(
                "event", event, f"one of {', '.join(kind.__name__ for kind in _KNOWN)}"
            )
        self._events[event] += integer("count", count)
        return self

    @property
    def basis(self) -> str:
        """The theorem behind the numbers."""
        groups = _groups(_key(self._events))
        names = {_theorem(group).basis(group) for group in groups}
        return names.pop() if len(names) == 1 else NOTHING if NOTHING in names else MIXED

    def get_epsilon(self, target_delta: float) -> float:
        """The least epsilon proven at `target_delta` (rounded up); infinite where none is.

        Raises:
            ParameterError: delta outside (0, 1).
        """
        real("target_delta", target_delta, 0.0, 1.0, closed=(False, False))
        groups = _groups(_key(self._events))
        return sum(_theorem(group).epsilon(group, target_delta / len(groups)) for group in groups)

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta proven at `target_epsilon` (rounded up)."""
        real("target_epsilon", target_epsilon, 0.0, math.inf, closed=(True, False))
        groups = _groups(_key(self._events))
        return min(
            1.0, sum(_theorem(group).delta(group, target_epsilon / len(groups)) for group in groups)
        )

    def guarantee(self, target_delta: float, assumptions: tuple[str, ...] = ()) -> Guarantee:
        """The guarantee at `target_delta` with its basis."""
        return Guarantee(
            self.get_epsilon(target_delta), target_delta, REPLACE_ONE, self.basis, assumptions
        )


_Key = tuple[tuple[PrivacyEvent, int], ...]


def _key(events: Counter[PrivacyEvent]) -> _Key:
    return tuple(sorted(events.items(), key=repr))


def _groups(key: _Key) -> list[_Key]:
    """The releases by theorem: each kind that has its own, and all the rest together."""
    groups: dict[type[PrivacyEvent] | None, _Key] = {}
    for event, count in key:
        kind = type(event) if type(event) in THEOREMS else None
        groups[kind] = (*groups.get(kind, ()), (event, count))
    return list(groups.values()) or [()]


class _BinomialAndGaussian(Theorem[PrivacyEvent]):
    """Releases without a theorem of their own: exact where there is one, else dominated by
    Gaussians.
    """

    def basis(self, events: _Key) -> str:
        return _rule(events) + (FEW_COINS if _few_coins(events) else "")

    def epsilon(self, events: _Key, delta: float) -> float:
        few = _few_coins(events)
        return min(
            _epsilon(events, delta), renyi.epsilon_few_coins(delta, *few) if few else math.inf
        )

    def delta(self, events: _Key, epsilon: float) -> float:
        few = _few_coins(events)
        return min(_delta(events, epsilon), renyi.delta_few_coins(epsilon, *few) if few else 1.0)


_REST = _BinomialAndGaussian()


def _theorem(key: _Key) -> Theorem[Any]:
    return THEOREMS.get(type(key[0][0]), _REST) if key else _REST


@lru_cache(maxsize=4096)
def _rule(key: _Key) -> str:
    kinds = {type(event) for event, _ in key}
    if not key or NonPrivateEvent in kinds:
        return NOTHING if key else EXACT
    if kinds == {GaussianEvent}:
        return GAUSSIAN
    if _coordinates(key) == 1:
        return EXACT
    if any(isinstance(e, BinomialSumEvent) and not _dominated(e) for e, _ in key):
        return BASIC
    return ONE_ROUND if len(key) == 1 and key[0][1] == 1 else MANY_ROUNDS


def _few_coins(key: _Key) -> tuple[int, float, int, int] | None:
    """(m, p, g, d) of the only round there is, if `renyi` says something about it."""
    if len(key) == 1 and key[0][1] == 1 and isinstance(event := key[0][0], BinomialSumEvent):
        shape = (event.trials, event.p, event.steps, event.coordinates)
        return shape if renyi.applies(*shape) else None
    return None


def _dominated(event: BinomialSumEvent) -> bool:
    """Whether the domination lemma says anything about the event."""
    return binomial.variance(event.trials, event.p) >= MIN_VARIANCE and _sigma(event) > 0


def _sigma(event: BinomialSumEvent) -> float:
    return dominating_sigma(event.trials, event.p, event.steps)


def _coordinates(key: _Key) -> int:
    return sum(
        count * (e.coordinates if isinstance(e, BinomialSumEvent) else 1) for e, count in key
    )


def gaussian_rounds(events: Mapping[PrivacyEvent, int]) -> list[tuple[float, int, int, int]]:
    """One user's releases as `rounding` takes them: (sigma, g, d, count) of the Gaussian that
    dominates each.

    A Gaussian release reveals nothing and rounds nothing: d = 0. What is not dominated has sigma 0.
    """
    rounds = []
    for event, count in events.items():
        if isinstance(event, BinomialSumEvent):
            sigma = _sigma(event) if _dominated(event) else 0.0
            rounds.append((sigma, event.steps, event.coordinates, count))
        elif isinstance(event, GaussianEvent):
            rounds.append((event.noise_multiplier, 1, 0, count))
        else:
            rounds.append((0.0, 1, 0, count))
    return rounds


@lru_cache(maxsize=4096)
def _epsilon(key: _Key, delta: float) -> float:
    rule = _rule(key)
    if not key or rule == NOTHING:
        return math.inf if key else 0.0
    event = key[0][0]
    if rule == EXACT and isinstance(event, BinomialSumEvent):
        return binomial.epsilon(event.trials, event.p, event.steps, delta)
    if rule == GAUSSIAN:
        return epsilon_gdp(delta, _gaussian_mu(key))
    if rule == BASIC:
        return _basic_epsilon(key, delta)
    if rule == MANY_ROUNDS:
        return epsilon_many_rounds(delta, gaussian_rounds(dict(key)))
    sigma, g, d, _ = gaussian_rounds(dict(key))[0]
    return (
        _least_epsilon(lambda epsilon: delta_one_round(epsilon, sigma, g, d), delta)
        if delta > d * NU
        else math.inf
    )


@lru_cache(maxsize=4096)
def _delta(key: _Key, epsilon: float) -> float:
    rule = _rule(key)
    if not key or rule == NOTHING:
        return 1.0 if key else 0.0
    event = key[0][0]
    if rule == EXACT and isinstance(event, BinomialSumEvent):
        return binomial.delta(event.trials, event.p, event.steps, epsilon)
    if rule == GAUSSIAN:
        return delta_gdp(epsilon, _gaussian_mu(key))
    if rule == MANY_ROUNDS:
        return delta_many_rounds(epsilon, gaussian_rounds(dict(key)))
    if rule == ONE_ROUND:
        sigma, g, d, _ = gaussian_rounds(dict(key))[0]
        return delta_one_round(epsilon, sigma, g, d)
    # delta grows as epsilon falls: the least delta whose basic-composition epsilon is enough, by
    # bisection on log delta.
    low, high = math.log(1e-300), 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _basic_epsilon(key, math.exp(middle)) <= epsilon else (middle, high)
        )
    return math.exp(high)


def _gaussian_mu(key: _Key) -> float:
    return math.sqrt(
        sum(
            count / event.noise_multiplier**2
            for event, count in key
            if isinstance(event, GaussianEvent)
        )
    )


def _basic_epsilon(key: _Key, delta: float) -> float:
    share = delta / _coordinates(key)
    if share >= 1:
        return 0.0
    total = 0.0
    for event, count in key:
        if isinstance(event, BinomialSumEvent):
            total += (
                count
                * event.coordinates
                * binomial.epsilon(event.trials, event.p, event.steps, share)
            )
        elif isinstance(event, GaussianEvent):
            total += count * epsilon_gdp(share, 1 / event.noise_multiplier)
    return total


def _least_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    """The least epsilon whose delta is enough, to 1e-10 above: bisection on a decreasing
    function.
    """
    low, high = 0.0, 1.0
    if delta_of(0.0) <= delta:
        return 0.0
    while delta_of(high) > delta:
        low, high = high, 2 * high
        if high > 1e4:
            return math.inf
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high
