"""What every optimiser of the shuffle model becomes with steps tuned on synthetic data."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from protocols.optimisation.choices import Choices
from protocols.optimisation.practice import Momentum, MomentumState, clipped, smoothing_of
from protocols.optimisation.setting import Setting, batching
from protocols.problems.centred import Centred, FeatureMoments
from protocols.problems.per_person import MeanGradient
from protocols.problems.problem import Gradient, Problem
from protocols.shuffle.noisy_mean import NoisyMean
from protocols.shuffle.optimiser import FirstOrder
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import RoundSpec


@dataclass(kw_only=True, eq=False)
class PracticalDescent(FirstOrder[MomentumState]):
    """Descent with momentum and tuned parameters; the result is the last iterate.

    Formal guarantee: each round's, by the domination lemma. Rounds compose adaptively where all n
    users answer in each, in parallel where batches are disjoint. A center of the features follows
    from the first rounds; whatever it is, users' vectors are clipped to L. No bound of the gap is
    proven.

    Attributes:
        momentum: rounds, step, and how it brakes.
    """

    one_shot = False
    takes = ("batch", "rounds", "eta", "smoothing")
    """Users in a round, below n for disjoint batches; T; the first step; beta of the envelope."""
    asks: ClassVar[type[Gradient]] = Gradient

    momentum: Momentum

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.everybody:
            batching(self.n, self.mean.batch, self.rounds)

    def init_at(self, theta: Floats) -> MomentumState:
        return self.momentum.init_at(theta)

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (self.asks, Centred, FeatureMoments, *super().vocabulary)

    def plan(self, state: MomentumState) -> RoundSpec | None:
        if state.round >= self.rounds:
            return None
        loss, smoothing = state.centred or self.problem.loss, self.smoothing
        if state.round < self.momentum.looks.rounds:
            # Its gradients are no longer than L: the same randomizer and event serve.
            loss, smoothing = self.momentum.looks.asked(self.problem.loss), None
        query = self.asks(loss, self.point(state), smoothing)
        return self.mean.spec(self.cohort(state), query)

    def point(self, state: MomentumState) -> Floats:
        return state.outward(state.ahead)

    def step(self, state: MomentumState, gradient: Floats) -> MomentumState:
        if state.round < self.momentum.looks.rounds:
            return self.momentum.look(state, gradient, self.problem.loss)
        return self.momentum.step(state, gradient, self.problem.domain)

    def result(self, state: MomentumState) -> Floats:
        return self.problem.domain.project(state.outward(state.theta))

    @classmethod
    def best(cls, setting: Setting, choices: Choices) -> tuple[int, int, float]:
        rounds = Momentum.tuned(setting, choices, sequential=False).rounds
        return setting.n, rounds, math.inf

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        return cls.tuned_for(
            setting, choices, sequential=(choices["batch"] or setting.n) < setting.n
        )

    @classmethod
    def tuned_for(cls, setting: Setting, choices: Choices, *, sequential: bool) -> Self:
        """With all users in every round, or with each in one of T disjoint batches."""
        setting = dataclasses.replace(setting, problem=clipped(setting))
        problem, n = setting.problem, setting.n
        choices.choose("norm_bound", problem.lipschitz, "gradients are clipped to it; tuned")
        made = Momentum.tuned(setting, choices, sequential=sequential)
        batch, times = n, made.rounds
        if sequential:
            (batch, _), times = batching(n, choices["batch"], made.rounds), 1
        mean = NoisyMean.calibrated_for(setting, batch, times)
        noise = mean.squared_noise_in(setting, times) / problem.d
        # Other users answer in each round: along a direction their means differ by so much at most.
        sampling = problem.spread**2 / batch if sequential else 0.0
        facts = f"noise of a round {math.sqrt(noise):.3g} per coordinate; no bound is proven"
        choices.choose("trust", setting.trust, facts)
        choices.choose("batch", batch, "disjoint" if sequential else "everybody, in every round")
        rounded = smoothing_of(problem.loss)
        why = "the loss is smooth" if rounded is None else "tuned, for kinks"
        smoothing = choices.choose("smoothing", rounded, why)
        own = {
            "rounds": made.rounds,
            "momentum": dataclasses.replace(made, noise=math.sqrt(noise + sampling)),
            "smoothing": None if smoothing is None else positive("smoothing", smoothing),
        }
        return cls.made(setting, mean, choices, **own)


@dataclass(kw_only=True, eq=False)
class PracticalUserDescent(PracticalDescent):
    """The same for persons, each with the mean gradient of its records, clipped once.

    Formal guarantee: as of `PracticalDescent`, for persons with all their records.
    """

    unit = Unit.PERSON
    asks = MeanGradient


_KINDS: dict[Unit, type[PracticalDescent]] = {
    Unit.RECORD: PracticalDescent,
    Unit.PERSON: PracticalUserDescent,
}


def practical(
    kind: type[FirstOrder[Any]], *, n: int, problem: Problem, privacy: Privacy, **given: Any
) -> PracticalDescent:
    """An optimiser's users in its rounds, with tuned steps in place of its own.

    Args:
        kind: whose users answer once, or in every round.
        n: users.
        problem: loss and domain; its clip is tuned where it has none.
        privacy: of the whole run.
        given: as for `kind.calibrated`.

    Raises:
        ParameterError: also for what `kind` does not take.
    """
    parts = {name: given.pop(name) for name in kind.adapts if name in given}
    choices = Choices(given)
    kind.demand_taken(choices)
    made = _KINDS[kind.unit]
    for name, value in choices.given.items():
        if name not in made.takes:
            allowed = "left out with choose='practice'; choose='bound' takes it"
            raise ParameterError(name, value, allowed)
    setting = Setting(n=n, problem=problem, privacy=privacy, **parts)
    return made.tuned_for(setting, choices, sequential=kind.one_shot)
