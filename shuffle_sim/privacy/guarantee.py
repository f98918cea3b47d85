"""What is promised, and on which grounds."""

import math
from dataclasses import dataclass, replace

from shuffle_sim.data.population import Unit
from shuffle_sim.errors import positive, real
from shuffle_sim.notebook import html_table

REPLACE_ONE = "replace-one"
DELTA = 1e-6
"""Of all commands and estimators that release something, where none is given."""
LARGE_EPSILON = 10.0
"""Above it a guarantee says little."""


def weaknesses(epsilon: float, delta: float, n: int) -> tuple[str, ...]:
    """What makes (epsilon, delta) promise little for n users, in words; nothing if infinite.

    At delta = 1/n a mechanism may publish the datum of a random user.
    """
    if math.isinf(epsilon):
        return ()
    found = []
    if delta * n >= 1:
        found.append(
            f"delta {delta:g} is not below 1/n = {1 / n:.3g}: publishing one random user's datum "
            "would meet it; take a smaller one"
        )
    if epsilon > LARGE_EPSILON:
        found.append(
            f"epsilon {epsilon:g} is above {LARGE_EPSILON:g}: one user's datum may change a chance "
            f"by a factor of e^{epsilon:g}, which protects hardly anybody"
        )
    return tuple(found)


@dataclass(frozen=True)
class Privacy:
    """The privacy asked for: (epsilon, delta), neighbours differ in one user's datum.

    delta = 0 asks for pure differential privacy.

    Raises:
        ParameterError: epsilon not a finite number above 0, or delta not in [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Check both ranges."""
        positive("epsilon", self.epsilon)
        real("delta", self.delta, 0.0, 1.0, closed=(True, False))

    def warnings(self, n: int) -> tuple[str, ...]:
        """What is allowed but promises little for n users."""
        return weaknesses(self.epsilon, self.delta, n)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of all that is released, and why.

    In the shuffle model that is the whole view of the analyzer, not only the output.

    Attributes:
        epsilon: at least 0; infinite where nothing is promised.
        delta: in [0, 1); 0 is pure differential privacy.
        relation: the neighbouring relation.
        basis: the theorem that gives epsilon, with its source.
        assumptions: what must hold beside the theorem.
        unit: whose data neighbours differ in.
    """

    epsilon: float
    delta: float
    relation: str = REPLACE_ONE
    basis: str = ""
    assumptions: tuple[str, ...] = ()
    unit: Unit = Unit.RECORD

    def assuming(self, *more: str) -> "Guarantee":
        """Where more must hold."""
        return replace(self, assumptions=(*self.assumptions, *more))

    def __str__(self) -> str:
        shown = "infinite" if math.isinf(self.epsilon) else f"{self.epsilon:.6g}"
        whose = f" {self.unit}" * (self.unit is Unit.PERSON)
        return f"epsilon {shown} at delta {self.delta:g} ({self.relation}{whose})" + (
            f", by {self.basis}" if self.basis else ""
        )

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        assumed = "; ".join(self.assumptions)
        return html_table({"privacy": self, "assuming": assumed})
