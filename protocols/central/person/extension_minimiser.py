"""The minimiser of a centred Lipschitz extension, as a statistic of persons."""

from dataclasses import dataclass

import numpy as np

from protocols.central.person.gathering import gathered
from protocols.erm.extension import ExtendedERM, valid_records
from protocols.erm.objective import Objective
from protocols.erm.people import People
from protocols.erm.risk import erm
from protocols.erm.solver import certify, demand_radius, minimise
from protocols.problems.domains import Domain
from protocols.problems.loss import ROUNDING, Loss
from shuffle_sim.arrays import Floats
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.protocol.release import Sensitivity, Statistic, Total

ROOM = ROUNDING**2
"""For rows that are let in above their bound, and for roundings of their slopes."""


@dataclass(frozen=True)
class ExtensionMinimiser(Statistic):
    """argmin over a domain of mean_i h_i^{c,gamma} + (ridge/2) ||w - centre||^2, within alpha.

    Records that the loss's constants do not hold for count as a fixed one.

    Attributes:
        loss: of a record.
        domain: bounded; K of the extensions is it, or the ball around 0 that holds it.
        ridge: lambda.
        centre: of the ridge, (d,).
        center: c, (d,).
        gamma: slopes of a person's objective lie within it of c.
        alpha: fixed before the data are looked at.
        users: n.
        most_records: of a person.
    """

    loss: Loss
    domain: Domain
    ridge: float
    centre: Floats
    center: Floats
    gamma: float
    alpha: float
    users: int
    most_records: int

    @property
    def _wide(self) -> float:
        """gamma, with room.

        Slopes of length gamma itself would be outside by a rounding. Their extension is flat, and
        the point that it is at cannot be told.
        """
        return self.gamma * ROOM

    @property
    def sensitivity(self) -> Sensitivity:
        """2 gamma/(lambda n) + 2 alpha."""
        proof = (
            "two extensions differ by a 2 gamma-Lipschitz function, the mean by 1/n of it, and the "
            "objective is lambda-strongly convex; both minimisers are computed to alpha"
        )
        exact = 2 * self._wide / (self.ridge * self.users)
        return Sensitivity(exact + 2 * self.alpha, "l2", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        d, columns = self.centre.size, self.loss.columns(self.centre.size)
        persons = PersonRows(gathered(total), columns)
        records = valid_records(self.loss, d, persons.in_order, self.domain)
        people = People(records, persons.counts)
        wanted, ball = self._objective(people), self.domain

        def plain(objective: Objective) -> Floats:
            """Without the extension: near the minimiser, and it where equal persons are inside."""
            flat = erm(self.loss, people.records, self.ridge, ball, self.centre)
            # A quarter leaves room for the extension's own certificate at that point.
            near = minimise(flat, self.alpha / 4).point
            return near if certify(wanted, near).radius <= self.alpha else wanted.solved(near)

        return minimise(wanted, self.alpha, plain).point

    def demand(self) -> None:
        """Refuse an alpha that rounding errors may take, by public constants alone.

        Raises:
            ParameterError: naming the least alpha.
        """
        nobody = np.zeros((1, self.loss.columns(self.centre.size)))
        objective = self._objective(People(nobody, np.ones(1, int)))
        # What doubles round follows from n and the constants: one record of zeros stands for any.
        objective.n = self.users
        demand_radius(self.alpha, objective.least_radius)

    def _objective(self, people: People) -> ExtendedERM:
        ball = self.domain
        settings = self.ridge, ball, self.centre, self.center, self._wide, self.alpha
        return ExtendedERM(self.loss, people, *settings, self.most_records)
