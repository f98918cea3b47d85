"""A person's own minimiser: what is asked in place of gradients where one round must do."""

from dataclasses import dataclass

import numpy as np

from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.data.persons import PersonRows
from shuffle_sim.protocol.base import Query


@dataclass(frozen=True)
class LocalMinimiser(Query):
    """Asks for the minimiser over a ball of a person's own mean loss and the ridge, less a center.

    It is found by descent. Privacy does not rest on how near it comes.

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

    def __call__(self, rows: Floats) -> Values:
        """Shape (persons, d).

        Args:
            rows: as of `Persons.rows`.
        """
        d = self.center.size
        columns = self.loss.columns(d)
        found = [self._of(row[None], columns) for row in np.asarray(rows, np.float64)]
        return np.array(found).reshape(len(rows), d) - self.center

    def _of(self, row: Floats, columns: int) -> Floats:
        """Of one person, by descent with step 1/(beta + ridge) from 0."""
        records = PersonRows(row, columns).records
        beta, theta = (self.loss.smoothness() or 0.0) + self.ridge, np.zeros(self.center.size)
        if not len(records):  # corrupted persons may claim to have no records
            return theta
        with np.errstate(all="ignore"):
            for _ in range(self.steps):
                slope = dense(self.loss.gradients(theta, records)).mean(axis=0)
                theta = theta - (slope + self.ridge * theta) / beta
                length = float(np.linalg.norm(theta))
                if length > self.radius:
                    theta = theta * (self.radius / length)
        return theta
