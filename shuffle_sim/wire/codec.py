"""Canonical bytes of public values: what the analyzer broadcasts, and what the parameter hash is
taken of.
"""

import dataclasses
from typing import Any

import msgpack
import numpy as np

from shuffle_sim.errors import FrameError

_PLAIN = (type(None), bool, int, float, str, bytes)
_DTYPES = ("<f8", "<i8")


def encode(value: Any) -> bytes:
    """Bytes of a tree of plain values, tuples, float64/int64 arrays and frozen dataclasses of such;
    same tree, same bytes.

    Raises:
        TypeError: for anything else, so that nothing is broadcast that a user's shard could not
        read.
    """
    try:
        packed: bytes = msgpack.packb(_lower(value))
    except (OverflowError, UnicodeError, ValueError, RecursionError) as error:
        raise TypeError(f"cannot broadcast: {error}") from error
    return packed


def decode(data: bytes, vocabulary: tuple[type, ...]) -> Any:
    """The value again; only dataclasses of the vocabulary are built.

    Raises:
        FrameError: `malformed-broadcast` if the bytes are not exactly what `encode` gives.
    """
    try:
        value = _raise(
            msgpack.unpackb(data, use_list=False), {cls.__name__: cls for cls in vocabulary}
        )
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


def _lower(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return ["t", *(_lower(item) for item in value)]
    if type(value) is np.ndarray and value.dtype.newbyteorder("<").str in _DTYPES:
        little = value.astype(value.dtype.newbyteorder("<"))
        return ["a", little.dtype.str, list(value.shape), little.tobytes()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [_lower(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
        return ["d", type(value).__name__, *fields]
    raise TypeError(
        f"cannot broadcast a {type(value).__name__}: use numbers, strings, tuples, arrays, "
        "dataclasses of them"
    )


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
            raise ValueError(f"{name} is not a word of this protocol")
        return classes[name](*(_raise(item, classes) for item in fields))
    raise ValueError(f"unknown kind {kind!r}")
