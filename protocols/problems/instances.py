"""Hard instances: where no method beats a lower bound, and neighbours that are hard to hide."""

import math
from dataclasses import dataclass

import numpy as np

from protocols.problems.domains import L2Ball
from protocols.problems.losses import Linear
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive

_ANGLE = 1.3  # between the mirrored row and the others' opposite: near the worst for small ridges
# Angles of the second direction and of the two rows from the first direction: worst for objective
# perturbation of n = 1,000 at (1, 1e-6), by integration of its densities and a search.
_SPLIT = 1.38, 1.9, -1.82


@dataclass(frozen=True)
class RareDirection:
    """P_nu (Lowy 2026, Appendix G): z = a nu with probability p, else 0; f = <w, z>, ||nu|| = 1.

    p = kappa d/(n epsilon) and a = G_k p^(-1/k), on the unit ball. Rows that count are copies of
    one point, so a cohort is a binomial number.

    Attributes:
        n: users.
        d: parameters.
        epsilon: of the pure guarantee.
        k: moment; may be infinite.
        kappa: signal over noise.
        gk: G_k.

    Raises:
        ParameterError: p above 1/2: too few users.
    """

    n: int
    d: int
    epsilon: float
    k: float
    kappa: float = 16.0
    gk: float = 1.0

    def __post_init__(self) -> None:
        for name in ("n", "d"):
            integer(name, getattr(self, name))
        for name in ("epsilon", "kappa", "gk"):
            positive(name, getattr(self, name))
        if self.share > 0.5:
            least = math.ceil(2 * self.kappa * self.d / self.epsilon)
            raise ParameterError("n", self.n, f"at least 2 kappa d/epsilon = {least}")

    @property
    def share(self) -> float:
        """p."""
        return self.kappa * self.d / (self.n * self.epsilon)

    @property
    def size(self) -> float:
        """a."""
        # E A^k = p a^k = G_k^k; of infinite k a = G_k.
        return self.gk * math.pow(self.share, -1 / self.k)

    @property
    def direction(self) -> Floats:
        """nu."""
        return np.full(self.d, 1 / math.sqrt(self.d))

    @property
    def row(self) -> Floats:
        """The row that counts, with a label that does not, (1, d + 1)."""
        return np.append(self.size * self.direction, 0.0)[None]

    @property
    def moments(self) -> Moments:
        """Of the instance: G_1 = p a, G_2 = sqrt(p) a."""
        gk = self.size if math.isinf(self.k) else self.gk
        return Moments(self.k, gk, math.sqrt(self.share) * self.size, self.share * self.size)

    @property
    def problem(self) -> Problem:
        """On the unit ball, without a bound of the gradients."""
        return Problem(Linear(math.inf), L2Ball(self.d, 1.0), norm_bound=math.inf)

    @property
    def range(self) -> float:
        """p a: the excess of doing nothing, and half of the worst."""
        # f = p a <w, nu> is from -p a, at -nu, to p a on the unit ball.
        return self.share * self.size

    def excess(self, theta: Floats) -> float:
        """p a (1 + <theta, nu>)."""
        return self.range * (1 + float(theta @ self.direction))


def neighbours(n: int, d: int) -> dict[str, tuple[Floats, Floats]]:
    """Pairs of tables (n, d + 1) of a linear model that differ in the first row, hard to hide.

    "opposite": a unit row against its opposite, beside rows of zeros; no table of a linear loss
    moves its minimiser more. "mirrored", for d > 1: all other rows pull the minimiser far out,
    where the losses of the two rows are steep. "split", for d > 1: they pull in two directions.
    """
    others = np.zeros((n, d + 1))
    others[:, -1] = 1.0
    found = {"opposite": (_replaced(others, [1.0]), _replaced(others, [-1.0]))}
    if d > 1:
        pulled, (far, aside) = others.copy(), (-math.cos(_ANGLE), math.sin(_ANGLE))
        pulled[:, 0] = 1.0
        found["mirrored"] = _replaced(pulled, [far, aside]), _replaced(pulled, [far, -aside])
        apart, *rows = ([math.cos(angle), math.sin(angle)] for angle in _SPLIT)
        pulled[::2, :2] = apart
        found["split"] = _replaced(pulled, rows[0]), _replaced(pulled, rows[1])
    return found


def crossed(n: int) -> tuple[Floats, Floats]:
    """The same of two features: all others end on the kink of a hinge, at a right angle.

    With perturbed inputs it is the hardest, and "opposite" moves no minimiser from 0.
    """
    pulled = np.tile([1.0, 0.0, 1.0], (n, 1))
    return _replaced(pulled, [0.0, 1.0]), _replaced(pulled, [0.0, -1.0])


def leaning(n: int, d: int, pulls: int) -> tuple[Floats, Floats]:
    """The opposite rows, beside so many that pull to one side; all others are zeros.

    With few pulls a draw of density ~ e^(-k F) lies rarely, not never, where the two rows tell it
    most. With n - 1 the row of the second table is the one of the largest loss: it has all the
    weight that a tilt gives.
    """
    others = np.zeros((n, d + 1))
    others[:, -1], others[1 : pulls + 1, 0] = 1.0, 1.0
    return _replaced(others, [1.0]), _replaced(others, [-1.0])


def _replaced(rows: Floats, features: list[float]) -> Floats:
    """With other features in the first row."""
    found = rows.copy()
    found[0, :-1] = 0.0
    found[0, : len(features)] = features
    return found
