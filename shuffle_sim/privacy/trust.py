"""Who must be trusted, and what that costs: one value in place of a name.

A trust model of others is registered in `shuffle_sim.trusts`; an algorithm names it as its `trust`.
"""

import math
from typing import Any, ClassVar, cast

from shuffle_sim.errors import ParameterError
from shuffle_sim.registry import registered


class Trust(str):
    """The name of a trust model: who must be trusted, and how noise of a sum grows without it.

    Attributes:
        trusted: who must be trusted for the guarantee to hold.
        protects: what the guarantee speaks of.
        colour: of its methods in pictures, as matplotlib names it.
        assumption: as guarantees of a curator's runs state it.
        unit: what one user sends.
        unit_bits: bits of it.
        ratio: its noise over the central Gaussian's; None: what the messages' bits decide.
        growth: the variance of its noise is proportional to users^growth.
    """

    trusted: str
    protects: str
    colour: str
    assumption: str
    unit: str
    unit_bits: int
    ratio: float | None
    growth: float

    SHUFFLE: ClassVar["Trust"]
    CENTRAL: ClassVar["Trust"]
    LOCAL: ClassVar["Trust"]
    NONE: ClassVar["Trust"]

    def __new__(
        cls,
        name: str,
        *,
        trusted: str,
        protects: str,
        colour: str,
        assumption: str = "",
        unit: str = "numbers of 64 bits",
        unit_bits: int = 64,
        ratio: float | None = None,
        growth: float = 0.0,
    ) -> "Trust":
        made = super().__new__(cls, name)
        made.trusted, made.protects, made.colour = trusted, protects, colour
        made.assumption = assumption or f"trusted: {trusted}"
        made.unit, made.unit_bits, made.ratio, made.growth = unit, unit_bits, ratio, growth
        return made

    def __reduce__(self) -> Any:
        # Of a name there is one value in each process, so `is` holds there, too.
        return _restored, (str(self), vars(self))

    @classmethod
    def of(cls, value: str) -> "Trust":
        """The trust model of that name.

        Raises:
            ParameterError: there is none.
        """
        return value if isinstance(value, cls) else cast(Trust, registered("trust", value))

    def noise(self, users: int, ratio: float = 1.0) -> float:
        """Noise of a sum over `users`, as a multiple of the central Gaussian's.

        Args:
            users: whose values are added.
            ratio: what the messages' bits decide, where they do.
        """
        return (ratio if self.ratio is None else self.ratio) * math.sqrt(users**self.growth)


def _restored(name: str, fields: dict[str, Any]) -> Trust:
    """What was sent from another process; of a notebook's own there may be none here."""
    try:
        return Trust.of(name)
    except ParameterError:
        return Trust(name, **fields)


Trust.SHUFFLE = Trust(
    "shuffle",
    trusted="shuffler",
    protects="the permuted messages",
    colour="tab:blue",
    unit="one-bit messages",
    unit_bits=1,
)
Trust.CENTRAL = Trust(
    "central",
    trusted="curator",
    protects="the output",
    colour="black",
    assumption="a trusted curator",
    ratio=1.0,
)
Trust.LOCAL = Trust(
    "local",
    trusted="nobody",
    protects="every report",
    colour="tab:red",
    assumption="no trust: every report is private",
    ratio=1.0,
    growth=1.0,  # each of the reports in a sum has noise of its own
)
Trust.NONE = Trust(
    "none",
    trusted="everyone",
    protects="nothing",
    colour="gray",
    assumption="no privacy",
    ratio=0.0,
)
