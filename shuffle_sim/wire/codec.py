"""Canonical bytes of public values: what is broadcast, and what the parameter hash covers."""

import dataclasses
from collections.abc import Container
from typing import Any

import msgpack
import numpy as np

from shuffle_sim.errors import FrameError, ParameterError

_PLAIN = (type(None), bool, int, float, str, bytes)
_DTYPES = ("<f8", "<i8")


def encode(value: Any, vocabulary: Container[type] | None = None) -> bytes:
    """The same bytes for the same tree of plain values, tuples, arrays and frozen dataclasses.

    Args:
        value: arrays are of float64 or int64.
        vocabulary: the dataclasses that the reader knows; None: all are allowed.

    Raises:
        TypeError: for anything else, so that nothing is broadcast that a user's shard cannot read.
        ParameterError: a dataclass is not in the vocabulary.
    """
    try:
        packed: bytes = msgpack.packb(_lower(value, vocabulary))
    except ParameterError:
        raise
    except (OverflowError, UnicodeError, ValueError, RecursionError) as error:
        raise TypeError(f"cannot broadcast: {error}") from error
    return packed


def decode(data: bytes, vocabulary: tuple[type, ...]) -> Any:
    """The value again; only dataclasses of the vocabulary are built.

    Raises:
        FrameError: `malformed-broadcast` if the bytes are not exactly what `encode` gives.
        ParameterError: two classes of the vocabulary have one name.
    """
    classes = by_name(vocabulary)
    try:
        value = _raise(msgpack.unpackb(data, use_list=False), classes)
        if encode(value) != data:
            raise ValueError("not canonical")
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        RecursionError,
        msgpack.UnpackException,
    ) as error:
        raise FrameError("malformed-broadcast", str(error)) from error
    return value


def by_name(vocabulary: tuple[type, ...]) -> dict[str, type]:
    """The classes by the names under which they travel.

    Raises:
        ParameterError: two of them have one name; the wrong one could be built.
    """
    classes: dict[str, type] = {}
    for kind in vocabulary:
        other = classes.setdefault(kind.__name__, kind)
        if other is not kind:
            raise ParameterError(
                "vocabulary", kind.__name__, f"the name of one class, not of {_full(other, kind)}"
            )
    return classes


def _lower(value: Any, vocabulary: Container[type] | None) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return ["t", *(_lower(item, vocabulary) for item in value)]
    if type(value) is np.ndarray and value.dtype.newbyteorder("<").str in _DTYPES:
        little = value.astype(value.dtype.newbyteorder("<"))
        return ["a", little.dtype.str, list(value.shape), little.tobytes()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        if vocabulary is not None and kind not in vocabulary:
            raise ParameterError("vocabulary", _full(kind), "known: the protocol broadcasts it")
        fields = [_lower(getattr(value, name), vocabulary) for name in _init_fields(kind)]
        return ["d", kind.__name__, *fields]
    raise TypeError(
        f"cannot broadcast a {type(value).__name__}: use numbers, strings, tuples, arrays, "
        "dataclasses of them"
    )


def _full(*kinds: type) -> str:
    return " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


def _init_fields(kind: Any) -> list[str]:
    """The fields of a dataclass that make it."""
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _raise(value: Any, classes: dict[str, type]) -> Any:
    if type(value) is not tuple:
        return value
    kind, *rest = value
    if kind == "t":
        return tuple(_raise(item, classes) for item in rest)
    if kind == "a":
        dtype, shape, data = rest
        if dtype not in _DTYPES:
            raise ValueError(f"dtype {dtype}")
        return np.frombuffer(data, dtype).reshape(shape)
    if kind == "d":
        name, *fields = rest
        if name not in classes:
            raise ValueError(f"{name} is not in the vocabulary")
        raised = (_raise(item, classes) for item in fields)
        return classes[name](**dict(zip(_init_fields(classes[name]), raised, strict=True)))
    raise ValueError(f"unknown kind {kind!r}")
