"""Noisy clipped gradient descent at a curator: what heavy-tailed algorithms are compared with.

Any loss is taken: each gradient is clipped, whatever it is, and clipping costs a bias.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from protocols.central.clipped_gradient import ClippedGradient
from protocols.central.heavy_tails.unbounded import Unbounded, bounded_moments
from protocols.optimisation.base import AverageState, DivergedError
from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem, demand
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace, Noise
from shuffle_sim.protocol.release import Release

_TIMES = np.unique(np.geomspace(1, 100, 30).round().astype(int))
_CLIPS = np.geomspace(1e-2, 1e4, 200)


class ClippedDescent(Unbounded[AverageState]):
    """Projected descent along noisy means of clipped gradients.

    The result is the mean of the points of the second half.

    Attributes:
        rounds: T.
        clip: C.
        eta: the step.
        choices: what was chosen, and why.
    """

    takes: ClassVar[tuple[str, ...]] = ("moments", "rounds", "clip", "eta")
    once: ClassVar[bool]
    """Whether a user answers in one round only."""

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        rounds: int,
        clip: float,
        eta: float,
        bound: float = math.inf,
        choices: dict[str, str] | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        self.problem, self.n, self.privacy = problem, integer("n", n), privacy
        self.rounds, self.clip = integer("rounds", rounds, 1, self.n), positive("clip", clip)
        self.eta, self.bound, self.choices = positive("eta", eta), bound, choices or {}

    @property
    def rounds_per_user(self) -> int:
        return 1 if self.once else self.rounds

    @classmethod
    @abstractmethod
    def noise(cls, privacy: Privacy, d: int, rounds: int) -> Noise:
        """Of one round."""

    @classmethod
    @abstractmethod
    def batch(cls, n: int, rounds: int) -> int:
        """Users of a round."""

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The T and C with the least D B(C) + R sqrt((G_2^2 + E ||noise||^2)/T), and its step."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        moments: Moments = choices["moments"] or bounded_moments(problem)
        wanted, clip = choices["rounds"], choices["clip"]
        times = [t for t in _TIMES.tolist() if t <= n]
        if wanted is not None:
            times = [integer("rounds", wanted, 1, n)]
        # At k = infinity G_k bounds every gradient: a clip there has no bias.
        clips = moments.root * _CLIPS if math.isfinite(moments.k) else np.array([moments.gk])
        if clip is not None:
            clips = np.array([positive("clip", clip)])
        d = problem.d
        units = {t: 2 / cls.batch(n, t) * cls.noise(privacy, d, t).spread(d) for t in times}

        def length(t: int, clip: float) -> float:
            # A clipped gradient has the second moment G_2^2, not C^2.
            return math.sqrt(moments.root**2 + (clip * units[t]) ** 2)

        def bound(t: int, clip: float) -> float:
            gap: float = problem.domain.diameter * moments.bias(clip)
            # R^2/(2 eta T) + eta L_G^2/2 at the best eta is R L_G/sqrt(T).
            return gap + problem.reach * length(t, clip) / math.sqrt(t)

        gap, (t, clip) = least(bound, times, clips.tolist())
        eta = choices.get("eta", problem.reach / (length(t, clip) * math.sqrt(t)))
        why = {"rounds, clip": f"{t}, {clip:.4g}: least of D B(C) + R L_G/sqrt(T) = {gap:.4g}"}
        return cls(problem=problem, n=n, privacy=privacy, rounds=t, clip=clip, eta=eta, choices=why)

    def init_at(self, theta: Floats) -> AverageState:
        return AverageState(0, theta, np.zeros(self.problem.d))

    def cohort(self, index: int) -> Cohort:
        """Of a round."""
        each = self.batch(self.n, self.rounds)
        return Cohort.of(index * each, (index + 1) * each)

    def plan(self, state: AverageState) -> Release | None:
        if state.round == self.rounds:
            return None
        cohort = self.cohort(state.round)
        slopes = Clipped(self.problem.loss, self.clip)
        gradient = ClippedGradient(slopes, state.theta, cohort.size)
        noise = self.noise(self.privacy, self.problem.d, self.rounds)
        return Release.of(cohort, gradient, noise)

    def update(self, state: AverageState, estimate: Any) -> AverageState:
        gradient = np.asarray(estimate, np.float64) + self.problem.ridge * state.theta
        theta = self.problem.domain.project(state.theta - self.eta * gradient)
        if not np.isfinite(theta).all():
            raise DivergedError(state.round)
        # T - floor(T/2) rounds, as many as `result` divides by.
        late = state.round + 1 > self.rounds // 2
        return AverageState(state.round + 1, theta, state.total + theta * late)

    def result(self, state: AverageState) -> Floats:
        return state.total / max(1, state.round - self.rounds // 2)


class PureSGD(ClippedDescent):
    """Each user answers once, in disjoint batches, with l2-Laplace noise: pure."""

    once = True

    @property
    def delta(self) -> float:
        """0: pure."""
        return 0.0

    @classmethod
    def noise(cls, privacy: Privacy, d: int, rounds: int) -> Noise:
        return L2Laplace(privacy.epsilon, d)

    @classmethod
    def batch(cls, n: int, rounds: int) -> int:
        return n // rounds


class GaussianGD(ClippedDescent):
    """All users answer in every round, with Gaussian noise: approximate, exactly composed."""

    once = False

    @classmethod
    def noise(cls, privacy: Privacy, d: int, rounds: int) -> Noise:
        """Of T composed releases.

        Raises:
            ParameterError: delta = 0.
        """
        return Gaussian.calibrated(privacy, rounds)

    @classmethod
    def batch(cls, n: int, rounds: int) -> int:
        return n

    def cohort(self, index: int) -> Cohort:
        return Cohort.of(0, self.n)
