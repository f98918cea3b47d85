"""The accountant: from the events of one user to (epsilon, delta)."""

import math
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import REPLACE_ONE, Guarantee
from shuffle_sim.privacy.theorems import by_theorem, theorem_of

NOTHING = "nothing was released"
MIXED = "composition of several kinds of releases (docs: theory, Composition)"
_MIN_DELTA = 1e-300  # below, curves lose their digits: such a delta counts as 0
_SHARES = (0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)
"""Of delta, given to one kind of release for bounds that need some: the best is taken."""


class ShuffleAccountant:
    """Composes the releases one user takes part in, with adaptively chosen queries.

    Neighbours differ in one user's datum (replace-one). It takes every event for which a theorem is
    registered (`theorems`), and refuses everything else.
    """

    neighboring_relation = REPLACE_ONE

    def __init__(self) -> None:
        """Start with nothing released."""
        self._events: Counter[PrivacyEvent] = Counter()

    def compose(self, event: PrivacyEvent, count: int = 1) -> "ShuffleAccountant":
        """Add `count` releases of `event` over the same user; returns self.

        Raises:
            ParameterError: no theorem is registered for the event, or a count below 1.
        """
        theorem_of(type(event))
        self._events[event] += integer("count", count, 1, 2**40)
        return self

    @property
    def basis(self) -> str:
        """The theorem behind the numbers."""
        found = [theorem.basis(events) for theorem, events in by_theorem(self._events.items())]
        return found[0] if len(found) == 1 else f"{MIXED}: {'; '.join(found)}" if found else NOTHING

    def get_epsilon(self, target_delta: float) -> float:
        """The least epsilon proven at `target_delta` (rounded up); infinite where none is.

        Raises:
            ParameterError: delta outside [0, 1).
        """
        delta = real("target_delta", target_delta, 0.0, 1.0, closed=(True, False))
        return _epsilon(frozenset(self._events.items()), delta if delta >= _MIN_DELTA else 0.0)

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta proven at `target_epsilon` (rounded up).

        Raises:
            ParameterError: epsilon below 0 or not finite.
        """
        epsilon = real("target_epsilon", target_epsilon, 0.0, math.inf, closed=(True, False))
        return _delta(frozenset(self._events.items()), epsilon)

    def guarantee(self, target_delta: float, assumptions: tuple[str, ...] = ()) -> Guarantee:
        """The guarantee at `target_delta` with its basis."""
        epsilon = self.get_epsilon(target_delta)
        return Guarantee(epsilon, target_delta, basis=self.basis, assumptions=assumptions)


_Key = frozenset[tuple[PrivacyEvent, int]]


@lru_cache(maxsize=4096)
def _epsilon(key: _Key, delta: float) -> float:
    groups = by_theorem(key)
    if not groups:
        return 0.0
    if len(groups) == 1:
        ((theorem, events),) = groups
        return theorem.epsilon(events, delta)
    return min(
        sum(parts, Parts()).epsilon(delta)
        for shares in _splits(delta, len(groups))
        for parts in product(
            *(t.parts(events, share) for (t, events), share in zip(groups, shares, strict=True))
        )
    )


def _splits(delta: float, groups: int) -> Iterator[list[float]]:
    """How delta may be shared: a part to one kind, the rest or half of it to all others."""
    if delta == 0:
        yield [0.0] * groups
        return
    for favoured, part, rest in product(range(groups), _SHARES, (1.0, 0.5)):
        shares = [rest * (1 - part) * delta / (groups - 1)] * groups
        shares[favoured] = part * delta
        yield shares


@lru_cache(maxsize=4096)
def _delta(key: _Key, epsilon: float) -> float:
    groups = by_theorem(key)
    if not groups:
        return 0.0
    if len(groups) == 1:
        ((theorem, events),) = groups
        return theorem.delta(events, epsilon)
    if _epsilon(key, 0.0) <= epsilon:
        return 0.0
    low, high = math.log(_MIN_DELTA), 0.0  # the least delta whose epsilon is enough, by bisection
    for _ in range(50):
        middle = (low + high) / 2
        enough = _epsilon(key, math.exp(middle)) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return math.exp(high)
