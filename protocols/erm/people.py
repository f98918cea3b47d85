"""Many persons' records in one array, and their mean objectives h_i, for all of them at once."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import BLOCK
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense

_NEAR = 1e-5  # of differences of slopes


@dataclass(frozen=True)
class People:
    """Records, person after person, and what is asked of each person's mean.

    Attributes:
        records: (records, columns).
        counts: of each person, (persons,), all above 0.
    """

    records: Floats
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of persons."""
        return len(self.counts)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.asarray(np.cumsum(self.counts) - self.counts)

    def means(self, values: Floats) -> Floats:
        """Of one value for each record; a number each, or a vector."""
        if len(values) == len(self.counts):  # one record each
            return values
        # For a person without records reduceat would give the next one's value: counts are above 0.
        sums = np.add.reduceat(values, self._starts, axis=0)
        return np.asarray(sums / self.counts.reshape(-1, *[1] * (values.ndim - 1)))

    def slopes(self, loss: Loss, thetas: Floats) -> Floats:
        """The gradient of each h_i at a point of its own, (persons, d)."""
        own = np.repeat(thetas, self.counts, axis=0)
        return self.means(dense(loss.gradients_at(own, self.records)))

    def values(self, loss: Loss, theta: Floats) -> Floats:
        """The value of each h_i, (persons,); theta (d,), or a point for each (persons, d)."""
        if theta.ndim == 1:
            return self.means(loss.values(theta, self.records))
        return self.means(loss.values_at(np.repeat(theta, self.counts, axis=0), self.records))

    def bends(self, loss: Loss, thetas: Floats) -> Floats:
        """The second derivative of each h_i at a point of its own, (persons, d, d).

        By differences of slopes where the loss does not state it.
        """
        d = thetas.shape[1]
        if isinstance(loss, LinearLoss):
            x, labels = self.records[:, :-1], self.records[:, -1]
            margins = np.einsum("ij,ij->i", x, np.repeat(thetas, self.counts, axis=0))
            bends = loss.second(margins, labels)
            if bends is not None:
                columns = [self.means(x * (bends * each)[:, None]) for each in x.T]
                return np.stack(columns, axis=1)
        columns = []
        # Central differences: off by _NEAR^2 = 1e-10 and 2^-53/_NEAR = 1e-11, for Newton's steps
        # only.
        for each in _NEAR * np.eye(d):
            ahead, behind = self.slopes(loss, thetas + each), self.slopes(loss, thetas - each)
            columns.append((ahead - behind) / (2 * _NEAR))
        found = np.stack(columns, axis=1)
        return np.asarray((found + found.transpose(0, 2, 1)) / 2)

    def blocks(self, most: int = BLOCK) -> list["People"]:
        """So many persons at a time; no record is copied."""
        edges = [*self._starts[::most].tolist(), len(self.records)]
        counts = [self.counts[low : low + most] for low in range(0, len(self), most)]
        pairs = zip(pairwise(edges), counts, strict=True)
        return [People(self.records[low:high], each) for (low, high), each in pairs]

    def chosen(self, persons: NDArray[np.integer] | NDArray[np.bool_]) -> "People":
        """These alone."""
        if persons.dtype == bool:
            persons = np.flatnonzero(persons)
        counts, starts = self.counts[persons], self._starts[persons]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
        return People(self.records[places], counts)
