"""Linear-time person-level optimisation: phased SGD with removal of outlying iterates.

Lowy, Liu and Asi 2024, Algorithm 1, with proven constants in place of the printed ones: the radius
by one-pass concentration, the mean by `FriendlyMean`, the test by the pass curve
(docs/theory/user-level.md, "Linear time"). Where groups are many enough, a chain of clipped means
(`ChainedMean`) takes the place of the friendly mean and its test: less noise, and it never fails.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

from protocols.central.person.chained_mean import ChainedMean
from protocols.central.person.friendly import FriendlyMean
from protocols.central.person.grouped_descent import (
    ClippedPoints,
    GroupedDescent,
    GroupedPass,
    PlainDescent,
)
from protocols.central.person.linear_time_plan import MEANS, LinearTimePhase, planned
from protocols.erm.risk import shape_of
from protocols.optimisation.centring import NEAR
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import PhasedState, Step, Steps, demand_disjoint
from protocols.optimisation.setting import Setting
from protocols.problems.problem import Problem, demand, demand_bounded
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.privacy.tested_release import TestedGaussian
from shuffle_sim.protocol.release import CentralAlgorithm, Release


class LinearTimePhasedSGD(Steps, CentralAlgorithm[PhasedState]):
    """Phases over disjoint persons; each releases one mean of its groups' iterates.

    Formal guarantee: a person is in one phase and one group, and each phase is one tested release
    of a friendly mean, or one chain of Gaussian releases.
    Bound, for i.i.d. records and up to the chance that a test fails: R^2/(2 eta T_1) + eta L^2/2 +
    sum over later phases of d s^2/(2 eta_i T_i) + eta_i L^2/2, + L sqrt(d) s of the last one.
    Gradients: at most one for each record.

    Attributes:
        phases: in order.
        mechanism: of each phase with a friendly mean.
    """

    takes = ("deviations", "mean", "q")
    """u of the radius; "friendly", "chain" or "plain", that of the smallest bound if not given; q
    of the printed sizes."""

    unit = Unit.PERSON
    rests_on_loss = True
    phases: tuple[LinearTimePhase, ...]

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        phases: tuple[LinearTimePhase, ...],
        mechanism: TestedGaussian | None = None,
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
        self.rounds, self.choices = len(phases), {}
        demand_bounded(problem)
        shape_of(problem.domain)  # refuses a domain whose projections are not exact
        for phase in phases:
            positive("eta", phase.eta)
            asked = phase.groups * integer("group", phase.group)
            if phase.cohort.size < asked:
                raise ParameterError("cohort", phase.cohort.ranges, f"{asked} of {n} persons")
            if isinstance(phase.mean, ChainedMean):
                positive("reach", phase.reach)
            elif isinstance(phase.mean, Gaussian):
                # Made only to be refused where steps may expand (`PlainDescent`).
                self._statistic(phase, problem.origin)
            elif mechanism is None or phase.mean.largest != mechanism.largest:
                allowed = f"K of the test, {mechanism and mechanism.largest}"
                raise ParameterError("largest", phase.mean.largest, allowed)
        demand_disjoint(self.n, (phase.cohort for phase in phases))

    @property
    def assumes(self) -> str:
        if any(isinstance(phase.mean, FriendlyMean) for phase in self.phases):
            return "records are i.i.d. and every test passes"
        chained = any(isinstance(phase.mean, ChainedMean) for phase in self.phases)
        return NEAR if chained else "records are i.i.d."

    @property
    def most_records(self) -> int:
        return self.problem.records

    @property
    def gradients(self) -> int:
        """Planned: gradients of one record, at most; all of them where persons have m records."""
        each = self.problem.records
        return sum(phase.groups * phase.group * each for phase in self.phases)

    def release(self, at: int, step: Step) -> Release:
        phase = self.phases[at]
        mechanism = self.mechanism if isinstance(phase.mean, FriendlyMean) else phase.mean
        assert mechanism is not None
        return Release.of(phase.cohort, self._statistic(phase, step.theta), mechanism)

    def _statistic(self, phase: LinearTimePhase, start: Floats) -> GroupedPass:
        """Of a phase that begins at `start`."""
        problem, mean = self.problem, phase.mean
        slopes = Clipped(problem.loss, problem.lipschitz, phase.smoothing)
        walk = slopes, problem.domain, start, phase.eta, problem.ridge, phase.group
        if isinstance(mean, ChainedMean):
            return ClippedPoints(*walk, groups=mean.points, reach=phase.reach)
        if isinstance(mean, Gaussian):
            return PlainDescent(*walk, users=phase.cohort.size, records=problem.records)
        return GroupedDescent(*walk, mean=mean)

    def taken(self, at: int, step: Step, estimate: Any) -> Floats:
        """The released mean; where its test failed, the start."""
        if estimate is None:
            return step.theta
        chained = isinstance(self.phases[at].mean, ChainedMean)
        # `ClippedPoints` are less the start.
        return super().taken(at, step, step.theta + estimate if chained else estimate)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        demand_bounded(setting.problem)
        plan = planned(setting, choices)
        made = cls(
            problem=setting.problem,
            n=setting.n,
            privacy=setting.privacy,
            phases=plan.phases,
            mechanism=plan.mechanism,
            bound=plan.bound,
        )
        made.choices = {"mean": plan.reason}
        return made

    @classmethod
    def settings(cls, **given: Any) -> Iterator[tuple[str, Callable[[], Self]]]:
        for mean in MEANS:
            yield mean, partial(cls.calibrated, **given | {"mean": mean})

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """The printed constants of Theorem 3.1, in the algorithm whose privacy is proven here.

        Groups, radii, steps and noise are the printed ones; the test is that of `calibrated`.

        Raises:
            ParameterError: naming the condition of the theorem that fails. Below some 2 10^5
                persons one always does.
        """
        n, problem, privacy, q = setting.n, setting.problem, setting.privacy, choices.get("q", 0.2)
        m, d, epsilon, delta = problem.records, problem.d, privacy.epsilon, privacy.delta
        if epsilon > 10:
            raise ParameterError("epsilon", epsilon, "at most 10 in the theorem")
        if not 0 < delta < 1 / (n * m):
            raise ParameterError("delta", delta, f"below 1/(n m) = {1 / (n * m):.3g}, and above 0")
        L, R = problem.objective_lipschitz, problem.reach
        steepest = L / R * math.sqrt(d * m * n * epsilon)
        if not problem.planned_smoothness() <= steepest:
            raise ParameterError(
                "smoothness", problem.planned_smoothness(), f"at most {steepest:.3g}"
            )
        C = math.ceil(printed_groups(n, m, privacy))
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
            # As printed; at n = 10^4 some 2,000 times what "Linear time" proves.
            tau = 1000 * step * L * math.sqrt(T) * log
            mean = FriendlyMean(C, 2 * tau, calibrated.largest)
            cohort = Cohort.of(start, start + size)
            phases.append(LinearTimePhase(cohort, size // C, step, None, mean))
            start += size
        # In units of tau, half of the radius: the same for all phases, as C and K are.
        sensitivity = mean.sensitivity / (mean.radius / 2)
        printed = TestedGaussian(calibrated.epsilon, calibrated.delta, noise / sensitivity)
        own: dict[str, Any] = {"phases": tuple(phases), "mechanism": printed}
        return cls(problem=problem, n=n, privacy=privacy, **own)


def printed_groups(n: int, m: int, privacy: Privacy) -> float:
    """C = 100 ln(20 n m e^epsilon/delta)/epsilon, as printed, not yet rounded."""
    epsilon, delta = privacy.epsilon, privacy.delta
    return 100 * math.log(20 * n * m * math.exp(epsilon) / delta) / epsilon
