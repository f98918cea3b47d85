"""The code of a run: of every class and function that its values name, by hash.

What is followed: the classes of the values with their bases and methods, and what these name as
globals, close over or have as defaults, again and again. Only our packages and those of the values
are entered; others count by their versions. Not seen is what is imported inside a function, looked
up by a string, or held by a list, a dictionary or an object that is not frozen.
"""

import dis
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache, cached_property, partial
from inspect import unwrap
from operator import is_
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from shuffle_sim.wire.fingerprint import PLAIN, canonical, fingerprint, parts_of

_OURS = {"shuffle_sim", "protocols"}
_VERSIONED = {*sys.stdlib_module_names, "numpy", "scipy", "numba"}  # a run knows their versions
_STORE_GLOBAL, _STORE_ATTR = dis.opmap["STORE_GLOBAL"], dis.opmap["STORE_ATTR"]


def code_of(values: Iterable[Any]) -> dict[str, str]:
    """Hashes of the code that the values name, by class or function of a module, in order.

    Bytecode and constants count. Comments, docstrings, paths, line numbers and `-O` do not. Another
    minor version of Python has other bytecode.

    Raises:
        TypeError: for a value that cannot be taken apart, as pickle could not.
    """
    roots = tuple(_held_by(values))
    walk = _walks.get(roots)
    if walk is None or not walk.holds():
        if len(_walks) >= _MOST_WALKS:
            _walks.clear()
        walk = _walks[roots] = _walked(roots)
    return dict(walk.found)


class _Walk(NamedTuple):
    """What was found, and all that it was read from.

    Attributes:
        found: hashes by name.
        read: classes and functions with what each was made of.
        constants: those that could change in place, with their hashes.
    """

    found: dict[str, str]
    read: list[tuple[Any, list[Any]]]
    constants: list[tuple[Any, str]]

    def holds(self) -> bool:
        """Whether everything is still made of the same objects, and these of the same values."""
        for thing, kept in self.read:
            now = _made_of(thing)
            if len(now) != len(kept) or not all(map(is_, now, kept)):
                return False
        return all(fingerprint(each).hex() == kept for each, kept in self.constants)


_MOST_WALKS = 64  # whoever makes classes all the time holds no more of them
_walks: dict[tuple[Any, ...], _Walk] = {}


def _made_of(thing: Any) -> list[Any]:
    """The objects that `_of_class` or `_of_function` reads."""
    if isinstance(thing, type):
        return [thing.__qualname__, thing.__mro__, *vars(thing), *vars(thing).values()]
    return [thing.__qualname__, thing.__module__, *(part for _, part in _of_function(thing))]


def _walked(roots: Iterable[Any]) -> _Walk:
    waiting = list(roots)
    packages = ({_package(each) for each in waiting} | _OURS) - _VERSIONED
    seen, found, constants = dict[int, Any](), defaultdict[str, set[str]](set), list[Any]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or _package(thing) not in packages:
            continue
        # Kept: an id may be given again once its object is gone.
        seen[id(thing)] = thing
        parts = _of_class(thing) if isinstance(thing, type) else _of_function(thing)
        text = [thing.__qualname__]
        for name, part in parts:
            if type(part) in PLAIN:
                text.append(f"{name} {part!r}")
                continue
            named = _named_by(part)
            waiting += named
            # A value counts by its hash; anything else by the names of what it is made of.
            if _is_constant(part):
                text.append(f"{name} {(digest := fingerprint(part).hex())}")
                constants += [] if _is_plain(part) else [(part, digest)]
            else:
                text.append(f"{name} {' '.join(each.__qualname__ for each in named)}")
        outer = thing.__qualname__.partition(".")[0]
        found[f"{thing.__module__}.{outer}"].add("\n".join(text))
    hashes = {name: fingerprint(sorted(found[name])).hex()[:16] for name in sorted(found)}
    return _Walk(hashes, [(each, _made_of(each)) for each in seen.values()], constants)


def _package(thing: Any) -> str:
    return str(thing.__module__).partition(".")[0]


def _held_by(values: Iterable[Any]) -> Iterator[Any]:
    """The classes and functions of which values are made."""
    waiting, seen = list(values), dict[int, Any]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen or type(value) in PLAIN or isinstance(value, CodeType | np.ndarray):
            continue
        seen[id(value)] = value
        if isinstance(value, type | FunctionType):
            yield value
            continue
        yield type(value)
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        else:
            waiting += value if isinstance(value, set | frozenset) else parts_of(value)


def _named_by(part: Any) -> list[Any]:
    """The classes and functions that a global, a member or a default stands for."""
    if isinstance(part, type | FunctionType):
        return [part]
    if isinstance(part, tuple | frozenset):
        return [thing for each in part for thing in _named_by(each)]
    if isinstance(part, partial):
        return _named_by((part.func, *part.args, *part.keywords.values()))
    if isinstance(part, property):
        return _named_by((part.fget, part.fset))
    if isinstance(part, cached_property):
        return [part.func]
    inner = getattr(part, "__wrapped__", None)  # of static and class methods, caches, compiled ones
    return [type(part), *([inner] if isinstance(inner, FunctionType) else [])]


def _is_constant(part: Any) -> bool:
    if isinstance(part, tuple | frozenset):
        return all(map(_is_constant, part))
    if isinstance(part, np.ndarray):
        return not part.dtype.hasobject
    if getattr(getattr(part, "__dataclass_params__", None), "frozen", False):
        fields = (getattr(part, name, None) for name in part.__dataclass_fields__)
        return not isinstance(part, type) and all(map(_is_constant, fields))
    return type(part) in PLAIN or isinstance(part, Enum | np.generic)


def _is_plain(part: Any) -> bool:
    return all(map(_is_plain, part)) if type(part) is tuple else type(part) in PLAIN


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    yield "bases", tuple(base.__qualname__ for base in kind.__mro__)
    yield from (("base", base) for base in kind.__mro__[1:])
    methods = (each for member in vars(kind).values() for each in _named_by(member))
    # What its methods set is a counter, or the default of a field.
    code = [unwrap(each).__code__ for each in methods if isinstance(each, FunctionType)]
    stored = {name for each in code for name in _read(each).attributes}
    for name, member in vars(kind).items():
        if name in stored and type(member) in PLAIN:
            continue
        special = name.startswith("__") and name.endswith("__")
        if not special or isinstance(member, FunctionType | staticmethod | classmethod):
            yield name, member


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    read = _read(function.__code__)
    yield "code", read.digest
    yield "defaults", function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).items()
    freed = function.__code__.co_freevars
    for name, cell in zip(freed, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # empty as yet
            continue
    for name in read.names:
        # The function itself stands for no such global: None may be one.
        named = function.__globals__.get(name, function)
        if isinstance(named, ModuleType):
            if named.__name__.partition(".")[0] not in _VERSIONED:
                yield from (
                    (f"{name}.{each}", vars(named)[each])
                    for each in read.names
                    if not isinstance(vars(named).get(each, named), ModuleType)
                )
        elif named is not function:
            yield name, named


class _Read(NamedTuple):
    """A function's code, which names may stand for globals, and which attributes it sets."""

    digest: str
    names: tuple[str, ...]
    attributes: tuple[str, ...]


@cache
def _read(code: CodeType) -> _Read:
    """Globals that it sets are no constants, and not among the names."""
    code = canonical(code)
    names, stored, attributes = _names(code)
    return _Read(fingerprint(code).hex(), tuple(sorted(names - stored)), tuple(attributes))


def _names(code: CodeType) -> tuple[set[str], ...]:
    """All names in it, the globals that it sets, and the attributes that it sets."""
    found = set(code.co_names), set[str](), set[str]()
    # Operations stand at even places of the code: few functions have these, and `dis` is slow.
    if not {_STORE_GLOBAL, _STORE_ATTR}.isdisjoint(code.co_code[::2]):
        for each in dis.get_instructions(code):
            if each.opcode in (_STORE_GLOBAL, _STORE_ATTR):
                found[1 if each.opcode == _STORE_GLOBAL else 2].add(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            for mine, theirs in zip(found, _names(inner), strict=True):
                mine.update(theirs)
    return found
