"""Theorems of the trusted curator's mechanisms, and of a release that is not private."""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from shuffle_sim.privacy.bounds import gamma, objective
from shuffle_sim.privacy.composition import Parts, least_epsilon
from shuffle_sim.privacy.events import (
    GammaEvent,
    GaussianEvent,
    GaussianPairEvent,
    LaplaceEvent,
    NonPrivateEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    PureObjectiveEvent,
    RangeEvent,
)
from shuffle_sim.privacy.theorems import EventT, Releases, Theorem, alone


class GaussianTheorem(Theorem[GaussianEvent]):
    """The Gaussian mechanism: exact, and exact under composition."""

    event = GaussianEvent
    source = "analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8)"
    examples = (GaussianEvent(0.5), GaussianEvent(4.0), GaussianEvent(60.0))
    near_gaussian = True

    def mu(self, event: GaussianEvent) -> float:
        """1 over the noise multiplier (Dong, Roth and Su 2019)."""
        return 1 / event.noise_multiplier


class NonPrivate(Theorem[NonPrivateEvent]):
    """Nothing is promised."""

    event = NonPrivateEvent
    source = "no theorem: the release is not private"
    examples = (NonPrivateEvent(),)

    def epsilon(self, events: Releases[NonPrivateEvent], delta: float) -> float:
        return math.inf

    def delta(self, events: Releases[NonPrivateEvent], epsilon: float) -> float:
        return 1.0


class ByCurve(Theorem[EventT]):
    """One release by its exact curve; several by what else is stated of each."""

    @abstractmethod
    def exact(self, event: EventT, delta: float) -> float:
        """epsilon of one release."""

    @abstractmethod
    def curve(self, event: EventT, epsilon: float) -> float:
        """delta of one release."""

    def epsilon(self, events: Releases[EventT], delta: float) -> float:
        # The curve is of one release: for several it would have to be convolved.
        one = math.inf if (event := alone(events)) is None else self.exact(event, delta)
        return min(one, super().epsilon(events, delta))

    def delta(self, events: Releases[EventT], epsilon: float) -> float:
        one = 1.0 if (event := alone(events)) is None else self.curve(event, epsilon)
        return min(one, super().delta(events, epsilon))


class Gamma(ByCurve[GammaEvent]):
    """Noise of density ~ exp(-rate ||z||_2): pure at the rate, and an exact curve below it."""

    event = GammaEvent
    source = "l2 mechanism, exact curve (docs: theory, Central noise)"
    examples = (GammaEvent(1.0, 1), GammaEvent(1.5, 10), GammaEvent(0.3, 3), GammaEvent(7.0, 1000))

    def pure(self, event: GammaEvent) -> float:
        return event.rate

    def exact(self, event: GammaEvent, delta: float) -> float:
        return gamma.epsilon(delta, event.rate, event.coordinates)

    def curve(self, event: GammaEvent, epsilon: float) -> float:
        return gamma.delta(epsilon, event.rate, event.coordinates)


class LaplaceTheorem(ByCurve[LaplaceEvent]):
    """Laplace noise in each coordinate, for sensitivity 1 in l1."""

    event = LaplaceEvent
    source = "Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006)"
    examples = (LaplaceEvent(0.1), LaplaceEvent(1.0), LaplaceEvent(5.0))

    spends = False  # its curve is below the pure epsilon by 2 delta only

    def pure(self, event: LaplaceEvent) -> float:
        return event.rate

    def exact(self, event: LaplaceEvent, delta: float) -> float:
        """delta(epsilon) = 1 - e^((epsilon - rate)/2), of two laws that are 1 apart."""
        # `curve` solved for epsilon.
        return max(0.0, event.rate + 2 * math.log1p(-delta))

    def curve(self, event: LaplaceEvent, epsilon: float) -> float:
        return max(0.0, -math.expm1((epsilon - event.rate) / 2))


class ObjectiveTheorem(Theorem[ObjectiveEvent]):
    """Objective perturbation with a Gaussian linear term: a bound of its whole curve."""

    event = ObjectiveEvent
    near_gaussian = True
    source = "objective perturbation (docs: theory, Output perturbation, Objective perturbation)"
    examples = (
        ObjectiveEvent(4.5, 0.025, 0.01),
        ObjectiveEvent(12.0, 0.25, 0.005),
        ObjectiveEvent(27.0, 1.4, 0.01, True),
    )

    def epsilon(self, events: Releases[ObjectiveEvent], delta: float) -> float:
        if not delta:
            return math.inf
        if (event := alone(events)) is not None:
            return least_epsilon(partial(self._one, event), delta)
        # Half of delta for the steps' own, half for composing them; any split is valid.
        each = delta / (2 * sum(times for _, times in events))
        steps = [(self.epsilon(((event, 1),), each), each, times) for event, times in events]
        return Parts(tuple(steps)).epsilon(delta)

    def delta(self, events: Releases[ObjectiveEvent], epsilon: float) -> float:
        if (event := alone(events)) is not None:
            return self._one(event, epsilon)
        return least_delta(lambda delta: self.epsilon(events, delta), epsilon)

    def _one(self, event: ObjectiveEvent, epsilon: float) -> float:
        """delta of the curve, composed with a pure step of `rate`: randomised response at worst."""
        law = event.noise_multiplier, event.curvature, event.coupled

        def curve(at: float) -> float:
            if at >= 0:
                return objective.delta(at, *law)
            # H_at(P, Q) = 1 - e^at + e^at H_-at(Q, P), for every pair.
            return 1 - math.exp(at) * (1 - objective.delta(-at, *law))  # it holds both ways

        # The theorem of several kinds: S is rate with this probability, else -rate.
        up = 1 / (1 + math.exp(-event.rate))
        return up * curve(epsilon - event.rate) + (1 - up) * curve(epsilon + event.rate)


class PureObjective(Theorem[PureObjectiveEvent]):
    """Objective perturbation with an l2-Laplace linear term."""

    event = PureObjectiveEvent
    source = "objective perturbation (docs: theory, Output perturbation, Objective perturbation)"
    examples = (
        PureObjectiveEvent(0.9, 0.025, 0.01),
        PureObjectiveEvent(0.5, 0.25, 0.005, True),
        PureObjectiveEvent(0.2, 1.4, 0.01, True),
    )

    def pure(self, event: PureObjectiveEvent) -> float:
        """tilt + ln(1 + curvature) + rate, or less where slopes and bends are coupled."""
        return objective.pure(event.tilt, event.curvature, event.coupled) + event.rate


class Pure(Theorem[PureEvent]):
    """A pure release, by the proof that its event names."""

    event = PureEvent
    source = "the theorem that each event names"
    examples: ClassVar[tuple[PrivacyEvent, ...]] = (PureEvent(0.1, "stated"), PureEvent(2.0, "too"))

    def basis(self, events: Releases[PureEvent]) -> str:
        return "; ".join(dict.fromkeys(event.proof for event, _ in events))

    def pure(self, event: PureEvent) -> float:
        return event.epsilon


class RangeTheorem(Pure):
    """Losses in a range of length epsilon: pure, and less than that where releases compose."""

    event = RangeEvent
    examples = (RangeEvent(0.1, "stated"), RangeEvent(1.0, "too"), RangeEvent(4.0, "too"))

    def rho(self, event: PureEvent) -> float:
        """epsilon^2/8, of a bounded range (Cesar and Rogers 2021)."""
        return event.epsilon * event.epsilon / 8


class GaussianPair(Theorem[GaussianPairEvent]):
    """A Gaussian pair dominates the release, by the proof that its event names."""

    event = GaussianPairEvent
    near_gaussian = True
    source = "the theorem that each event names"
    examples = (GaussianPairEvent(0.2, "stated"), GaussianPairEvent(1.0, "too"))

    def basis(self, events: Releases[GaussianPairEvent]) -> str:
        return "; ".join(dict.fromkeys(event.proof for event, _ in events))

    def mu(self, event: GaussianPairEvent) -> float:
        return event.mu


def least_delta(epsilon_of: Callable[[float], float], epsilon: float) -> float:
    """The least delta whose epsilon is enough, rounded up: bisection on its logarithm."""
    # Any end of the bisection whose epsilon is enough is valid; `high` always is one.
    low, high = math.log(1e-300), 0.0
    if epsilon_of(math.exp(low)) <= epsilon:
        return math.exp(low)
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_of(math.exp(middle)) <= epsilon else (middle, high)
    return math.exp(high)
