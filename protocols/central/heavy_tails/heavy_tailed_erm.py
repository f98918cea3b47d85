"""Convex optimisation with heavy tails under pure differential privacy.

Phases of output perturbation of a clipped surrogate (docs: theory, Heavy tails). Lowy (2026) gives
the problem and the rate; this algorithm needs neither its localisation nor its double noise.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from protocols.central.heavy_tails.clipped_minimiser import ClippedMinimiser
from protocols.central.heavy_tails.pilot import PilotHistogram, phases_by_pilot
from protocols.central.heavy_tails.plan import (
    MAX_PHASES,
    Noise,
    Phase,
    Setting,
    blocks_for,
    bound,
    plan,
)
from protocols.central.heavy_tails.pop_localize import PopLocalize
from protocols.central.heavy_tails.unbounded import (
    TIMING,
    PureUnbounded,
    aggregate,
    bounded_moments,
    demand_bounded,
)
from protocols.optimisation.tails import SHARE, Tails
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem, demand
from protocols.problems.surrogates import Surrogate, demand_convex
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.discrete import DiscreteLaplace, GridLaplace
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import L2Laplace, Laplace
from shuffle_sim.privacy.mechanisms import Noise as NoiseMechanism
from shuffle_sim.protocol.release import Release

NOISES = ("float", "discrete")
SOLVERS = ("certified", "fixed")


@dataclass(frozen=True)
class HeavyState:
    """Which phase and block come next, where they start, and what blocks of the phase gave.

    Attributes:
        phases: planned; None: the pilot comes first.
        phase: index of the next.
        theta: centre of the phase, (d,).
        outputs: of the phase's blocks so far.
    """

    phases: tuple[Phase, ...] | None
    phase: int
    theta: Floats
    outputs: tuple[Floats, ...] = ()


class HeavyTailedERM(PureUnbounded[HeavyState]):
    """Minimises E f over n users, where gradients have a k-th moment and need have no bound.

    Phase t releases the minimiser of the clipped loss with a quadratic around the phase's start,
    plus noise, and the next phase starts there. Formal guarantee: pure epsilon for any data; the
    moments may be wrong. Phases, blocks and the pilot have disjoint users. The expected excess is
    at most `bound` where the moments hold.

    Attributes:
        phases: planned ones; None: by the pilot, at run time.
        moments: that the plan rests on; None with a pilot.
        pilot: users n_0 of the pilot; 0: none.
        choices: what was chosen, and why.
    """

    takes: ClassVar[tuple[str, ...]] = (
        "moments", "pilot", "scale", "noise", "solver", "blocks", "failure", "phases",
    )  # fmt: skip
    rounds_per_user = 1

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        phases: tuple[Phase, ...] | None,
        moments: Moments | None = None,
        pilot: int = 0,
        scale: float = 1.0,
        noise: str = "float",
        solver: str = "certified",
        bound: float = math.inf,
        choices: dict[str, str] | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones.

        Args:
            problem: loss, domain and public ridge; its norm_bound is not used: phases have clips.
            n: users.
            privacy: epsilon; the guarantee has delta 0 whatever delta is asked for.
            phases: on disjoint users, in order; None: planned by the pilot.
            moments: in words of the result only.
            pilot: its users, the first ones.
            scale: unit of the pilot's bins, public.
            noise: "float", or "discrete" for exact integers.
            solver: "certified", or "fixed" for plain descent with a public number of steps.
            bound: proven, of the expected excess.
            choices: what was chosen, and why.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        demand_convex(problem.loss)
        demand_bounded(problem)
        for name, value, known in (("noise", noise, NOISES), ("solver", solver, SOLVERS)):
            if value not in known:
                raise ParameterError(name, value, f"one of {', '.join(known)}")
        self.problem, self.n, self.privacy = problem, integer("n", n), privacy
        self.phases, self.moments, self.noise, self.solver = phases, moments, noise, solver
        self.pilot, self.scale, self.bound = integer("pilot", pilot, 0, self.n - 1), scale, bound
        self.choices = choices or {}
        self.rounds = 1 + MAX_PHASES  # at most, with a pilot
        if phases is not None:
            self.rounds = (self.pilot > 0) + sum(phase.blocks for phase in phases)
        if (phases is None) == (self.pilot == 0):
            raise ParameterError("phases", phases, "given, or planned by a pilot; one of the two")
        known_moments = "moments are estimated by the pilot" if moments is None else str(moments)
        self.assumptions = (
            f"for accuracy only, never for privacy: {known_moments}",
            "every minimiser is certified" if solver == "certified" else "fixed descent",
            TIMING,
        )
        if phases is not None:
            if not phases:
                raise ParameterError("phases", phases, "at least one")
            used = self.pilot + sum(phase.users * phase.blocks for phase in phases)
            if used > self.n:
                raise ParameterError("phases", used, f"of at most n = {self.n} users together")
            for phase in phases:
                self._statistic(phase, self.problem.origin)

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """The phases with the least proven bound.

        Args:
            n: users.
            problem: loss and domain.
            privacy: epsilon.
            given: what is in `takes`; None: chosen. `moments`, a `Moments`: by default the
                problem's Lipschitz constant as a bound. `pilot`: True, a share of the users, or
                their number. `blocks` J, or `failure` delta': the result is then good with
                probability 1 - delta'. `phases`: their number, or a tuple of `Phase`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        integer("n", n)
        _known(cls.takes, given)
        noise = given.get("noise") or "float"
        common: dict[str, Any] = {"problem": problem, "n": n, "privacy": privacy, "noise": noise}
        common["solver"] = given.get("solver") or "certified"
        moments = given.get("moments")
        if given.get("pilot"):
            return cls._piloted(common, given)
        if moments is None:
            moments = bounded_moments(problem)
        setting = _setting(problem, n, privacy, noise, moments)
        wanted = given.get("phases")
        if isinstance(wanted, tuple):
            own = bound(wanted, setting)
            return cls(phases=wanted, moments=moments, bound=own, **common)
        blocks = given.get("blocks") or 1
        if given.get("failure") is not None:
            blocks = given.get("blocks") or blocks_for(given["failure"])
        phases, least = plan(setting, blocks, wanted)
        shown = ", ".join(f"{p.blocks * p.users} users at clip {p.clip:.4g}" for p in phases)
        likely = "of the excess, likely" if blocks > 1 else "of the expected excess"
        choices = {
            "moments": f"{moments}: assumed, for accuracy only",
            "phases": f"{len(phases)} ({shown}): least proven bound {least:.4g} {likely}",
            "smoothing": "beta = lambda m in every phase",
        }
        if blocks > 1:
            choices["blocks"] = f"{blocks}: with probability 1 - delta', a failure probability"
        return cls(phases=phases, moments=moments, bound=least, choices=choices, **common)

    @classmethod
    def paper(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> PopLocalize:
        """The printed algorithm for the same problem; arguments are those of `PopLocalize`."""
        return PopLocalize.paper(n=n, problem=problem, privacy=privacy, **given)

    @classmethod
    def settings(
        cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any
    ) -> Iterator[tuple[str, Callable[[], Self]]]:
        common = {"n": n, "problem": problem, "privacy": privacy, **given}
        yield "", partial(cls.calibrated, **common)
        if not given.get("pilot"):
            yield "one phase", partial(cls.calibrated, **common, phases=1)

    @classmethod
    def _piloted(cls, common: dict[str, Any], given: dict[str, Any]) -> Self:
        for name in ("moments", "blocks", "failure", "phases"):
            if given.get(name) is not None:
                raise ParameterError(name, given[name], "left out with a pilot, which replaces it")
        n, pilot = common["n"], given["pilot"]
        if pilot is True:
            pilot = SHARE
        if not isinstance(pilot, int):
            pilot = max(1, int(n * real("pilot", pilot, 0.0, 1.0, closed=(False, False))))
        common["problem"].loss.reach_norms(np.zeros((1, 1)), 1.0)  # refuses a loss without A(z)
        scale = given.get("scale") or 1.0
        choices = {"pilot": f"{pilot} users: clips and phases by a private histogram of A"}
        return cls(phases=None, pilot=pilot, scale=scale, choices=choices, **common)

    def init(self) -> HeavyState:
        return HeavyState(self.phases, 0, self.problem.origin)

    def plan(self, state: HeavyState) -> Release | None:
        if state.phases is None:
            radius = self.problem.domain.radius
            histogram = PilotHistogram(self.problem.loss, radius, self.scale)
            epsilon = self.privacy.epsilon
            counts = DiscreteLaplace(epsilon) if self.noise == "discrete" else Laplace(epsilon)
            return Release.of(Cohort.of(0, self.pilot), histogram, counts)
        if state.phase == len(state.phases):
            return None
        phase, before = state.phases[state.phase], state.phases[: state.phase]
        first = self.pilot + sum(each.users * each.blocks for each in before)
        first += len(state.outputs) * phase.users
        cohort = Cohort.of(first, first + phase.users)
        return Release.of(cohort, self._statistic(phase, state.theta), self._mechanism())

    def update(self, state: HeavyState, estimate: Any) -> HeavyState:
        released = np.asarray(estimate, np.float64)
        if state.phases is None:
            tails = Tails(released, self.pilot, self.privacy.epsilon, self.scale)
            moments = Moments(2, 1.0)
            setting = _setting(self.problem, self.n - self.pilot, self.privacy, self.noise, moments)
            return replace(state, phases=phases_by_pilot(tails, setting, self.problem.d))
        outputs = (*state.outputs, self.problem.domain.project(released))
        if len(outputs) < state.phases[state.phase].blocks:
            return replace(state, outputs=outputs)
        return HeavyState(state.phases, state.phase + 1, aggregate(outputs))

    def result(self, state: HeavyState) -> Floats:
        return state.theta

    def _statistic(self, phase: Phase, theta: Floats) -> ClippedMinimiser:
        strong, steps = phase.strong + self.problem.ridge, None
        if self.solver == "fixed":
            if phase.smoothing is None:
                raise ParameterError("smoothing", None, "given: the step of descent rests on it")
            eta = 2 / (phase.smoothing + 2 * strong)
            steps = math.ceil(
                math.log(max(math.e, phase.clip / (strong * phase.tau))) / (eta * strong)
            )
        return ClippedMinimiser(
            Surrogate(self.problem.loss, phase.clip, phase.smoothing),
            self.problem.domain,
            theta,
            phase.strong,
            self.problem.ridge,
            phase.tau,
            phase.users,
            steps,
        )

    def _mechanism(self) -> NoiseMechanism:
        epsilon, d = self.privacy.epsilon, self.problem.d
        return GridLaplace(epsilon, d) if self.noise == "discrete" else L2Laplace(epsilon, d)


def _setting(problem: Problem, n: int, privacy: Privacy, noise: str, moments: Moments) -> Setting:
    law = Noise.l2(privacy.epsilon, problem.d)
    if noise == "discrete":
        law = Noise.by_spread(GridLaplace(privacy.epsilon, problem.d).spread(problem.d))
    return Setting(n, law, moments, problem.reach, problem.ridge * problem.domain.radius)


def _known(takes: tuple[str, ...], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name in {"timeout", "max_seconds", "time_limit"} and value is not None:
            allowed = (
                "left out: what is released must not depend on a clock; the number of steps is "
                "public and bounded"
            )
            raise ParameterError(name, value, allowed)
        if name not in takes:
            raise ParameterError(name, value, f"left out: takes {', '.join(takes)}")
