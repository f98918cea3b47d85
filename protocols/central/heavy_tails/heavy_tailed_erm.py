"""Convex optimisation with heavy tails under pure differential privacy.

Phases of output perturbation of a clipped surrogate (docs: theory, Heavy tails). Lowy (2026) gives
the problem and the rate; this algorithm needs neither its localisation nor its double noise.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from protocols.central.heavy_tails.clipped_minimiser import ClippedMinimiser
from protocols.central.heavy_tails.pilot import PilotHistogram, phases_by_pilot
from protocols.central.heavy_tails.plan import (
    MAX_PHASES,
    HeavyTailedPhase,
    NoiseSize,
    Phasing,
    blocks_for,
    bound,
    likely_bound,
    plan,
)
from protocols.central.heavy_tails.pop_localize import PopLocalize
from protocols.central.heavy_tails.unbounded import (
    TIMING,
    PureUnbounded,
    aggregate,
    bounded_moments,
)
from protocols.erm.proximal import ProximalObjective
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import PhasedState, Step, Steps, moved
from protocols.optimisation.setting import Setting
from protocols.optimisation.tails import SHARE, Tails
from protocols.optimisation.then import Then
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem, demand, demand_diameter
from protocols.problems.surrogates import (
    WIDTH,
    bias_factor,
    clips_to_convex,
    demand_surrogate,
    least_smoothing,
    scaled_by_bends,
    stated,
    surrogate_of,
    widening,
)
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, one_of, real, refuse_given
from shuffle_sim.privacy.discrete import DiscreteLaplace, GridLaplace
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import L2Laplace, Laplace
from shuffle_sim.privacy.mechanisms import Noise as NoiseMechanism
from shuffle_sim.protocol.release import Release

NOISES = ("float", "discrete")
SOLVERS = ("certified", "fixed")


class HeavyTailedERM(Steps, PureUnbounded[PhasedState]):
    """Minimises E f over n users, where gradients have a k-th moment and need have no bound.

    Phase t releases the minimiser of the clipped loss with a quadratic around the phase's start,
    plus noise, and the next phase starts there. Where clipping does not keep convexity, as for
    `Softmax`, rows' losses are scaled in place of clipped (`ScaledSurrogate`). Formal guarantee:
    pure epsilon for any data; the moments may be wrong. Of a loss of one's own it is assumed, and
    said, that it is convex. Phases, blocks and the pilot have disjoint users. The expected excess
    is at most `bound` where the moments hold.

    Attributes:
        phases: on disjoint users, in order.
        moments: that the plan rests on; None with a pilot.
    """

    phases: tuple[HeavyTailedPhase, ...]
    takes: ClassVar[tuple[str, ...]] = (
        "moments", "pilot", "scale", "noise", "solver", "blocks", "failure", "phases",
    )  # fmt: skip
    """A `Moments`, by default the problem's Lipschitz constant as a bound. True, a share of the
    users or their number; unit of its bins. Blocks J, or delta': the result is then good with
    probability 1 - delta'. The number of phases, or a tuple of them."""

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        phases: tuple[HeavyTailedPhase, ...],
        moments: Moments | None = None,
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
            phases: on disjoint users, in order.
            moments: in words of the result only.
            noise: "float", or "discrete" for exact integers.
            solver: "certified", or "fixed" for plain descent with a public number of steps.
            bound: proven, of the expected excess.
            choices: what was chosen, and why.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        demand_surrogate(problem.loss, problem.d)
        demand_diameter(problem)
        for name, value, known in (("noise", noise, NOISES), ("solver", solver, SOLVERS)):
            one_of(name, value, known)
        self.problem, self.n, self.privacy = problem, integer("n", n), privacy
        self.phases, self.moments, self.noise, self.solver = phases, moments, noise, solver
        self.bound, self.choices = bound, dict(choices or {})
        self.rounds = sum(phase.blocks for phase in phases)
        own = stated(problem.loss)
        if own and solver == "fixed":
            allowed = "certified: fixed steps rest on a smoothness that nothing here proves"
            raise ParameterError("solver", solver, allowed)
        known_moments = "moments are estimated by the pilot" if moments is None else str(moments)
        self.assumptions = (
            f"for accuracy only, never for privacy: {known_moments}",
            "every minimiser is certified" if solver == "certified" else "fixed descent",
            TIMING,
            *own,
        )
        self._demand_phases()
        if solver == "fixed" and phases:
            steps = [self._steps(phase) for phase in phases]
            asked = [phase.blocks * phase.users for phase in phases]
            passed = float(np.dot(steps, asked))
            self.choices["steps"] = f"{steps}, public; {passed:.3g} gradients of a row in all"

    def _demand_phases(self) -> None:
        if not self.phases:
            raise ParameterError("phases", self.phases, "at least one")
        used = sum(phase.users * phase.blocks for phase in self.phases)
        if used > self.n:
            raise ParameterError("phases", used, f"of at most n = {self.n} users together")
        for phase in self.phases:
            # Made only to be refused where its tau cannot be certified, before any data.
            self._statistic(phase, self.problem.origin)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Any:
        """The phases with the least proven bound; with a pilot, a `PilotedERM`."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        demand_diameter(problem)
        noise = choices.get("noise", NOISES[0])
        common: dict[str, Any] = {"problem": problem, "n": n, "privacy": privacy, "noise": noise}
        common["solver"] = choices.get("solver", SOLVERS[0])
        if choices["pilot"]:
            return _piloted(common, choices)
        moments = choices["moments"] or bounded_moments(problem)
        phasing, wanted = _phasing(problem, n, privacy, noise, moments), choices["phases"]
        if isinstance(wanted, tuple):
            own = _bound(wanted, phasing, problem)
            return cls(phases=wanted, moments=moments, bound=own, **common)
        failure = choices["failure"]
        blocks = choices["blocks"] or (1 if failure is None else blocks_for(failure))
        phases, least = plan(phasing, blocks, wanted)
        phases = tuple(_smoothed(phase, problem, common["solver"]) for phase in phases)
        if 0 < problem.domain.slack(1.0) < math.inf:  # more may be hidden than is planned for
            phases = tuple(_provable(phase, problem) for phase in phases)
            least = (likely_bound if blocks > 1 else bound)(phases, phasing)
        shown = ", ".join(f"{p.blocks * p.users} users at clip {p.clip:.4g}" for p in phases)
        likely = "of the excess, likely" if blocks > 1 else "of the expected excess"
        why = {
            "moments": f"{moments}: assumed, for accuracy only",
            "phases": f"{len(phases)} ({shown}): least proven bound {least:.4g} {likely}",
            "smoothing": _smoothing_words(problem, common["solver"]),
        }
        if blocks > 1:
            why["blocks"] = f"{blocks}: with probability 1 - delta', a failure probability"
        return cls(phases=phases, moments=moments, bound=least, choices=why, **common)

    @classmethod
    def paper(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Any:
        """The printed algorithm for the same problem; arguments are those of `PopLocalize`."""
        return PopLocalize.paper(n=n, problem=problem, privacy=privacy, **given)

    @classmethod
    def settings(cls, **given: Any) -> Iterator[tuple[str, Callable[[], Self]]]:
        yield "", partial(cls.calibrated, **given)
        if not given.get("pilot"):
            yield "one phase", partial(cls.calibrated, **given, phases=1)

    def asks(self, at: int) -> int:
        return self.phases[at].blocks

    def release(self, at: int, step: Step) -> Release:
        phase, before = self.phases[at], self.phases[:at]
        first = sum(each.users * each.blocks for each in before) + len(step.released) * phase.users
        cohort = Cohort.of(first, first + phase.users)
        return Release.of(cohort, self._statistic(phase, step.theta), self._mechanism())

    def ended(self, at: int, inner: Step) -> Floats:
        return inner.theta if len(inner.released) < self.asks(at) else aggregate(inner.released)

    def _statistic(self, phase: HeavyTailedPhase, theta: Floats) -> ClippedMinimiser:
        return ClippedMinimiser(
            surrogate_of(
                self.problem.loss, phase.clip, phase.smoothing, self.problem.domain.radius
            ),
            self.problem.domain,
            theta,
            phase.strong,
            self.problem.ridge,
            phase.tau,
            phase.users,
            self._steps(phase) if self.solver == "fixed" else None,
        )

    def _steps(self, phase: HeavyTailedPhase) -> int:
        """Public, of plain descent."""
        strong = phase.strong + self.problem.ridge
        if phase.smoothing is None:
            raise ParameterError("smoothing", None, "given: the step of descent rests on it")
        eta = 2 / (phase.smoothing + 2 * strong)
        # Descent starts within C/lambda of the minimiser, and e^(-eta lambda S) C/lambda <= tau.
        return math.ceil(math.log(max(math.e, phase.clip / (strong * phase.tau))) / (eta * strong))

    def _mechanism(self) -> NoiseMechanism:
        epsilon, d = self.privacy.epsilon, self.problem.d
        return GridLaplace(epsilon, d) if self.noise == "discrete" else L2Laplace(epsilon, d)


class PilotedERM(Then, HeavyTailedERM):
    """A private histogram of A, by which the phases of all other users are planned.

    Attributes:
        pilot: users n_0 of the histogram, the first ones.
        scale: unit of its bins, public.
    """

    def __init__(self, *, pilot: int, scale: float = 1.0, **common: Any) -> None:
        """As of `HeavyTailedERM`, without phases."""
        super().__init__(phases=(), **common)
        self.pilot, self.scale = integer("pilot", pilot, 1, self.n - 1), scale
        self.rounds = 1 + MAX_PHASES  # at most
        self._common = common | {"choices": None}

    def _demand_phases(self) -> None:
        """They come from the histogram."""
        if clips_to_convex(self.problem.loss):  # A(z) of a scaled one is computed
            self.problem.loss.reach_norms(np.zeros((1, 1)), 1.0)  # refuses a loss without A(z)

    def stage(self, results: tuple[Any, ...]) -> Release | HeavyTailedERM | None:
        if not results:
            problem, epsilon = self.problem, self.privacy.epsilon
            histogram = PilotHistogram(problem.loss, problem.d, problem.domain.radius, self.scale)
            counts = DiscreteLaplace(epsilon) if self.noise == "discrete" else Laplace(epsilon)
            return Release.of(Cohort.of(0, self.pilot), histogram, counts)
        if len(results) > 1:
            return None
        n, d = self.n - self.pilot, self.problem.d
        released = np.asarray(results[0], np.float64)
        tails = Tails(released, self.pilot, self.privacy.epsilon, self.scale)
        # Moments for the form's sake: `phases_by_pilot` takes those of the histogram.
        phasing = _phasing(self.problem, n, self.privacy, self.noise, Moments(2, 1.0))
        phases = tuple(
            _smoothed(phase, self.problem, self.solver)
            for phase in phases_by_pilot(tails, phasing, d)
        )
        return HeavyTailedERM(phases=phases, **self._common | {"n": n})

    def framed(self, place: int, asked: Release) -> Release:
        return replace(asked, cohort=moved(asked.cohort, self.pilot)) if place else asked


def _piloted(common: dict[str, Any], choices: Choices) -> Any:
    replaced = choices.of("moments", "blocks", "failure", "phases")
    refuse_given(replaced, "left out with a pilot, which replaces it")
    pilot = SHARE if choices["pilot"] is True else choices["pilot"]
    if not isinstance(pilot, int):
        share = real("pilot", pilot, 0.0, 1.0, closed=(False, False))
        pilot = max(1, int(common["n"] * share))
    why = {"pilot": f"{pilot} users: clips and phases by a private histogram of A"}
    return PilotedERM(pilot=pilot, choices=why, **choices.of("scale"), **common)


def _provable(phase: HeavyTailedPhase, problem: Problem) -> HeavyTailedPhase:
    """With a tau that rounding errors let prove; a larger one costs noise."""
    strong, smooth = phase.strong + problem.ridge, phase.smoothing or math.inf
    made = ProximalObjective(
        problem.domain, problem.origin, strong, phase.clip, smooth, phase.users
    )
    # `budget` refuses less than twice what is hidden; a quarter to spare.
    return replace(phase, tau=max(phase.tau, 2.5 * made.hidden))


def _smoothed(phase: HeavyTailedPhase, problem: Problem, solver: str) -> HeavyTailedPhase:
    """With the beta that a scaled loss wants; a larger one costs steps, not accuracy.

    Fixed steps are as many as beta/lambda, so they take the least one that the bound allows.
    """
    least = least_smoothing(problem.loss, phase.clip)
    larger = 0.0 if solver == "fixed" else phase.smoothing or 0.0
    return replace(phase, smoothing=max(larger, least)) if least else phase


def _smoothing_words(problem: Problem, solver: str) -> str:
    if not scaled_by_bends(problem.loss):
        return "beta = lambda m in every phase"
    if solver == "fixed":
        return f"scaled: beta = {WIDTH / 4:g} C^2 in every phase, for few steps"
    return f"scaled: beta = max(lambda m, {WIDTH / 4:g} C^2) in every phase"


def _bound(phases: tuple[HeavyTailedPhase, ...], phasing: Phasing, problem: Problem) -> float:
    """Of phases that were given; infinite where their beta allows no proof."""
    factors = [bias_factor(problem.loss, phase.clip, phase.smoothing) for phase in phases]
    if math.isinf(max(factors)):
        return math.inf
    return bound(phases, replace(phasing, widened=max(factors)))


def _phasing(problem: Problem, n: int, privacy: Privacy, noise: str, moments: Moments) -> Phasing:
    law = NoiseSize.l2(privacy.epsilon, problem.d)
    if noise == "discrete":
        law = NoiseSize.by_spread(GridLaplace(privacy.epsilon, problem.d).spread(problem.d))
    widened = widening(WIDTH) if scaled_by_bends(problem.loss) else 1.0
    # The ridge cancels in all terms but the last, where a distance costs its slope ("Phases").
    slope = problem.ridge * problem.domain.radius
    return Phasing(n, law, moments, problem.reach, slope, widened)
