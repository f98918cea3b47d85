"""Canonical bytes of public values: what is broadcast, and what the parameter hash covers."""

import dataclasses
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Any
from typing import Protocol as Interface

import msgpack
import numpy as np

from shuffle_sim.errors import FrameError, ParameterError
from shuffle_sim.wire.schema import DTYPES, PLAIN, demand_fit


def encode(value: Any, vocabulary: Container[type] | None = None) -> bytes:
    """The same bytes for the same tree of plain values, tuples, arrays and frozen dataclasses.

    Args:
        value: arrays are of float64, int64 or uint64.
        vocabulary: the dataclasses that the reader knows; None: all are allowed.

    Raises:
        TypeError: for anything else, so that nothing is broadcast that a user's shard cannot read.
        ParameterError: a dataclass is not in the vocabulary.
    """
    try:
        packed: bytes = msgpack.packb(_lower(value, vocabulary))
    # It is a ValueError, too, but says what to do: add the class to the vocabulary.
    except ParameterError:
        raise
    except (OverflowError, UnicodeError, ValueError, RecursionError) as error:
        raise TypeError(f"cannot broadcast: {error}") from error
    return packed


class Agreed(Interface):
    """What a reader was told before it reads."""

    @property
    def values(self) -> int:
        """That a message may hold at most, heads of groups included."""

    def demand(self, tree: Any, classes: Mapping[str, type]) -> None:
        """Refuse a tree, whose types are those of the classes.

        Raises:
            FrameError: `not-agreed`.
        """


def decode(
    data: bytes, vocabulary: Iterable[type], expected: Any = Any, agreed: Agreed | None = None
) -> Any:
    """The value again; nothing is built before its size, its types and what was agreed are checked.

    Args:
        data: untrusted.
        vocabulary: the dataclasses that may be built.
        expected: the type of the value; `Any` holds only fields to their annotations.
        agreed: what may be read; None: anything of the type.

    Raises:
        FrameError: `malformed-broadcast` if the bytes are not exactly what `encode` gives, or not
            of the types; `not-agreed`.
        ParameterError: two classes of the vocabulary have one name.
    """
    classes = by_name(vocabulary)
    try:
        # Before msgpack builds anything: one byte of it may become 60 bytes of memory.
        if agreed is not None and count_values(data, agreed.values) > agreed.values:
            raise FrameError("not-agreed", f"more than {agreed.values:,} values")
        tree = plain(data)
        demand_fit(tree, expected, classes)
        if agreed is not None:
            agreed.demand(tree, classes)
        value = _raise(tree, classes)
        # msgpack has several forms of one number; the parameter hash is for one.
        if encode(value) != data:
            raise ValueError("not canonical")
    except FrameError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        AttributeError,
        RecursionError,
        msgpack.UnpackException,
    ) as error:
        raise FrameError("malformed-broadcast", str(error)) from error
    return value


def plain(data: bytes) -> Any:
    """The tree that the bytes hold: plain values, and tuples that begin with their kind.

    Raises:
        ValueError: they are none.
    """
    return msgpack.unpackb(data, use_list=False)


def count_values(data: bytes, most: int) -> int:
    """Values and heads of groups in the bytes; above `most` where there are more.

    A head is a byte, and a group in memory is much more. So this is asked before they are unpacked.
    """
    at = found = 0
    while at < len(data) and found <= most:
        head, width, unit = _HEADS[data[at]]
        if not head:
            return most + 1
        at += head + unit * int.from_bytes(data[at + head - width : at + head], "big")
        found += 1
    return found


def _heads() -> list[tuple[int, int, int]]:
    """By first byte: length of the head (0: none), of it a size's, and whether that is in bytes."""
    heads = [(1, 0, 0)] * 256
    # Maps and extensions, which `encode` never writes: read as if they were numbers, their sizes
    # would hide what follows.
    for code in (*range(0x80, 0x90), 0xC1, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9), 0xDE, 0xDF):
        heads[code] = 0, 0, 0
    for short in range(32):
        heads[0xA0 + short] = 1 + short, 0, 0  # short strings
    for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4), (0xD9, 1), (0xDA, 2), (0xDB, 4)):
        heads[code] = 1 + width, width, 1  # bytes and strings
    for code, width in ((0xDC, 2), (0xDD, 4)):
        heads[code] = 1 + width, width, 0  # long arrays: what is in them counts
    for code, size in enumerate((4, 8, 1, 2, 4, 8, 1, 2, 4, 8), start=0xCA):
        heads[code] = 1 + size, 0, 0  # numbers
    return heads


_HEADS = _heads()


def by_name(vocabulary: Iterable[type]) -> dict[str, type]:
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
        # A numpy scalar is the Python one: one value has one hash.
        value = value.item()
    if type(value) in PLAIN:
        return value
    if type(value) is tuple:
        return ["t", *(_lower(item, vocabulary) for item in value)]
    if type(value) is np.ndarray and value.dtype.newbyteorder("<").str in DTYPES:
        # Whatever the machine: the parameter hash covers these bytes.
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


@lru_cache(maxsize=1024)
def _init_fields(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass that make it."""
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


def _raise(tree: Any, classes: Mapping[str, type]) -> Any:
    """The value of a tree whose types fit."""
    if type(tree) is not tuple:
        return tree
    kind, *rest = tree
    if kind == "t":
        return tuple(_raise(item, classes) for item in rest)
    if kind == "a":
        dtype, shape, data = rest
        # Over bytes, so nobody can write to what was broadcast.
        return np.frombuffer(data, dtype).reshape(shape)
    made = classes[rest[0]]
    raised = (_raise(item, classes) for item in rest[1:])
    return made(**dict(zip(_init_fields(made), raised, strict=True)))
