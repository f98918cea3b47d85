"""What is promised, and on which grounds."""

import math
from dataclasses import dataclass

from shuffle_sim.errors import positive, real

REPLACE_ONE = "replace-one"


@dataclass(frozen=True)
class Privacy:
    """The privacy asked for: (epsilon, delta), neighbours differ in one user's datum.

    Raises:
        ParameterError: epsilon not a finite number above 0, or delta not in (0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check both ranges."""
        positive("epsilon", self.epsilon)
        real("delta", self.delta, 0.0, 1.0, closed=(False, False))


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of the shuffled view (not only of the output), and why.

    Attributes:
        epsilon: at least 0; infinite where nothing is promised.
        delta: in (0, 1).
        relation: the neighbouring relation.
        basis: the theorem that gives epsilon, with its source.
        assumptions: what must hold beside the theorem.
    """

    epsilon: float
    delta: float
    relation: str = REPLACE_ONE
    basis: str = ""
    assumptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line for people."""
        shown = "infinite" if math.isinf(self.epsilon) else f"{self.epsilon:.6g}"
        return f"epsilon {shown} at delta {self.delta:g} ({self.relation}), by {self.basis}"
