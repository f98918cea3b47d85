"""A person's own minimiser: what is asked in place of gradients where one round must do."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.protocol.base import Query


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
