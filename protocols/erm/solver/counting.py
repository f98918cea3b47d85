"""Gradient evaluations, counted: what solvers are compared by."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from protocols.erm.objective import Kinked, Objective
from protocols.erm.one_vs_rest import Stacked

ObjectiveT = TypeVar("ObjectiveT", bound=Objective)


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
