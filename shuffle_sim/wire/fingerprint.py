"""What a value is, in 32 bytes: type and state, whatever its place in memory, so that two runs can
be told apart.
"""

import dis
import hashlib
import linecache
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes)
_TAKE_CONSTANT = set(dis.hasconst)


def fingerprint(value: Any, within: tuple[int, ...] = ()) -> bytes:
    """SHA-256 over the value and all that it is made of; equal for equal values in any process.

    Arrays count with every element, objects by what pickle would keep of them, files by name, size
    and time of change, functions by name, code and what they close over, classes by name.

    Args:
        value: anything that pickle takes.
        within: identities of what it was found in; a value found in itself counts by where.

    Raises:
        TypeError: for a value that cannot be taken apart, as pickle could not.
    """
    # 1, 1.0 and True are equal, but not one value.
    found = hashlib.sha256(type(value).__qualname__.encode() + b"\0")
    below = (*within, id(value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        # Bytes alone tell neither a row from a column nor floats from integers.
        found.update(f"{value.dtype.descr}{value.shape}".encode())
        found.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif type(value) in PLAIN:
        # `repr` of a float gives it back to the last bit; texts may hold lone surrogates.
        found.update(repr(value).encode("utf-8", "surrogatepass"))
    elif id(value) in within:
        found.update(f"found in itself at {within.index(id(value))}".encode())
    elif isinstance(value, dict | set | frozenset):
        # Equal sets and dictionaries may list their items in other orders: digests are sorted.
        items = value.items() if isinstance(value, dict) else value
        found.update(b"".join(sorted(fingerprint(item, below) for item in items)))
    else:
        # All digests have one length: where a part ends is never in doubt.
        for part in parts_of(value):
            found.update(fingerprint(part, below))
    return found.digest()


def parts_of(value: Any) -> list[Any]:
    """What a value is made of: for an object what pickle would keep of it.

    Raises:
        TypeError: it cannot be taken apart.
    """
    for kinds, parts in _TAKEN_APART:
        if isinstance(value, kinds):
            return parts(value)
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return [reduced]
    make, arguments, state, *items = (*reduced, None, None, None)[:5]
    # What is only remembered of earlier questions is no part of the value.
    if isinstance(state, dict):
        cached = {
            name
            for kind in type(value).__mro__
            for name, held in vars(kind).items()
            if isinstance(held, cached_property)
        }
        state = {name: held for name, held in state.items() if name not in cached}
    return [
        getattr(make, "__qualname__", ""),
        arguments,
        state,
        *(list(each or ()) for each in items),
    ]


def _of_function(function: FunctionType) -> list[Any]:
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    return [
        function.__module__,
        function.__qualname__,
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        closed,
    ]


def canonical(code: CodeType) -> CodeType:
    """The code as Python has it without `-O`: where that runs, compiled again from its source.

    Code without a source, or whose source is another by now, is taken as it is.
    """
    if not sys.flags.optimize:
        return code
    place = code.co_qualname, code.co_firstlineno
    loaded = _compiled(code.co_filename, sys.flags.optimize).get(place)
    if loaded is None or (loaded.co_code, loaded.co_consts) != (code.co_code, code.co_consts):
        return code
    return _compiled(code.co_filename, 0)[place]


@cache
def _compiled(file: str, optimize: int) -> dict[tuple[str, int], CodeType]:
    """All code of a file by name and line; none where it has no source."""
    try:
        source = "".join(linecache.getlines(file))
        module = compile(source, file, "exec", dont_inherit=True, optimize=optimize)
    except (SyntaxError, ValueError):
        return {}
    return {(each.co_qualname, each.co_firstlineno): each for each in _with_inner(module)}


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _with_inner(each)


def _of_code(code: CodeType) -> list[Any]:
    code = canonical(code)
    # Steps are two bytes: what is done, and the place of its constant.
    constants, steps = list(code.co_consts), zip(code.co_code[::2], code.co_code[1::2], strict=True)
    # The docstring is the first constant; nothing takes it.
    if constants and not any(step in _TAKE_CONSTANT and at == 0 for step, at in steps):
        constants[0] = None
    return [
        # Neither file nor lines: code that was moved is the same code.
        code.co_code,
        code.co_names,
        constants,
        code.co_exceptiontable,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
    ]


def _of_path(path: Path) -> list[Any]:
    status = path.stat() if path.exists() else None
    return [str(path.resolve()), status and status.st_size, status and status.st_mtime_ns]


_TAKEN_APART: tuple[tuple[type | tuple[type, ...], Callable[[Any], list[Any]]], ...] = (
    ((tuple, list), list),
    (type, lambda kind: [kind.__module__, kind.__qualname__]),
    (FunctionType, _of_function),
    (CodeType, _of_code),
    (Path, _of_path),
)
