"""What is registered by name: through entry points, or in a notebook by `register`.

A third party registers exactly as we do. What is asked for by name and cannot be had is an error.
Where everything of a kind is looked through, a thing that breaks is skipped with one warning that
names it: a package of others must not stop `plan`, `compare` or `train`.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from shuffle_sim.errors import ParameterError, PluginWarning, ShuffleSimError, one_of

_GROUP = "shuffle_sim."
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _plural(kind: str) -> str:
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


@lru_cache
def _entries(kind: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a kind by name; more than one where distributions disagree."""
    found, group = entry_points(), _GROUP + _plural(str(kind))
    groups = sorted(each for each in found.groups if each.startswith(_GROUP))
    if group not in groups:
        known = ", ".join(each.removeprefix(_GROUP) for each in groups)
        raise ParameterError("kind", kind, f"one of those registered, in the singular: {known}")
    entries = defaultdict(list)
    for entry in found.select(group=group):
        entries[entry.name].append(entry)
    return dict(entries)


_own: dict[tuple[str, str], Any] = {}  # what `register` was given, by kind and name
_told: set[tuple[str, str]] = set()  # of what a warning was given
_caches: list[Callable[[], None]] = []


def remembered(function: _Function) -> _Function:
    """`lru_cache` for what follows from what is registered: `register` empties it."""
    cached = lru_cache(function)
    _caches.append(cached.cache_clear)
    return cast(_Function, cached)


def forget() -> None:
    """Look entry points up anew; what `register` was given is gone."""
    _own.clear()
    _told.clear()
    for clear in (_entries.cache_clear, *_caches):
        clear()


def register(kind: str, name: str, thing: Any) -> None:
    """Register in this process what an entry point `name` in shuffle_sim.<kind>s would.

    A name may be given again, as when the cell of a notebook is run twice: the last thing counts.

    Args:
        kind: "protocol", "loss", "algorithm", "attack" or another.
        name: by which commands, estimators and `Trainer` find it.
        thing: a class or function of that kind.

    Raises:
        ParameterError: unknown kind, no name, or the name of an entry point.
    """
    taken = _entries(kind)
    if not isinstance(name, str) or not name:
        raise ParameterError("name", name, "a text")
    if name in taken:
        allowed = f"another: {taken[name][0].value} is registered under it"
        raise ParameterError("name", name, allowed)
    _own[kind, name] = thing
    _told.discard((kind, name))
    for clear in _caches:
        clear()


def names(kind: str) -> list[str]:
    """The names registered under a kind, in order.

    Raises:
        ParameterError: unknown kind.
    """
    return sorted({*_entries(kind), *(name for own, name in _own if own == kind)})


def registered(kind: str, name: str) -> Any:
    """What is registered under `name` in the entry-point group shuffle_sim.<kind>s; loaded now.

    Args:
        kind: "protocol", "loss" (group shuffle_sim.losses), "runtime", "attack" or another.
        name: as registered.

    Raises:
        ParameterError: unknown kind or name, or a name that two distributions register.
        ShuffleSimError: it cannot be loaded, or the module found in its place is another one (our
            package names are generic).
    """
    if kind == "protocol" and name in set(names("algorithm")) - set(names(kind)):
        allowed = "a protocol that users answer; a curator runs this one: give it as mechanism"
        raise ParameterError(kind, name, allowed)
    one_of(kind, name, names(kind))
    if (kind, name) in _own:
        return _own[kind, name]
    found = _entries(kind)[name]
    entry, *others = found
    if others:
        claims = sorted(
            f"{each.dist.name if each.dist else 'unknown'} ({each.value})" for each in found
        )
        allowed = f"registered by one distribution, not by {' and '.join(claims)}"
        raise ParameterError(kind, name, allowed)
    try:
        return entry.load()
    except Exception as error:  # a module of others may do anything as it is imported
        package = entry.module.partition(".")[0]
        spec = find_spec(package)
        where = (
            (spec.origin or next(iter(spec.submodule_search_locations or ["?"])))
            if spec
            else "nowhere"
        )
        raise ShuffleSimError(
            f"cannot load {entry.value} ({error}): the package {package!r} was found at {where}; "
            "if that is not ours, it shadows it: rename it or use an environment of its own"
        ) from error


def loaded(kind: str) -> dict[str, Any]:
    """All that is registered under a kind, by name; what cannot be loaded is skipped and told.

    Raises:
        ParameterError: unknown kind.
    """
    found = {}
    for name in names(kind):
        try:
            found[name] = registered(kind, name)
        except ShuffleSimError as error:
            _skip(kind, name, error)
    return found


def registered_kinds(kind: str, base: type) -> dict[str, Any]:
    """All classes of a kind that are subclasses of `base`, by name; others are skipped."""
    return {
        name: each
        for name, each in loaded(kind).items()
        if isinstance(each, type) and issubclass(each, base)
    }


@contextmanager
def skipping(kind: str, name: str) -> Iterator[None]:
    """Use a registered thing; if it fails in a way that nobody planned, skip it and tell.

    An error raised on purpose (`ShuffleSimError`) passes: whoever asked decides on it.
    """
    try:
        yield
    except ShuffleSimError:
        raise
    except Exception as error:
        _skip(kind, name, error)


def _skip(kind: str, name: str, error: Exception) -> None:
    """Say once that a thing is skipped."""
    if (kind, name) not in _told:
        _told.add((kind, name))
        what = "" if isinstance(error, ShuffleSimError) else f"{type(error).__name__}: "
        warnings.warn(f"{kind} {name} is skipped: {what}{error}", PluginWarning, stacklevel=4)
