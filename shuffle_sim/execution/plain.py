"""Values as JSON can hold them, and their schema; what the simulator alone knows stands apart."""

import dataclasses
import math
import types
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
SIMULATOR_VIEW = {"simulator_view": True}
"""Metadata of fields that the simulator alone knows, from users' data without noise.

No epsilon covers them. Commands print them apart.
"""
(_MARK,) = SIMULATOR_VIEW
_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # null for a number that is none
    str: {"type": "string"},
    type(None): {"type": "null"},
}


def simulator_view(value: object) -> dict[str, Json]:
    """What of `value` the simulator alone knows, in the places where `plain` leaves it out."""
    found = _view(value)
    return found if isinstance(found, dict) else {}


def _view(value: object) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        views = {
            each.name: plain(getattr(value, each.name))
            if _MARK in each.metadata
            else _view(getattr(value, each.name))
            for each in fields
            if each.repr
        }
        return {name: view for name, view in views.items() if view is not None} or None
    if isinstance(value, Mapping):
        found = {str(key): _view(item) for key, item in value.items()}
        return {name: view for name, view in found.items() if view is not None} or None
    if isinstance(value, list | tuple):
        each = [_view(item) for item in value]
        return each if any(view is not None for view in each) else None
    return None


def plain(value: object) -> Json:
    """`value` as JSON can hold it: objects, lists, and null for a number that is none.

    Fields that a dataclass leaves out of its `repr` are left out here, too, and what the simulator
    alone knows.

    Raises:
        TypeError: JSON cannot hold it.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in _shown(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"JSON cannot hold {value!r}")


def _shown(value: Any) -> list[str]:
    fields = dataclasses.fields(value)
    return [each.name for each in fields if each.repr and _MARK not in each.metadata]


def schema_of(title: str, kinds: Iterable[type], late: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of what `plain` makes of one of some dataclasses, with the simulator's view.

    Args:
        title: of the schema.
        kinds: the dataclasses.
        late: types that their annotations name, and their modules do not import.
    """
    every = [_of(kind, late) for kind in kinds]
    for each in every:
        each["properties"]["simulator_view"] = {"type": "object"}  # what epsilon does not cover
    found = every[0] if len(every) == 1 else {"anyOf": every}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **found}


def _of(kind: Any, late: Mapping[str, Any]) -> dict[str, Any]:
    """Of a type, by the rules of `plain`."""
    origin, arguments = get_origin(kind), get_args(kind)
    name = origin or kind
    single = name if isinstance(name, type) else object
    found: dict[str, Any] = dict(_PLAIN.get(kind, {}))
    if dataclasses.is_dataclass(single):
        hints, shown = get_type_hints(single, localns=dict(late)), _shown(single)
        properties = {name: _of(hints[name], late) for name in shown}
        found = {"type": "object", "properties": properties, "required": shown}
        found["additionalProperties"] = False
    elif origin in (Union, types.UnionType):
        found = {"anyOf": [_of(each, late) for each in arguments]}
    elif issubclass(single, Enum):
        found = {"type": "string", "enum": [each.value for each in single]}
    elif issubclass(single, Mapping):
        more = _of(arguments[1], late) if arguments else {}
        found = {"type": "object", "additionalProperties": more}
    elif issubclass(single, str):  # an open list of names, such as `Trust`
        found = dict(_PLAIN[str])
    elif issubclass(single, np.ndarray):  # one number is an array, too
        found = {"type": ["array", "number"], "items": {}}
    elif issubclass(single, Sequence):
        items = {each for each in arguments if each is not ...}
        found = {"type": "array", "items": _of(items.pop(), late) if len(items) == 1 else {}}
    return found
