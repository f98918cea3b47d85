"""Domains in plain values, for statistics: what a release holds is public bytes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from protocols.problems.domains import Box, Domain, L2Ball, Simplex
from shuffle_sim.errors import ParameterError

_KINDS: dict[str, type[Domain]] = {"Box": Box, "L2Ball": L2Ball, "Simplex": Simplex}


@dataclass(frozen=True)
class Place:
    """A domain by name and numbers.

    Attributes:
        kind: of the domain.
        values: what makes it.
    """

    kind: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, domain: Domain) -> "Place":
        """The place of a domain.

        Raises:
            ParameterError: a domain of another kind.
        """
        if type(domain) is L2Ball:
            return cls("L2Ball", (domain.d, domain.size, domain.center))
        if type(domain) is Box:
            return cls("Box", (domain.d, domain.lower, domain.upper))
        if type(domain) is Simplex:
            return cls("Simplex", (domain.d, domain.total))
        allowed = f"one of {', '.join(_KINDS)} for this algorithm"
        raise ParameterError("domain", type(domain).__name__, allowed)

    @cached_property
    def domain(self) -> Domain:
        """The domain again."""
        return _KINDS[self.kind](*self.values)
