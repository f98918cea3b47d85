"""What is asked of persons: one value for all records of a person."""

from dataclasses import dataclass
from typing import ClassVar

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.problem import Gradient
from shuffle_sim.arrays import Floats, Scaled, Values
from shuffle_sim.data.person_rows import PersonRows
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
