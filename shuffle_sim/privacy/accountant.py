"""The accountant: from the events of one user to (epsilon, delta)."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, product
from typing import Any

import numpy as np

from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import REPLACE_ONE, Guarantee, Privacy
from shuffle_sim.privacy.theorems import Releases, Theorem, by_theorem, theorem_of

NOTHING = "nothing was released"
MIXED = "composition of several kinds of releases (docs: theory, Composition)"
_MIN_DELTA = 1e-300  # below, curves lose their digits: such a delta counts as 0
_SPENT = (0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)
"""Of delta, given to bounds that need some; the best is taken. The rest is for the composition."""
_PARTS = (0.5, 0.9, 0.99)
"""Of that, given to one kind of release where several need some."""
_FEW = 12  # of these ways: where a budget is not nearly spent the first one suffices
_SHARES, _STRIDE = tuple(np.geomspace(1e-60, 0.3, 150).tolist()), 8
"""Deltas that are shared where epsilon is given: every eighth is tried, then those around it."""


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
        # Rounded down to 0, never up: a smaller delta only asks for more.
        delta = real("target_delta", target_delta, 0.0, 1.0, closed=(True, False))
        return _epsilon(frozenset(self._events.items()), delta if delta >= _MIN_DELTA else 0.0)

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta proven at `target_epsilon` (rounded up).

        Raises:
            ParameterError: epsilon below 0 or not finite.
        """
        epsilon = real("target_epsilon", target_epsilon, 0.0, math.inf, closed=(True, False))
        return _delta(frozenset(self._events.items()), epsilon)

    def keeps(self, privacy: Privacy) -> bool:
        """Whether the releases are proven to be within a budget: known sooner than what they take.

        False: the first ways to share delta do not show it; others may.
        """
        groups, epsilon, delta = by_theorem(self._events.items()), privacy.epsilon, privacy.delta
        if delta < _MIN_DELTA:  # a delta of 0 may be one that is no double
            return self.get_epsilon(delta) <= epsilon
        if len(groups) < 2:
            return self.get_delta(epsilon) <= delta
        few = islice(_splits(delta, [theorem.spends for theorem, _ in groups]), _FEW)
        every = (parts for shares in few for parts in _together(groups, shares))
        return any(parts.keeps(epsilon, delta) for parts in every)

    def guarantee(self, target_delta: float, assumptions: tuple[str, ...] = ()) -> Guarantee:
        """The guarantee at `target_delta` with its basis."""
        epsilon = self.get_epsilon(target_delta)
        return Guarantee(epsilon, target_delta, basis=self.basis, assumptions=assumptions)


_Key = frozenset[tuple[PrivacyEvent, int]]
Group = tuple[Theorem[Any], Releases[Any]]


@lru_cache(maxsize=4096)
def _epsilon(key: _Key, delta: float) -> float:
    groups = by_theorem(key)
    if not groups:
        return 0.0
    if len(groups) == 1:
        ((theorem, events),) = groups
        return theorem.epsilon(events, delta)
    spending = [theorem.spends for theorem, _ in groups]
    found = math.inf
    for shares in _splits(delta, spending):
        for parts in _together(groups, shares):
            # Above what was found it need not be known: the search is spared.
            found = min(found, parts.epsilon(delta, found))
    return found


def _together(groups: list[Group], shares: Sequence[float]) -> Iterator[Parts]:
    """What dominates all groups, in every way that the theorems offer at these shares of delta."""
    offers = [
        theorem.parts(events, share)
        for (theorem, events), share in zip(groups, shares, strict=True)
    ]
    for parts in product(*offers):
        yield sum(parts, Parts())


def _splits(delta: float, spending: list[bool]) -> Iterator[list[float]]:
    """How much of delta is shared, and how: one kind of those that spend gets the largest part."""
    kinds = sum(spending)
    if delta == 0 or not kinds:
        yield [0.0] * len(spending)
        return
    places = [place for place, spends in enumerate(spending) if spends]
    for spent, favoured, part in product(_SPENT, places, _PARTS if kinds > 1 else (1.0,)):
        # All shares together are at most delta: the formula gets what nobody does.
        rest = spent * (1 - part) * delta / max(kinds - 1, 1)
        shares = [rest * spends for spends in spending]
        shares[favoured] = spent * part * delta
        yield shares


@lru_cache(maxsize=4096)
def _delta(key: _Key, epsilon: float) -> float:
    groups = by_theorem(key)
    if not groups:
        return 0.0
    if len(groups) == 1:
        ((theorem, events),) = groups
        return theorem.delta(events, epsilon)
    spending = [theorem.spends for theorem, _ in groups]

    @lru_cache
    def at(share: float) -> float:
        shares = [share * spends for spends in spending]
        return min(parts.delta(epsilon) for parts in _together(groups, shares))

    if not any(spending):
        return at(0.0)
    # Any share is valid: one that the search misses would only say less.
    best = min(range(0, len(_SHARES), _STRIDE), key=lambda place: at(_SHARES[place]))
    return min(at(0.0), *map(at, _SHARES[max(0, best - _STRIDE) : best + _STRIDE]))
