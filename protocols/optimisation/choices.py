"""Which parameters of an optimiser were given, which were chosen, and why."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from shuffle_sim.errors import integer

T = TypeVar("T")


class Choices:
    """The parameters of one optimiser while they are being chosen.

    Attributes:
        given: those that are not to be chosen, by name.
        unused: those of them that nobody has asked for yet.
        reasons: "given", or the value that was chosen and why, by name.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        """Parameters that are None are not given."""
        self.given = {name: value for name, value in (given or {}).items() if value is not None}
        self.reasons = dict.fromkeys(self.given, "given")
        self.unused = set(self.given)

    def __getitem__(self, name: str) -> Any:
        """What is given, or None."""
        return self.get(name, None)

    def get(self, name: str, default: Any) -> Any:
        """What is given, else a default that needs no reason."""
        self.unused.discard(name)
        return self.given.get(name, default)

    def of(self, *names: str) -> dict[str, Any]:
        """Those of the names that are given."""
        return {name: self[name] for name in names if name in self.given}

    def grid(self, name: str, values: Iterable[int]) -> list[int]:
        """Values that a planner tries: the one that is given, a positive integer, else all."""
        return list(values) if self[name] is None else [integer(name, self[name])]

    def choose(self, name: str, value: T, why: str) -> T:
        """What is given, else `value`, which is recorded with the reason."""
        if name in self.given:
            return cast(T, self[name])
        shown = f"{value:.4g}" if isinstance(value, float) else "none" if value is None else value
        self.reasons[name] = f"{shown}: {why}"
        return value
