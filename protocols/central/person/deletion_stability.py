"""Output perturbation with deletion stability: Ghazi et al. 2023, Algorithm 1, exact.

It enumerates subsets of persons, unless a certificate shows that it need not. Where that fails,
enumeration must run: to stop would reveal it. So it is for few persons, as a reference and in
tests. For more, `PhasedERM` and `PhasedSCO` release always, in polynomial time.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from protocols.central.person.gathering import gathered
from protocols.central.person.stable_sets import certified_width, stable_score
from protocols.erm.extension import valid_records
from protocols.erm.people import People
from protocols.erm.risk import Risk, erm, shape_of
from protocols.erm.solver import minimise
from protocols.erm.solver.public import check_radius
from protocols.optimisation.base import Optimiser
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain
from protocols.problems.loss import Loss
from protocols.problems.problem import Problem, demand, demand_bounded, demand_slope
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.tested_release import TestedGaussian
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic, Total

MOST_SUBSETS = 20_000
FAIL = 1e-3
_RADIUS = 1e-6  # of the computed minimisers; the theorem is about the computed function


@dataclass(frozen=True)
class StableMinimiser(Statistic):
    """k*, then the regularised minimiser without S*; exact, by enumeration.

    Attributes:
        loss: of a record.
        domain: where the parameters may be.
        ridge: mu.
        largest: K.
        width: Lambda.
        persons: n.
        records: m; a person with fewer counts with them over again, so that persons weigh alike.
    """

    loss: Loss
    domain: Domain
    ridge: float
    largest: int
    width: float
    persons: int
    records: int

    @property
    def sensitivity(self) -> Sensitivity:
        """2 Lambda."""
        proof = "both outputs are within Lambda of the output without both sets, if k + k' <= 2 K"
        return Sensitivity(2 * self.width, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        domain = self.domain
        columns = self.loss.columns(domain.d)
        rows = gathered(total)
        if len(rows) < self.persons:  # the check of the first row
            return np.zeros(1 + domain.d)
        data = [
            # np.resize repeats records in turn; of a person without any it makes zeros.
            valid_records(self.loss, domain.d, np.resize(each.in_order, (self.records, columns)))
            for each in (PersonRows(row[None], columns) for row in rows)
        ]

        point = minimise(erm(self.loss, np.concatenate(data), self.ridge, domain), _RADIUS).point
        if self._certified(point, data):
            return np.concatenate([[0.0], point])

        def f(remaining: tuple[int, ...]) -> Floats:
            records = np.concatenate([data[i] for i in remaining])
            return minimise(erm(self.loss, records, self.ridge, domain), _RADIUS).point

        score, value = stable_score(self.persons, self.largest, self.width, f)
        return np.concatenate([[float(score)], value])

    def _certified(self, point: Floats, data: list[Floats]) -> bool:
        """Whether k* = 0 is proven at a minimiser that is computed to a radius."""
        beta = self.loss.smoothness()
        if beta is None:
            return False
        people = People(np.concatenate(data), np.array([len(each) for each in data]))
        slopes = people.slopes(self.loss, np.tile(point, (len(people), 1)))
        width = certified_width(slopes, self.largest, self.ridge)
        removed = 2 * self.largest + 1
        # Slopes are off by beta alpha each, and computed points by alpha each.
        slack = 4 * removed * beta * _RADIUS / (self.ridge * (len(data) - removed)) + 2 * _RADIUS
        return width + slack <= self.width


@dataclass(frozen=True)
class Printed:
    """The printed constants of Algorithms 1 and 2.

    Attributes:
        kappa: removals that are tolerated.
        stability: Delta.
        sigma: standard deviation of the noise per coordinate.
    """

    kappa: int
    stability: float
    sigma: float


def printed(privacy: Privacy, n: int, m: int, G: float, mu: float, fail: float) -> Printed:
    """kappa, Delta and sigma as printed, with natural logarithms and the ceiling that is meant.

    Args:
        privacy: of the release; epsilon at most 1, delta at most 1/2.
        n: persons.
        m: records of each.
        G: Lipschitz constant.
        mu: strong convexity.
        fail: b, the chance of bottom for i.i.d. data.

    Raises:
        ParameterError: naming the condition that fails.
    """
    demand_range(privacy)
    epsilon, delta = privacy.epsilon, privacy.delta
    # epsilon and delta of the test as Algorithm 1 has them; `spread` and `stability` are of
    # Corollary 3.7.
    half, part = epsilon / 2, delta / (math.exp(epsilon) + 2)
    kappa = math.ceil(1 + math.log(1 / part) / half)
    r = 4 * kappa
    if n <= r + 1:
        raise ParameterError("n", n, f"above 4 kappa + 1 = {r + 1}")
    spread = math.sqrt(((r + 1) * math.log(n) + math.log(1 / fail)) / m)
    stability = 5 * G * spread / (mu * (n - r - 1))
    sigma = math.sqrt(2 * math.log(2 / part)) * 8 * kappa * stability / half
    return Printed(kappa, stability, sigma)


def demand_range(privacy: Privacy) -> None:
    """Refuse what the theorems of Ghazi et al. do not cover.

    Raises:
        ParameterError: epsilon above 1, or delta not in (0, 1/2].
    """
    if privacy.epsilon > 1:
        raise ParameterError("epsilon", privacy.epsilon, "at most 1 in the theorem")
    if not 0 < privacy.delta <= 0.5:
        raise ParameterError("delta", privacy.delta, "above 0 and at most 1/2 in the theorem")


def served(largest: int) -> range:
    """Numbers of persons for which K removals can be tested; it may be empty.

    2 K + 1 persons are removed of more, and at most `MOST_SUBSETS` subsets are listed.
    """
    most = 2 * largest + 1
    end = most + 1
    while sum(math.comb(end, count) for count in range(most + 1)) <= MOST_SUBSETS:
        end += 1
    return range(most + 1, end)


def demand_served(n: int, privacy: Privacy, largest: int) -> None:
    """Refuse a number of persons that the budget does not serve.

    Raises:
        ParameterError: naming the numbers that it serves, or budgets that serve some.
    """
    fit = served(largest)
    if not fit:
        allowed = (
            f"larger: it tests {largest} removals, for which no number of persons is both above "
            f"{2 * largest + 1} and few enough to list their subsets. (8, 0.5) serves 6 to 19 "
            "persons, (8, 0.05) 10 to 14, as a demonstration; else take PhasedERM"
        )
        raise ParameterError("privacy", (privacy.epsilon, privacy.delta), allowed)
    if n not in fit:
        allowed = (
            f"{fit[0]} to {fit[-1]} persons at ({privacy.epsilon:g}, {privacy.delta:g}), which "
            f"tests {largest} removals, as a demonstration; else take PhasedERM"
        )
        raise ParameterError("n", n, allowed)


class DeletionStability(Optimiser[Floats | None], CentralAlgorithm[Floats | None]):
    """DelOutputPert: a private test of stability, then the minimiser with noise, or nothing.

    A demonstration: all subsets are enumerated, so a budget serves the numbers of persons of
    `served` alone. At (8, 0.5) these are 6 to 19, at (8, 0.05) 10 to 14, and none at (8, 0.001).
    `PhasedERM` serves real budgets.

    Formal guarantee: one tested release; any data. The result is the problem's start where the test
    fails.

    Attributes:
        width: Lambda.
        mechanism: the test and the noise.
    """

    takes = ("width",)
    unit = Unit.PERSON
    rests_on_loss = True
    rounds = 1

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        width: float,
        mechanism: TestedGaussian,
        bound: float = math.inf,
    ) -> None:
        """Explicit parameters; `calibrated` chooses them.

        Raises:
            ParameterError: too many subsets to enumerate, no strong convexity, or minimisers that
                cannot be certified to the radius.
        """
        demand(problem, privacy)
        self.problem, self.privacy, self.n = problem, privacy, integer("n", n)
        self.width, self.mechanism = positive("width", width), mechanism
        self.bound, self.choices = bound, {}
        positive("ridge", problem.ridge)
        demand_bounded(problem)
        demand_slope(problem)
        demand_served(self.n, privacy, mechanism.largest)
        risk = Risk(problem.loss, problem.ridge, shape_of(problem.domain))
        check_radius(risk, n * problem.records, _RADIUS)
        self._statistic = StableMinimiser(
            problem.loss,
            problem.domain,
            problem.ridge,
            mechanism.largest,
            width,
            n,
            problem.records,
        )

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the width that i.i.d. records reach with probability 0.999.

        For a problem with a ridge, and a number of persons that the budget serves.
        """
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        mechanism = TestedGaussian.calibrated(privacy)
        K, strong = mechanism.largest, positive("ridge", problem.ridge)
        demand_slope(problem)  # no number of persons helps without
        demand_served(n, privacy, K)
        # McDiarmid for all n persons at once ("Radii"); the width is then that of
        # `certified_width`.
        gamma = problem.spread * (1 + math.sqrt(2 * math.log(n / FAIL)))
        width = 2 * (2 * K + 1) * gamma / (strong * (n - 2 * K - 1))
        width = positive("width", choices.get("width", width))
        noise = 2 * width * mechanism.noise_multiplier * math.sqrt(problem.d)
        bound = problem.objective_lipschitz * noise
        return cls(
            problem=problem, n=n, privacy=privacy, width=width, mechanism=mechanism, bound=bound
        )

    @property
    def assumes(self) -> str:
        return "the test passes"

    def init_at(self, theta: Floats) -> Floats | None:
        return None

    def plan(self, state: Floats | None) -> Release | None:
        cohort = Cohort.of(0, self.n)
        return Release.of(cohort, self._statistic, self.mechanism) if state is None else None

    def update(self, state: Floats | None, estimate: Any) -> Floats:
        if estimate is None:
            return self.problem.origin
        return self.problem.domain.project(np.asarray(estimate, np.float64))

    def result(self, state: Floats | None) -> Floats:
        return self.problem.origin if state is None else state
