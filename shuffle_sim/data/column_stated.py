"""Columns as JSON and TOML state them."""

from collections.abc import Callable
from typing import Any

from shuffle_sim.data.column_kinds import KINDS, FreeNumber, moment_of
from shuffle_sim.data.columns import LARGEST, Column
from shuffle_sim.errors import ParameterError


def column_from(name: str, given: dict[str, Any], *, free: bool = False) -> Column:
    """A column as JSON or TOML hold it.

    Args:
        name: of the column.
        given: its type, and what that has.
        free: whether a number without bounds is taken; they are then to be chosen privately.

    Raises:
        ParameterError: naming the column and what is wrong or missing.
    """
    known, where = dict(given), f"column {name} of the schema"
    if not isinstance(name, str):
        raise ParameterError("name of a column", name, "a text")
    kind, unit = known.pop("type", None), known.pop("unit", "")
    if kind not in tuple(KINDS):
        raise ParameterError(where, kind, f"of a type: {', '.join(KINDS)}")
    if not isinstance(unit, str):
        raise ParameterError(where, unit, "with a text as its unit")
    if free and kind == FreeNumber.kind and not known:
        return FreeNumber(name=name, unit=unit)
    stated = _STATED[kind](known, where)
    if known:
        raise ParameterError(where, sorted(known), f"without these: a {kind} does not have them")
    return KINDS[kind](name=name, unit=unit, **stated)


def _ends(known: dict[str, Any], where: str) -> list[Any]:
    limits = known.pop("bounds", None)
    if not isinstance(limits, list) or len(limits) != 2:
        allowed = "given bounds = [low, high]: public limits, not computed from the data"
        raise ParameterError(where, limits, allowed)
    return limits


def _of_number(known: dict[str, Any], where: str) -> dict[str, Any]:
    ends = _ends(known, where)
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise ParameterError(where, [str(end) for end in ends], "given numbers as bounds")
    if max(map(abs, ends)) > LARGEST:  # a whole number may be too large for a double
        allowed = f"given bounds within +-{LARGEST:g}"
        raise ParameterError(where, [f"{end!s:.20}" for end in ends], allowed)
    return {"limits": (float(ends[0]), float(ends[1]))}


def _of_date(known: dict[str, Any], where: str) -> dict[str, Any]:
    ends, form = _ends(known, where), known.pop("format", None)
    if not isinstance(form, str | None):
        raise ParameterError(where, form, "with a text as its format")
    try:
        first, last = (moment_of(end, None) for end in ends)
    except ValueError as error:
        allowed = "given dates as bounds, such as [1900-01-01, 2030-01-01]"
        raise ParameterError(where, [str(end) for end in ends], allowed) from error
    return {"first": first, "last": last, "format": form}


def _of_category(known: dict[str, Any], where: str) -> dict[str, Any]:
    listed, other = known.pop("categories", None), known.pop("other", True)
    if not isinstance(listed, list) or not all(isinstance(each, str | int) for each in listed):
        allowed = "given categories = [...]: a public list of texts, not read from the data"
        raise ParameterError(where, listed, allowed)
    if not isinstance(other, bool):
        raise ParameterError(where, other, "with other = true or false")
    return {"categories": tuple(map(str, listed)), "other": other}


_STATED: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "number": _of_number,
    "date": _of_date,
    "boolean": lambda known, where: {},
    "category": _of_category,
}
