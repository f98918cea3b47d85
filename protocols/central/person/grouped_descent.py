"""Points of groups of persons, each by one pass of stochastic descent; and their friendly mean."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.central.person.chained_mean import clipped
from protocols.central.person.friendly import FriendlyMean
from protocols.central.person.gathering import gathered
from protocols.erm.extension import valid_records
from protocols.problems.domains import _UNIT, Domain, L2Ball
from protocols.problems.held import envelope_known
from protocols.problems.linear_loss import PROX_ERROR
from protocols.problems.surrogates import Clipped, demand_convex
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.errors import ParameterError
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total

Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class GroupedPass(Statistic):
    """One pass of SGD over the records of each group, from a common start.

    Consecutive persons form a group. Its point is the average of the iterates before each step.

    Attributes:
        slopes: clipped gradients of a record's loss, or of its Moreau envelope.
        domain: where the parameters may be.
        start: shape (d,).
        eta: the step.
        ridge: public.
        group: persons of a group.
    """

    slopes: Clipped
    domain: Domain
    start: Floats
    eta: float
    ridge: float
    group: int

    @abstractmethod
    def count(self) -> int:
        """C, how many groups there are."""

    def iterates(self, rows: Floats) -> Floats:
        """Each group's average iterate, shape (groups, d), from rows of persons in order."""
        d, columns = self.start.size, self.slopes.loss.columns(self.start.size)
        persons = PersonRows(rows[: self.count() * self.group], columns)
        counts = np.zeros((self.count(), self.group), np.int64)
        counts.flat[: len(persons.counts)] = persons.counts  # one alone in the check before a run
        lengths, records = counts.sum(axis=1), persons.in_order
        starts = np.cumsum(lengths) - lengths
        theta = np.tile(self.start, (len(lengths), 1))
        sums = np.zeros((len(lengths), d))
        domain = self.domain
        with np.errstate(all="ignore"):  # records may be anything
            for t in range(lengths.max()):
                # A slice copies nothing; marks serve once some groups are through.
                whole = t < lengths.min()
                going: slice | Marks = slice(None) if whole else t < lengths
                # Before the step: the radius eta L sqrt(T/3) is of the average of x_0 to x_{T-1}
                # ("Linear time").
                sums[going] += theta[going]
                slopes = dense(self.slopes.each(theta[going], records[starts[going] + t]))
                after = theta[going] - self.eta * (slopes + self.ridge * theta[going])
                outside = np.ones(len(after), bool)
                if isinstance(domain, L2Ball):  # most points are inside
                    # `~(<=)`: NaN counts as outside.
                    outside = ~(np.linalg.norm(after - domain.center, axis=1) <= domain.size)
                for at in np.flatnonzero(outside).tolist():
                    after[at] = domain.project(after[at])
                theta[going] = after
        # A group without records has the point 0: outlying perhaps, but covered as any point is.
        return np.asarray(sums / np.maximum(lengths, 1)[:, None])


@dataclass(frozen=True)
class GroupedDescent(GroupedPass):
    """The friendly mean of the groups' points, behind its score.

    Attributes:
        mean: of the groups.
    """

    mean: FriendlyMean

    def count(self) -> int:
        return self.mean.points

    @property
    def sensitivity(self) -> Sensitivity:
        proof = "one group's iterate differs; friendly mean (docs: theory, User level)"
        return Sensitivity(self.mean.rounded(self.domain.radius), "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        """The score, then the mean, shape (1 + d,)."""
        score, value = self.mean(self.iterates(gathered(total)))
        return np.concatenate([[float(score)], value])


@dataclass(frozen=True)
class ClippedPoints(GroupedPass):
    """The groups' points, less the start, clipped to a radius: a row for each group.

    Attributes:
        groups: C.
        reach: rho_0.
    """

    groups: int
    reach: float

    def count(self) -> int:
        return self.groups

    @property
    def sensitivity(self) -> Sensitivity:
        """2 rho_0: a person is in one group, so one row changes, and rows are clipped."""
        proof = "one group's row differs, and rows are no longer than rho_0"
        return Sensitivity(2 * self.reach, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return clipped(self.iterates(gathered(total)) - self.start, self.reach)


@dataclass(frozen=True)
class PlainDescent(GroupedPass):
    """The point of one group of all persons: one pass of SGD, and nothing is left out.

    A person counts with exactly `records` of its records: more are left out, and missing ones count
    as a fixed one, as those do that the loss's constants do not hold for.

    Attributes:
        users: of the pass.
        records: m.

    Raises:
        ParameterError: a step above 2/beta, with the loss's own beta; a clip below the loss's own
            bound where clipped gradients need not be those of a convex function; or kinks whose
            envelope nobody checked.
    """

    users: int
    records: int

    def __post_init__(self) -> None:
        """Check what the proof of the sensitivity rests on."""
        beta = self.slopes.smoothness + self.ridge
        if not self.eta * beta <= 2:
            raise ParameterError("eta", self.eta, f"at most 2/beta = {2 / beta:.3g}")
        if self.slopes.smoothing is not None and not envelope_known(self.slopes.loss):
            allowed = "smooth, or a LinearLoss: of others nobody checked that steps do not expand"
            raise ParameterError("loss", self.slopes.loss, f"{allowed}. Take another mean")
        if self.slopes.clip < self.slopes.loss.lipschitz(self.domain.radius):
            demand_convex(self.slopes.loss)

    def count(self) -> int:
        return 1

    @property
    def sensitivity(self) -> Sensitivity:
        """2 eta C m and roundings, or the diameter: a record moves later iterates by 2 eta C.

        A computed step is off by u times 4 (d + 8) (R + eta C) at most, eta beta being at most 2,
        and by what a prox is off. Their average is off by two roundings more for each step.
        """
        proof = "steps do not expand (eta <= 2/beta), m of them differ by 2 eta C each; roundings"
        each = self.eta * self.slopes.clip
        # 4 more than for a step: two roundings of the average, and two to spare.
        rounded = 4 * (self.start.size + 9) * _UNIT * (self.domain.radius + each)
        steps = self.users * self.records
        # Steps do not expand, so the errors of both walks add up and never grow.
        moved = 2 * each * self.records + 2 * steps * (rounded + PROX_ERROR * each)
        return Sensitivity(min(moved, self.domain.widest), "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        d, loss = self.start.size, self.slopes.loss
        columns = loss.columns(d)
        rows = gathered(total)
        # NaN marks a missing record: `valid_records` puts its fixed one there.
        kept = np.full((len(rows), self.records, columns), np.nan)
        for person, row in zip(kept, rows, strict=True):
            own = PersonRows(row[None], columns).in_order[: self.records]
            person[: len(own)] = own
        records = valid_records(loss, d, kept.reshape(-1, columns))
        return np.asarray(self.iterates(records.reshape(kept.shape))[0])
