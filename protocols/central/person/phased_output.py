"""Person-level output perturbation in phases: Ghazi et al. 2023, Algorithms 3 to 6.

In place of enumeration inside each phase stands the centred Lipschitz extension: it takes
polynomial time, always releases, and holds for any data (docs/theory/user-level.md, "Centred
Lipschitz extension").
"""

import math
from abc import ABC
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.central.optimiser import CentralOptimiser
from protocols.central.person.deletion_stability import demand_range, printed
from protocols.central.person.extension_minimiser import ExtensionMinimiser
from protocols.central.person.places import Place
from protocols.optimisation.centring import NEAR
from protocols.problems.domains import L2Ball
from protocols.problems.problem import Problem, demand, demand_bounded, demand_slope
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds.gaussian import mu_of
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.protocol.release import Release

MAX_PHASES, GROWTH, THETA = 16, 4.0, 0.005
"""Phases that are tried; by which factor the ridge grows; alpha as a share of the sensitivity."""
FAIL = 1e-3
_MAX_CONTRACTION, _MOST_RELEASES = 0.5, 6


@dataclass(frozen=True)
class PhaseState:
    """Where a phased output perturbation is.

    Attributes:
        phase: which.
        release: which of the phase.
        anchor: centre of the phase's ridge.
        center: c.
        gamma: around it.
        last: the last release.
    """

    phase: int
    release: int
    anchor: Floats
    center: Floats
    gamma: float
    last: Floats


class PhasedOutput(CentralOptimiser[PhaseState], ABC):
    """What both have in common: a ridge per phase, around the release of the phase before.

    In a phase the first release has slopes within G of 0, the next ones within gamma of the center
    that the release before gives: c = -lambda (t_k - t), gamma' = tau + a gamma.

    Attributes:
        ridges: lambda_i, in order; 0 in the first phase uses the problem's own strong convexity.
        releases: k, of each phase.
        mechanism: of each release.
        tau: how near persons' slopes are to their mean nearly always.
        contraction: a.
    """

    unit = Unit.PERSON
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
    ) -> None:
        """Explicit parameters; `calibrated` chooses them.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        if not isinstance(problem.domain, L2Ball):
            raise ParameterError("domain", type(problem.domain).__name__, "an L2Ball")
        if problem.loss.smoothness() is None:
            raise ParameterError("loss", problem.loss, "smooth: a person's slope must be one")
        demand_slope(problem)
        self.problem, self.privacy, self.n = problem, privacy, integer("n", n)
        self.ridges, self.releases = tuple(ridges), integer("releases", releases)
        self.mechanism, self.bound = mechanism, bound
        self.tau, self.contraction = tau, contraction
        self._place = Place.of(problem.domain)
        for at, ridge in enumerate(self.ridges):
            if not ridge + problem.ridge > 0:
                raise ParameterError(f"ridges[{at}]", ridge, "above 0, or a problem with a ridge")
        self._cohorts = self._split()
        self._demand_accuracy()
        self.rounds_per_user = releases * (1 if self.disjoint else len(self.ridges))

    def _split(self) -> list[Cohort]:
        count = len(self.ridges)
        if not self.disjoint:
            return [Cohort.of(0, self.n)] * count
        edges = [0, *np.cumsum(_sizes(self.n, count)).tolist()]
        return [Cohort.of(low, high) for low, high in pairwise(edges)]

    @property
    def assumes(self) -> str:
        return NEAR if self.releases > 1 else ""

    @property
    def users(self) -> int:
        return self.n

    def check(self, rows: NDArray[Any]) -> None:
        raise ParameterError("data", "records", "of persons, such as Persons.in_memory(...)")

    def init(self) -> PhaseState:
        return self._begun(0, self.problem.origin)

    def _begun(self, phase: int, at: Floats) -> PhaseState:
        return PhaseState(phase, 0, at, np.zeros(self.problem.d), self.problem.lipschitz, at)

    def plan(self, state: PhaseState) -> Release | None:
        if state.phase == len(self.ridges):
            return None
        return Release.of(self._cohorts[state.phase], self._statistic(state), self.mechanism)

    def _statistic(self, state: PhaseState) -> ExtensionMinimiser:
        cohort, ridge = self._cohorts[state.phase], self.ridges[state.phase]
        strong = ridge + self.problem.ridge
        exact = 2 * state.gamma / (strong * cohort.size)
        return ExtensionMinimiser(
            self.problem.loss,
            self._place,
            strong,
            np.asarray(ridge / strong * state.anchor),
            state.center,
            state.gamma,
            THETA * exact,
            cohort.size,
            self.problem.most_records,
        )

    def _demand_accuracy(self) -> None:
        """Refuse, before any charge, releases that no certificate could reach."""
        far = np.full(self.problem.d, self.problem.domain.radius / math.sqrt(self.problem.d))
        for phase in range(len(self.ridges)):
            state = self._begun(phase, far)
            for _ in range(self.releases):
                self._statistic(state).demand()
                state = replace(state, gamma=self._following(state.gamma))

    def _following(self, gamma: float) -> float:
        return min(self.problem.lipschitz, self.tau + self.contraction * gamma)

    def update(self, state: PhaseState, estimate: Any) -> PhaseState:
        point = np.asarray(estimate, np.float64)
        if state.release + 1 == self.releases:
            return self._begun(state.phase + 1, point)
        ridge, own = self.ridges[state.phase], self.problem.ridge
        center = -(ridge * (point - state.anchor) + own * point)
        gamma = self._following(state.gamma)
        return replace(state, release=state.release + 1, center=center, gamma=gamma, last=point)

    def result(self, state: PhaseState) -> Floats:
        return self.problem.domain.project(state.last)

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """With the smallest bound over ridges, phases and releases.

        Args:
            n: persons.
            problem: smooth, over an l2 ball, with its nominal number of records. With a ridge, the
                first phase takes no other one (Algorithms 5 and 6).
            privacy: of the run; delta above 0.
            given: `phases` and `releases` of each.

        Raises:
            ParameterError: what it does not take.
        """
        demand(problem, privacy)
        demand_bounded(problem)
        for name in given.keys() - {"phases", "releases"}:
            raise ParameterError(name, given[name], "left out: it takes phases and releases")
        mu = mu_of(privacy.epsilon, privacy.delta)
        phases, releases = given.get("phases"), given.get("releases")
        tried = range(1, MAX_PHASES + 1) if phases is None else (integer("phases", phases),)
        each = (
            range(1, _MOST_RELEASES + 1) if releases is None else (integer("releases", releases),)
        )
        found = [
            case
            for count in tried
            for k in each
            if (case := cls._best(n, problem, mu, count, k)) is not None
        ]
        if not found:
            raise ParameterError("n", n, "larger: the noise would be as large as the centers")
        bound, ridges, k, sigma, tau, a = min(found)
        own: dict[str, Any] = {"ridges": ridges, "releases": k, "mechanism": Gaussian(sigma)}
        return cls(
            problem=problem, n=n, privacy=privacy, tau=tau, contraction=a, bound=bound, **own
        )

    @classmethod
    def _best(
        cls, n: int, problem: Problem, mu: float, count: int, k: int
    ) -> tuple[float, tuple[float, ...], int, float, float, float] | None:
        """(bound, ridges, k, sigma, tau, a) of the smallest bound; None where it cannot work."""
        sizes = _sizes(n, count) if cls.disjoint else [n] * count
        least = min(sizes)
        if least < 2:
            return None
        sigma = math.sqrt(k if cls.disjoint else k * count) / mu * (1 + 1e-12)
        d, G, m, R = problem.d, problem.lipschitz, problem.records, problem.reach
        log = math.sqrt(2 * math.log(1 / FAIL))
        a = 2 * sigma / least * (math.sqrt(d) + log) * (1 + THETA)
        tau = min(G, problem.spread * (1 + math.sqrt(2 * math.log(n / FAIL))))
        if k > 1 and not (a < _MAX_CONTRACTION and tau < G):
            return None
        gamma = G
        for _ in range(k - 1):
            gamma = min(G, tau + a * gamma)
        best: tuple[float, tuple[float, ...]] = (math.inf, ())
        strong = problem.strong_convexity
        scale = G / R * (sigma * math.sqrt(d) * gamma / G / n + 1 / math.sqrt(n * m))
        for base in np.geomspace(1e-3, 1e3, 60) * scale:
            ridges = tuple(float(base) * GROWTH**at for at in range(count))
            if problem.ridge > 0:  # Algorithms 5 and 6
                ridges = (0.0, *ridges[:-1])
            bound, before = 0.0, R**2
            for ridge, size in zip(ridges, sizes, strict=True):
                bound += ridge / 2 * before
                if cls.disjoint:
                    bound += 2 * G**2 / ((ridge + strong) * size * m)
                spread = 2 * gamma * (1 + THETA) / ((ridge + problem.ridge) * size) * sigma
                before = d * spread**2
                if ridge == 0:
                    before += 4 * G**2 / (strong**2 * size * m) if cls.disjoint else 0.0
            bound += problem.objective_lipschitz * math.sqrt(d) * spread
            best = min(best, (bound, ridges))
        return best[0], best[1], k, sigma, tau, a

    @classmethod
    def paper(
        cls, *, n: int, problem: Problem, privacy: Privacy, phases: int | None = None
    ) -> Self:
        """The printed ridges, phases and noise, in the mechanism that is proven here.

        Each release has the noise that Ghazi et al. (2023) print for the phase, never less
        than is needed here.

        Raises:
            ParameterError: naming the condition of the theorems that fails.
        """
        demand(problem, privacy)
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
        if phases is not None:
            count = integer("phases", phases)
        if count < 1 or n < least:
            raise ParameterError("n", n, f"at least ln(1/delta) ln(m)/epsilon = {least:.4g}")
        base = G * math.sqrt(d) / (R * n * math.sqrt(m))
        ridges = tuple(base * 4.0**at for at in range(1, count + 1))
        size = min(_sizes(n, count)) if cls.disjoint else n
        constants = printed(each, size, m, 2 * G, 1.0, 1 / (n * m) / count)
        exact = 2 * G / size  # of a release here, at ridge 1
        own: dict[str, Any] = {"ridges": ridges, "releases": 1, "tau": G}
        mechanism = Gaussian(constants.sigma / exact)
        return cls(problem=problem, n=n, privacy=privacy, mechanism=mechanism, **own)


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


def _sizes(n: int, count: int) -> list[int]:
    """n/2, n/4, ..., and the last takes the rest."""
    sizes = [n >> (at + 1) for at in range(count - 1)]
    return [*sizes, n - sum(sizes)]
