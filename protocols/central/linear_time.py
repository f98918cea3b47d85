"""Linear-time person-level optimisation: phased SGD with removal of outlying iterates.

Lowy, Liu and Asi 2024, Algorithm 1, with proven constants in place of the printed ones: the radius
by one-pass concentration, the mean by `FriendlyMean`, the test by the pass curve
(docs/theory/user-level.md, "Linear time").
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.central.friendly import FriendlyMean
from protocols.central.grouped_descent import GroupedDescent
from protocols.central.optimiser import CentralOptimiser
from protocols.central.places import Place
from protocols.optimisation.acceleration import envelope_error
from protocols.problems.problem import Problem, demand, demand_bounded
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.tested_release import TestedGaussian
from shuffle_sim.protocol.release import Release

MAX_PHASES, DEVIATIONS, SHRINK = 6, 3.5, 4.0
"""Phases that are tried; u of the radius; by how much steps are shorter from phase to phase."""
_MOST_GROUPS = 4000  # that the planner takes: all pairs are looked at


@dataclass(frozen=True)
class DescentState:
    """How many phases are over, and where the next one starts."""

    phase: int
    theta: Floats


@dataclass(frozen=True)
class Phase:
    """One phase: whose records, in which groups, by which steps.

    Attributes:
        cohort: its persons, of no other phase.
        group: persons of a group.
        eta: the step.
        smoothing: beta of the envelope, or None.
        mean: of its groups.
    """

    cohort: Cohort
    group: int
    eta: float
    smoothing: float | None
    mean: FriendlyMean


class LinearTimePhasedSGD(CentralOptimiser[DescentState]):
    """Phases over disjoint persons; each releases one friendly mean of its groups' iterates.

    Formal guarantee: a person is in one phase and one group, and each phase is one tested release.
    Bound, for i.i.d. records and up to the chance that a test fails: R^2/(2 eta T_1) + eta L^2/2 +
    sum over later phases of d s^2/(2 eta_i T_i) + eta_i L^2/2, + L sqrt(d) s of the last one.
    Gradients: at most one for each record.

    Attributes:
        phases: in order.
        mechanism: of each phase.
    """

    unit = Unit.PERSON
    rounds_per_user = 1

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        phases: tuple[Phase, ...],
        mechanism: TestedGaussian,
        bound: float = math.inf,
    ) -> None:
        """Explicit parameters; `calibrated` chooses them.

        Raises:
            ParameterError: the groups ask for more persons than there are, or a mean whose K is not
                that of the test.
        """
        demand(problem, privacy)
        self.problem, self.privacy, self.n = problem, privacy, integer("n", n)
        self.phases, self.mechanism, self.bound = phases, mechanism, bound
        self._place, stop = Place.of(problem.domain), 0
        for phase in phases:
            positive("eta", phase.eta)
            asked = phase.mean.points * integer("group", phase.group)
            if phase.cohort.size < asked or phase.cohort.stop > self.n:
                raise ParameterError("cohort", phase.cohort.ranges, f"{asked} of {n} persons")
            if phase.mean.largest != mechanism.largest:
                allowed = f"K = {mechanism.largest} of the test"
                raise ParameterError("largest", phase.mean.largest, allowed)
            if phase.cohort.ranges[0][0] < stop:
                raise ParameterError("cohort", phase.cohort.ranges, f"from {stop}: disjoint")
            stop = phase.cohort.stop

    @property
    def assumes(self) -> str:
        """Of the bound; privacy assumes nothing."""
        return "records are i.i.d. and every test passes"

    @property
    def users(self) -> int:
        """Number of persons n."""
        return self.n

    @property
    def gradients(self) -> int:
        """Planned: gradients of one record, where all persons have as many as stated."""
        each = self.problem.records
        return sum(phase.mean.points * phase.group * each for phase in self.phases)

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse a table of records: nobody would know whose they are."""
        raise ParameterError("data", "records", "of persons, such as Persons.in_memory(...)")

    def init(self) -> DescentState:
        """At the problem's start."""
        return DescentState(0, self.problem.origin)

    def plan(self, state: DescentState) -> Release | None:
        """The next phase's mean."""
        if state.phase == len(self.phases):
            return None
        phase, problem = self.phases[state.phase], self.problem
        settings = phase.eta, problem.ridge, phase.smoothing, phase.group, phase.mean
        statistic = GroupedDescent(problem.loss, self._place, state.theta, *settings)
        return Release.of(phase.cohort, statistic, self.mechanism)

    def update(self, state: DescentState, estimate: Any) -> DescentState:
        """The next phase starts at the release; where the test failed, where this one did."""
        theta = state.theta
        if estimate is not None:
            theta = self.problem.domain.project(np.asarray(estimate, np.float64))
        return DescentState(state.phase + 1, theta)

    def result(self, state: DescentState) -> Floats:
        """The last release."""
        return state.theta

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """With the smallest proven bound over phases, groups and steps.

        Args:
            n: persons.
            problem: with its nominal number of records.
            privacy: of the run; delta above 0.
            given: `deviations`, u of the radius.

        Raises:
            ParameterError: too few persons for any group count, or what it does not take.
        """
        demand(problem, privacy)
        demand_bounded(problem)
        for name in given.keys() - {"deviations"}:
            raise ParameterError(name, given[name], "left out: it takes deviations")
        u = given.get("deviations", DEVIATIONS)
        mechanism = TestedGaussian.calibrated(privacy)
        least, found = 4 * mechanism.largest + 4, []
        for count in range(1, MAX_PHASES + 1):
            sizes = _halved(integer("n", n), count)
            for points in np.unique(np.geomspace(least, _MOST_GROUPS, 25).astype(int)).tolist():
                if points <= min(sizes):
                    found.append(_best_step(problem, sizes, points, mechanism, u))
        if not found:
            raise ParameterError("n", n, f"at least {least}: as many groups are asked for")
        bound, eta, sizes, points = min(found)
        phases, start = [], 0
        for at, size in enumerate(sizes):
            phases.append(_phase(problem, start, size, points, eta / SHRINK**at, mechanism, u))
            start += size
        own: dict[str, Any] = {"phases": tuple(phases), "mechanism": mechanism, "bound": bound}
        return cls(problem=problem, n=n, privacy=privacy, **own)

    @classmethod
    def paper(cls, *, n: int, problem: Problem, privacy: Privacy, q: float = 0.2) -> Self:
        """The printed constants of Theorem 3.1, in the algorithm whose privacy is proven here.

        Groups, radii, steps and noise are the printed ones; the test is that of `calibrated`.

        Raises:
            ParameterError: naming the condition of the theorem that fails. Below some 2 10^5
                persons one always does.
        """
        demand(problem, privacy)
        m, d, epsilon, delta = problem.records, problem.d, privacy.epsilon, privacy.delta
        if epsilon > 10:
            raise ParameterError("epsilon", epsilon, "at most 10 in the theorem")
        if not 0 < delta < 1 / (n * m):
            raise ParameterError("delta", delta, f"below 1/(n m) = {1 / (n * m):.3g}, and above 0")
        L, R = problem.objective_lipschitz, problem.reach
        steepest = L / R * math.sqrt(d * m * n * epsilon)
        if not problem.smoothness() <= steepest:
            raise ParameterError("smoothness", problem.smoothness(), f"at most {steepest:.3g}")
        C = math.ceil(100 * math.log(20 * n * m * math.exp(epsilon) / delta) / epsilon)
        asked = 100 * math.log(20 * n * m * d * math.exp(epsilon) / delta)
        if not n ** (1 - q) > asked / (epsilon * (1 - 2**-q)):
            allowed = f"larger: n^(1-q) must be above {asked / (epsilon * (1 - 2**-q)):.3g}"
            raise ParameterError("n", n, allowed)
        count = math.floor(math.log2(n))
        sizes = [int((1 - 2**-q) * n / 2 ** (i * q)) for i in range(1, count + 1)]
        if sizes[-1] < C:
            raise ParameterError("n", n, f"larger: the last phase has {sizes[-1]} < C = {C}")
        eta = R / (L * math.sqrt(d * m * n * epsilon))
        p = 2.5 if m <= n else 1.5 + math.ceil(math.log(m) / math.log(n))
        calibrated = TestedGaussian.calibrated(privacy)
        log, phases, start = math.log(n * d * m), [], 0
        noise = 100 * math.log(n / delta) ** 2 / (epsilon * C)  # in units of tau
        for i, size in enumerate(sizes, 1):
            T, step = size // C * m, eta / 2 ** (p * i)
            tau = 1000 * step * L * math.sqrt(T) * log
            mean = FriendlyMean(C, 2 * tau, calibrated.largest)
            cohort = Cohort.of(start, start + size)
            phases.append(Phase(cohort, size // C, step, None, mean))
            start += size
        sensitivity = phases[0].mean.sensitivity / (phases[0].mean.radius / 2)
        printed = TestedGaussian(calibrated.epsilon, calibrated.delta, noise / sensitivity)
        return cls(problem=problem, n=n, privacy=privacy, phases=tuple(phases), mechanism=printed)


def _halved(n: int, count: int) -> list[int]:
    """n/2, n/4, ..., and the last takes the rest."""
    sizes = [n >> (at + 1) for at in range(count - 1)]
    return [*sizes, n - sum(sizes)]


def _smoothing(problem: Problem, eta: float) -> float | None:
    """beta = 1/eta for kinks: steps are then stable, and the envelope costs L^2 eta/2."""
    return None if problem.smooth else 1 / eta


def _phase(
    problem: Problem,
    start: int,
    size: int,
    points: int,
    eta: float,
    mechanism: TestedGaussian,
    u: float,
) -> Phase:
    group = size // points
    T = group * problem.records
    radius = 2 * eta * problem.objective_lipschitz * math.sqrt(T / 3) * (1 + u)
    mean = FriendlyMean(points, radius, mechanism.largest)
    cohort = Cohort.of(start, start + size)
    return Phase(cohort, group, eta, _smoothing(problem, eta), mean)


def _best_step(
    problem: Problem, sizes: list[int], points: int, mechanism: TestedGaussian, u: float
) -> tuple[float, float, list[int], int]:
    """(bound, first step, sizes, points) of the smallest bound."""
    L, R, d = problem.objective_lipschitz, problem.reach, problem.d
    stable = 2 / max(problem.smoothness(), 1e-300) if problem.smooth else math.inf
    best = (math.inf, 1.0, sizes, points)
    scale = R / (L * math.sqrt(sizes[0] // points * problem.records))
    for eta in np.geomspace(1e-3, 1e2, 60) * scale:
        if eta > stable:
            break
        bound, before, at_most = 0.0, R**2, float(eta)
        for at, size in enumerate(sizes):
            step = float(eta) / SHRINK**at
            phase = _phase(problem, 0, size, points, step, mechanism, u)
            T = phase.group * problem.records
            bound += before / (2 * step * T) + step * L**2 / 2
            bound += envelope_error(problem, phase.smoothing)
            spread = phase.mean.sensitivity * mechanism.noise_multiplier
            before = d * spread**2
        bound += L * math.sqrt(before)
        best = min(best, (bound, at_most, sizes, points))
    return best
