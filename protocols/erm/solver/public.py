"""What is refused of solvers and radii by public constants and public rows, before any data."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from protocols.erm.objective import Objective, as_point
from protocols.erm.risk import Risk
from protocols.erm.solver.minimise import demand_radius, solver_of
from protocols.erm.solver.second_order import newton
from protocols.problems.public_rows import public_rows
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError
from shuffle_sim.wire.fingerprint import fingerprint

_FAR = 1e6  # a radius that any certificate reaches


def _short(part: float, objective: Objective) -> Floats:
    """Before the minimiser, by a part of the way from the start."""
    rng = np.random.default_rng(0)
    found = newton(objective, objective.least_radius, objective.start, rng)
    return np.asarray(found + part * (objective.start - found))


_others: dict[str, Callable[[Objective], Any]] = {
    f"short by {part:g}": partial(_short, part) for part in (1.0, 1e-3, 1e-2, 1e-4, 1e-1)
}
CARELESS = tuple(_others)
"""Solvers that stop short, the first one at the start: the polisher has the rest of the work."""


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
    rows = public_rows(risk.loss, risk.d, risk.check)
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


def least_radius(risk: Risk, n: int) -> float:
    """The least radius that can be promised of n rows: by public constants alone."""
    columns = risk.loss.columns(risk.d)
    rows = np.zeros((1, columns))
    if getattr(risk.loss, "classification", False):
        rows[:, -1] = 1.0
    objective = risk.objective(rows)
    objective.n = n
    return objective.least_radius


def check_radius(risk: Risk, n: int, radius: float) -> float:
    """`radius`, if rounding errors are small beside it: by public constants alone.

    Raises:
        ParameterError: naming the least radius.
    """
    demand_radius(radius, least_radius(risk, n))
    return radius
