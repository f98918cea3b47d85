"""Person-level output perturbation in phases: Ghazi et al. 2023, Algorithms 3 to 6.

In place of enumeration inside each phase stands the centred Lipschitz extension: it takes
polynomial time, always releases, and holds for any data (docs/theory/user-level.md, "Centred
Lipschitz extension").
"""

import math
from abc import ABC
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from protocols.central.person.deletion_stability import demand_range, printed
from protocols.central.person.extension_minimiser import ROOM, ExtensionMinimiser
from protocols.central.person.parts import Parts
from protocols.central.person.phased_plan import GROWTH, THETA, PhasedPlan, planned
from protocols.erm.objective import DIGITS
from protocols.erm.solver.minimise import demand_exact
from protocols.optimisation.acceleration import envelope_error
from protocols.optimisation.centring import NEAR
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import PhasedState, Step, Steps, halves
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.domains import L2Ball
from protocols.problems.problem import (
    Problem,
    demand,
    demand_bounded,
    demand_diameter,
    demand_near,
    demand_slope,
)
from protocols.problems.smoothed import Smoothed
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds.gaussian import mu_of
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.protocol.release import CentralAlgorithm, Release

MAX_PHASES, ENVELOPE = 16, 0.05
"""Phases that are tried; what the envelope of kinks may add to the bound."""
_MOST_RELEASES = 6


class PhasedOutput(Steps, CentralAlgorithm[PhasedState], ABC):
    """What both have in common: a ridge per phase, around the release of the phase before.

    In a phase the first release has slopes within G of 0, the next ones within gamma of the center
    that the release before gives: c = -lambda (t_k - t), gamma' = tau + a gamma. A strongly convex
    loss may give its curvature to the ridge: slopes are then those of what is left.

    Attributes:
        ridges: lambda_i, in order; 0 in the first phase uses the problem's own ridge, and `bowl`.
        releases: k, of each phase.
        mechanism: of each release.
        tau: how near persons' slopes are to their mean nearly always.
        contraction: a.
        bowl: of the loss's own strong convexity, what counts as a ridge.
    """

    takes = ("phases", "releases", "smoothing")
    """How many; of each phase; beta of the envelope in place of a loss with kinks."""
    unit = Unit.PERSON
    rests_on_loss = True
    disjoint: ClassVar[bool]

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        ridges: tuple[float, ...],
        releases: int,
        mechanism: Gaussian,
        tau: float,
        contraction: float = 0.0,
        bound: float = math.inf,
        smoothing: float | None = None,
        bowl: float = 0.0,
    ) -> None:
        """Explicit parameters; `calibrated` chooses them.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        demand_diameter(problem)
        demand_near(problem, DIGITS)
        demand_exact(problem.domain)
        demand_slope(problem)
        self.smoothing, self.bowl = smoothing, bowl
        self._parts = Parts.of(problem, bowl)
        if smoothing is not None:
            smooth = Smoothed.of(self._parts.loss, smoothing)
            self._parts = replace(self._parts, loss=smooth)
        elif problem.loss.smoothness() is None:
            raise ParameterError("smoothing", smoothing, "given: the loss has kinks")
        self.problem, self.privacy, self.n = problem, privacy, integer("n", n)
        self.phases = self.ridges = tuple(ridges)
        self.releases, self.mechanism, self.bound = integer("releases", releases), mechanism, bound
        _demand_center(problem, releases)
        self.rounds, self.choices = self.releases * len(self.ridges), {}
        self.tau, self.contraction = tau, contraction
        for at, ridge in enumerate(self.ridges):
            if not ridge + self._parts.ridge > 0:
                raise ParameterError(f"ridges[{at}]", ridge, "above 0, or a problem with a ridge")
        self._cohorts = self._split()
        self._demand_accuracy()

    @property
    def rounds_per_user(self) -> int:
        return self.releases if self.disjoint else self.rounds

    def _split(self) -> list[Cohort]:
        count = len(self.ridges)
        if not self.disjoint:
            return [Cohort.of(0, self.n)] * count
        edges = [0, *np.cumsum(halves(self.n, count)).tolist()]
        return [Cohort.of(low, high) for low, high in pairwise(edges)]

    @property
    def assumes(self) -> str:
        return NEAR if self.releases > 1 else ""

    def asks(self, at: int) -> int:
        return self.releases

    def release(self, at: int, step: Step) -> Release:
        center, own = np.zeros(self.problem.d), self._parts.ridge
        if step.released:
            last = step.released[-1]
            # At a minimiser the mean slope is minus that of the ridges: a release gives the next
            # center.
            center = -(self.ridges[at] * (last - step.theta) + own * last)
        gamma = self._gamma(len(step.released))
        statistic = self._statistic(at, step.theta, center, gamma)
        return Release.of(self._cohorts[at], statistic, self.mechanism)

    def taken(self, at: int, step: Step, estimate: Any) -> Floats:
        """The released point: only the last one is brought into the domain."""
        return np.asarray(estimate, np.float64)

    def ended(self, at: int, inner: Step) -> Floats:
        return self.problem.domain.project(super().ended(at, inner))

    def _statistic(
        self, at: int, anchor: Floats, center: Floats, gamma: float
    ) -> ExtensionMinimiser:
        """Of a phase with its ridge around `anchor`; slopes are within gamma of the center."""
        cohort, ridge = self._cohorts[at], self.ridges[at]
        strong = ridge + self._parts.ridge
        exact = 2 * gamma * ROOM / (strong * cohort.size)
        return ExtensionMinimiser(
            self._parts.loss,
            self.problem.domain,
            strong,
            # Both ridges as one: strong/2 ||w - (ridge/strong) anchor||^2, up to a constant.
            np.asarray(ridge / strong * anchor),
            center,
            gamma,
            THETA * exact,
            cohort.size,
            self.problem.most_records,
        )

    def _demand_accuracy(self) -> None:
        """Refuse, before any charge, releases that no certificate could reach."""
        # An anchor of the largest norm: what doubles round grows with it.
        far = np.full(self.problem.d, self.problem.domain.radius / math.sqrt(self.problem.d))
        for at in range(len(self.ridges)):
            for count in range(self.releases):
                self._statistic(at, far, np.zeros(self.problem.d), self._gamma(count)).demand()

    def _gamma(self, count: int) -> float:
        """Around the center that `count` releases of a phase give."""
        gamma = self._parts.slope
        for _ in range(count):
            gamma = min(self._parts.slope, self.tau + self.contraction * gamma)
        return gamma

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the smallest bound over ridges, phases and releases.

        With a ridge, or the loss's own curvature in its place, the first phase takes no other one
        (Algorithms 5 and 6). Over another domain
        than an l2 ball a phase has one release. Kinks are rounded off by an envelope that adds a
        twentieth to the bound.
        """
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        demand_bounded(problem)
        mu = mu_of(privacy.epsilon, privacy.delta)
        found: dict[tuple[int, int], PhasedPlan] = {}
        shares = Parts.choices(problem)

        def bound(count: int, k: int) -> float | None:
            tried = (planned(n, problem, each, mu, count, k, cls.disjoint) for each in shares)
            plans = [each for each in tried if each is not None]
            if not plans:
                return None
            found[count, k] = min(plans)
            return found[count, k].bound

        noisy = ParameterError("n", n, "larger: the noise would be as large as the centers")
        counts = choices.grid("phases", range(1, MAX_PHASES + 1))
        most = _MOST_RELEASES if isinstance(problem.domain, L2Ball) else 1
        releases = choices.grid("releases", range(1, most + 1))
        _demand_center(problem, max(releases))
        _, best = least(bound, counts, releases, otherwise=noisy)
        plan = found[best]
        beta = _envelope(problem, choices, plan.bound)
        total = plan.bound + (0.0 if beta is None else envelope_error(problem, beta))
        own: dict[str, Any] = {"ridges": plan.ridges, "releases": plan.releases}
        own |= {"tau": plan.tau, "contraction": plan.contraction, "bowl": plan.bowl}
        own |= {"bound": total, "smoothing": beta, "mechanism": Gaussian(plan.sigma)}
        return cls(problem=problem, n=n, privacy=privacy, **own)

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """The printed ridges, phases and noise, in the mechanism that is proven here.

        Each release has the noise that Ghazi et al. (2023) print for the phase, never less
        than is needed here.

        Raises:
            ParameterError: naming the condition of the theorems that fails.
        """
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        m, d, G, R = problem.records, problem.d, problem.lipschitz, problem.reach
        epsilon, delta = privacy.epsilon, privacy.delta
        demand_range(privacy)
        least = math.log(1 / delta) * math.log(max(m, 2)) / epsilon if 0 < delta < 1 else math.inf
        if cls.disjoint:
            count = math.floor(math.log2(max(1.0, n * epsilon / math.log(1 / delta))))
            each = privacy
        else:
            count = math.ceil(math.log2(n * m))
            each = Privacy(epsilon / count, delta / count)
        (count,) = choices.grid("phases", [count])
        if count < 1 or n < least:
            raise ParameterError("n", n, f"at least ln(1/delta) ln(m)/epsilon = {least:.4g}")
        base = G * math.sqrt(d) / (R * n * math.sqrt(m))
        ridges = tuple(base * GROWTH**at for at in range(1, count + 1))
        size = min(halves(n, count)) if cls.disjoint else n
        # With its ridge a loss is 2 G-Lipschitz on the printed ball K_i.
        constants = printed(each, size, m, 2 * G, 1.0, 1 / (n * m) / count)
        exact = 2 * G / size  # of a release here, at ridge 1
        own: dict[str, Any] = {"ridges": ridges, "releases": 1, "tau": G}
        own["smoothing"] = _envelope(problem, choices, G * R / math.sqrt(n * m))
        mechanism = Gaussian(constants.sigma / exact)
        return cls(problem=problem, n=n, privacy=privacy, mechanism=mechanism, **own)


def _demand_center(problem: Problem, releases: int) -> None:
    # A center is a slope with a normal of the domain; the extensions' ball has others.
    if releases > 1 and not isinstance(problem.domain, L2Ball):
        allowed = "1 over another domain than an L2Ball: a center rests on its normals"
        raise ParameterError("releases", releases, allowed)


def _envelope(problem: Problem, choices: Choices, bound: float) -> float | None:
    """beta as given; for kinks such that the envelope costs a share of the bound."""
    beta: float | None = choices["smoothing"]
    if beta is None and problem.loss.smoothness() is None:
        return problem.root**2 / (2 * ENVELOPE * bound)
    return beta


class PhasedERM(PhasedOutput):
    """Algorithms 3 and 5: every phase asks all persons; for the excess on their own objective.

    Formal guarantee: one Gaussian event for each release, composed over all phases; any data.
    """

    disjoint = False


class PhasedSCO(PhasedOutput):
    """Algorithms 4 and 6: phases over disjoint persons; for the population's excess.

    Formal guarantee: one Gaussian event for each release of the one phase a person is in. The
    printed ridge G sqrt(d)/(R n sqrt(m)) lacks 1/sqrt(n m), without which the bound does not fall
    with n; here it is searched.
    """

    disjoint = True
