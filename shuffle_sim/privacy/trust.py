"""Who must be trusted, and what that costs: one value in place of a name."""

import math
from enum import StrEnum

from shuffle_sim.errors import one_of


class Trust(StrEnum):
    """A trust model: who must be trusted for the guarantee to hold, and how its noise grows.

    Attributes:
        trusted: who must be trusted.
        protects: what the guarantee speaks of.
        colour: of its methods in pictures.
        unit: what one user sends.
        unit_bits: bits of it.
    """

    trusted: str
    protects: str
    colour: str
    unit: str
    unit_bits: int

    SHUFFLE = "shuffle", "shuffler", "the permuted messages", "tab:blue", "one-bit messages", 1
    CENTRAL = "central", "curator", "the output", "black", "numbers of 64 bits", 64
    LOCAL = "local", "nobody", "every report", "tab:red", "numbers of 64 bits", 64
    NONE = "none", "everyone", "nothing", "gray", "numbers of 64 bits", 64

    def __new__(
        cls, value: str, trusted: str, protects: str, colour: str, unit: str, unit_bits: int
    ) -> "Trust":
        """A string with attributes."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.trusted, made.protects, made.colour = trusted, protects, colour
        made.unit, made.unit_bits = unit, unit_bits
        return made

    @classmethod
    def of(cls, value: str) -> "Trust":
        """The trust model of that name.

        Raises:
            ParameterError: there is none.
        """
        return next(each for each in cls if each == one_of("trust", value, cls))

    def noise(self, users: int, ratio: float = 1.0) -> float:
        """Noise of a sum over `users`, as a multiple of the central Gaussian's.

        Args:
            users: whose values are added.
            ratio: of the shuffle model's noise, which its bits decide.
        """
        match self:
            case Trust.SHUFFLE:
                return ratio
            case Trust.CENTRAL:
                return 1.0
            case Trust.LOCAL:
                return math.sqrt(users)
            case Trust.NONE:
                return 0.0
