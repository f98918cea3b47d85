"""The friendly mean of groups of persons, each by one pass of stochastic descent."""

from dataclasses import dataclass

import numpy as np

from protocols.central.friendly import FriendlyMean
from protocols.central.gathering import gathered
from protocols.central.places import Place
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.data.persons import PersonRows
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total


@dataclass(frozen=True)
class GroupedDescent(Statistic):
    """The friendly mean of groups' average iterates, behind its score.

    Consecutive persons form a group. Each group's SGD goes once over its records from a common
    start, and gives the average of the iterates before each step.

    Attributes:
        loss: of a record.
        place: where the parameters may be.
        start: shape (d,).
        eta: the step.
        ridge: public.
        smoothing: beta of the Moreau envelope, or None.
        group: persons of a group.
        mean: of the groups.
    """

    loss: Loss
    place: Place
    start: Floats
    eta: float
    ridge: float
    smoothing: float | None
    group: int
    mean: FriendlyMean

    @property
    def sensitivity(self) -> Sensitivity:
        """That of the friendly mean: a person is in one group, so one point changes."""
        proof = "one group's iterate differs; friendly mean (docs: theory, User level)"
        return Sensitivity(self.mean.sensitivity, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        """The score, then the mean, shape (1 + d,)."""
        score, value = self.mean(self.iterates(gathered(total)))
        return np.concatenate([[float(score)], value])

    def iterates(self, rows: Floats) -> Floats:
        """Each group's average iterate, shape (groups, d), from rows of persons in order."""
        d, columns = self.start.size, self.loss.columns(self.start.size)
        rows = np.asarray(rows, np.float64)
        groups = [
            _in_order(rows[low : low + self.group], columns)
            for low in range(0, self.mean.points * self.group, self.group)
        ]
        lengths = np.array([len(each) for each in groups])
        padded = np.zeros((len(groups), int(lengths.max()), columns))
        for at, each in enumerate(groups):
            padded[at, : len(each)] = each
        theta = np.tile(self.start, (len(groups), 1))
        sums = np.zeros((len(groups), d))
        project = self.place.domain.project
        with np.errstate(all="ignore"):  # records may be anything; the mean leaves such groups out
            for t in range(padded.shape[1]):
                going = t < lengths
                sums[going] += theta[going]
                slopes = self._gradients(theta[going], padded[going, t])
                after = theta[going] - self.eta * (slopes + self.ridge * theta[going])
                theta[going] = [project(each) for each in after]
        return np.asarray(sums / np.maximum(lengths, 1)[:, None])

    def _gradients(self, theta: Floats, rows: Floats) -> Floats:
        """One gradient for each row, each at a point of its own; longer ones are shortened."""
        loss, beta = self.loss, self.smoothing
        if not isinstance(loss, LinearLoss):
            pairs = zip(theta, rows, strict=True)
            each = [dense(loss.gradients(at, row[None], beta))[0] for at, row in pairs]
            return np.array(each)
        x, y = rows[:, :-1], rows[:, -1]
        margins = np.einsum("ij,ij->i", x, theta)
        norms = np.einsum("ij,ij->i", x, x)
        factors = (
            loss.derivative(margins, y) if beta is None else loss.prox(margins, y, norms, beta)
        )
        return np.asarray(x * factors[:, None])


def _in_order(rows: Floats, columns: int) -> Floats:
    """Records, person after person."""
    records = PersonRows(rows, columns).records
    return rows.reshape(-1, columns) if rows.shape[2] == columns else records
