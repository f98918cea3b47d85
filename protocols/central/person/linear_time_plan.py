"""Plans of linear-time phases: groups, steps and means of the smallest proven bound."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from protocols.central.person.chained_mean import FAIL, ChainedMean
from protocols.central.person.friendly import FriendlyMean
from protocols.optimisation.acceleration import envelope_error
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import halves
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.problem import Problem
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, one_of
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.privacy.tested_release import TestedGaussian

MEANS = ("friendly", "chain", "plain")
MAX_PHASES, DEVIATIONS, SHRINK = 6, 3.5, 4.0
"""Phases that are tried; u of the radius; by how much steps are shorter from phase to phase."""
_MOST_GROUPS = 4000  # that the planner takes: all pairs are looked at
_FEWEST_GROUPS = 8  # of a chain


@dataclass(frozen=True)
class LinearTimePhase:
    """One phase: whose records, in which groups, by which steps.

    Attributes:
        cohort: its persons, of no other phase.
        group: persons of a group.
        eta: the step.
        smoothing: beta of the envelope, or None.
        mean: of its groups, behind a test; or the chain that releases it; or the noise of a phase
            of one group of which nothing is left out.
        reach: rho_0 of the chain: how far from the start a group's point surely is.
    """

    cohort: Cohort
    group: int
    eta: float
    smoothing: float | None
    mean: FriendlyMean | ChainedMean | Gaussian
    reach: float = 0.0

    @property
    def groups(self) -> int:
        """C."""
        return 1 if isinstance(self.mean, Gaussian) else self.mean.points


@dataclass(frozen=True)
class LinearTimePlan:
    """Phases, the mechanism of friendly ones, the bound, and why this mean."""

    phases: tuple[LinearTimePhase, ...]
    mechanism: TestedGaussian | None
    bound: float
    reason: str


def planned(setting: Setting, choices: Choices) -> LinearTimePlan:
    """The smallest bound over phases, groups, steps and kinds of means.

    Raises:
        ParameterError: too few persons for any group count, or an unknown mean.
    """
    n, problem, privacy = setting.n, setting.problem, setting.privacy
    kind, u = choices["mean"], choices.get("deviations", DEVIATIONS)
    one_of("mean", kind, MEANS, None)
    total, found = Gaussian.calibrated(privacy), {}
    for each in MEANS if kind is None else (kind,):
        mechanism = TestedGaussian.calibrated(privacy) if each == "friendly" else None
        tried = _group_counts(mechanism) if each != "plain" else [1]
        plans = []
        for count, points in product(range(1, MAX_PHASES + 1), tried):
            sizes = halves(n, count)
            if points <= min(sizes):
                case = _Case(problem, total, tuple(sizes), points, mechanism, u)
                plans.append((*case.best_step(), case))
        if plans:
            found[each] = min(plans, key=lambda plan: plan[:2])
    if not found:
        raise ParameterError("n", n, f"at least {tried[0]}: as many groups are asked for")
    best = min(found, key=lambda each: found[each][0])
    bound, eta, case = found[best]
    reason = "; ".join(f"{each}: bound {plan[0]:.4g}" for each, plan in found.items())
    return LinearTimePlan(case.phases(eta), case.mechanism, bound, f"{best} ({reason})")


def _group_counts(mechanism: TestedGaussian | None) -> list[int]:
    """C that are tried."""
    # `FriendlyMean` refuses C up to 3 K + 3, and its sensitivity is large just above.
    fewest = 4 * mechanism.largest + 4 if mechanism else _FEWEST_GROUPS
    grid = np.geomspace(fewest, max(fewest, _MOST_GROUPS), 25)
    return [int(each) for each in np.unique(grid.astype(int))]


@dataclass(frozen=True)
class _Case:
    """A split into phases, with as many groups in each, and one kind of mean; one group: plain."""

    problem: Problem
    total: Gaussian
    sizes: tuple[int, ...]
    points: int
    mechanism: TestedGaussian | None
    u: float

    def _steps(self, size: int) -> int:
        """T."""
        return size // self.points * self.problem.records

    def _spread(self, size: int, eta: float) -> float:
        """eta L sqrt(T/3) (1 + u): how far a group's point is from its mean, nearly never more."""
        L = self.problem.objective_lipschitz
        return eta * L * math.sqrt(self._steps(size) / 3) * (1 + self.u)

    def _reach(self, size: int, eta: float) -> float:
        """eta L T/2: how far the average of T iterates is from the start, at most."""
        length = eta * self.problem.objective_lipschitz * self._steps(size) / 2
        return min(length, self.problem.domain.diameter)

    def _chain(self, size: int, eta: float) -> ChainedMean:
        """Radii have room for the mean's own deviation, and for the noise."""
        # The mean of C points deviates by 1/sqrt(C) of what one does.
        share = max(self.u, math.sqrt(2 * math.log(1 / FAIL))) / math.sqrt(self.points)
        tau = self._spread(size, eta) * (1 + share)
        return ChainedMean.calibrated(
            self.total.noise_multiplier, self.points, self.problem.d, self._reach(size, eta), tau
        )

    def _noise(self, size: int, eta: float) -> float:
        """Root mean square distance of a release from the mean of the points, at most."""
        root = math.sqrt(self.problem.d)
        if self.points == 1:
            moved = 2 * eta * self.problem.lipschitz * self.problem.records
            moved = min(moved, self.problem.domain.diameter)
            return root * moved * self.total.noise_multiplier
        if self.mechanism is None:
            chain, reach = self._chain(size, eta), self._reach(size, eta)
            # E (|y - E y| - tau)_+ is what clipping takes away.
            # sqrt(2 pi) Phi(-u), by the error function.
            beyond = math.sqrt(math.pi / 2) * math.erfc(self.u / math.sqrt(2))
            clip = self._spread(size, eta) / (1 + self.u) * beyond if len(chain.ratios) > 1 else 0
            return root * 2 * reach * chain.spread + clip
        mean = FriendlyMean(self.points, 2 * self._spread(size, eta), self.mechanism.largest)
        return root * mean.sensitivity * self.mechanism.noise_multiplier

    def best_step(self) -> tuple[float, float]:
        """(bound, first step) of the smallest bound."""
        problem, sizes = self.problem, self.sizes
        L, R = problem.objective_lipschitz, problem.reach
        beta = self._beta()
        # With kinks beta = 1/eta + ridge, and eta beta <= 2 says eta <= 1/ridge.
        stable = 2 / max(beta, 1e-300) if beta < math.inf else 1 / max(problem.ridge, 1e-300)

        def bound(eta: float) -> float:
            total, before = 0.0, R**2
            for at, size in enumerate(sizes):
                step = eta / SHRINK**at
                total += before / (2 * step * self._steps(size)) + step * L**2 / 2
                total += envelope_error(problem, self._smoothing(step))
                before = self._noise(size, step) ** 2
            return total + L * math.sqrt(before)

        etas = np.geomspace(1e-3, 1e2, 60) * R / (L * math.sqrt(self._steps(sizes[0])))
        stable_etas = etas[etas <= stable].tolist()
        if not stable_etas:
            return math.inf, 1.0
        found, (eta,) = least(bound, stable_etas)
        return found, eta

    def _beta(self) -> float:
        """Of the objective; privacy of a pass of which nothing is left out rests on its own."""
        planned = self.problem.planned_smoothness()
        return max(planned, self.problem.smoothness()) if self.points == 1 else planned

    def _smoothing(self, eta: float) -> float | None:
        """beta = 1/eta for kinks: steps are then stable, and the envelope costs L^2 eta/2."""
        return None if self._beta() < math.inf else 1 / eta

    def phases(self, eta: float) -> tuple[LinearTimePhase, ...]:
        """Of the first step."""
        made, start = [], 0
        for at, size in enumerate(self.sizes):
            step, mean = eta / SHRINK**at, self.mechanism
            each = Cohort.of(start, start + size), size // self.points, step, self._smoothing(step)
            if self.points == 1:
                made.append(LinearTimePhase(*each, self.total))
            elif mean is None:
                made.append(
                    LinearTimePhase(*each, self._chain(size, step), self._reach(size, step))
                )
            else:
                radius = 2 * self._spread(size, step)
                made.append(LinearTimePhase(*each, FriendlyMean(self.points, radius, mean.largest)))
            start += size
        return tuple(made)
