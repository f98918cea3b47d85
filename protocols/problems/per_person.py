"""What is asked of persons: one value for all records of a person."""

from dataclasses import dataclass

import numpy as np

from protocols.problems.problem import Gradient
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.data.persons import PersonRows


@dataclass(frozen=True)
class MeanGradient(Gradient):
    """Asks for the mean of the loss's gradients over a person's records: the gradient of h_i.

    A person sends one value, however many records it has. `loss`, `theta` and `smoothing` are
    those of `Gradient`. Source: Ghazi et al. 2023 and Lowy, Liu and Asi 2024, where
    h_i(theta) = mean_j l(theta; z_ij).
    """

    def __call__(self, rows: Floats) -> Values:
        """One mean gradient for each person, shape (persons, d).

        Args:
            rows: as of `Persons.rows`: (persons, m, columns), or padded where they are ragged.

        Raises:
            ParameterError: rows that are not those of persons, or of other columns than the loss's.
        """
        persons = PersonRows(np.asarray(rows, np.float64), self.loss.columns(self.theta.size))
        return persons.means(super().__call__(persons.records))
