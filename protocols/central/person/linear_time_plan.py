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
from protocols.optimisation.setting import Setting
from protocols.problems.held import envelope_known
from protocols.problems.problem import Problem
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, one_of
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.privacy.tested_release import TestedGaussian

MEANS = ("friendly", "chain", "plain")
MAX_PHASES, DEVIATIONS, SHRINK = 6, 3.5, 8.0
"""Phases that are tried; u of the radius; by how much lengths fall from phase to phase."""
LENGTHS = 10.0 ** (np.array(sorted(range(-96, 97), key=abs)) / 12)
"""eta T of the first phase that are tried, in units of R/L: the same for all n, m and epsilon.

At a given length no term of the bound rises with the steps. So what is tried for fewer persons or
records is tried for more, at a bound that is no larger. From the middle outwards: what is far from
the best is then left soon. A grid of steps would have no such order:
the noise grows with m where the step does not shrink.
"""
_MOST_GROUPS = 4000  # that the planner takes: all pairs are looked at
_GROUPS = [int(8 * 1.295**power) for power in range(32)]  # 8 are the fewest of a chain


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
    proven = problem.smooth or envelope_known(problem.loss)
    several = MEANS if proven else tuple(each for each in MEANS if each != "plain")
    for each in several if kind is None else (kind,):
        mechanism = TestedGaussian.calibrated(privacy) if each == "friendly" else None
        tried = _group_counts(mechanism) if each != "plain" else [1]
        best: tuple[float, float, _Case] | None = None
        for count, points in product(range(1, MAX_PHASES + 1), tried):
            sizes = halves(n, count)
            if points <= min(sizes):
                case = _Case(problem, total, tuple(sizes), points, mechanism, u)
                value, length = case.best_length(best[0] if best else math.inf)
                if value < (best[0] if best else math.inf):
                    best = value, length, case
        if best:
            found[each] = best
    if not found and n >= tried[0]:
        # The bound would be some hundred times L R.
        allowed = "smaller, or the domain: stable steps do not get across it"
        raise ParameterError("smoothness", problem.planned_smoothness(), allowed)
    if not found:
        raise ParameterError("n", n, f"at least {tried[0]}: as many groups are asked for")
    name = min(found, key=lambda each: found[each][0])
    bound, length, case = found[name]
    reason = "; ".join(f"{each}: bound {plan[0]:.4g}" for each, plan in found.items())
    return LinearTimePlan(case.phases(length), case.mechanism, bound, f"{name} ({reason})")


def _group_counts(mechanism: TestedGaussian | None) -> list[int]:
    """C that are tried: of one public grid, from the fewest on that the mean takes."""
    # `FriendlyMean` refuses C up to 3 K + 3, and its sensitivity is large just above.
    fewest = 4 * mechanism.largest + 4 if mechanism else _GROUPS[0]
    enough = [each for each in _GROUPS if each >= fewest] or [fewest]
    return [each for each in enough if each <= _MOST_GROUPS] or enough[:1]


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

    def _spread(self, size: int, length: float) -> float:
        """eta L sqrt(T/3) (1 + u): how far a group's point is from its mean, nearly never more."""
        L = self.problem.objective_lipschitz
        return length * L / math.sqrt(3 * self._steps(size)) * (1 + self.u)

    def _reach(self, length: float) -> float:
        """eta L T/2: how far the average of T iterates is from the start, at most."""
        return min(length * self.problem.objective_lipschitz / 2, self.problem.domain.diameter)

    def _chain(self, size: int, length: float) -> ChainedMean:
        """Radii have room for the mean's own deviation, and for the noise."""
        # The mean of C points deviates by 1/sqrt(C) of what one does.
        share = max(self.u, math.sqrt(2 * math.log(1 / FAIL))) / math.sqrt(self.points)
        tau = self._spread(size, length) * (1 + share)
        return ChainedMean.calibrated(
            self.total.noise_multiplier,
            self.points,
            self.problem.d,
            self._reach(length),
            tau,
            self._beyond(size, length),
        )

    def _beyond(self, size: int, length: float) -> float:
        """E (|y - E y| - tau)_+, what clipping takes away: sqrt(2 pi) Phi(-u) of the deviation."""
        share = math.sqrt(math.pi / 2) * math.erfc(self.u / math.sqrt(2))
        return self._spread(size, length) / (1 + self.u) * share

    def _noise(self, size: int, length: float) -> float:
        """Root mean square distance of a release from the mean of the points, at most."""
        root = math.sqrt(self.problem.d)
        if self.points == 1:
            moved = 2 * length / self._steps(size) * self.problem.lipschitz * self.problem.records
            moved = min(moved, self.problem.domain.diameter)
            return root * moved * self.total.noise_multiplier
        if self.mechanism is None:
            chain = self._chain(size, length)
            clip = self._beyond(size, length) if len(chain.ratios) > 1 else 0.0
            return root * 2 * self._reach(length) * chain.spread + clip
        mean = FriendlyMean(self.points, 2 * self._spread(size, length), self.mechanism.largest)
        return root * mean.sensitivity * self.mechanism.noise_multiplier

    def best_length(self, most: float) -> tuple[float, float]:
        """(bound, first length) of the smallest bound; infinite where none is below `most`."""
        problem, sizes, best = self.problem, self.sizes, (most, math.nan)
        L, R = problem.objective_lipschitz, problem.reach
        beta = self._beta()
        # With kinks beta = 1/eta + ridge, and eta beta <= 2 says eta <= 1/ridge.
        stable = 2 / max(beta, 1e-300) if beta < math.inf else 1 / max(problem.ridge, 1e-300)
        for first in (R / L * LENGTHS).tolist():
            total, before = 0.0, R**2
            for at, size in enumerate(sizes):
                length = first / SHRINK**at
                step = length / self._steps(size)
                total += before / (2 * length) + step * L**2 / 2
                if step > stable or total >= best[0]:
                    break
                total += envelope_error(problem, self._smoothing(step))
                before = self._noise(size, length) ** 2
            else:
                best = min(best, (total + L * math.sqrt(before), first))
        return best if best[0] < most else (math.inf, math.nan)

    def _beta(self) -> float:
        """Of the objective; privacy of a pass of which nothing is left out rests on its own."""
        planned = self.problem.planned_smoothness()
        return max(planned, self.problem.smoothness()) if self.points == 1 else planned

    def _smoothing(self, eta: float) -> float | None:
        """beta = 1/eta for kinks: steps are then stable, and the envelope costs L^2 eta/2."""
        return None if self._beta() < math.inf else 1 / eta

    def phases(self, first: float) -> tuple[LinearTimePhase, ...]:
        """Of the first length."""
        made, start = [], 0
        for at, size in enumerate(self.sizes):
            length, mean = first / SHRINK**at, self.mechanism
            step = length / self._steps(size)
            each = Cohort.of(start, start + size), size // self.points, step, self._smoothing(step)
            if self.points == 1:
                made.append(LinearTimePhase(*each, self.total))
            elif mean is None:
                made.append(LinearTimePhase(*each, self._chain(size, length), self._reach(length)))
            else:
                radius = 2 * self._spread(size, length)
                made.append(LinearTimePhase(*each, FriendlyMean(self.points, radius, mean.largest)))
            start += size
        return tuple(made)
