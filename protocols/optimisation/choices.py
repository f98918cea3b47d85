"""Which parameters of an optimiser were given, which were chosen, and why."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Choices:
    """The parameters of one optimiser while they are being chosen.

    Attributes:
        given: those that are not to be chosen, by name.
        reasons: "given", or the value that was chosen and why, by name.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        """Parameters that are None are not given."""
        self.given = {name: value for name, value in (given or {}).items() if value is not None}
        self.reasons = dict.fromkeys(self.given, "given")

    def __getitem__(self, name: str) -> Any:
        """What is given, or None."""
        return self.given.get(name)

    def choose(self, name: str, value: T, why: str) -> T:
        """What is given, else `value`, which is recorded with the reason."""
        if name in self.given:
            return cast(T, self.given[name])
        shown = f"{value:.4g}" if isinstance(value, float) else "none" if value is None else value
        self.reasons[name] = f"{shown}: {why}"
        return value
