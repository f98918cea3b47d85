"""What algorithms share that release something of one certified minimiser."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from protocols.central.optimiser import CentralOptimiser
from protocols.optimisation.solver import demand_radius, minimise, solver_of
from protocols.problems.objective import Objective, as_point
from protocols.problems.risk import Risk
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.execution.fingerprint import fingerprint
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import State, check_rows
from shuffle_sim.protocol.release import Release, Sensitivity, WholeStatistic

CERTIFIED = "the polisher ends: a certificate is reached for any data"
_PROBE, _FAR = 40, 1e6  # public rows, and a radius that any certificate reaches

_others: dict[str, Callable[[Objective], Any]] = {}


@dataclass(frozen=True)
class Minimum(WholeStatistic):
    """The minimiser of a risk to a promised radius, certified.

    Attributes:
        risk: of the rows.
        radius: promised, whatever the rows.
        users: n.
        solver: its name.
        printed: a paper's D, which is taken where it is above the tight one.
    """

    risk: Risk
    radius: float
    users: int
    solver: str = "newton"
    printed: float = 0.0

    @property
    def sensitivity(self) -> Sensitivity:
        """D + 2 radius."""
        exact, proof = self.risk.sensitivity(self.users)
        total = min(max(exact, self.printed) + 2 * self.radius, self.risk.domain.diameter)
        return Sensitivity(total, "l2", f"{proof}; twice the certified radius more")

    def of(self, rows: Floats) -> Floats:
        """The point, shape (d,)."""
        objective = self.risk.objective(np.asarray(rows, float))
        return minimise(objective, self.radius, solver_by(self.solver)).point


def named(solver: Any, risk: Risk) -> str:
    """The name of a solver, tried on public rows first; one of one's own is kept by name.

    Raises:
        ParameterError: it is none, does not take the risk, returns no point, or does not move from
            the start. On private rows its failure would tell, and come after the charge.
    """
    solver_of(solver)
    if hasattr(solver, "get_params"):
        from sklearn.base import clone

        solver = clone(solver)  # what it was fitted to may be private, and the name is public
    rows = _public(risk)
    if rows is not None:
        _probe(solver, risk, risk.objective(rows))
    if isinstance(solver, str):
        return solver
    # By content, so that a resumed run in another process knows it again.
    name = f"{type(solver).__name__} {fingerprint(solver).hex()[:32]}"
    _others[name] = solver
    return name


def solver_by(name: str) -> Any:
    """The solver that `named` gave the name."""
    return _others.get(name, name)


def _public(risk: Risk) -> Floats | None:
    """Rows that the loss takes, made up; None where it is not known what it takes."""
    rng, columns = np.random.default_rng(0), risk.loss.columns(risk.d)
    rows = rng.normal(size=(_PROBE, columns))
    rows /= 2 * np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= min(1.0, getattr(risk.loss, "features", 1.0))
    side = np.where(rows[:, 0] > 0, 1.0, -1.0) * min(1.0, getattr(risk.loss, "label_bound", 1.0))
    for last in ([side], [np.maximum(side, 0.0)], [side, np.zeros(_PROBE)], []):
        made = np.column_stack([rows[:, : columns - len(last)], *last])
        try:
            risk.check(made)
        except ParameterError:
            continue
        return made
    return None


def _probe(solver: Any, risk: Risk, objective: Objective) -> None:
    """Refuse a solver that is broken, or does not take such an objective."""
    start = objective.domain.project(objective.start)
    if isinstance(solver, str) or not callable(solver):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solver_of(solver)(objective, _FAR, start, np.random.default_rng(0))
        return
    try:
        point = as_point(solver(objective), risk.d)
    except Exception as error:
        raise ParameterError("solver", solver, f"one that runs on public rows ({error})") from error
    if point is None:
        raise ParameterError("solver", solver, f"one that returns {risk.d} finite numbers")
    if np.array_equal(point, start) and np.linalg.norm(objective.gradient(start)) > 1e-9:
        raise ParameterError("solver", solver, "one that moves from the start")


def check_radius(risk: Risk, n: int, radius: float) -> float:
    """`radius`, if rounding errors are small beside it: by public constants alone.

    Raises:
        ParameterError: naming the least radius.
    """
    columns = risk.loss.columns(risk.d)
    rows = np.zeros((1, columns))
    if getattr(risk.loss, "classification", False):
        rows[:, -1] = 1.0
    objective = risk.objective(rows)
    objective.n = n
    demand_radius(radius, objective.least_radius)
    return radius


class OfRisk(CentralOptimiser[State], ABC, Generic[State]):
    """A central optimiser of n rows and a risk.

    Attributes:
        n: rows.
        risk: what is minimised.
        choices: what was chosen, and why.
    """

    n: int
    risk: Risk
    choices: dict[str, str]

    @property
    def users(self) -> int:
        """Rows n."""
        return self.n

    @property
    def ridge(self) -> float:
        """lambda that is used."""
        return self.risk.ridge

    @property
    def everyone(self) -> Cohort:
        """All rows."""
        return Cohort.of(0, self.n)

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows of the wrong shape, or for which the loss's constants do not hold."""
        check_rows(rows, (self.n, self.risk.loss.columns(self.risk.d)))
        self.risk.check(rows)


class OneRelease(OfRisk[Floats | None]):
    """A central optimiser of a single release."""

    rounds_per_user = 1
    rounds = 1

    @property
    @abstractmethod
    def release(self) -> Release:
        """The one release."""

    def finish(self, released: Floats) -> Floats:
        """The output, of what was released; post-processing."""
        return released

    def init(self) -> Floats | None:
        """Nothing released yet."""
        return None

    def plan(self, state: Floats | None) -> Release | None:
        """The one release."""
        return self.release if state is None else None

    def update(self, state: Floats | None, estimate: Any) -> Floats:
        """Keep the release."""
        return np.asarray(estimate, np.float64)

    def result(self, state: Floats | None) -> Floats:
        """The parameters, shape (d,)."""
        if state is None:
            raise ParameterError("state", state, "that of a finished release")
        return self.finish(state)


def demand_case(n: Any, privacy: Any) -> int:
    """n, if both can be.

    Raises:
        ParameterError: naming which is wrong.
    """
    if not isinstance(privacy, Privacy):
        raise ParameterError("privacy", privacy, "a Privacy(epsilon, delta)")
    return integer("n", n)


def refuse(kind: type, unknown: dict[str, Any]) -> None:
    """Refuse parameters that a kind of algorithm does not take.

    Raises:
        ParameterError: naming the first.
    """
    for name, value in unknown.items():
        raise ParameterError(name, value, f"left out: {kind.__name__} does not take it")


def shown(value: float) -> str:
    """A number in a list of choices."""
    return "infinite" if math.isinf(value) else f"{value:.4g}"
