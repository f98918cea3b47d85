"""Accelerated phased optimisation for persons, with outlying gradients cut or left out.

Lowy, Liu and Asi 2024, Algorithms 2 and 3, as mended in docs/theory/user-level.md, "Accelerated
phases": full batches in place of sampling with replacement, AC-SA restarted with its proven
schedule, and carried-centre clipping for the gradients.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.central.optimiser import CentralOptimiser
from protocols.central.person.accelerated_erm_plan import (
    CENTERS,
    MAX_PHASES,
    AcceleratedPhase,
    _planned,
    smoothings,
)
from protocols.central.person.centered_mean import CenteredMean
from protocols.central.person.outlier_removal import FriendlyGradient, FriendlyScore, Removal
from protocols.optimisation.acceleration import AcceleratedState
from protocols.optimisation.centring import NEAR
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Problem, demand, demand_bounded
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.release import Release


@dataclass(frozen=True)
class AcceleratedPhasesState:
    """Where the run is, and what the next round clips with.

    Attributes:
        phase: which.
        round: of the phase.
        stage: of the phase.
        anchor: centre of the phase's ridge.
        inner: of the stage.
        center: c.
        radius: rho.
        releases: of the whole run so far.
        opened: the release that opened the phase's guard.
        passed: whether the guard let this round's gradient pass.
    """

    phase: int
    round: int
    stage: int
    anchor: Floats
    inner: AcceleratedState
    center: Floats
    radius: float
    releases: int = 0
    opened: int | None = None
    passed: bool = False


class AcceleratedPhasedERM(CentralOptimiser[AcceleratedPhasesState]):
    """Phases over disjoint persons; in each, accelerated descent on a regularised objective.

    Formal guarantee: each round is a Gaussian mechanism of sensitivity 2 rho/n_i, for any data;
    rounds of a phase compose, phases are of disjoint persons. With removal each round is a Gaussian
    mechanism at the friendly mean's sensitivity, and the guard of a phase is charged once.
    Bound, for i.i.d. records: sum over phases of lambda_i/2 E||x_{i-1} - x*||^2 + 2 L^2/(lambda_i
    n_i m), + L times the distance that the last phase leaves. Localised phases generalise, so no
    stability is assumed.

    Attributes:
        phases: in order.
        smoothing: beta of the Moreau envelope that they minimise; None: the loss itself, smooth.
    """

    takes = ("phases", "center", "smoothing")
    """How many; "carried" or "fixed" for clipping, "removed"; beta of the envelope."""

    unit = Unit.PERSON

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        phases: tuple[AcceleratedPhase, ...],
        bound: float = math.inf,
        smoothing: float | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses them.

        Raises:
            ParameterError: phases of more persons than there are, or that share some.
        """
        demand(problem, privacy)
        if not problem.smooth and smoothing is None:
            raise ParameterError("smoothing", smoothing, "given: the loss has kinks")
        if smoothing is not None:
            positive("smoothing", smoothing)
        self.problem, self.privacy, self.n = problem, privacy, integer("n", n)
        self.smoothing = smoothing
        self.phases, self.bound, stop = phases, bound, 0
        for phase in phases:
            if phase.cohort.stop > n or phase.cohort.ranges[0][0] < stop:
                allowed = f"of persons {stop} to {n - 1}: disjoint"
                raise ParameterError("cohort", phase.cohort.ranges, allowed)
            stop = phase.cohort.stop
        self.rounds_per_user = max(phase.rounds for phase in phases)

    @property
    def users(self) -> int:
        return self.n

    @property
    def assumes(self) -> str:
        removed = any(phase.removal is not None for phase in self.phases)
        carried = any(phase.centring.carried for phase in self.phases)
        no_stop = "records of a person are i.i.d. and no guard stops"
        return no_stop if removed else NEAR if carried else ""

    @property
    def gradients(self) -> int:
        """Planned: gradients of one record, where all persons have as many as stated."""
        each = self.problem.records
        return sum(phase.rounds * phase.cohort.size * each for phase in self.phases)

    def check(self, rows: NDArray[Any]) -> None:
        raise ParameterError("data", "records", "of persons, such as Persons.in_memory(...)")

    def init(self) -> AcceleratedPhasesState:
        return self._begun(0, self.problem.origin, 0)

    def _begun(self, phase: int, at: Floats, releases: int) -> AcceleratedPhasesState:
        inner, zero = AcceleratedState(0, at, at), np.zeros(self.problem.d)
        limit = self.problem.lipschitz
        return AcceleratedPhasesState(phase, 0, 0, at, inner, zero, limit, releases)

    def _point(self, state: AcceleratedPhasesState) -> Floats:
        """Where the next gradient is asked for."""
        phase = self.phases[state.phase]
        if state.round < phase.centring.coarse or state.stage == len(phase.schedules):
            return state.inner.aggregate
        return phase.schedules[state.stage].middle(state.inner)

    def plan(self, state: AcceleratedPhasesState) -> Release | None:
        if state.phase == len(self.phases):
            return None
        phase = self.phases[state.phase]
        query = MeanGradient(self.problem.loss, self._point(state), self.smoothing, state.center)
        removal = phase.removal
        if removal is not None:
            asked = query, removal.mean, self.problem.lipschitz
            if not state.passed:
                return Release.of(phase.cohort, FriendlyScore(*asked), removal.guard, state.opened)
            return Release.of(phase.cohort, FriendlyGradient(*asked), phase.mechanism)
        statistic = CenteredMean(query, state.radius, phase.cohort.size)
        return Release.of(phase.cohort, statistic, phase.mechanism)

    def update(self, state: AcceleratedPhasesState, estimate: Any) -> AcceleratedPhasesState:
        """A step, unless the round was coarse; the next center; the next stage or phase.

        Where the guard does not let pass, nothing more is asked of the phase's persons.
        """
        phase, at, releases = self.phases[state.phase], self._point(state), state.releases + 1
        if phase.removal is not None and not state.passed:
            if not estimate:
                return self._begun(state.phase + 1, state.inner.aggregate, releases)
            opened = state.releases if state.opened is None else state.opened
            return replace(state, releases=releases, opened=opened, passed=True)
        mean = np.asarray(estimate, np.float64) + state.center
        inner, stage = state.inner, state.stage
        if state.round >= phase.centring.coarse:
            ridges = self.problem.ridge * at + phase.ridge * (at - state.anchor)
            inner = phase.schedules[stage].step(inner, mean + ridges, self.problem.domain)
            if inner.round == phase.schedules[stage].rounds:
                stage += 1
                inner = AcceleratedState(0, inner.aggregate, inner.aggregate)
        if state.round + 1 == phase.rounds:
            return self._begun(state.phase + 1, inner.aggregate, releases)
        after = replace(
            state, round=state.round + 1, stage=stage, inner=inner, releases=releases, passed=False
        )
        if phase.removal is not None:
            return after
        moved = float(np.linalg.norm(self._point(after) - at))
        center, radius = phase.centring.following(mean, state.radius, moved)
        return replace(after, center=center, radius=radius)

    def result(self, state: AcceleratedPhasesState) -> Floats:
        return state.inner.aggregate

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """With the smallest bound over ridges and phases; centred where that is smaller.

        Args:
            n: persons.
            problem: with its nominal number of records; kinks are smoothed by the envelope.
            privacy: of the run; delta above 0.
            given: `phases`; `center`: "carried" or "fixed" for clipping, "removed" for the
                friendly mean behind above-threshold; `smoothing` for kinks. What is not given is
                that of the smallest bound, with clipping.

        Raises:
            ParameterError: what it does not take.
        """
        demand(problem, privacy)
        demand_bounded(problem)
        setting = Setting(n=n, problem=problem, privacy=privacy, trust=Trust.CENTRAL)
        choices = Choices(given)
        for name in choices.given.keys() - set(cls.takes):
            raise ParameterError(name, given[name], f"left out: it takes {', '.join(cls.takes)}")
        count = choices["phases"]
        tried = range(1, MAX_PHASES + 1) if count is None else (integer("phases", count),)
        center = choices["center"]
        if center not in (None, *CENTERS):
            raise ParameterError("center", center, f"one of {', '.join(CENTERS)}")
        centers = CENTERS[:2] if center is None else (center,)
        L, R, m = problem.objective_lipschitz, setting.distance, problem.records
        scale = L / R * (1 / math.sqrt(n * m) + math.sqrt(problem.d) / n)
        beta = choices["smoothing"]
        envelopes = smoothings(setting) if beta is None else [positive("smoothing", beta)]
        bases = (np.geomspace(1e-2, 1e2, 13) * scale).tolist()
        best: tuple[float, tuple[AcceleratedPhase, ...]] = (math.inf, ())
        smoothing = None
        for k, base, each, envelope in product(tried, bases, centers, envelopes):
            found = _planned(setting, k, base, each, envelope)
            if found is not None and found[0] < best[0]:
                best, smoothing = found, envelope
        if not best[1]:
            if center == "removed":  # says how many persons the margins take
                Removal.calibrated(privacy, n, 1, 1.0)
            raise ParameterError("n", n, "larger: the center would be noise; or center fixed")
        own: dict[str, Any] = {"phases": best[1], "bound": best[0], "smoothing": smoothing}
        return cls(problem=problem, n=n, privacy=privacy, **own)
