"""The points of a study: parameters, repetition, and the seed that follows from both."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shuffle_sim.errors import ParameterError

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]
MAX_POINTS = 1_000_000
"""Of one study: more are a mistake in a range."""
_PLAIN = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Point:
    """One run of a study.

    Attributes:
        parameters: by name, as `make` takes them.
        repeat: which repetition with the same parameters, from 0.
        seed: of the run; None takes entropy from the operating system.
    """

    parameters: Mapping[str, Any]
    repeat: int
    seed: int | None

    @property
    def content(self) -> str:
        """The point as text, the same in any process; its seed follows from it."""
        return written({"parameters": self.parameters, "repeat": self.repeat})


def written(value: object) -> str:
    """A plain value as JSON: keys in order, no spaces, every float as Python repeats it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def points_of(grid: Grid, seeds: int | Iterable[int] | None) -> list[Point]:
    """All points, in the order of the grid; repetitions come last.

    A point's seed is drawn from what it is: the same point has the same seed in any study, at any
    place of the grid and on any worker.

    Args:
        grid: for each parameter a value or a list of values: all combinations. Several grids: all
            points of each.
        seeds: how many repetitions, or their numbers. None: one, without a seed.

    Raises:
        ParameterError: naming what is empty, is not plain, or too much.
    """
    grids = [_axes(each) for each in ([grid] if isinstance(grid, Mapping) else grid)]
    repeats = _repeats(seeds)
    many = sum(math.prod(map(len, axes.values())) for axes in grids) * len(repeats)
    if many > MAX_POINTS:
        raise ParameterError("grid", f"{many:,} points", f"one of at most {MAX_POINTS:,}")
    found: dict[str, Point] = {}
    for axes in grids:
        for values in itertools.product(*axes.values()):
            parameters = dict(zip(axes, values, strict=True))
            for repeat in repeats:
                point = Point(parameters, repeat, None)
                digest = hashlib.sha256(point.content.encode()).digest()
                # 56 bits: SQLite and tables hold signed integers of 64.
                seed = None if seeds is None else int.from_bytes(digest[:7], "big")
                # By content: a point of two grids is run once.
                found[point.content] = Point(parameters, repeat, seed)
    if not found:
        raise ParameterError("grid", grid, "one with a point at least")
    return list(found.values())


def _repeats(seeds: int | Iterable[int] | None) -> list[int]:
    if seeds is None:
        return [0]
    many = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not many or isinstance(seeds, bool) or any(type(each) is not int for each in many):
        raise ParameterError("seeds", seeds, "a number of repetitions, a list of numbers, or None")
    return many


def _axes(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each parameter."""
    if not isinstance(grid, Mapping):
        raise ParameterError("grid", grid, "a mapping from parameters to values, or a list of such")
    axes = {}
    for name, values in grid.items():
        if not isinstance(name, str):
            raise ParameterError("grid", name, "parameters with a text as their name")
        axis = [_plain(name, each) for each in _axis(values)]
        if not axis:
            raise ParameterError(f"grid: {name}", values, "one value at least")
        axes[name] = axis
    return axes


def _axis(values: Any) -> list[Any]:
    """The values of a parameter: of a list or array each, else it is the one."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        return [values]
    return list(values)


def _plain(name: str, value: Any) -> Any:
    """The value as JSON gives it back; a number of numpy becomes one of Python.

    Raises:
        ParameterError: it is nothing that a file could hold.
    """
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(name, each) for key, each in value.items()}
    # value - value is 0 unless it is infinite or no number: JSON has no word for those.
    if not isinstance(value, _PLAIN) or (isinstance(value, float) and value - value != 0):
        allowed = "a finite number, a text, true or false, None, or a list or mapping of such"
        raise ParameterError(f"grid: {name}", value, allowed)
    return value
