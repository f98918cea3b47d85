"""Protocols, losses, runtimes and attacks by name, through entry points: a third party registers
exactly as we do.
"""

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from shuffle_sim.errors import ParameterError, ShuffleSimError


@lru_cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return {entry.name: entry for entry in entry_points(group=f"shuffle_sim.{plural}")}


def names(kind: str) -> list[str]:
    """The names registered under a kind, in order."""
    return sorted(_entries(kind))


def registered(kind: str, name: str) -> Any:
    """What is registered under `name` in the entry-point group shuffle_sim.<kind>s (losses:
    shuffle_sim.losses).

    Args:
        kind: "protocol", "loss", "trainer", "runtime", "attack" or "target_model".
        name: as registered.

    Raises:
        ParameterError: unknown name.
        ShuffleSimError: the module found in its place is another one (our package names are
        generic).
    """
    found = _entries(kind)
    if name not in list(found):  # a list: what is not a name need not be hashable
        raise ParameterError(kind, name, f"one of {', '.join(names(kind))}")
    entry = found[name]
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
