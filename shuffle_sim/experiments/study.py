"""A study as a file: a task, a grid, repetitions. Errors name the file, the line and the key."""

import difflib
import inspect
import math
import re
import runpy
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shuffle_sim.data.files import read_whole
from shuffle_sim.errors import ParameterError
from shuffle_sim.experiments.points import MAX_POINTS, points_of
from shuffle_sim.experiments.sweep import Study
from shuffle_sim.experiments.trial import Make
from shuffle_sim.registry import names, registered

LARGEST_STUDY = 1 << 20
"""Bytes of a study's file."""
_UNKNOWN = re.compile(r"unknown field `(.+?)`")
_AT = re.compile(r" - at `\$?\.?(.*?)`")


class ParameterRange(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Numbers at equal steps (`range`) or at equal ratios (`log`): first, last, how many."""

    range: tuple[float, float, int] | None = None
    log: tuple[float, float, int] | None = None

    def values(self) -> list[float]:
        """The numbers; those that are whole as integers, so that `n` may be one of them.

        Raises:
            ValueError: none or both are given, fewer than two numbers, or a ratio of zero.
        """
        given = [each for each in (self.range, self.log) if each is not None]
        if len(given) != 1:
            raise ValueError("give one of range and log")
        ((first, last, many),) = given
        if not 2 <= many <= MAX_POINTS or not math.isfinite(first + last):
            raise ValueError("give first, last and how many, two at least")
        if self.log is not None and not (first > 0 and last > 0):
            raise ValueError("numbers at equal ratios are above zero")
        # From 0 to 1 exactly: the ends are those that were written.
        steps = [step / (many - 1) for step in range(many)]
        if self.log is None:
            found = [first + (last - first) * step for step in steps]
        else:
            found = [first * (last / first) ** step for step in steps]
        close = [
            # Ratios leave 999.9999999999998 for 1000; all must be so near, or none is rounded.
            round(each) if math.isclose(each, round(each), rel_tol=1e-12) else each
            for each in found
        ]
        return (
            close if all(type(each) is int for each in close) else [float(each) for each in found]
        )


Scalar = bool | int | float | str


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in the file."""

    task: str
    grid: dict[str, Any] | list[dict[str, Any]]
    name: str = ""
    seeds: int = 1
    unseeded: bool = False


def read(path: Path) -> Study:
    """The study of a .toml file.

    `task` is a registered one ("sum", "train") or `file.py:function` beside the study. `grid` holds
    its parameters: a value, a list, `{range = [first, last, count]}` or `{log = [...]}`; several
    `[[grid]]` tables are run one after the other.

    Raises:
        ParameterError: naming file, line and key.
    """
    text = read_whole(path, "study", LARGEST_STUDY).decode("utf-8", "replace")
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError("study", str(path), f"TOML ({error})") from error
    except msgspec.ValidationError as error:
        raise _refused(path, text, *_explained(str(error))) from error
    make = _task(path, text, found.task)
    grids = found.grid if isinstance(found.grid, list) else [found.grid]
    axes = [{key: _values(path, text, key, each) for key, each in grid.items()} for grid in grids]
    for grid in axes:
        _check_parameters(path, text, make, grid)
    try:
        points = points_of(axes, None if found.unseeded else found.seeds)
    except ParameterError as error:
        key = error.parameter.removeprefix("grid: ")
        raise _refused(path, text, key, error.allowed) from error
    return Study(make, points, found.name or path.stem)


def _explained(message: str) -> tuple[str, str]:
    """Key and reason of what the validator says."""
    at = _AT.search(message)
    where = at.group(1) if at else ""
    reason = _AT.sub("", message)
    if unknown := _UNKNOWN.search(message):
        key = unknown.group(1)
        return key, f"a known key{_nearest(key, _File.__struct_fields__)}"
    if missing := re.search(r"missing required field `(.+?)`", message):
        return missing.group(1), "given"
    return where.partition(".")[0], reason.removeprefix("Expected ").replace(", got", ", not")


def _nearest(key: str, known: Any) -> str:
    found = difflib.get_close_matches(key, list(known), 1, 0.5)
    return f"; did you mean {found[0]}?" if found else f"; one of {', '.join(known)}"


def _refused(path: Path, text: str, key: str, reason: str) -> ParameterError:
    """An error of a key, with the line on which it stands."""
    mark = re.compile(rf"^\s*(\[*\s*)?[\"']?{re.escape(key)}[\"']?\s*[\]=.]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if mark.match(line)]
    where = f"{path}, line {lines[0]}" if lines else str(path)
    return ParameterError("study", f"{where}: {key}", reason)


def _values(path: Path, text: str, key: str, value: Any) -> list[Any]:
    """The values of a parameter: of a list, of a range, or the one."""
    if isinstance(value, Mapping):
        try:
            return list(msgspec.convert(value, ParameterRange).values())
        except (msgspec.ValidationError, ValueError) as error:
            allowed = f"a value, a list, {{range = ...}} or {{log = ...}} ({error})"
            raise _refused(path, text, key, allowed) from error
    return value if isinstance(value, list) else [value]


def _task(path: Path, text: str, task: str) -> Make:
    """The function of a task: a registered one, or one in a file beside the study."""
    file, colon, function = task.partition(":")
    if not colon:
        if task not in names("task"):
            known = names("task")
            reason = f"a task{_nearest(task, known)}, or file.py:function"
            raise _refused(path, text, "task", reason)
        make: Make = registered("task", task)
        return make
    beside = path.parent / file
    if not beside.is_file():
        raise _refused(path, text, "task", f"a file beside the study; {beside} is none")
    try:
        # Run by its stem, not as __main__: a script's own part stays out.
        given: Any = runpy.run_path(str(beside), run_name=beside.stem).get(function)
    except Exception as error:
        reason = f"a file that can be run ({type(error).__name__}: {error})"
        raise _refused(path, text, "task", reason) from error
    if not callable(given):
        raise _refused(path, text, "task", f"a function of {beside}; {function} is none")
    made: Make = given
    return made


def _check_parameters(path: Path, text: str, make: Make, grid: Mapping[str, Any]) -> None:
    """Refuse what the task does not take, and miss what it needs, before anything is run."""
    known = {
        name: each for name, each in inspect.signature(make).parameters.items() if name != "seed"
    }
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    for key in grid:
        if key not in known:
            raise _refused(path, text, key, f"a parameter of the task{_nearest(key, known)}")
    for name, each in known.items():
        if each.default is each.empty and name not in grid:
            raise _refused(path, text, "grid", f"with {name}, which the task needs")
