"""One-shot averaging: every person minimises its own records, the shuffler adds up the minimisers.

Zhang, Duchi and Wainwright (2013), with the certificates of docs/theory/output-perturbation.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.solver import SOLVERS, THETA, demand_radius, minimise
from protocols.problems.loss import Loss
from protocols.problems.problem import Problem
from protocols.problems.risk import Risk, Shape
from protocols.sums.binomial import BinomialRandomizer
from protocols.sums.one_round import SumState
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec


@dataclass(frozen=True)
class CertifiedMinimiser(Query):
    """Asks each person for the certified minimiser of the risk of its own records.

    Attributes:
        loss: l.
        ridge: public.
        shape: of the domain.
        radius: promised.
        solver: its name.
    """

    loss: Loss
    ridge: float
    shape: Shape
    radius: float
    solver: str = "newton"

    def __call__(self, rows: Floats) -> Values:
        """One point for each person, shape (persons, d).

        Args:
            rows: (persons, m, columns), as of `Persons.rows` with equal numbers of records.

        Raises:
            ParameterError: rows that are not those of persons with equally many records.
        """
        risk = Risk(self.loss, self.ridge, self.shape)
        if rows.ndim != 3 or rows.shape[2] != self.loss.columns(risk.d):
            allowed = f"(persons, records, {self.loss.columns(risk.d)}): equally many records"
            raise ParameterError("data.shape", rows.shape, allowed)
        found = [self._one(risk, np.ascontiguousarray(each)) for each in np.asarray(rows, float)]
        return np.array(found)

    def _one(self, risk: Risk, records: Floats) -> Floats:
        return minimise(risk.objective(records), self.radius, self.solver).point


class OneShotAverage(Protocol[SumState]):
    """The average of n persons' certified minimisers by one `VectorSum`; data of persons.

    Formal guarantee: that of the sum, for all records of a person: every minimiser lies in the ball
    of radius rho, whatever the records. Result: theta, shape (d,).

    Attributes:
        bound: proven, of the expected excess loss of new records where all are i.i.d.; over R^d of
            the loss with the ridge.
    """

    def __init__(
        self, *, n: int, records: int, problem: Problem, total: VectorSum, solver: str = "newton"
    ) -> None:
        """Over a sum of n vectors in the ball of radius rho; `calibrated` makes it.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        self.n, self.problem, self.total = integer("n", n), problem, total
        self.risk = Risk.of(problem)
        if integer("records", records) == 1 and not problem.loss.strong_convexity():
            allowed = (
                "2 or more: the mean of minimisers of one row each minimises nothing; take an "
                "optimiser, such as ShuffleGD, ShuffleSGD or ShuffleACSA"
            )
            raise ParameterError("records", records, allowed)
        if solver not in SOLVERS:
            raise ParameterError("solver", solver, f"one of {', '.join(SOLVERS)}")
        self.records, exact = records, self.risk.sensitivity(records)[0]
        radius = THETA * exact / n
        rows = np.zeros((1, problem.loss.columns(problem.d)))
        rows[:, -1] = 1.0
        objective = self.risk.objective(rows)
        objective.n = records
        radius = max(radius, 20 * objective.least_radius)
        demand_radius(radius, objective.least_radius)
        self.query = CertifiedMinimiser(
            problem.loss, self.risk.ridge, self.risk.shape, radius, solver
        )
        slope, size = self.risk.lipschitz, problem.domain.radius
        square = float(total.randomizer.variance(n).sum()) / n**2
        added = 2 * slope**2 / (self.risk.strong_convexity * records)
        added += slope * (math.sqrt(square) + radius)
        ridge = self.risk.ridge  # over R^d of the objective with the ridge, else without
        self.bound = added + (ridge * size**2 if math.isfinite(size) else ridge * square) / 2

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        records: int,
        problem: Problem,
        privacy: Privacy,
        noise_ratio: float = 1.05,
        honest_fraction: float = 1.0,
        solver: str = "newton",
    ) -> "OneShotAverage":
        """With the fewest bits for a noise ratio.

        Args:
            n: persons.
            records: of each person, at least 2.
            problem: with a ridge, or strongly convex.
            privacy: of all records of a person; delta above 0.
            noise_ratio: of the noise over the central Gaussian's.
            honest_fraction: of the persons that add their noise.
            solver: by name.
        """
        rho = Risk.of(problem).reach
        total = VectorSum.calibrate(
            n=n,
            d=problem.d,
            privacy=privacy,
            norm_bound=rho * (1 + 1e-9),
            noise_ratio=noise_ratio,
            honest_fraction=honest_fraction,
        )
        return cls(n=n, records=records, problem=problem, total=total, solver=solver)

    @property
    def users(self) -> int:
        """Persons n."""
        return self.n

    @property
    def delta(self) -> float:
        """Of the sum."""
        return self.total.delta

    @property
    def vocabulary(self) -> tuple[type, ...]:
        """What the round may broadcast."""
        return (CertifiedMinimiser, type(self.problem.loss), BinomialRandomizer)

    @property
    def claims_sequential(self) -> bool:
        """One round."""
        return True

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse what is no array of persons' records, or outside the loss's constants."""
        columns = self.problem.loss.columns(self.problem.d)
        if rows.shape != (self.n, self.records, columns):
            raise ParameterError("data.shape", rows.shape, f"{(self.n, self.records, columns)}")
        self.risk.check(rows.reshape(-1, columns))

    def init(self) -> SumState:
        """Nothing released yet."""
        return self.total.init()

    def plan(self, state: SumState) -> RoundSpec | None:
        """The one round."""
        spec = self.total.plan(state)
        return None if spec is None else replace(spec, query=self.query)

    def update(self, state: SumState, estimate: Any) -> SumState:
        """Keep the estimate."""
        return self.total.update(state, estimate)

    def result(self, state: SumState) -> Any:
        """The average, projected onto the domain."""
        mean = np.asarray(self.total.result(state)) / self.n
        return self.risk.domain.project(mean)
