"""Objective perturbation of rows around a released centre.

Bounds that people state are wide, and rows then share one direction: noise hides the rest. A first
release has the mean of the features and their mean square. Rows are then moved by it and scaled, as
by the descent of all trust models, and clipped to the same ball.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocols.central.clipped_gradient import ClippedGradient
from protocols.central.record.objective_perturbation import ObjectivePerturbation
from protocols.erm.extension import valid_records
from protocols.optimisation.base import Optimiser
from protocols.optimisation.choices import Choices
from protocols.optimisation.practice import RADIUS, FeatureCentring
from protocols.optimisation.setting import Setting
from protocols.optimisation.then import Then, ThenState
from protocols.problems.centred import Centred
from protocols.problems.domains import L2Ball
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import L2Laplace
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, WholeStatistic

SHARE = 0.2
"""Of epsilon for the centre; tuned by `python -m benchmarks.tuning pure`, on generated rows."""


@dataclass(frozen=True)
class OfCentred(WholeStatistic):
    """A statistic of rows that are moved and scaled one by one, and stay in the same ball.

    Rows that the loss's constants do not hold for count as a fixed one.

    Attributes:
        statistic: whose sensitivity holds for any rows of that ball.
        centred: how rows are moved.
    """

    statistic: WholeStatistic
    centred: Centred

    @property
    def sensitivity(self) -> Sensitivity:
        return self.statistic.sensitivity

    def of(self, rows: Floats) -> Any:
        kept = valid_records(self.centred.loss, self.centred.center.size + 1, rows)
        return self.statistic.of(self.centred.rows(kept))


class CentredObjective(Then, Optimiser[Any], CentralAlgorithm[Any]):
    """A release of mean and spread of the features, then objective perturbation around them.

    Formal guarantee: l2-Laplace noise for a share of epsilon, and `ObjectivePerturbation` for the
    rest; epsilons add up, since the second is private whatever the first released. No bound of the
    excess loss is proven. The ridge is of the parameters of the moved rows.

    Attributes:
        inner: the second release.
        share: of epsilon for the first.
    """

    takes = ("ridge", "solver", "share")
    bounded = False
    binary = True
    rounds = 2
    bound = np.inf

    def __init__(self, *, inner: ObjectivePerturbation, privacy: Privacy, share: float) -> None:
        """Both releases; `calibrated` makes them.

        Raises:
            ParameterError: rows without a public constant, which takes up what the centre moves.
        """
        self.inner, self.problem, self.n, self.privacy = inner, inner.problem, inner.n, privacy
        self.share, self.choices = share, inner.choices
        # Beside a ridge `FeatureCentring` leaves the features; this ridge is of the moved rows.
        free = replace(self.problem, ridge=0.0, domain=L2Ball(self.problem.d, RADIUS))
        # Of two rounds the first looks.
        self._looks = FeatureCentring.tuned(free, 2)
        if not self._looks.rounds:
            allowed = "given: the value of a constant column; without one take objective"
            raise ParameterError("constant", self.problem.constant, allowed)
        self._noise = L2Laplace(share * privacy.epsilon, self.problem.d)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        share = real("share", choices.get("share", SHARE), 0.0, 1.0, closed=(False, False))
        privacy = setting.privacy
        left = Privacy((1 - share) * privacy.epsilon, privacy.delta)
        inner = ObjectivePerturbation.calibrated_for(replace(setting, privacy=left), choices)
        return cls(inner=inner, privacy=privacy, share=share)

    def init_at(self, theta: Floats) -> ThenState:
        return self._begun(())

    def init(self) -> ThenState:
        return self._begun(())

    def check(self, rows: NDArray[Any]) -> None:
        self.inner.check(rows)

    def stage(self, results: tuple[Any, ...]) -> Any:
        if results:
            return self.inner if len(results) == 1 else None
        asked, norm = self._looks.asked(self.problem.loss), self._looks.norm
        mean = ClippedGradient(Clipped(asked, norm), np.zeros(self.problem.d), self.n)
        return Release.of(Cohort.of(0, self.n), mean, self._noise)

    def plan(self, state: ThenState) -> Release | None:
        asked: Release | None = super().plan(state)
        if asked is None or not state.results:
            return asked
        assert isinstance(asked.statistic, WholeStatistic)
        moved = OfCentred(asked.statistic, self._centred(state))
        return Release.of(asked.cohort, moved, asked.mechanism)

    def _centred(self, state: ThenState) -> Centred:
        """By what the first release gave."""
        d = self.problem.d
        # `error` is of the whole vector; `centred` asks for that of one coordinate.
        noise = self._noise.error(2 * self._looks.norm / self.n, d) / d**0.5
        return self._looks.centred(self.problem.loss, np.asarray(state.results[0]), noise)

    def result(self, state: ThenState) -> Floats:
        theta = state.results[1] if len(state.results) > 1 else super().result(state)
        return self._centred(state).outward(np.asarray(theta))
