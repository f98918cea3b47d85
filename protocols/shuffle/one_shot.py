"""One-shot averaging: every person minimises its own records, the shuffler adds up the minimisers.

Zhang, Duchi and Wainwright (2013), with the certificates of docs/theory/output-perturbation.md.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.erm.extension import valid_records
from protocols.erm.risk import Risk, Shape
from protocols.erm.solver import SOLVERS, THETA, demand_radius, minimise
from protocols.erm.solver.public import named
from protocols.problems.loss import Loss
from protocols.problems.problem import Problem
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, integer, one_of, real
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.bounds.binomial import first
from shuffle_sim.privacy.bounds.domination import nus_near
from shuffle_sim.privacy.grid_noise import BinomialShiftEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import P, honest_users
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec

_MOST_BITS = 2**24  # noise bits a user and coordinate


@dataclass(frozen=True)
class CertifiedMinimiser(Query):
    """Asks each person for the certified minimiser of the risk of its own records.

    Records that the loss's constants do not hold for count as a fixed one.

    Attributes:
        loss: l.
        ridge: public.
        shape: of the domain.
        radius: promised.
        solver: its name.
        moved: records of each person, of which neighbours differ in one; None: in any of them.
    """

    loss: Loss
    ridge: float
    shape: Shape
    radius: float
    solver: str = "newton"
    moved: int | None = None
    proven = True

    @cached_property
    def risk(self) -> Risk:
        """What is minimised."""
        return Risk(self.loss, self.ridge, self.shape)

    @cached_property
    def apart(self) -> float:
        """D + 2 radius: exact minimisers of `moved` records, and two certificates.

        All that it rests on is held on every row: the loss's constants (other records count as a
        fixed one), the number of records, and the certificate.
        """
        if self.moved is None:
            return math.inf
        return self.risk.sensitivity(integer("moved", self.moved))[0] + 2 * self.radius

    def __call__(self, rows: Floats) -> Values:
        """One point for each person, shape (persons, d).

        Args:
            rows: (persons, m, columns), as of `Persons.rows` with equal numbers of records.

        Raises:
            ParameterError: rows that are not those of persons with equally many records, as many as
                stated.
        """
        rows, columns = np.asarray(rows, float), self.loss.columns(self.risk.d)
        if rows.ndim != 3 or rows.shape[1:] != (self.moved or rows.shape[1], columns):
            allowed = f"(persons, {self.moved or 'records'}, {columns}): equally many records"
            raise ParameterError("data.shape", rows.shape, allowed)
        records = valid_records(self.loss, self.risk.d, rows.reshape(-1, columns))
        risks = map(self.risk.objective, records.reshape(rows.shape))
        return np.array([minimise(each, self.radius, self.solver).point for each in risks])


class OneShotAverage(Protocol[Any]):
    """The average of n users' certified minimisers by one `VectorSum`; data (n, records, columns).

    Formal guarantee, by `protects`. A person: that of the sum, for all records of a user, since
    every minimiser lies in the ball of radius rho. A record: one record of a user moves its
    minimiser by D + 2 radius at most, so noise of the central size is enough
    (`BinomialShiftEvent`); a user's records together have no such promise. Result: theta, shape
    (d,).

    Attributes:
        bound: proven, of the expected excess loss of new records where all are i.i.d.; over R^d of
            the loss with the ridge.
    """

    def __init__(
        self,
        *,
        n: int,
        records: int,
        problem: Problem,
        total: VectorSum,
        solver: str = "newton",
        protects: Unit | str = Unit.PERSON,
        noise: float = 0.0,
    ) -> None:
        """Over a sum of n vectors in the ball of radius rho; `calibrated` makes it.

        The bound is for the sum's noise, or for `noise` if that is more: the root mean square
        of the mean's noise, as planned. That of the sum jumps, as bits are whole numbers.
        """
        self.n, self.problem, self.total = integer("n", n), problem, total
        self.risk = Risk.of(problem)
        if integer("records", records) == 1 and not problem.loss.strong_convexity():
            allowed = (
                "2 or more: the mean of minimisers of one row each minimises nothing; take an "
                "optimiser, such as ShuffleGD, ShuffleSGD or ShuffleACSA"
            )
            raise ParameterError("records", records, allowed)
        one_of("solver", solver, SOLVERS)
        named(solver, self.risk)
        whole = one_of("protects", protects, Unit) == Unit.PERSON
        self.protects = None if whole else Unit.RECORD
        self.records, exact = records, self.risk.sensitivity(records)[0]
        radius = _radius(exact, n, whole)
        rows = np.zeros((1, problem.loss.columns(problem.d)))
        rows[:, -1] = 1.0
        objective = self.risk.objective(rows)
        objective.n = records
        # `demand_radius` asks for 10 times what doubles round; twice that.
        radius = max(radius, 20 * objective.least_radius)
        demand_radius(radius, objective.least_radius)
        moved, risk = None if whole else records, self.risk
        self.query = CertifiedMinimiser(problem.loss, risk.ridge, risk.shape, radius, solver, moved)
        slope, size = self.risk.lipschitz, problem.domain.radius
        square = max(noise**2, float(total.randomizer.variance(n).sum()) / n**2)
        # One person's minimiser generalises so well, and the mean is no worse (Jensen).
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
        protects: Unit | str = Unit.PERSON,
    ) -> "OneShotAverage":
        """With the fewest bits for a noise ratio.

        Args:
            n: users.
            records: of each user, at least 2.
            problem: with a ridge, or strongly convex.
            privacy: delta above 0.
            noise_ratio: of the noise over the central Gaussian's.
            honest_fraction: of the users that add their noise.
            solver: by name.
            protects: "person", all records of a user, or "record", one of them.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        risk = Risk.of(problem)
        # Minimisers at the border must not be cut by a rounding.
        bound = risk.reach * (1 + 1e-9)
        moved = 2 * bound
        if one_of("protects", protects, Unit) == Unit.PERSON:
            total = VectorSum.calibrated(
                n=n,
                d=problem.d,
                privacy=privacy,
                norm_bound=bound,
                noise_ratio=noise_ratio,
                honest_fraction=honest_fraction,
            )
        else:
            exact = risk.sensitivity(integer("records", records))[0]
            moved = float(min(exact + 2 * _radius(exact, n, False), 2 * bound))
            sizes = _steps(n, problem.d, privacy, noise_ratio, honest_fraction, 2 * bound / moved)
            total = VectorSum(
                n=n,
                d=problem.d,
                **sizes,
                norm_bound=bound,
                delta=privacy.delta,
                honest_fraction=honest_fraction,
            )
        central = gaussian.sigma(privacy.epsilon, privacy.delta)
        return cls(
            n=n,
            records=records,
            problem=problem,
            total=total,
            solver=solver,
            protects=protects,
            noise=math.sqrt(problem.d) * noise_ratio * central * moved / n,
        )

    @property
    def delta(self) -> float:
        return self.total.delta

    @property
    def believed(self) -> tuple[str, ...]:
        # For persons the noise covers the whole ball.
        return self.risk.loss.believed() if self.protects is Unit.RECORD else ()

    @property
    def vocabulary(self) -> tuple[type, ...]:
        words = self.problem.loss.vocabulary
        return (CertifiedMinimiser, type(self.total.randomizer), *words)

    @property
    def claims_sequential(self) -> bool:
        return True

    def check(self, rows: NDArray[Any]) -> None:
        columns = self.problem.loss.columns(self.problem.d)
        if rows.shape != (self.n, self.records, columns):
            raise ParameterError("data.shape", rows.shape, f"{(self.n, self.records, columns)}")
        self.check_records(rows.reshape(-1, columns))

    def check_records(self, records: NDArray[Any]) -> None:
        self.risk.check(records)

    def init(self) -> Any:
        return self.total.init()

    def plan(self, state: Any) -> RoundSpec | None:
        spec = self.total.plan(state)
        if spec is None:
            return None
        event = self.total.randomizer.event(self.total.honest, self.query)
        return replace(spec, query=self.query, event=event)

    def update(self, state: Any, estimate: Any) -> Any:
        return self.total.update(state, estimate)

    def result(self, state: Any) -> Any:
        mean = np.asarray(self.total.result(state)) / self.n
        return self.risk.domain.project(mean)


def _radius(exact: float, n: int, whole: bool) -> float:
    """Promised: beside the ball it is bias alone, beside one record's shift it costs noise."""
    return THETA * exact / (n if whole else 1)


def _steps(
    n: int, d: int, privacy: Privacy, noise_ratio: float, honest_fraction: float, times: float
) -> dict[str, int]:
    """g and b of the fewest noise bits at a noise ratio, for a shift of g/times steps.

    Raises:
        ParameterError: a ratio that no number of bits reaches, or delta = 0.
    """
    if not privacy.delta:
        raise ParameterError("delta", 0.0, "above 0: binomial noise has a delta")
    central = gaussian.sigma(privacy.epsilon, privacy.delta)
    honest, nu = honest_users(honest_fraction, n), nus_near(privacy.delta, max(2, d))[0]
    # Rounding and noise have n (b + 1)/4 in all, honest noise n' b/4: b room >= 1 makes that the
    # central one.
    room = real("noise_ratio", noise_ratio, 0.0, 1e6) ** 2 * honest / n - 1

    def steps(b: int) -> int:
        # sqrt(n (b + 1))/2 steps are the noise, to be noise_ratio central times the shift of
        # g/times.
        return max(1, math.ceil(times * math.sqrt(n * (b + 1)) / (2 * noise_ratio * central)))

    def enough(b: int) -> bool:
        event = BinomialShiftEvent(honest, b, P, steps(b) / times, d)
        return event.delta_alone(privacy.epsilon, nu) <= privacy.delta

    # A little below b = 1/room, as binomial noise is no Gaussian; then doubled until it is enough.
    low = max(1, math.floor(0.98 / room)) if room > 1e-6 else _MOST_BITS
    high = low
    while high < _MOST_BITS and not enough(high):
        low, high = high, 2 * high
    if high >= _MOST_BITS:
        least = math.sqrt(n / honest)
        allowed = f"above {least:g}: the honest users' noise alone must protect"
        raise ParameterError("noise_ratio", noise_ratio, allowed)
    b = first(enough, low, high)
    return {"g": steps(b), "b": b}
