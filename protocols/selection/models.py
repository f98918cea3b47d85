"""A paid selection of one model of a few: report noisy max, through the shuffler.

All candidates are trained on the same users and share their budget. Other users, asked nothing
else, then say how well each candidate does on their own row: one vector sum, one charge. The
largest noisy score wins. Docs: theory, Composition; estimators.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.then import Then, ThenState
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.multiclass import MultiClass
from protocols.problems.weighted import Weighted
from protocols.selection.budget import each_of, within
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from protocols.sums.planned import PlannedVectorSum, planned_sum
from shuffle_sim.arrays import Floats, Values
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec
from shuffle_sim.protocol.base import Protocol, Query, RoundSpec

FRACTION = 0.1
"""Of the users who score, where none is given."""
MOST = 16
"""Candidates: each adds to the noise of all."""

Make = Callable[[int, Privacy], FirstOrder[Any]]
"""A candidate for some users and a budget."""


@dataclass(frozen=True)
class Scores(Query):
    """Asks each user how well models do on its row, from -1 to 1, over the root of their number.

    Of classes it is 1 where the prediction is right, else -1. Of numbers it is 1 less twice the
    loss over the largest loss of the margin 0, -1 at least. A weight w counts as w/bound.

    Attributes:
        loss: of the models.
        thetas: (models, d).
    """

    loss: Loss
    thetas: Floats
    moves: ClassVar[tuple[str, ...]] = ("thetas",)

    def __call__(self, rows: Floats) -> Values:
        """Shape (users, models); no row is longer than 1."""
        loss, rows = self.loss, np.asarray(rows, np.float64)
        heavy = np.ones((len(rows), 1))
        if isinstance(loss, Weighted):
            heavy = np.clip(rows[:, -1:] / loss.bound, 0.0, 1.0)
            rows, loss = rows[:, :-1], loss.loss
        each = np.column_stack([_scored(loss, theta, rows) for theta in self.thetas])
        return np.asarray(each * heavy / math.sqrt(len(self.thetas)))


def _scored(loss: Loss, theta: Floats, rows: Floats) -> Floats:
    """Of one model, (users,), from -1 to 1."""
    x, labels = rows[:, :-1], rows[:, -1]
    if isinstance(loss, MultiClass):
        places = (x @ theta.reshape(loss.classes, -1).T).argmax(axis=1)
        return np.where(places == labels, 1.0, -1.0)
    assert isinstance(loss, LinearLoss)
    margins = x @ theta
    if loss.classification:
        return np.where((margins > 0) == (labels > 0), 1.0, -1.0)
    return np.asarray(1 - 2 * np.clip(loss.value(margins, labels) / _worst(loss), 0.0, 1.0))


def _worst(loss: LinearLoss) -> float:
    """Of the margin 0, which knows nothing: a public scale, whatever the radius is.

    Raises:
        ParameterError: it has no loss, so there is no scale.
    """
    worst = float(loss.value(np.zeros(2), np.array([-1.0, 1.0])).max())
    if not worst > 0:
        allowed = "one that is above 0 at the margin 0: models are scored in parts of that"
        raise ParameterError("loss", loss, allowed)
    return worst


@dataclass(frozen=True)
class Selection:
    """What a paid selection gives.

    Attributes:
        theta: of the winner.
        chosen: its name.
        scores: noisy means by candidate, from -1 to 1; of classes (score + 1)/2 is the accuracy.
    """

    theta: Floats = field(repr=False)
    chosen: str
    scores: Mapping[str, float]


class Choice(Then):
    """Candidates one after the other, then their scores on rows, then the best of them."""

    bound = math.inf  # none is proven
    assumes = ""

    def __init__(self, candidates: Mapping[str, Any], loss: Loss) -> None:
        """Candidates for the same rows, and the loss by which they are scored.

        Raises:
            ParameterError: scores of that loss have no scale.
        """
        of_rows = loss.loss if isinstance(loss, Weighted) else loss
        if isinstance(of_rows, LinearLoss) and not of_rows.classification:
            _worst(of_rows)
        self.names, self.candidates, self.loss = list(candidates), list(candidates.values()), loss

    @abstractmethod
    def scoring(self, query: Scores) -> Any:
        """What is asked once all candidates are trained."""

    def stage(self, results: tuple[Any, ...]) -> Any:
        if len(results) < len(self.candidates):
            return self.candidates[len(results)]
        if len(results) > len(self.candidates):
            return None
        return self.scoring(Scores(self.loss, np.stack(results)))

    def scored(self, state: ThenState) -> Any:
        """The answer to `scoring`.

        Raises:
            ParameterError: it is not there yet.
        """
        if len(state.results) <= len(self.candidates):
            raise ParameterError("state", state, "that after the scores")
        return state.results[-1]


class Selected(Choice, Protocol[Any]):
    """Candidates one after the other on the first users; then all others score them.

    The result is a `Selection`.

    Formal guarantee: those who train answer in the rounds of all candidates, which compose in the
    ledger; those who score answer once. The two groups are disjoint, so the guarantee is that of
    the worse of the two: at most the epsilon asked for, at `delta`.
    """

    candidates: list[FirstOrder[Any]]

    def __init__(
        self,
        candidates: Mapping[str, FirstOrder[Any]],
        total: PlannedVectorSum,
    ) -> None:
        """Candidates for the same users and rows, and the sum of those who score."""
        super().__init__(candidates, next(iter(candidates.values())).problem.loss)
        self.total, self.honest_fraction = total, total.honest_fraction
        self.trained = self.candidates[0].n

    @classmethod
    def calibrated(
        cls,
        candidates: Mapping[str, Make],
        *,
        n: int,
        privacy: Privacy,
        fraction: float = FRACTION,
        encoding: str | None = None,
        honest_fraction: float = 1.0,
    ) -> "Selected":
        """Candidates with equal parts of the budget, as Gaussian releases compose.

        Args:
            candidates: by name, two to MOST.
            n: users.
            privacy: of the whole run.
            fraction: of the users who score.
            encoding: of the scores; None: that of the fewest bits.
            honest_fraction: of the users that add their noise.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        check_few(candidates)
        real("select_fraction", fraction, 0.0, 1.0, closed=(False, False))
        scorers = round(fraction * n)
        if not 0 < scorers < n:
            allowed = f"such that of {n} users some train and some score"
            raise ParameterError("select_fraction", fraction, allowed)
        # All of the budget: who scores was in no training, and who trains does not score.
        spec = SumSpec(scorers, len(candidates), privacy, honest_fraction=honest_fraction)
        scoring = planned_sum(spec, encoding)

        def made(part: Privacy) -> "Selected":
            each = {name: make(n - scorers, part) for name, make in candidates.items()}
            return cls(each, scoring)

        return within(made, privacy, each_of(privacy, len(candidates)))

    @property
    def users(self) -> int:
        return self.trained + self.total.n

    @property
    def delta(self) -> float:
        return self.total.delta

    @property
    def vocabulary(self) -> tuple[type, ...]:
        every = [each for made in self.candidates for each in made.vocabulary]
        return tuple(dict.fromkeys((Scores, type(self.total.randomizer), *every)))

    @property
    def rounds(self) -> int:
        """Of all candidates, and the one of scores."""
        return 1 + sum(made.rounds for made in self.candidates)

    @property
    def rounds_per_user(self) -> int:
        """Those who train answer most."""
        return sum(made.rounds_per_user for made in self.candidates)

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen, and why."""
        noise = self.total.standard_error * math.sqrt(len(self.names)) / self.total.n
        how = f"noisy max over {self.total.n:,} users' scores, noise of a mean score {noise:.2g}"
        return {"select": f"{'; '.join(self.names)}: {how}", **self.candidates[0].choices}

    def check(self, rows: NDArray[Any]) -> None:
        problem = self.candidates[0].problem
        shape = self.users, problem.loss.columns(problem.d)
        if rows.shape != shape:
            raise ParameterError("data.shape", rows.shape, str(shape))
        problem.loss.check(rows, problem.d)

    def scoring(self, query: Scores) -> RoundSpec:
        return NoisyMean(self.total).spec(Cohort.of(self.trained, self.users), query)

    def result(self, state: ThenState) -> Selection:
        scores = np.asarray(self.scored(state), np.float64) * math.sqrt(len(self.names))
        # Of released numbers: which of them is largest costs nothing more.
        best = int(np.argmax(scores))
        named = dict(zip(self.names, scores.tolist(), strict=True))
        return Selection(state.results[best], self.names[best], named)


def check_few(candidates: Sized) -> None:
    """Refuse one candidate alone, and more than MOST.

    Raises:
        ParameterError: there are so many.
    """
    if not 2 <= len(candidates) <= MOST:
        raise ParameterError("select", len(candidates), f"2 to {MOST} candidates")


def grid(
    given: Mapping[str, Sequence[float]],
    make: Callable[..., Any],
) -> dict[str, Callable[..., Any]]:
    """Candidates for every combination of some values.

    Args:
        given: values by parameter.
        make: from a value for each parameter, and what else a candidate is made from.

    Raises:
        ParameterError: no values, or one twice.
    """
    for name, values in given.items():
        if not len(values) or len(set(values)) < len(values):
            raise ParameterError(f"select {name}", list(values), "different values")
    every = [dict(zip(given, each, strict=True)) for each in product(*given.values())]
    return {
        ", ".join(f"{name} {value:g}" for name, value in each.items()): partial(make, **each)
        for each in every
    }
