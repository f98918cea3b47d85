"""What broadcast values are before anything is built: their types, and what of them may move.

Both work on the tree that the codec reads: plain values, and tuples that begin with their kind. The
types are those of the dataclasses' annotations.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import lru_cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from shuffle_sim.errors import ParameterError

PLAIN = (NoneType, bool, int, float, str, bytes)
DTYPES = ("<f8", "<i8", "<u8")
_AXIS_LENGTH = 1 << 48  # of an axis: numpy counts bytes in 63 bits


@lru_cache(maxsize=1024)
def field_types(kind: type) -> Mapping[str, Any]:
    """The annotations of the fields that make a dataclass, by name.

    Raises:
        ParameterError: one of them names what cannot be found.
    """
    made: Any = kind
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        allowed = f"a dataclass whose annotations can be read ({error})"
        raise ParameterError("vocabulary", kind.__qualname__, allowed) from error
    return {each.name: hints[each.name] for each in fields(made) if each.init}


def demand_types(vocabulary: Collection[type]) -> None:
    """Refuse classes with a field whose type no reader could check.

    Raises:
        ParameterError: naming class, field and annotation.
    """
    for kind in vocabulary:
        for name, hint in field_types(kind).items():
            if not _checkable(hint):
                allowed = (
                    "annotated with what can be checked: None, bool, int, float, str, bytes, "
                    "tuple[...], NDArray of float64, int64 or uint64, a class, or a union of them"
                )
                raise ParameterError("vocabulary", f"{kind.__qualname__}.{name}: {hint}", allowed)


def _checkable(hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return all(map(_checkable, parts))
    if origin is tuple:
        return all(_checkable(each) for each in parts if each is not Ellipsis)
    if origin is np.ndarray:
        return _dtype(hint) in DTYPES
    known = hint is not Any and isinstance(hint, type) and hint.__module__ != "builtins"
    return hint in PLAIN or known


def _dtype(hint: Any) -> str:
    """Of the arrays that an annotation speaks of."""
    found: str = np.dtype(*get_args(get_args(hint)[1])).newbyteorder("<").str
    return found


@lru_cache(maxsize=1024)
def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Origin and arguments of an annotation."""
    return get_origin(hint), get_args(hint)


def fits(value: Any, expected: Any, classes: Mapping[str, type]) -> bool:
    """Whether a tree has the type of an annotation; an integer passes for a float, no bool does.

    Args:
        value: the tree.
        expected: `Any` holds what is inside to the annotations there only.
        classes: that may be in it, by name.

    Raises:
        ValueError: it is no tree of these classes; for fields of another type, naming the first.
    """
    found = type(value)
    if found in PLAIN and (found is expected or expected is Any):  # most are
        return True
    origin, parts = _taken_apart(expected)
    if origin in (Union, UnionType):
        return any(fits(value, each, classes) for each in parts)
    if found is not tuple:
        return found is int and expected is float
    kind, *rest = value
    if kind == "t":
        several = len(parts) == 2 and parts[1] is Ellipsis
        inner = repeat(Any) if expected is Any else repeat(parts[0]) if several else parts
        whole = expected is Any or (origin is tuple and (several or len(parts) == len(rest)))
        return whole and all(fits(*each, classes) for each in zip(rest, inner, strict=False))
    if kind == "a":
        dtype, shape, data = rest
        sizes = all(type(size) is int and 0 <= size < _AXIS_LENGTH for size in shape)
        # Sizes first, and in Python's integers: a product that wraps would fit any data.
        if dtype not in DTYPES or not sizes or 8 * math.prod(shape) != len(data):
            raise ValueError(f"no array of {dtype} and shape {shape}")
        own = origin is np.ndarray and _dtype(expected) == dtype
        return type(data) is bytes and (own or expected in (Any, np.ndarray))
    if kind != "d":
        raise ValueError(f"unknown kind {kind!r}")
    made = _fitting(classes, *rest)
    return expected is Any or (isinstance(expected, type) and issubclass(made, expected))


def _fitting(classes: Mapping[str, type], name: str, *given: Any) -> type:
    """The class of that name, which is made of fields of these types."""
    if name not in classes:
        raise ValueError(f"{name} is not in the vocabulary")
    # Strict: with a field more or less it is no such class.
    for (field, hint), each in zip(field_types(classes[name]).items(), given, strict=True):
        if not fits(each, hint, classes):
            raise ValueError(f"{name}.{field} is not of type {hint}")
    return classes[name]


def demand_fit(tree: Any, expected: Any, classes: Mapping[str, type]) -> None:
    """Refuse a tree that is not of an annotation's type, as `fits` says.

    Raises:
        ValueError: naming the first field that is of another type.
    """
    if not fits(tree, expected, classes):
        raise ValueError(f"not of type {expected}")


def form(tree: Any, classes: Mapping[str, type], chosen: Collection[str] = ()) -> bytes:
    """Canonical bytes of a tree without what may move in it.

    A class names the fields that follow from earlier views, as `moves`: of those only types and
    shapes stay.

    Args:
        tree: of types that fit.
        classes: in it, by name.
        chosen: names of fields of which nothing stays.

    Raises:
        ValueError: something that moves is not a number.
    """
    packed: bytes = msgpack.packb(_fixed(tree, classes, chosen))
    return packed


def _fixed(tree: Any, classes: Mapping[str, type], chosen: Collection[str]) -> Any:
    if type(tree) is not tuple or tree[0] == "a":
        return tree
    if tree[0] == "t":
        return [_fixed(each, classes, chosen) for each in tree]
    kind = classes[tree[1]]
    moves = getattr(kind, "moves", ())
    return [
        *tree[:2],
        *(
            None
            if name in chosen
            else _outline(each)
            if name in moves
            else _fixed(each, classes, chosen)
            for name, each in zip(field_types(kind), tree[2:], strict=True)
        ),
    ]


def _outline(tree: Any) -> Any:
    """Types and shapes."""
    if type(tree) is not tuple:
        # What is text or nothing stays so; an integer passes for a float, so both are numbers.
        if type(tree) not in (int, float):
            return None if tree is None else type(tree).__name__
        # No comparison holds for it, so no limit would.
        if math.isnan(tree):
            raise ValueError("not a number, where a number moves")
        return "number"
    if tree[0] == "a":
        if tree[1] == "<f8" and np.isnan(np.frombuffer(tree[3], "<f8")).any():
            raise ValueError("not a number, where numbers move")
        return tree[:3]
    head = 1 if tree[0] == "t" else 2
    return [*tree[:head], *map(_outline, tree[head:])]
