"""Accelerated phased optimisation for persons, with outlying gradients cut or left out.

Lowy, Liu and Asi 2024, Algorithms 2 and 3, as mended in docs/theory/user-level.md, "Accelerated
phases": full batches in place of sampling with replacement, AC-SA restarted with its proven
schedule, and carried-centre clipping for the gradients.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from protocols.central.person.accelerated_erm_plan import (
    CENTERS,
    GROWTHS,
    MAX_PHASES,
    RIDGES,
    AcceleratedPhase,
    planned,
    smoothings,
)
from protocols.central.person.chained_mean import clipped
from protocols.central.person.friendly import MAX_POINTS
from protocols.central.person.one_pass_plan import BATCHES, one_pass
from protocols.central.person.outlier_removal import FriendlyGradient, FriendlyScore, Removal
from protocols.optimisation.acceleration import AcceleratedState
from protocols.optimisation.centring import NEAR
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import PhaseChain, PhasedState, demand_disjoint
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Problem, demand, demand_bounded
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, one_of, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic, Total


@dataclass(frozen=True)
class CenteredMean(Statistic):
    """The mean over persons of what a query asks, clipped to a radius; what is not finite is 0.

    Attributes:
        query: of each person, less the center.
        radius: rho.
        users: n_i.
    """

    query: MeanGradient
    radius: float
    users: int

    @property
    def sensitivity(self) -> Sensitivity:
        """2 rho/n_i."""
        proof = "two vectors of norm at most rho are at most 2 rho apart; one of n_i differs"
        return Sensitivity(2 * self.radius / self.users, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return total(self.part) / self.users

    def part(self, rows: Floats) -> Floats:
        """The sum over some persons."""
        with np.errstate(all="ignore"):  # records may be anything
            values = np.asarray(self.query(rows))
        return np.asarray(clipped(values, self.radius).sum(axis=0))


@dataclass(frozen=True)
class AcceleratedStep:
    """Where a phase is, and what its next round clips with.

    Attributes:
        round: of the phase.
        stage: of the phase.
        anchor: centre of the phase's ridge.
        inner: of the stage.
        center: c.
        radius: rho.
        releases: of the whole run so far; a guard is named by its own.
        opened: the release that opened the phase's guard.
        passed: whether the guard let this round's gradient pass.
        over: whether the phase is; so it is where the guard does not let pass.
    """

    round: int
    stage: int
    anchor: Floats
    inner: AcceleratedState
    center: Floats
    radius: float
    releases: int = 0
    opened: int | None = None
    passed: bool = False
    over: bool = False


CLOSE = "within twice the root mean square distance from a stage's start to its minimiser"
"""Where radii of steps are planned; farther iterates are clipped more, and cost no privacy."""


class AcceleratedPhasedERM(PhaseChain, CentralAlgorithm[PhasedState]):
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

    phases: tuple[AcceleratedPhase, ...]
    takes = ("phases", "center", "smoothing", "batches")
    """How many; "carried" or "fixed" for clipping, "removed"; beta of the envelope; "all" persons
    of a phase in every round, or each "once"."""

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
        self.phases, self.bound, self.choices = phases, bound, {}
        self.rounds = sum(phase.rounds for phase in phases)
        demand_disjoint(self.n, (phase.cohort for phase in phases))

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """Refused: Algorithm 3 as printed runs for no n that people have.

        Raises:
            ParameterError: always, with the reason.
        """
        allowed = (
            "calibrated: Algorithm 3 as printed draws K_i persons of n_i in a step. K_i is above "
            "n_i for every n that people run, and such samples have no proof of privacy"
        )
        raise ParameterError("hyper", "paper", allowed)

    @property
    def rounds_per_user(self) -> int:
        return max(phase.rounds_per_user for phase in self.phases)

    @property
    def assumes(self) -> str:
        removed = any(phase.removal is not None for phase in self.phases)
        carried = any(phase.centring.carried for phase in self.phases)
        found = [self.stated] if self.stated else []
        if removed:
            found.append("records of a person are i.i.d. and no guard stops")
        elif carried:
            found.append(NEAR)
            # Batches that are asked once are planned for the whole domain.
            if any(phase.rounds_per_user > 1 for phase in self.phases):
                found.append(f"iterates stay {CLOSE}")
        return ", and ".join(found)

    @property
    def gradients(self) -> int:
        """Planned: gradients of one record, where all persons have as many as stated."""
        return self.problem.records * sum(phase.answers for phase in self.phases)

    def begun(self, at: int, theta: Floats) -> AcceleratedStep:
        inner, zero = AcceleratedState(0, theta, theta), np.zeros(self.problem.d)
        return AcceleratedStep(0, 0, theta, inner, zero, self.problem.lipschitz)

    def update(self, state: PhasedState, estimate: Any) -> PhasedState:
        after = super().update(state, estimate)
        if after.phase == state.phase:
            return after
        # A phase begins with a count of 0, but a guard is named by its place in the whole run.
        return replace(after, inner=replace(after.inner, releases=state.inner.releases + 1))

    def _point(self, at: int, state: AcceleratedStep) -> Floats:
        """Where the next gradient is asked for."""
        phase = self.phases[at]
        # There theta_md = theta_ag, as a_1 = 1: coarse rounds look where the first step will ask.
        if state.round < phase.centring.coarse:
            return state.inner.aggregate
        return phase.schedules[state.stage].middle(state.inner)

    def asked(self, at: int, inner: AcceleratedStep) -> Release | None:
        if inner.over:
            return None
        phase, state = self.phases[at], inner
        query = MeanGradient(
            self.problem.loss, self._point(at, state), self.smoothing, state.center
        )
        removal = phase.removal
        if removal is not None:
            asked = query, removal.mean, self.problem.lipschitz
            if not state.passed:
                # The threshold's noise is drawn once for a phase ("Guarded releases"): later
                # queries name the release that drew it.
                return Release.of(phase.cohort, FriendlyScore(*asked), removal.guard, state.opened)
            return Release.of(phase.cohort, FriendlyGradient(*asked), phase.mechanism)
        persons = phase.asked(state.round)
        return Release.of(persons, CenteredMean(query, state.radius, persons.size), phase.mechanism)

    def answered(self, at: int, inner: AcceleratedStep, estimate: Any) -> AcceleratedStep:
        """A step, unless the round was coarse; the next center; the next stage or phase.

        Where the guard does not let pass, nothing more is asked of the phase's persons.
        """
        phase, state, releases = self.phases[at], inner, inner.releases + 1
        point = self._point(at, state)
        if phase.removal is not None and not state.passed:
            if not estimate:
                return replace(state, releases=releases, over=True)
            opened = state.releases if state.opened is None else state.opened
            return replace(state, releases=releases, opened=opened, passed=True)
        # The center of the round that was asked; the next one is set below.
        mean = np.asarray(estimate, np.float64) + state.center
        moving, stage = state.inner, state.stage
        if phase.centring.is_step(state.round):
            # Ridges are public: outside the clip they cost nothing, inside they would lengthen what
            # is cut.
            ridges = self.problem.ridge * point + phase.ridge * (point - state.anchor)
            moving = phase.schedules[stage].step(moving, mean + ridges, self.problem.domain)
            if moving.round == phase.schedules[stage].rounds:
                stage += 1
                # A restart: the next schedule's steps are for half the distance.
                moving = AcceleratedState(0, moving.aggregate, moving.aggregate)
        after = replace(
            state,
            round=state.round + 1,
            stage=stage,
            inner=moving,
            releases=releases,
            passed=False,
            over=state.round + 1 == phase.rounds,
        )
        if after.over or phase.removal is not None:
            return after
        # Persons' gradients move by beta times this at most: the next radius has room for it.
        moved = float(np.linalg.norm(self._point(at, after) - point))
        center, radius = phase.centring.following(mean, state.radius, moved)
        return replace(after, center=center, radius=radius)

    def left_out(self, state: PhasedState, estimate: Any) -> list[Charge]:
        """Where the guard does not let pass, the gradients of this round and the phase's others."""
        phase, inner = self.phases[state.phase], state.inner
        if phase.removal is None or inner.passed or estimate:
            return []
        return [Charge(phase.cohort, phase.mechanism.event)] * (phase.rounds - inner.round)

    def ended(self, at: int, inner: AcceleratedStep) -> Floats:
        return inner.inner.aggregate

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the smallest bound over ridges and phases, by clipping if `center` is not given.

        Kinks are smoothed by the envelope. Batches that are asked once are by name only: their
        bound is smaller, and their losses as measured are larger.
        """
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        demand_bounded(problem)
        setting = replace(setting, trust=Trust.CENTRAL)
        tried = choices.grid("phases", range(1, MAX_PHASES + 1))
        center, beta = choices["center"], choices["smoothing"]
        one_of("center", center, CENTERS, None)
        # A guard asks all persons of a phase in every round.
        allowed = BATCHES[:1] if center == "removed" else BATCHES
        batches = one_of("batches", choices.get("batches", BATCHES[0]), allowed)
        envelopes = smoothings(setting) if beta is None else [positive("smoothing", beta)]
        found: dict[tuple[Any, ...], tuple[AcceleratedPhase, ...]] = {}
        made: dict[Any, Any] = {}

        def bound(*case: Any) -> float | None:
            plan = planned if batches == "all" else one_pass
            value, found[case] = plan(setting, made, *case) or (None, ())
            return value

        # Removal takes thousands of persons for its margins: by name only.
        centers: tuple[Any, ...] = CENTERS[:2] if center is None else (center,)
        if center == "removed":  # says how many persons the margins take
            Removal.calibrated(privacy, min(n, MAX_POINTS), 1, 1.0)
        bases = (problem.objective_lipschitz / setting.distance * RIDGES).tolist()
        grids = (tried, bases, GROWTHS, centers) if batches == "all" else (tried, centers)
        small = ParameterError("n", n, "larger: the center would be noise; or center fixed")
        value, best = least(bound, *grids, envelopes, otherwise=small)
        own: dict[str, Any] = {"phases": found[best], "bound": value, "smoothing": best[-1]}
        return cls(problem=problem, n=n, privacy=privacy, **own)
