"""What a convex loss is, and the constants that theorems need.

Losses are frozen dataclasses of plain numbers, so that a round can broadcast them. A loss states
its constants; `check` holds the users' rows against what they rest on.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import WITHHELD, ParameterError

ROUNDING = 1 + 1e-9
"""Rows scaled to the bound may exceed it by a rounding error."""


class Loss(ABC):
    """A convex loss l(theta; row), with the constants the theorems need."""

    clipping_is_convex: ClassVar[bool] = False
    """Whether its clipped gradient is the gradient of a convex function (theory, Heavy tails).

    True where the gradient is a monotone function along one line; not so for several classes.
    """

    has_envelope: ClassVar[bool] = False
    """Whether a loss with kinks, which no clip keeps convex, gives the gradients of its envelope.

    Those with `smoothing`, for rows of any length: it is then scaled for heavy tails.
    """

    @property
    def vocabulary(self) -> tuple[type, ...]:
        """The classes that a broadcast of the loss holds: its own, and those of losses in it."""
        inner = (value for value in vars(self).values() if isinstance(value, Loss))
        return (type(self), *(word for loss in inner for word in loss.vocabulary))

    @abstractmethod
    def columns(self, d: int) -> int:
        """Columns of the users' rows for a model with d parameters."""

    @abstractmethod
    def values(self, theta: Floats, rows: Floats) -> Floats:
        """The loss of every row."""

    @abstractmethod
    def gradients(self, theta: Floats, rows: Floats, smoothing: float | None = None) -> Values:
        """A subgradient for every row.

        With `smoothing` beta it is the gradient of the Moreau envelope l_beta over R^d.

        At theta the envelope's gradient is never longer than any subgradient of l, so the same L
        bounds it.
        """

    def values_at(self, thetas: Floats, rows: Floats) -> Floats:
        """The loss of every row at a point of its own; thetas (rows, d)."""
        pairs = zip(thetas, rows, strict=True)
        return np.array([self.values(theta, row[None])[0] for theta, row in pairs])

    def gradients_at(self, thetas: Floats, rows: Floats) -> Values:
        """A subgradient for every row at a point of its own; thetas (rows, d)."""
        pairs = zip(thetas, rows, strict=True)
        found = [dense(self.gradients(theta, row[None]))[0] for theta, row in pairs]
        return np.array(found).reshape(thetas.shape)

    @abstractmethod
    def lipschitz(self, radius: float) -> float:
        """L: bound of the subgradients' norms where ||theta|| <= radius; infinite without one."""

    def start_norm(self) -> float:
        """Bound of the subgradients' norms at theta = 0."""
        return self.lipschitz(0.0)

    @abstractmethod
    def smoothness(self) -> float | None:
        """beta: Lipschitz constant of the gradient; None for a loss that is not smooth."""

    def strong_convexity(self) -> float:
        """lambda; 0 for the loss of a linear model, which is flat across x."""
        return 0.0

    def gradient_diameter(self, radius: float) -> float:
        """How far apart two rows' subgradients are at one theta, ||theta|| <= radius, at most."""
        return 2 * self.lipschitz(radius)

    def swing(self, radius: float) -> float:
        """How far one row's loss moves where ||theta|| <= radius, at most."""
        return 2 * radius * self.lipschitz(radius)

    def pull(self) -> float:
        """sup of -<gradient, theta> over theta and rows; infinite where it is not known."""
        return math.inf

    def minimiser_norm(self, ridge: float) -> float:
        """No minimiser of the mean loss + ridge/2 ||theta||^2 is longer, whatever the rows.

        At a minimiser ridge ||theta||^2 <= pull; and monotone gradients bound it by those at 0.
        """
        # 0 = g + ridge theta there, so ridge ||theta||^2 = -<g, theta> <= pull.
        by_pull = math.sqrt(self.pull() / ridge) if ridge > 0 else math.inf
        # <g(theta) - g(0), theta> >= curved ||theta||^2 with ||g(0)|| <= L(0).
        curved = ridge + self.strong_convexity()
        return min(by_pull, self.lipschitz(0.0) / curved if curved > 0 else math.inf)

    def verify(self, radius: float) -> None:
        """Refuse a loss that is not what it states where ||theta|| <= radius; all pass here."""

    def believed(self) -> tuple[str, ...]:
        """What privacy takes from the author, in words: () of this package's losses."""
        if type(self).__module__.partition(".")[0] == __name__.partition(".")[0]:
            return ()
        words = "is convex, and no steeper or more curved than it states: its author says so"
        return (f"{type(self).__name__} {words}, and a few points of the rows",)

    def reach_norms(self, rows: Floats, radius: float) -> Floats:
        """A(z): a bound of each row's gradients where ||theta|| <= radius, from the row alone.

        Raises:
            ParameterError: the loss states none.
        """
        raise ParameterError("loss", self, "one that states `reach_norms`, as linear models do")

    def row_smoothness(self, rows: Floats) -> Floats:
        """beta(z): Lipschitz constant of each row's gradient over R^d, from the row alone.

        By it a loss is scaled for heavy tails (`ScaledSurrogate`). For rows that pass `check` it is
        `smoothness()`; a loss that bounds no features states more.

        Raises:
            ParameterError: the loss states neither.
        """
        if (beta := self.smoothness()) is None:
            raise ParameterError("loss", self, "one that states `row_smoothness`, as Softmax does")
        return np.full(len(rows), beta)

    @abstractmethod
    def check(self, rows: NDArray[Any], d: int) -> None:
        """Refuse users' rows the constants do not hold for.

        Raises:
            ParameterError: naming what is wrong, and the first row.
        """


class OfLoss(Loss):
    """A loss made of another, with its rows and its constants unless it says otherwise.

    Attributes:
        loss: the other.
        more: columns after those of the other.
    """

    loss: Loss
    more: ClassVar[int] = 0

    def columns(self, d: int) -> int:
        return self.loss.columns(d) + self.more

    def lipschitz(self, radius: float) -> float:
        return self.loss.lipschitz(radius)

    def smoothness(self) -> float | None:
        return self.loss.smoothness()

    def believed(self) -> tuple[str, ...]:
        return super().believed() + self.loss.believed()

    def check(self, rows: NDArray[Any], d: int) -> None:
        self.loss.check(rows, d)


def refuse_rows(bad: NDArray[np.bool_], allowed: str) -> None:
    """Refuse rows of which some are bad, (users,).

    Raises:
        ParameterError: naming the first; its value is withheld.
    """
    if bad.any():
        first = int(np.argmax(bad))
        raise ParameterError(f"data[{first}]", WITHHELD, allowed)
