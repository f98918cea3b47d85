"""What algorithms share that release something of one certified minimiser."""

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from protocols.erm.risk import Risk
from protocols.erm.solver import minimise
from protocols.erm.solver.public import CARELESS, solver_by
from protocols.optimisation.base import Optimiser
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Mechanism
from shuffle_sim.protocol.base import State, check_rows
from shuffle_sim.protocol.release import (
    CentralAlgorithm,
    Release,
    Sensitivity,
    Statistic,
    WholeStatistic,
)

CERTIFIED = "the polisher ends: a certificate is reached for any data"


@dataclass(frozen=True)
class Minimum(WholeStatistic):
    """The minimiser of a risk to a promised radius, certified.

    Attributes:
        risk: of the rows.
        radius: promised, whatever the rows.
        users: n.
        solver: its name.
        printed: a paper's D, which is taken where it is above the tight one.
    """

    risk: Risk
    radius: float
    users: int
    solver: str = "newton"
    printed: float = 0.0

    @property
    def sensitivity(self) -> Sensitivity:
        """D + 2 radius."""
        exact, proof = self.risk.sensitivity(self.users)
        # What is projected onto a bounded set is never farther apart than the set is wide.
        total = min(max(exact, self.printed) + 2 * self.radius, self.risk.domain.widest)
        return Sensitivity(total, "l2", f"{proof}; twice the certified radius more")

    def careless(self) -> list[tuple[Statistic, float]]:
        return [(replace(self, solver=each), 2 * self.radius) for each in CARELESS]

    def of(self, rows: Floats) -> Floats:
        # Sensitivity rests on the certified radius, whichever solver ran and wherever it stopped.
        objective = self.risk.objective(np.asarray(rows, float))
        return minimise(objective, self.radius, solver_by(self.solver)).point


class OfRisk(Optimiser[State], CentralAlgorithm[State], ABC, Generic[State]):
    """An optimiser of a risk over n rows, which a curator has.

    Attributes:
        risk: what is minimised.
    """

    bounded = False  # a risk states the bound that it needs
    rests_on_loss = True
    risk: Risk

    @property
    def ridge(self) -> float:
        """lambda that is used."""
        return self.risk.ridge

    @property
    def everyone(self) -> Cohort:
        """All rows."""
        return Cohort.of(0, self.n)

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n, self.risk.loss.columns(self.risk.d)))
        self.risk.check(rows)


class OneRelease(OfRisk[Floats | None]):
    """A central optimiser of a single release, which starts nowhere.

    Attributes:
        statistic: of all rows.
        mechanism: what makes it private.
    """

    rounds = 1
    statistic: Statistic
    mechanism: Mechanism[Any]

    @property
    def release(self) -> Release:
        """The one release."""
        return Release.of(self.everyone, self.statistic, self.mechanism)

    def finish(self, released: Floats) -> Floats:
        """The output, of what was released; post-processing."""
        return released

    def init_at(self, theta: Floats) -> Floats | None:
        return None

    def plan(self, state: Floats | None) -> Release | None:
        return self.release if state is None else None

    def update(self, state: Floats | None, estimate: Any) -> Floats:
        return np.asarray(estimate, np.float64)

    def result(self, state: Floats | None) -> Floats:
        if state is None:
            raise ParameterError("state", state, "that of a finished release")
        return self.finish(state)


def demand_case(n: Any, privacy: Any) -> int:
    """n, if both can be.

    Raises:
        ParameterError: naming which is wrong.
    """
    if not isinstance(privacy, Privacy):
        raise ParameterError("privacy", privacy, "a Privacy(epsilon, delta)")
    return integer("n", n)


def shown(value: float) -> str:
    """A number in a list of choices."""
    return "infinite" if math.isinf(value) else f"{value:.4g}"
