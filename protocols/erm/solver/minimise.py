"""A certified minimiser: any solver, then a polisher that reaches the promised radius."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from protocols.erm.objective import Kinked, Objective, as_point, demand_convex
from protocols.erm.one_vs_rest import Stacked
from protocols.erm.solver import first_order, second_order, stochastic
from protocols.erm.solver.certificate import Certificate, certify
from protocols.erm.solver.outside import fitted
from protocols.problems.domains import Domain
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, ShuffleSimError, positive

ObjectiveT = TypeVar("ObjectiveT", bound=Objective)
Solver = Callable[[Objective, float, Floats, np.random.Generator], Floats]
SOLVERS: dict[str, Solver] = {
    "adaptive-subgradient": first_order.adaptive_subgradient,
    "agd": first_order.accelerated,
    "extragradient": first_order.extragradient,
    "gd": first_order.descent,
    "katyusha": stochastic.katyusha,
    "lbfgs": second_order.lbfgs,
    "newton": second_order.newton,
    "sdca": stochastic.sdca,
    "stochastic-subgradient": stochastic.stochastic_subgradient,
    "subgradient": first_order.subgradient,
    "svrg": stochastic.svrg,
}
"""By name; any other solver is a callable `solver(objective) -> w`."""
THETA = 0.005
"""The promised radius in units of the exact minimisers' sensitivity: 1 % more noise."""
ROUNDING = 0.1
"""Share of a promised radius that rounding errors may take."""


class UncertifiedError(ShuffleSimError, RuntimeError):
    """The polisher did not reach the radius within its proven steps: a stated constant is wrong.

    Nothing is released then. That it happens may depend on the data.
    """


@dataclass(frozen=True, eq=False)
class Minimiser:
    """A point within `radius` of the minimiser.

    Attributes:
        point: (d,), in the domain.
        radius: as promised, whatever the data: noise is for this one.
        certificate: what was computed; it depends on the data, and no release may.
        passes: gradients over all rows that were taken, certificates included.
        polished: whether the solver alone did not reach the radius.
    """

    point: Floats
    radius: float
    certificate: Certificate
    passes: float
    polished: bool


def minimise(
    objective: Objective,
    radius: float,
    solver: str | Callable[[Objective], Any] | Any = "newton",
    seed: int = 0,
) -> Minimiser:
    """The minimiser to `radius`, certified.

    What the solver returns, raises or warns of does not matter: a polisher goes on from there, or
    from the start. Formal guarantee: the point is at most `radius` from the minimiser, for any
    data, rounding errors included.

    Args:
        objective: strongly convex over R^d or a domain.
        radius: promised, fixed without looking at the data.
        solver: one of SOLVERS, a callable `solver(objective) -> w`, or a linear model of
            scikit-learn.
        seed: of stochastic solvers.

    Raises:
        ParameterError: what cannot be certified, by the objective's constants alone: no strong
            convexity, a radius below the rounding errors, a domain without exact projections, a
            solver that does not take the objective.
        UncertifiedError: a stated constant of the objective is wrong.
    """
    demand_convex(objective)
    demand_exact(objective.domain)
    demand_radius(radius, objective.least_radius)
    tally = OracleCalls()
    watched, solve = counted(objective, tally), solver_of(solver)
    start = objective.domain.project(objective.start)
    # A twin of its own, with arrays that are read-only: what is certified is not the solver's.
    w = _tried(solve, counted(objective, tally), radius, start, seed)
    found = certify(watched, w)
    polished = bool(found.radius > radius)
    if polished:
        found = _polished(watched, radius, found.point, start)
    return Minimiser(found.point, radius, found, tally.passes, polished)


def solver_of(solver: Any) -> Solver:
    """The solver of a name, a callable or an estimator.

    Raises:
        ParameterError: it is none.
    """
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise ParameterError("solver", solver, f"one of {', '.join(SOLVERS)}, or a callable")
        return SOLVERS[solver]
    if hasattr(solver, "get_params") and hasattr(solver, "fit"):
        solver = fitted(solver)
    if not callable(solver):
        raise ParameterError("solver", solver, f"one of {', '.join(SOLVERS)}, or a callable")
    return lambda objective, radius, w, rng: solver(objective)


def demand_radius(radius: float, least: float) -> None:
    """Refuse a radius of which rounding errors may take more than a tenth.

    Raises:
        ParameterError: naming the least radius.
    """
    if not positive("radius", radius) * ROUNDING >= least:
        allowed = f"at least {least / ROUNDING:.3g}: rounding errors may take {least:.3g} of it"
        raise ParameterError("radius", radius, allowed)


def demand_exact(domain: Domain) -> None:
    """Refuse a domain without exact projections.

    Raises:
        ParameterError: naming those that have them.
    """
    if domain.slack(1.0):
        allowed = "one of exact projections: RealSpace, L2Ball, Box or Simplex"
        raise ParameterError("domain", type(domain).__name__, allowed)


def _tried(solve: Solver, objective: Objective, radius: float, start: Floats, seed: int) -> Floats:
    """What the solver found, in the domain; the start where it found nothing."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # that a solver warns depends on the data
            found = solve(objective, radius, start, np.random.default_rng(seed))
    except ParameterError:
        raise  # by the objective's kind, not by the data
    except Exception:  # that a solver fails depends on the data, and is no way out
        found = start
    point = as_point(found, objective.d)
    return start if point is None else objective.domain.project(point)


def _polished(objective: Objective, radius: float, w: Floats, start: Floats) -> Certificate:
    """Newton's method where it is fast, then accelerated descent for its proven steps."""
    rng = np.random.default_rng(0)
    candidates = [w]
    for begin in (w, start):
        with np.errstate(all="ignore"):
            after = second_order.newton(objective, radius, begin, rng)
        if np.isfinite(after).all():
            found = certify(objective, after)
            if found.radius <= radius:
                return found
            candidates.append(found.point)
    found = min((certify(objective, each) for each in candidates), key=lambda each: each.radius)
    width, smooth = None, objective
    if isinstance(objective, Kinked):
        width = first_order.width_for(objective, radius)
        smooth = objective.smoothed(width)
    # The smoothed problem's minimiser is less than radius/4 from the other (`width_for`).
    apart, steps = found.radius + radius, 0.0
    if not math.isfinite(apart):
        raise UncertifiedError("the certificate is not finite: a stated constant is wrong")
    most = first_order.steps_to(smooth, radius, apart)
    while found.radius > radius:
        if steps > most:
            raise UncertifiedError(
                f"radius {radius:g} was not reached in {most:.3g} steps of accelerated descent: "
                "the smoothness or the strong convexity is not as stated"
            )
        part = min(most, 20_000)
        after = first_order.accelerated(smooth, radius, found.point, rng, part)
        steps += part / 2  # restarts may cost as much again
        found = min((found, certify(objective, after, width)), key=lambda each: each.radius)
    return found


@dataclass
class OracleCalls:
    """What was asked of an objective.

    Attributes:
        passes: gradients over all rows, or certificates; a row's gradient counts 1/n.
        hessians: second derivatives over all rows.
    """

    passes: float = 0.0
    hessians: float = 0.0


def counted(objective: ObjectiveT, tally: OracleCalls, share: float = 1.0) -> ObjectiveT:
    """The same objective; what is asked of it is added to the tally. Values are free.

    Its public arrays are read-only.
    `share` is its part of the objective that is minimised.
    """
    twin = copy.copy(objective)
    for name, value in vars(objective).items():
        if isinstance(value, np.ndarray) and not name.startswith("_"):
            # A view: the caller's own array stays writeable.
            setattr(twin, name, value.view())
            getattr(twin, name).flags.writeable = False

    def watch(name: str, by: Any) -> None:
        setattr(twin, name, by)  # on the twin alone: classes are shared

    def count(name: str, cost: Callable[..., float], field: str = "passes") -> None:
        inner = getattr(objective, name, None)
        if inner is None:
            return

        def asked(*args: Any, **kwargs: Any) -> Any:
            setattr(tally, field, getattr(tally, field) + share * cost(*args, **kwargs))
            return inner(*args, **kwargs)

        watch(name, asked)

    for name in ("gradient", "value_and_gradient", "slopes"):
        count(name, lambda *args, **kwargs: 1.0)
    count("witness", lambda w, width: 3.0)  # a dual point, and two that are refined
    count("row_gradients", lambda w, rows: len(rows) / objective.n)
    count("hessian", lambda w, stride=1: 1 / stride, "hessians")
    if isinstance(objective, Kinked):
        smoothed = objective.smoothed
        watch("smoothed", lambda width: counted(smoothed(width), tally, share))
    if isinstance(objective, Stacked):
        each = share / len(objective.parts)
        watch("parts", [counted(part, tally, each) for part in objective.parts])
    return twin
