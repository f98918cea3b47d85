"""What is registered by name through entry points: a third party registers exactly as we do."""

from collections import defaultdict
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from shuffle_sim.errors import ParameterError, ShuffleSimError

_GROUP = "shuffle_sim."


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


def names(kind: str) -> list[str]:
    """The names registered under a kind, in order.

    Raises:
        ParameterError: unknown kind.
    """
    return sorted(_entries(kind))


def registered(kind: str, name: str) -> Any:
    """What is registered under `name` in the entry-point group shuffle_sim.<kind>s; loaded now.

    Args:
        kind: "protocol", "loss" (group shuffle_sim.losses), "runtime", "attack" or another.
        name: as registered.

    Raises:
        ParameterError: unknown kind or name, or a name that two distributions register.
        ShuffleSimError: the module found in its place is another one (our package names are
            generic).
    """
    found = _entries(kind)
    if name not in list(found):  # a list: what is not a name need not be hashable
        raise ParameterError(kind, name, f"one of {', '.join(names(kind))}")
    entry, *others = found[name]
    if others:
        claims = sorted(
            f"{each.dist.name if each.dist else 'unknown'} ({each.value})" for each in found[name]
        )
        allowed = f"registered by one distribution, not by {' and '.join(claims)}"
        raise ParameterError(kind, name, allowed)
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
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


def registered_kinds(kind: str, base: type) -> dict[str, Any]:
    """All classes of a kind that are subclasses of `base`, by name.

    Raises:
        ShuffleSimError: one of them cannot be loaded.
    """
    found = {name: registered(kind, name) for name in names(kind)}
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, type) and issubclass(each, base)
    }
