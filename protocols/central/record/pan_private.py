"""Pan-private AC-SA (Cheu et al. 2022, Algorithm 6 and Theorem C.3): an online algorithm whose
memory may be seized once.

Not a shuffle protocol: one trusted machine reads a stream and forgets it. Its noise is Gaussian in
floating point, open to the attacks on such (Mironov 2012; Haney et al. 2022); the shuffle
protocols' integers are not.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from protocols.central.clipped_gradient import ClippedGradient
from protocols.optimisation.acceleration import (
    AcceleratedState,
    Schedule,
    accelerated_gap,
    best_batch,
    envelope_error,
    schedule_for,
)
from protocols.optimisation.base import DivergedError, Optimiser
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import CuratedPhases
from protocols.optimisation.setting import Setting, batching
from protocols.problems.problem import Problem
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian
from shuffle_sim.protocol.release import CentralAlgorithm, Release


@dataclass(frozen=True)
class PanGaussian(Gaussian):
    """Gaussian noise twice: before the first element is read, and after the last one.

    Its event is that of one noise. An intruder who saw the memory knows the first noise of later
    elements; the second covers them. Those before are covered by the first.
    """

    def noise(self, rng: np.random.Generator, d: int) -> Floats:
        return super().noise(rng, d) + super().noise(rng, d)

    def spread(self, d: int) -> float:
        return math.sqrt(2) * super().spread(d)

    def mean_norm(self, d: int) -> float:
        return math.sqrt(2) * super().mean_norm(d)


@dataclass(frozen=True)
class PanState:
    """All the algorithm remembers; it may be looked at once, at any moment.

    Attributes:
        batch: t, the batch being read, from 1.
        read: elements of it read so far.
        theta: theta_t.
        aggregate: theta_ag.
        middle: theta_md, where gradients are taken.
        gradient: the running average, noise first.
    """

    batch: int
    read: int
    theta: Floats
    aggregate: Floats
    middle: Floats
    gradient: Floats


class PanPrivateACSA(Optimiser[AcceleratedState], CentralAlgorithm[AcceleratedState]):
    """AC-SA over a stream of n elements in T batches; the curator releases the mean of each.

    Formal guarantee (pan-privacy, one intrusion): the memory at any one moment and the output
    together are differentially private. Each element's gradient is covered by the noise drawn
    before it against a later intrusion, and by the noise drawn at the end of its batch against an
    earlier one; either is a Gaussian mechanism of sensitivity 2 L/batch. Under a ridge it may be
    phased by `CuratedPhases`: then every element is in one phase.

    Attributes:
        noise_multiplier: of each of the two noises, in units of the sensitivity.
        bound: of the schedule, and of the envelope.
    """

    takes = ("batch", "rounds", "smoothing", "schedule")
    """As of `ShuffleACSA`."""
    adapts = ("initial_distance",)
    assumptions = ("one intrusion, at any moment, into the state alone: not generator or journal",)

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        batch: int,
        noise_multiplier: float,
        schedule: Schedule,
        privacy: Privacy,
        smoothing: float | None = None,
        choices: dict[str, str] | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones, `paper` the paper's.

        Args:
            problem: loss and domain.
            n: elements of the stream.
            batch: elements b of a batch.
            noise_multiplier: as above.
            schedule: weights and steps; its rounds are T.
            privacy: asked for.
            smoothing: beta of the Moreau envelope, or None.
            choices: what was chosen, and why.
        """
        self.problem, self.n, self.privacy = problem, integer("n", n), privacy
        self.batch, self.rounds = batching(self.n, batch, schedule.rounds)
        self.schedule, self.noise_multiplier = schedule, noise_multiplier
        self.mechanism = PanGaussian(noise_multiplier)
        self.slopes = Clipped(problem.loss, problem.lipschitz, smoothing)
        self.bound = schedule.gap + envelope_error(problem, smoothing)
        self.choices = dict(choices or {})

    @property
    def zeta(self) -> float:
        """Standard deviation per coordinate of each of the two noises."""
        return 2 * self.slopes.clip / self.batch * self.noise_multiplier

    @classmethod
    def settings(cls, **given: Any) -> Iterator[tuple[str, Callable[[], Optimiser[Any]]]]:
        """Alone; and under a ridge in phases, as in parts 3 and 4 of Theorem C.3."""
        yield "", partial(cls.calibrated, **given)
        if given["problem"].strong_convexity > 0:
            common = {name: given[name] for name in ("n", "problem", "privacy")}
            yield "in phases", partial(CuratedPhases.calibrated, optimiser=cls, **common)

    def init_at(self, theta: Floats) -> AcceleratedState:
        return AcceleratedState(0, theta, theta)

    def plan(self, state: AcceleratedState) -> Release | None:
        if state.round == self.rounds:
            return None
        # Printed with a_t and the old aggregate, theta_md would equal theta_ag: Algorithm 4 has
        # a_{t+1} and the new one.
        mean = ClippedGradient(self.slopes, self.schedule.middle(state), self.batch)
        cohort = Cohort.of(state.round * self.batch, (state.round + 1) * self.batch)
        return Release.of(cohort, mean, self.mechanism)

    def update(self, state: AcceleratedState, estimate: Floats) -> AcceleratedState:
        """A step along the released gradient.

        Raises:
            DivergedError: if the state is not finite any more.
        """
        gradient = estimate + self.problem.ridge * self.schedule.middle(state)
        after = self.schedule.step(state, gradient, self.problem.domain)
        if not (np.isfinite(after.theta).all() and np.isfinite(after.aggregate).all()):
            raise DivergedError(state.round)
        return after

    def result(self, state: AcceleratedState) -> Floats:
        return state.aggregate

    def memory(self, state: AcceleratedState, rows: Floats, first: Floats) -> PanState:
        """What an intruder would see after some rows of the next batch.

        Args:
            state: after the batches before.
            rows: read so far, of the batch.
            first: the noise that was drawn before them.
        """
        middle = self.schedule.middle(state)
        gradient = first + self.slopes.gradient(middle, rows) / self.batch
        return PanState(state.round + 1, len(rows), state.theta, state.aggregate, middle, gradient)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        unit = Gaussian.calibrated(setting.privacy).noise_multiplier
        return cls._chosen(setting, choices, unit, "analytic Gaussian")

    printed_power = (6 / 5, 1.0)

    @classmethod
    def printed_gap(cls, setting: Setting) -> float:
        """Theorem C.3, parts 1 and 2."""
        return accelerated_gap(setting, math.log(1 / setting.privacy.delta))

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """zeta^2 = 8 L^2 ln(2/delta)/(b^2 epsilon^2), for epsilon below 1; else by the bound."""
        real("epsilon", setting.privacy.epsilon, 0.0, 1.0, closed=(False, False))
        # zeta = (2 L/b) unit.
        unit = math.sqrt(2 * math.log(2 / setting.privacy.delta)) / setting.privacy.epsilon
        return cls._chosen(setting, choices, unit, "Algorithm 6")

    @classmethod
    def _chosen(cls, setting: Setting, choices: Choices, unit: float, why: str) -> Self:
        """With `unit` the noise for sensitivity 1."""
        problem = setting.problem

        def zeta(batch: int) -> float:
            return 2 * problem.lipschitz / batch * unit

        def squared_noise(batch: int) -> float:
            # Both noises, in d coordinates.
            return 2 * problem.d * zeta(batch) ** 2

        batch, rounds, _ = best_batch(setting, choices, squared_noise)
        choices.choose("zeta", zeta(batch), why)
        choices.choose("batch", batch, "smallest proven bound")
        choices.choose("rounds", rounds, "floor(n / batch)")
        noise = squared_noise(batch)
        schedule, smoothing = schedule_for(setting, choices, batch, rounds, noise)
        return cls(
            problem=problem,
            n=setting.n,
            batch=batch,
            noise_multiplier=unit,
            schedule=schedule,
            privacy=setting.privacy,
            smoothing=smoothing,
            choices=choices.reasons,
        )
