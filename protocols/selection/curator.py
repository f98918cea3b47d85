"""A curator's paid selection of one model of a few: the exponential mechanism over their scores.

Everybody's rows train every candidate, and everybody's rows score them: the curator sees them all.
Candidates are algorithms of one release, such as output perturbation with several ridges.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.base import Optimiser
from protocols.optimisation.then import ThenState
from protocols.problems.loss import Loss
from protocols.selection.budget import each_of, within
from protocols.selection.models import Choice, Scores, Selection, check_few
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Exponential
from shuffle_sim.protocol.release import CentralAlgorithm, Release, Sensitivity, Statistic, Total

SHARE = 0.2
"""Of epsilon, for the selection."""


@dataclass(frozen=True)
class MeanScores(Statistic):
    """The mean of what `Scores` asks of each user, from -1 to 1, (users, columns) to (models,).

    Scores that are not finite count as 0, and none as more than 1, as at users of a shuffler.

    Attributes:
        query: what is asked.
        users: n, by which the sum is divided.
    """

    query: Scores
    users: int

    @property
    def sensitivity(self) -> Sensitivity:
        """4/n, of the range of the changes."""
        proof = "one of n scores differs, by 2 at most: one mean rises by 2/n, another falls by it"
        return Sensitivity(4 / self.users, "range", proof)

    def __call__(self, total: Total, users: int) -> Floats:
        return total(self.part) / self.users

    def part(self, rows: Floats) -> Floats:
        """The sum of some rows' scores."""
        with np.errstate(over="ignore", invalid="ignore"):
            each = np.asarray(self.query(rows)) * math.sqrt(len(self.query.thetas))
        # As at a shuffler, where such an answer counts as zero.
        known = np.isfinite(each).all(axis=1, keepdims=True)
        return np.asarray(np.clip(np.where(known, each, 0.0), -1.0, 1.0).sum(axis=0))


class CuratedSelection(Choice, CentralAlgorithm[Any]):
    """Candidates of a curator on the same rows, then one of them by the exponential mechanism.

    The result is a `Selection` without scores: they are not released.

    Formal guarantee: of all candidates and the choice, which the ledger composes; at most the
    epsilon asked for, at `delta`.
    """

    def __init__(
        self,
        candidates: Mapping[str, Optimiser[Any]],
        loss: Loss,
        choice: Exponential,
        delta: float,
    ) -> None:
        super().__init__(candidates, loss)
        self.choice, self._delta = choice, delta
        self.rounds = self.rounds_per_user = 1 + len(self.candidates)

    @classmethod
    def calibrated(
        cls,
        candidates: Mapping[str, Callable[[Privacy], Optimiser[Any]]],
        *,
        loss: Loss,
        privacy: Privacy,
        share: float = SHARE,
    ) -> "CuratedSelection":
        """Candidates with equal parts of what the choice leaves.

        Args:
            candidates: by name, two to MOST; each makes an optimiser of one release for a budget.
            loss: of all of them, by which models are scored.
            privacy: of the whole run.
            share: of epsilon for the choice.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        check_few(candidates)
        real("share", share, 0.0, 1.0, closed=(False, False))
        count, left = len(candidates), Privacy((1 - share) * privacy.epsilon, privacy.delta)
        # Pure epsilons add up; beside a delta the ledger decides (`within`), and this is a start.
        first = left.epsilon / count
        if privacy.delta > 0:
            first = each_of(left, count).epsilon

        def made(part: Privacy) -> "CuratedSelection":
            every = {name: make(part) for name, make in candidates.items()}
            return cls(every, loss, Exponential(share * privacy.epsilon), privacy.delta)

        return within(made, privacy, Privacy(first, privacy.delta / count), cls._charges)

    def _charges(self) -> list[tuple[Cohort, PrivacyEvent]]:
        """What the ledger will have."""
        events = [*map(_event, self.candidates), self.choice.event]
        return [(Cohort.of(0, self.users), event) for event in events]

    @property
    def users(self) -> int:
        return int(self.candidates[0].users)

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen, and why."""
        how = f"exponential mechanism at epsilon {self.choice.epsilon:.3g} over mean scores"
        return {"select": f"{'; '.join(self.names)}: {how}", **self.candidates[0].choices}

    def check(self, rows: NDArray[Any]) -> None:
        for each in self.candidates:
            each.check(rows)

    def scoring(self, query: Scores) -> Release:
        scores = MeanScores(query, self.users)
        return Release.of(Cohort.of(0, self.users), scores, self.choice)

    def result(self, state: ThenState) -> Selection:
        drawn = int(self.scored(state))
        return Selection(state.results[drawn], self.names[drawn], {})


def _event(made: Optimiser[Any]) -> PrivacyEvent:
    """Of its only release.

    Raises:
        ParameterError: it has several, or one of a session.
    """
    release = made.plan(made.init())
    if made.rounds != 1 or release is None or release.event is None:
        allowed = "left out: it selects among algorithms of one release"
        raise ParameterError("select", type(made).__name__, allowed)
    event: PrivacyEvent = release.event
    return event
