"""What is asked of persons: one value for all records of a person.

That is a mean gradient, or where one round must do the person's own minimiser.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.problem import Gradient
from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.protocol.base import Query
from shuffle_sim.sampling.kernels import compiling


@dataclass(frozen=True)
class MeanGradient(Gradient):
    """Asks for the mean of the loss's gradients over a person's records: the gradient of h_i.

    A person sends one value, however many records it has. `loss`, `theta` and `smoothing` are
    those of `Gradient`. Source: Ghazi et al. 2023 and Lowy, Liu and Asi 2024, where
    h_i(theta) = mean_j l(theta; z_ij).

    Attributes:
        center: public; it is subtracted from the mean. None: 0.
    """

    center: Floats | None = None
    moves: ClassVar[tuple[str, ...]] = ("theta", "center")

    def __call__(self, rows: Floats) -> Values:
        """One mean gradient for each person, shape (persons, d), less the center.

        Args:
            rows: as of `Persons.rows`: (persons, m, columns), or ragged ones.

        Raises:
            ParameterError: rows that are not those of persons, or of other columns than the loss's.
        """
        persons = PersonRows(rows, self.loss.columns(self.theta.size))
        means = persons.means(self._each(persons.records))
        return means if self.center is None else means - self.center

    def _each(self, records: Floats) -> Values:
        """The gradient of each record; its length is not asked for, so it is not computed."""
        loss = self.loss
        plain = isinstance(loss, LinearLoss) and type(loss).gradients is LinearLoss.gradients
        if not plain or self.smoothing is not None or compiling():
            return super().__call__(records)
        assert isinstance(loss, LinearLoss)
        x, y = records[:, :-1], records[:, -1]
        return Scaled(x, loss.derivative(self.theta @ x.T, y))


@dataclass(frozen=True)
class LocalMinimiser(Query):
    """Asks for the minimiser over a ball of a person's own mean loss and the ridge, less a center.

    It is found by accelerated descent, of all persons of a block at once. A person's value depends
    on its own records alone. Privacy does not rest on how near it comes.

    Attributes:
        loss: smooth.
        ridge: public; with the loss's own, the objective is strongly convex.
        radius: of the ball around 0.
        center: (d,), public.
        steps: of descent, the same for everybody.
    """

    loss: Loss
    ridge: float
    radius: float
    center: Floats
    steps: int
    moves: ClassVar[tuple[str, ...]] = ("center",)

    def __call__(self, rows: Floats) -> Values:
        """Shape (persons, d).

        Source: Nesterov (2018), scheme 2.2.22: momentum (sqrt kappa - 1)/(sqrt kappa + 1).

        Args:
            rows: as of `Persons.rows`.
        """
        d = self.center.size
        persons = PersonRows(rows, self.loss.columns(d))
        # Everybody's step and momentum are those of the public constants: nobody's data set them.
        beta = (self.loss.smoothness() or 0.0) + self.ridge
        root = math.sqrt(beta / (self.loss.strong_convexity() + self.ridge))
        momentum = (root - 1) / (root + 1)
        theta = ahead = np.zeros((len(rows), d))
        with np.errstate(all="ignore"):
            for _ in range(self.steps):
                own = self.loss.gradients_at(persons.spread(ahead), persons.records)
                after = ahead - (persons.means(own) + self.ridge * ahead) / beta
                lengths = np.linalg.norm(after, axis=1)[:, None]
                # Persons who are inside keep their bits; 0/0 of a point at 0 is not taken.
                after = np.where(lengths > self.radius, after * (self.radius / lengths), after)
                ahead, theta = after + momentum * (after - theta), after
        return theta - self.center
