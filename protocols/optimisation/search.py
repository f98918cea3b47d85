"""The search of every planner: the least proven bound over grids of parameters."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from shuffle_sim.errors import ParameterError


def least(
    bound: Callable[..., float | None],
    *grids: Iterable[Any],
    otherwise: ParameterError | None = None,
) -> tuple[float, tuple[Any, ...]]:
    """(the least value of `bound`, where it is); of equals the first.

    Args:
        bound: of one value of each grid; None where there is no plan.
        grids: values of each parameter.
        otherwise: raised where there is no plan at all.
    """
    best: tuple[float, tuple[Any, ...]] | None = None
    for point in product(*grids):
        value = bound(*point)
        if value is not None and (best is None or value < best[0]):
            best = value, point
    if best is None:
        raise otherwise or ParameterError("grids", grids, "such that one point has a bound")
    return best
