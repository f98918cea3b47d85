"""The loop that all optimisers share: ask a cohort for gradients, average, step."""

import dataclasses
import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.base import DivergedError, StateT, batching
from protocols.problems.problem import Gradient, Problem, demand
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.sums.binomial import BinomialRandomizer
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.protocol.base import Protocol, RoundSpec


class FirstOrder(Protocol[StateT]):
    """A protocol that asks for one private average gradient a round; subclasses say where, of whom,
    and what they do with it.

    Attributes:
        problem: what is minimised.
        n: users.
        rounds: T.
        mean: the private average.
        smoothing: beta of the Moreau envelope, or None.
        privacy: asked for.
        bound: proven bound of the expected gap, where the parameters were chosen with one; infinite
            otherwise.
        choices: what was chosen, and why.
    """

    one_shot: ClassVar[bool] = True
    """Whether every user is asked once at most, in disjoint batches."""

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        rounds: int,
        mean: NoisyMean,
        privacy: Privacy,
        smoothing: float | None = None,
        bound: float = math.inf,
        choices: dict[str, str] | None = None,
        claim: Guarantee | None = None,
    ) -> None:
        """Keep the parameters; subclasses add theirs."""
        demand(problem, privacy)
        self.problem, self.mean, self.privacy, self.bound = problem, mean, privacy, bound
        self.n, self.rounds = integer("n", n), integer("rounds", rounds)
        if mean.batch > self.n:
            raise ParameterError("batch", mean.batch, f"at most the number of users ({self.n})")
        if self.one_shot:
            batching(self.n, mean.batch, self.rounds)
        self.smoothing = None if smoothing is None else positive("smoothing", smoothing)
        self.honest_fraction = mean.honest_fraction
        self.choices = {"rounds": "given", "batch": "given", **(choices or {})}
        self._claim = claim

    @property
    def users(self) -> int:
        """Number of users n."""
        return self.n

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self.privacy.delta

    @property
    def claim(self) -> Guarantee | None:
        """What the paper's theorem promises, where `paper` set the parameters."""
        return self._claim

    @property
    def vocabulary(self) -> tuple[type, ...]:
        """What a round may broadcast."""
        return (Gradient, BinomialRandomizer, type(self.problem.loss))

    @property
    def claims_sequential(self) -> bool:
        """Where users answer once, it claims so, and is held to it."""
        return self.rounds_per_user == 1

    @property
    def rounds_per_user(self) -> int:
        """In how many rounds a user answers at most."""
        return 1

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows of the wrong shape, or for which the loss's constants do not hold."""
        d = self.problem.d
        columns = self.problem.loss.columns(d)
        if rows.shape != (self.n, columns):
            raise ParameterError("data.shape", rows.shape, f"({self.n}, {columns})")
        self.problem.loss.check(rows, d)

    def init(self) -> StateT:
        """At the problem's start."""
        return self.init_at(self.problem.origin)

    @abstractmethod
    def init_at(self, theta: Floats) -> StateT:
        """At another start."""

    @abstractmethod
    def point(self, state: StateT) -> Floats:
        """Where the next gradient is asked for."""

    def cohort(self, state: StateT) -> Cohort:
        """The next batch of users not asked before."""
        return Cohort.of(state.round * self.mean.batch, (state.round + 1) * self.mean.batch)

    @abstractmethod
    def step(self, state: StateT, gradient: Floats) -> StateT:
        """The state after a gradient of the objective at `point`."""

    def plan(self, state: StateT) -> RoundSpec | None:
        """The next round's gradient."""
        if state.round >= self.rounds:
            return None
        return self.mean.spec(
            self.cohort(state), Gradient(self.problem.loss, self.point(state), self.smoothing)
        )

    def update(self, state: StateT, estimate: Any) -> StateT:
        """One step of descent along the estimated average gradient.

        Raises:
            DivergedError: if the state is not finite any more.
        """
        gradient = np.asarray(estimate, np.float64) + self.problem.ridge * self.point(state)
        if not np.isfinite(gradient).all():
            raise DivergedError(state.round)
        after = self.step(state, gradient)
        values = [getattr(after, each.name) for each in dataclasses.fields(after)]
        if not all(np.isfinite(value).all() for value in values if isinstance(value, np.ndarray)):
            raise DivergedError(state.round)
        return after
