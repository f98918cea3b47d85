"""Kinds of releases that have a theorem of their own: the accountant looks them up here, by the
type of the event.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from shuffle_sim.privacy.bounds import blanket, laplace
from shuffle_sim.privacy.events import BlanketEvent, PrivacyEvent, SplitMixEvent

Event = TypeVar("Event", bound=PrivacyEvent)


class Theorem(ABC, Generic[Event]):
    """ReportCounts for releases of one kind over the same user, with adaptively chosen queries:
    (event, count) each.
    """

    @abstractmethod
    def basis(self, events: tuple[tuple[Event, int], ...]) -> str:
        """The theorem in words."""

    @abstractmethod
    def epsilon(self, events: tuple[tuple[Event, int], ...], delta: float) -> float:
        """The least epsilon proven at `delta`, infinite where none is."""

    @abstractmethod
    def delta(self, events: tuple[tuple[Event, int], ...], epsilon: float) -> float:
        """A delta proven at `epsilon`."""


class SplitAndMix(Theorem[SplitMixEvent]):
    """Discrete Laplace noise behind a sum that is secure but for a total variation of 2^-s per
    coordinate and round.

    With V the view, S what could be simulated from the noisy sums, and T the sum of the 2^-s: P(V
    in E) <= P(S in E) + T <= e^epsilon P(S' in E) + delta + T <= e^epsilon P(V' in E) + delta + (1
    + e^epsilon) T.
    """

    def basis(self, events: tuple[tuple[SplitMixEvent, int], ...]) -> str:
        """Which noise bound, and the statistical security."""
        security = min(event.security for event, _ in events)
        noise = "exact" if _releases(events) == 1 else "pure or zero-concentrated"
        return (
            f"split and mix (Balle et al. 2020): {noise} accounting of discrete Laplace shares, "
            f"security 2^-{security:.1f}"
        )

    def epsilon(self, events: tuple[tuple[SplitMixEvent, int], ...], delta: float) -> float:
        """The noise's epsilon at what the statistical security leaves of delta."""
        cap = 0.5
        while (
            True
        ):  # delta is granted (1 + e^cap) T, which is enough for every epsilon up to the cap
            left = delta - _revealed(events, cap)
            if left <= 0:
                return math.inf
            found = _noise_epsilon(events, left)
            if found <= cap:
                return min(found, _noise_epsilon(events, delta - _revealed(events, found)))
            cap *= 2

    def delta(self, events: tuple[tuple[SplitMixEvent, int], ...], epsilon: float) -> float:
        """The noise's delta, and what the statistical security adds."""
        return min(1.0, _noise_delta(events, epsilon) + _revealed(events, epsilon))


def _releases(events: tuple[tuple[Any, int], ...]) -> int:
    return sum(getattr(event, "coordinates", 1) * count for event, count in events)


def _revealed(events: tuple[tuple[SplitMixEvent, int], ...], epsilon: float) -> float:
    return (1 + math.exp(min(epsilon, 700.0))) * sum(
        count * e.coordinates * 2**-e.security for e, count in events
    )


def _pure_and_rho(events: tuple[tuple[SplitMixEvent, int], ...]) -> tuple[float, float]:
    """The largest loss of the noisy sums, and their zero-concentrated rho; shifts are rounded at
    their worst.
    """
    pure = rho = 0.0
    for event, count in events:
        step = laplace.pure_epsilon(event.shape, event.rate, 1)
        root = math.sqrt(event.coordinates)
        reach = step * (
            event.steps + root * (root > 1)
        )  # a scalar moves by at most k steps, whatever the rounding
        pure, rho = pure + count * root * reach, rho + count * reach**2 / 2
    return pure, rho


def _noise_epsilon(events: tuple[tuple[SplitMixEvent, int], ...], delta: float) -> float:
    """Of the noisy sums alone: exact for one, else the least of three bounds."""
    pure, rho = _pure_and_rho(events)
    share = delta / _releases(events)
    basic = sum(
        n * e.coordinates * laplace.epsilon(e.shape, e.rate, e.steps, share) for e, n in events
    )
    return basic if _releases(events) == 1 else min(pure, laplace.epsilon_zcdp(rho, delta), basic)


def _noise_delta(events: tuple[tuple[SplitMixEvent, int], ...], epsilon: float) -> float:
    pure, rho = _pure_and_rho(events)
    share = epsilon / _releases(events)
    basic = sum(
        n * e.coordinates * laplace.delta(e.shape, e.rate, e.steps, share) for e, n in events
    )
    if _releases(events) == 1:
        return basic
    return 0.0 if epsilon >= pure else min(laplace.delta_zcdp(rho, epsilon), basic)


class Blanket(Theorem[BlanketEvent]):
    """Randomised response under the privacy blanket; rounds by basic composition."""

    def basis(self, events: tuple[tuple[BlanketEvent, int], ...]) -> str:
        """One round or more."""
        more = ", basic composition" if _releases(events) > 1 else ""
        return f"privacy blanket by exact sums (Balle et al. 2019){more}"

    def epsilon(self, events: tuple[tuple[BlanketEvent, int], ...], delta: float) -> float:
        """Added up, each at an equal share of delta."""
        share = delta / _releases(events)
        return sum(
            count * blanket.epsilon(e.honest, e.gamma, e.symbols, share) for e, count in events
        )

    def delta(self, events: tuple[tuple[BlanketEvent, int], ...], epsilon: float) -> float:
        """Added up, each at an equal share of epsilon."""
        share = epsilon / _releases(events)
        return min(
            1.0,
            sum(count * blanket.delta(e.honest, e.gamma, e.symbols, share) for e, count in events),
        )


THEOREMS: Mapping[type[PrivacyEvent], Theorem[Any]] = {
    SplitMixEvent: SplitAndMix(),
    BlanketEvent: Blanket(),
}
