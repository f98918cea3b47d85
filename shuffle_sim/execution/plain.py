"""Values as JSON can hold them; what the simulator alone knows stands apart."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
SIMULATOR_VIEW = {"simulator_view": True}
"""Metadata of fields that the simulator alone knows, from users' data without noise.

No epsilon covers them. Commands print them apart.
"""
(_MARK,) = SIMULATOR_VIEW


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
        fields = dataclasses.fields(value)
        shown = [each.name for each in fields if each.repr and _MARK not in each.metadata]
        return {name: plain(getattr(value, name)) for name in shown}
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
