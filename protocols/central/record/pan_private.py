"""Pan-private AC-SA (Cheu et al. 2022, Algorithm 6 and Theorem C.3): an online algorithm whose
memory may be seized once.

Not a shuffle protocol: one trusted machine reads a stream and forgets it. Its noise is Gaussian in
floating point, open to the attacks on such (Mironov 2012; Haney et al. 2022); the shuffle
protocols' integers are not.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from protocols.optimisation.acceleration import (
    AcceleratedState,
    Schedule,
    best_batch,
    envelope_error,
    schedule_for,
)
from protocols.optimisation.base import Calibrated, DivergedError
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting, batching
from protocols.problems.problem import Problem
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import WITHHELD, ParameterError, integer, positive, real
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.events import GaussianEvent
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.sampling.randomness import Role, entropy_of, stream


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


class PanPrivateACSA(Calibrated):
    """AC-SA over a stream of n elements in T batches; `observe` one at a time, `state` at any
    moment, `result` at the end.

    Formal guarantee (pan-privacy, one intrusion): the state at any one moment and the output
    together are differentially private. Each element's gradient is covered by the noise drawn
    before it against a later intrusion, and by the noise drawn at the end of its batch against an
    earlier one; either is a Gaussian mechanism of sensitivity 2 L/batch.
    """

    takes = ("batch", "rounds", "smoothing", "schedule", "seed")
    """As of `ShuffleACSA`; a seed makes the noise reproducible, and the run not private."""
    adapts = ("initial_distance",)

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        batch: int,
        zeta: float,
        schedule: Schedule,
        privacy: Privacy,
        smoothing: float | None = None,
        seed: int | None = None,
        choices: dict[str, str] | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones, `paper` the paper's.

        Args:
            problem: loss and domain.
            n: elements of the stream.
            batch: elements b of a batch.
            zeta: standard deviation per coordinate of each of the two noises.
            schedule: weights and steps; its rounds are T.
            privacy: asked for.
            smoothing: beta of the Moreau envelope, or None.
            seed: makes the noise reproducible, and the run therefore not private.
            choices: what was chosen, and why.
        """
        self.problem, self.n, self.privacy, self.schedule = (
            problem,
            integer("n", n),
            privacy,
            schedule,
        )
        self.batch, self.rounds = batching(self.n, batch, schedule.rounds)
        self.zeta = positive("zeta", zeta)
        self.smoothing = smoothing
        self.slopes = Clipped(problem.loss, problem.lipschitz, smoothing)
        self.bound = schedule.gap + envelope_error(problem, smoothing)
        self.seed, self.choices = seed, dict(choices or {})
        origin = problem.origin
        self._state = PanState(1, 0, origin, origin, origin, self._noise(1, 0))

    @property
    def state(self) -> PanState:
        """The internal state, as an intruder would see it."""
        return self._state

    @property
    def done(self) -> bool:
        """Whether all T batches are read; what the stream still holds is not needed."""
        return self._state.batch > self.rounds

    def observe(self, row: ArrayLike) -> None:
        """Read one element and forget it.

        Raises:
            ParameterError: for an element the loss's constants do not hold for, or after the last
                batch.
            DivergedError: if the state is not finite any more.
        """
        if self.done:
            raise ParameterError(
                "row",
                WITHHELD,
                f"among the first {self.rounds * self.batch} elements of the stream",
            )
        rows = np.atleast_2d(InMemory(row).array)
        self.problem.loss.check(rows, self.problem.d)
        state = self._state
        gradient = self.slopes.gradient(state.middle, rows.astype(np.float64))
        running = state.gradient + gradient / self.batch
        if state.read + 1 < self.batch:
            self._state = replace(state, read=state.read + 1, gradient=running)
            return
        # One step, so that no moment exists at which the batch is complete and its second noise
        # missing.
        complete = running + self._noise(state.batch, 1)
        self._state = self._advanced(complete + self.problem.ridge * state.middle)

    def result(self) -> Floats:
        """theta_ag after the last batch.

        Raises:
            ParameterError: before.
        """
        if not self.done:
            seen = (self._state.batch - 1) * self.batch + self._state.read
            raise ParameterError(
                "stream",
                seen,
                f"read to the end of the last batch, {self.rounds * self.batch} elements",
            )
        return self._state.aggregate

    @property
    def guarantee(self) -> Guarantee:
        """Of the state at any one moment together with the output."""
        event = GaussianEvent(self.zeta * self.batch / (2 * self.slopes.clip))
        notes = ("one intrusion, at any moment", "floating-point Gaussian noise")
        seeded = () if self.seed is None else ("seeded: reproducible, and therefore not private",)
        return ShuffleAccountant().compose(event).guarantee(self.privacy.delta, (*notes, *seeded))

    def _noise(self, batch: int, end: int) -> Floats:
        """Noise at the beginning or the end of a batch.

        Each generator is made for one draw: a kept one could be run backward by an intruder, and
        would give all noise away.
        """
        rng = stream(entropy_of(self.seed), batch, Role.CURATOR, end)
        return np.asarray(rng.normal(0.0, self.zeta, self.problem.d))

    def _advanced(self, gradient: Floats) -> PanState:
        state, t = self._state, self._state.batch
        before = AcceleratedState(t - 1, state.theta, state.aggregate)
        after = self.schedule.step(before, gradient, self.problem.domain)
        # Printed with a_t and the old aggregate, theta_md would equal theta_ag: Algorithm 4 has
        # a_{t+1} and the new one.
        middle = self.schedule.middle(after)
        if not np.isfinite(middle).all():
            raise DivergedError(t - 1)
        return PanState(t + 1, 0, after.theta, after.aggregate, middle, self._noise(t + 1, 0))

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        unit = 1 / gaussian.mu_of(setting.privacy.epsilon, setting.privacy.delta)
        return cls._chosen(setting, choices, unit, "analytic Gaussian")

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """zeta^2 = 8 L^2 ln(2/delta)/(b^2 epsilon^2), for epsilon below 1; else by the bound."""
        real("epsilon", setting.privacy.epsilon, 0.0, 1.0, closed=(False, False))
        unit = math.sqrt(2 * math.log(2 / setting.privacy.delta)) / setting.privacy.epsilon
        return cls._chosen(setting, choices, unit, "Algorithm 6")

    @classmethod
    def _chosen(cls, setting: Setting, choices: Choices, unit: float, why: str) -> Self:
        """With `unit` the noise for sensitivity 1."""
        problem = setting.problem

        def zeta(batch: int) -> float:
            return 2 * problem.lipschitz / batch * unit

        def squared_noise(batch: int) -> float:
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
            zeta=zeta(batch),
            schedule=schedule,
            privacy=setting.privacy,
            smoothing=smoothing,
            seed=choices["seed"],
            choices=choices.reasons,
        )
