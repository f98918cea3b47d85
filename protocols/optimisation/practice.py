"""Steps that do well, tuned on synthetic data alone: momentum, few rounds, a short clip.

No bound is proven for them. Privacy does not rest on them: gradients are clipped as ever, and
whatever is chosen follows from public numbers and from what was released before.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from protocols.optimisation.base import OptimiserState
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.multiclass import MultiClass
from protocols.problems.problem import Problem
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive

CHOOSE = ("practice", "bound")
"""How parameters are chosen: tuned on synthetic data, or by the smallest proven bound."""
RADIUS = 100.0
"""Of the ball, where not given: wide, since neither clip nor noise follows from it."""

# All tuned by `python -m benchmarks tuning`, on synthetic rows alone.
CLIP = {True: 0.35, False: 0.15}
"""Of the longest gradient at the start for losses of classes; of the longest row for smooth ones of
numbers. It bends probabilities and means, and costs less than the noise that it saves."""
REACH = {True: 4.0, False: 0.6}
"""How far noise alone may move the parameters along a direction without curvature."""
MOST_ROUNDS, FEWEST_ROUNDS = 60, 6
_STEP, _LONGEST = 3.75, 8.0
"""Of 1/beta, and where the rounds are as many as they may be: beyond the worst case's limit, which
few tables reach; `Momentum` then brakes."""
_OVERSHOT, _BRAKE = 3.0, 0.5
_SMOOTHING = {True: 1.0, False: 0.05}
"""Of a loss with kinks: they are rounded over margins of about this length."""


def chosen_by(choose: object) -> str:
    """One of CHOOSE.

    Raises:
        ParameterError: it is none.
    """
    if not isinstance(choose, str) or choose not in CHOOSE:
        raise ParameterError("choose", choose, f"one of {', '.join(CHOOSE)}")
    return choose


def clipped(problem: Problem) -> Problem:
    """The problem with a clip below the longest gradient, unless one was given."""
    if problem.norm_bound is not None:
        return problem
    loss, longest = _bare(problem.loss), problem.loss.start_norm()
    if _of_classes(loss):
        longest *= CLIP[True]
    elif loss.smoothness() is not None:  # a quantile would not survive a clip
        longest *= min(1.0, CLIP[False] * getattr(loss, "features", math.inf) / loss.start_norm())
    return dataclasses.replace(problem, norm_bound=longest)


def _bare(loss: Loss) -> Loss:
    """Without weights."""
    return loss.loss if isinstance(loss, Weighted) else loss


def _of_classes(loss: Loss) -> bool:
    """Whether labels are classes."""
    loss = _bare(loss)
    return loss.classification if isinstance(loss, LinearLoss) else isinstance(loss, MultiClass)


def smoothing_of(loss: Loss) -> float | None:
    """beta of the envelope of a loss with kinks; None for a smooth one."""
    if loss.smoothness() is not None:
        return None
    return loss.start_norm() ** 2 / _SMOOTHING[_of_classes(loss)]


@dataclass(frozen=True)
class MomentumState(OptimiserState):
    """Where descent is, where it asks, and how it steps.

    Attributes:
        theta: the iterate; the last one is the result.
        ahead: where the next gradient is asked for.
        moved: the last step of the iterate.
        eta: the step.
        age: steps since momentum began anew.
    """

    theta: Floats
    ahead: Floats
    moved: Floats
    eta: float
    age: int


@dataclass(frozen=True)
class Momentum:
    """Projected descent with Nesterov's momentum, which brakes where it overshoots.

    It overshoots where a gradient points along the last move by more than its noise would: momentum
    then begins anew, with half the step. This reads released gradients only.

    Attributes:
        rounds: T.
        eta: the first step.
        noise: standard deviation of a released gradient along one direction.
    """

    rounds: int
    eta: float
    noise: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        integer("rounds", self.rounds)
        positive("eta", self.eta)

    def init_at(self, theta: Floats) -> MomentumState:
        """At rest."""
        return MomentumState(0, theta, theta, np.zeros_like(theta), self.eta, 0)

    def step(self, state: MomentumState, gradient: Floats, domain: Domain) -> MomentumState:
        """The state after a gradient at `ahead`."""
        age, eta = state.age, state.eta
        limit = _OVERSHOT * self.noise * float(np.linalg.norm(state.moved))
        if float(gradient @ state.moved) > limit:
            age, eta = 0, eta * _BRAKE
        theta = domain.project(state.ahead - eta * gradient)
        moved = theta - state.theta
        ahead = theta + age / (age + 3) * moved
        return MomentumState(state.round + 1, theta, ahead, moved, eta, age + 1)

    @classmethod
    def tuned(cls, setting: Setting, choices: Choices, *, sequential: bool) -> "Momentum":
        """Rounds and step for the noise of a setting.

        A direction without curvature is moved by eta T^2/4 times its gradient. Noise moves it by as
        much times rho_1, which is one round's, however many rounds share the budget (times sqrt(T)
        where each user answers once). So rounds are as few as the longest step allows. Noise that
        shorter steps would leave in curved directions grows with T, too.
        """
        n, problem = setting.n, setting.problem
        smoothing = choices["smoothing"] or smoothing_of(problem.loss)
        beta = max(problem.smoothness(smoothing), 1e-300)
        unit = math.sqrt(setting.squared_noise(n) / problem.d)
        reach, power = REACH[_of_classes(problem.loss)], 2.5 if sequential else 2.0
        gain = 4 * reach / unit if unit > 0 else math.inf
        batch, rounds = choices["batch"], choices["rounds"]
        if batch is not None:
            rounds = n // integer("batch", batch, 1, n) if rounds is None else rounds
        if rounds is None:
            most = min(setting.max_rounds_per_user, MOST_ROUNDS, n)
            wanted = min((gain * beta / _STEP) ** (1 / power), most)
            rounds = max(min(FEWEST_ROUNDS, most), round(wanted))
        rounds = integer("rounds", rounds)
        why = f"tuned: noise of one round {unit:.3g} per coordinate; no bound is proven"
        choices.choose("rounds", rounds, why)
        eta = min(_LONGEST / beta, gain / rounds**power)
        found = choices.choose("eta", eta, f"tuned: at most {_LONGEST:g}/beta, beta = {beta:.3g}")
        return cls(rounds, positive("eta", found), 0.0)
