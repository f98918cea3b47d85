"""What is proven of releases of one kind: a theorem for each kind of event, found by entry point.

A theorem registers in the group shuffle_sim.theorems under the name of its event's class. It states
what it can: pure epsilon, (epsilon, delta), zero-concentrated rho or Gaussian mu of one release, or
epsilon and delta of all of them by a curve of its own. What it does not state follows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

import scipy

from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.privacy.bounds import laplace
from shuffle_sim.privacy.composition import MAX_EPSILON, Parts
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.registry import names, registered, remembered

EventT = TypeVar("EventT", bound=PrivacyEvent)
Releases = tuple[tuple[EventT, int], ...]
"""Releases of one kind over one user: (event, count) each; queries may be chosen adaptively."""
MIN_RHO = 1e-12
"""Below, zero-concentrated privacy says no more than the Gaussian pair, and is not computed."""


class Theorem(ABC, Generic[EventT]):
    """Accounts for releases of one kind over the same user; replace-one neighbours.

    Attributes:
        event: the class of its events.
        source: the theorem in words, with its source.
        examples: events on which the conformance suite holds it to its contract.
    """

    event: ClassVar[type[PrivacyEvent]]
    source: ClassVar[str]
    examples: ClassVar[tuple[PrivacyEvent, ...]]
    near_gaussian: ClassVar[bool] = False
    """Whether noise is nearly Gaussian, so that audits may estimate by a Gaussian pair."""

    # One release

    def pure(self, event: EventT) -> float:
        """epsilon at delta 0; infinite where none is proven."""
        return math.inf

    def approximate(self, event: EventT) -> tuple[float, float] | None:
        """One (epsilon, delta) that dominates the release for composition, if it is such a step."""
        pure = self.pure(event)
        return (pure, 0.0) if pure < math.inf else None

    def rho(self, event: EventT) -> float:
        """rho of zero-concentrated privacy (Bun and Steinke 2016); infinite where none is proven.

        A pure epsilon gives epsilon^2/2, and a Gaussian mu gives mu^2/2.
        """
        # Both are x^2/2 of their x, so the less x is the better one.
        least = min(self.pure(event), self.mu(event))
        return least * least / 2

    def mu(self, event: EventT) -> float:
        """mu of a Gaussian pair that dominates the release; infinite where none is proven.

        A pure epsilon is randomised response at worst, which 2 Phi^-1(e^eps/(1 + e^eps)) dominates:
        its trade-off curve has one vertex, and a convex curve through it is below the polygon.
        """
        pure = self.pure(event)
        # Concave in epsilon, so below its tangent at 0, which keeps the digits of a small epsilon.
        tangent, tail = math.sqrt(math.pi / 2) * pure, float(scipy.special.expit(-pure))
        return tangent if pure < 1e-5 else -2.0 * float(scipy.special.ndtri(tail)) * (1 + 1e-10)

    def exact(self, event: EventT, delta: float) -> float | None:
        """epsilon of the worst pair known of one release, by exact arithmetic, if there is one."""
        return None

    # All releases over one user

    def basis(self, events: Releases[EventT]) -> str:
        """The theorem in words."""
        return self.source

    def epsilon(self, events: Releases[EventT], delta: float) -> float:
        """The least epsilon proven at `delta`, in [0, 1); infinite where none is."""
        rho = sum(count * self.rho(event) for event, count in events)
        some = MIN_RHO <= rho <= MAX_EPSILON and delta > 0
        # Rho's rule is for one kind alone; beside others its steps or Gaussians count.
        by_rho = laplace.epsilon_zcdp(rho, delta) if some else math.inf
        return min(by_rho, *(parts.epsilon(delta) for parts in self._stated(events)))

    def delta(self, events: Releases[EventT], epsilon: float) -> float:
        """A delta proven at `epsilon`, at least 0."""
        rho = sum(count * self.rho(event) for event, count in events)
        by_rho = laplace.delta_zcdp(rho, epsilon) if MIN_RHO <= rho <= MAX_EPSILON else 1.0
        return min(by_rho, *(parts.delta(epsilon) for parts in self._stated(events)))

    def gaussian(self, events: Releases[EventT], share: float) -> tuple[float, float]:
        """(mu, delta given up) of a Gaussian pair that dominates them all; `share` may be used."""
        return math.hypot(*(math.sqrt(count) * self.mu(event) for event, count in events)), 0.0

    def parts(self, events: Releases[EventT], share: float) -> list[Parts]:
        """What dominates them all, beside other kinds; `share` of delta may be given up.

        A theorem's own curve counts as one (epsilon, delta)-private step.
        """
        found = self._stated(events, share)
        if self.spends:
            found.append(Parts(((self.epsilon(events, share), share, 1),)))
        return [parts for parts in found if parts.finite] or [Parts((), math.inf)]

    @property
    def spends(self) -> bool:
        """Whether a share of delta helps beside other kinds: for a curve, or for a tail."""
        own = type(self)
        return own.epsilon is not Theorem.epsilon or own.gaussian is not Theorem.gaussian

    def _stated(self, events: Releases[EventT], share: float = 0.0) -> list[Parts]:
        steps = [(self.approximate(event), count) for event, count in events]
        known = tuple((*step, count) for step, count in steps if step is not None)
        # Only if every release is such a step: a kind is dominated as a whole, or not.
        found = [Parts(known)] if len(known) == len(steps) else []
        mu, given_up = self.gaussian(events, share)
        return [*found, Parts((), mu, given_up)]


def alone(events: Releases[EventT]) -> EventT | None:
    """The event, if there is one release only."""
    ((event, count), *more) = events
    return event if count == 1 and not more else None


class ByParts(Theorem[EventT]):
    """Releases whose parts are known as they are: no share of delta helps."""

    @abstractmethod
    def together(self, events: Releases[EventT]) -> Parts:
        """What dominates them all."""

    def epsilon(self, events: Releases[EventT], delta: float) -> float:
        return self.together(events).epsilon(delta)

    def delta(self, events: Releases[EventT], epsilon: float) -> float:
        return self.together(events).delta(epsilon)

    def parts(self, events: Releases[EventT], share: float) -> list[Parts]:
        return [self.together(events)]

    @property
    def spends(self) -> bool:
        return False


def theorem_of(kind: type[PrivacyEvent]) -> Theorem[Any]:
    """The registered theorem for events of a class.

    Raises:
        ParameterError: no theorem is registered for it.
        ShuffleSimError: the theorem registered under its name is for another class.
    """
    if kind.__name__ not in names("theorem"):
        known = ", ".join(names("theorem"))
        allowed = "of a kind with a theorem in the entry-point group shuffle_sim.theorems"
        raise ParameterError("event", kind.__name__, f"{allowed}: one of {known}")
    theorem = _theorem(kind.__name__)
    if theorem.event is not kind:
        stated = f"{theorem.event.__module__}.{theorem.event.__qualname__}"
        raise ShuffleSimError(
            f"the theorem registered for {kind.__name__} speaks of {stated}, "
            f"not of {kind.__module__}.{kind.__qualname__}: rename one of the two events"
        )
    return theorem


@remembered
def _theorem(name: str) -> Theorem[Any]:
    made: Theorem[Any] = registered("theorem", name)()
    return made


def by_theorem(
    events: Iterable[tuple[PrivacyEvent, int]],
) -> list[tuple[Theorem[Any], Releases[Any]]]:
    """One user's releases, grouped by the theorem that speaks of them, in a fixed order."""
    groups: dict[type[PrivacyEvent], Releases[Any]] = {}
    for event, count in sorted(events, key=repr):
        groups[type(event)] = (*groups.get(type(event), ()), (event, count))
    return [(theorem_of(kind), releases) for kind, releases in groups.items()]
