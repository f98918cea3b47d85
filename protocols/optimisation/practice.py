"""What does well, tuned on synthetic data alone: a center, momentum, few rounds, a short clip.

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
from protocols.problems.centred import Centred, FeatureMoments
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss
from protocols.problems.multiclass import MultiClass
from protocols.problems.problem import Problem
from protocols.problems.weighted import Weighted
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import integer, positive

CHOOSE = ("practice", "bound")
"""How parameters are chosen: tuned on synthetic data, or by the smallest proven bound."""
RADIUS = 1000.0
"""Of the ball, where not given: wide, since neither clip nor noise follows from it."""

# All tuned by `python -m benchmarks tuning`, on synthetic rows alone.
CLIP = {True: 0.35, False: 0.07}
"""At least: of the longest gradient at the start for losses of classes; of the longest row for
smooth ones of numbers. It bends probabilities and means, so it is longer where noise allows it."""
REACH = {True: 4.0, False: 0.3}
"""How far noise alone may move the parameters along a direction without curvature."""
MOST_ROUNDS, FEWEST_ROUNDS = {False: 240, True: 60}, 6
"""By whether each user answers once. Columns that are nearly the same need more than 60."""
_WORK = 3 * 10**9
"""Numbers that all users compute, for which more than 60 rounds are chosen: some 10 seconds."""
_ROUNDS_LEFT = {True: 240, False: 40}
"""Rounds that a longer clip must leave, by whether labels are classes."""
_STEP, _LONGEST_STEP = 3.75, 8.0
"""Of 1/beta, and where the rounds are as many as they may be: beyond the worst case's limit, which
few tables reach; `Momentum` then brakes."""
_OVERSHOT, _BRAKE = 3.0, 0.5
_SMOOTHING = {True: 1.0, False: 0.05}
"""Of a loss with kinks: they are rounded over margins of about this length."""
_CENTRING_SHARE = 1 / 7
"""Of the rounds: they release the mean of the features, and their spread."""
_CENTRED_LENGTH = {True: (1.0, 2.0), False: (1.5, 1.5)}
"""Length to which centred features are scaled, in root mean squares of theirs: at least, and where
gradients keep their length. A short one bends rare categories, a long one has more noise."""
_LEAST_SPREAD = 0.1
"""Least spread that is believed, as a share of the bound."""


def clipped(setting: Setting) -> Problem:
    """The problem with a clip below the longest gradient, unless one was given."""
    problem = setting.problem
    if problem.norm_bound is not None:
        return problem
    loss, longest = _bare(problem.loss), problem.loss.start_norm()
    whole, classes = dataclasses.replace(problem, norm_bound=longest), _of_classes(loss)
    if not classes and loss.smoothness() is None:  # a quantile would not survive a clip
        return whole
    rows = 1.0 if classes else getattr(loss, "features", math.inf) / loss.start_norm()
    gain, beta = _gain(dataclasses.replace(setting, problem=whole), None)
    # The gain falls with the clip, so this share leaves sqrt(gain beta/(_STEP share)) =
    # _ROUNDS_LEFT rounds.
    share = max(CLIP[classes] * rows, gain * beta / _STEP / _ROUNDS_LEFT[classes] ** 2)
    return dataclasses.replace(problem, norm_bound=min(1.0, share) * longest)


def _most(setting: Setting, sequential: bool) -> int:
    """Rounds at most."""
    few, many = MOST_ROUNDS[True], MOST_ROUNDS[sequential]
    affordable = max(few, _WORK // (setting.n * setting.problem.d))
    return min(setting.max_rounds_per_user, many, affordable, setting.n)


def _gain(setting: Setting, smoothing: float | None) -> tuple[float, float]:
    """(eta T^2 at most, for noise to stay within REACH; beta), all users in every round."""
    problem = setting.problem
    beta = max(problem.planned_smoothness(smoothing or smoothing_of(problem.loss)), 1e-300)
    unit = _unit(setting)
    # eta T^2/4 times the noise of a round is how far noise moves a flat direction
    # (`Momentum.tuned`).
    return 4 * REACH[_of_classes(problem.loss)] / unit if unit > 0 else math.inf, beta


def _unit(setting: Setting) -> float:
    """Noise per coordinate of one round of all users."""
    return math.sqrt(setting.squared_noise(setting.n) / setting.problem.d)


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
    # A ramp over margins of length h bends by 1/h, times ||x||^2, which `start_norm` stands for.
    return loss.start_norm() ** 2 / _SMOOTHING[_of_classes(loss)]


@dataclass(frozen=True)
class FeatureCentring:
    """The first rounds: they release the mean of the features and their mean squared length.

    Attributes:
        rounds: how many; 0: features stay as they are.
        features: columns, the constant after them left out.
        constant: its value.
        reach: bound of the features' length.
        norm: L, of a round's vectors.
        wide: length of the ball in root mean squares of the centred features.
    """

    rounds: int = 0
    features: int = 0
    constant: float = 1.0
    reach: float = 1.0
    norm: float = 1.0
    wide: float = 1.0

    @classmethod
    def tuned(cls, problem: Problem, rounds: int, share: float = 0.0) -> "FeatureCentring":
        """For a problem whose rows have a public constant; else none.

        A ridge speaks of the parameters of the features as they are: they stay so.

        Args:
            problem: loss, domain and clip.
            rounds: of the whole training.
            share: clip over the longest gradient at the start. Noise that allows a long clip allows
                a wide ball.
        """
        loss, constant = _bare(problem.loss), problem.constant
        if constant is None or problem.ridge > 0 or rounds < 2:
            return cls()
        blocks = loss.classes if isinstance(loss, MultiClass) else 1
        least, longest = _CENTRED_LENGTH[_of_classes(loss)]
        # What the constant leaves of the bound of the whole row.
        reach = math.sqrt(max(getattr(loss, "features", 0.0) ** 2 - constant**2, 0.0))
        if not (0 < reach < math.inf) or problem.d == blocks:
            return cls()
        return cls(
            max(1, round(rounds * _CENTRING_SHARE)),
            problem.d // blocks - 1,
            constant,
            reach,
            problem.lipschitz,
            max(least, longest * min(1.0, share)),
        )

    def asked(self, loss: Loss) -> FeatureMoments:
        """What the rounds ask for, as a loss with that gradient."""
        return FeatureMoments(loss, self.features, self.reach, self.norm)

    def centred(self, loss: Loss, found: Floats, noise: float) -> Centred:
        """The loss in the coordinates that released means lead to.

        The mean is shrunk as noise of its length asks for (James and Stein, positive part).

        Args:
            loss: of the problem.
            found: the mean of the rounds' estimates.
            noise: standard deviation of each of its coordinates.
        """
        unit = self.asked(loss).unit
        mean, noise = found[: self.features] / unit, noise / unit
        squared = float(found[self.features]) / unit * self.reach
        length = float(mean @ mean)
        lost = noise**2 * self.features
        mean = mean * (max(0.0, 1 - lost / length) if length > 0 else 0.0)
        # `squared` has the noise of the mean times reach: below it a spread is noise.
        least = max(_LEAST_SPREAD**2 * self.reach**2, noise * self.reach)
        spread = max(squared - float(mean @ mean), least)
        # (x - mean)/scale has the root mean square reach/wide; rows are never made shorter.
        scale = min(self.wide * math.sqrt(spread) / self.reach, 1.0)
        return Centred(loss, mean, scale, self.constant, self.reach)


@dataclass(frozen=True)
class MomentumState(OptimiserState):
    """Where descent is, where it asks, and how it steps.

    Attributes:
        found: sum of what the first rounds released.
        centred: the loss in the coordinates of the parameters below; None: those of the rows.
        theta: the iterate; the last one is the result.
        ahead: where the next gradient is asked for.
        moved: the last step of the iterate.
        eta: the step.
        age: steps since momentum began anew.
    """

    found: Floats
    centred: Centred | None
    theta: Floats
    ahead: Floats
    moved: Floats
    eta: float
    age: int

    def outward(self, theta: Floats) -> Floats:
        """Parameters in the coordinates of the rows."""
        return theta if self.centred is None else self.centred.outward(theta)


@dataclass(frozen=True)
class Momentum:
    """Projected descent with Nesterov's momentum, which brakes where it overshoots.

    It overshoots where a gradient points along the last move by more than its noise would: momentum
    then begins anew, with half the step. This reads released gradients only.

    Attributes:
        rounds: T, with those that look.
        eta: the first step.
        noise: standard deviation of a released gradient along one direction.
        looks: before the first step.
    """

    rounds: int
    eta: float
    noise: float
    looks: FeatureCentring = FeatureCentring()

    def __post_init__(self) -> None:
        integer("rounds", self.rounds)
        positive("eta", self.eta)

    def init_at(self, theta: Floats) -> MomentumState:
        """At rest."""
        none = np.zeros_like(theta)
        return MomentumState(0, none, None, theta, theta, none, self.eta, 0)

    def look(self, state: MomentumState, found: Floats, loss: Loss) -> MomentumState:
        """The state after a round that looked."""
        after = dataclasses.replace(state, round=state.round + 1, found=state.found + found)
        times = self.looks.rounds
        if after.round < times:
            return after
        centred = self.looks.centred(loss, after.found / times, self.noise / math.sqrt(times))
        theta = centred.inward(after.theta)
        return dataclasses.replace(after, centred=centred, theta=theta, ahead=theta)

    def step(self, state: MomentumState, gradient: Floats, domain: Domain) -> MomentumState:
        """The state after a gradient at `ahead`."""
        age, eta = state.age, state.eta
        # Noise alone points along the last move by `noise` times its length, in standard deviation.
        limit = _OVERSHOT * self.noise * float(np.linalg.norm(state.moved))
        if float(gradient @ state.moved) > limit:
            age, eta = 0, eta * _BRAKE
        theta = domain.project(state.ahead - eta * gradient)
        moved = theta - state.theta
        # Nesterov's weights t/(t + 3); a new beginning has no momentum.
        ahead = theta + age / (age + 3) * moved
        return dataclasses.replace(
            state,
            round=state.round + 1,
            theta=theta,
            ahead=ahead,
            moved=moved,
            eta=eta,
            age=age + 1,
        )

    @classmethod
    def tuned(cls, setting: Setting, choices: Choices, *, sequential: bool) -> "Momentum":
        """Rounds and step for the noise of a setting.

        A direction without curvature is moved by eta T^2/4 times its gradient. Noise moves it by as
        much times rho_1, which is one round's, however many rounds share the budget (times sqrt(T)
        where each user answers once). So rounds are as few as the longest step allows. Noise that
        shorter steps would leave in curved directions grows with T, too.
        """
        n, problem, power = setting.n, setting.problem, 2.5 if sequential else 2.0
        gain, beta = _gain(setting, choices["smoothing"])
        batch, rounds = choices["batch"], choices["rounds"]
        if batch is not None:
            rounds = n // integer("batch", batch, 1, n) if rounds is None else rounds
        if rounds is None:
            most = _most(setting, sequential)
            wanted = min((gain * beta / _STEP) ** (1 / power), most)
            rounds = max(min(FEWEST_ROUNDS, most), round(wanted))
        rounds = integer("rounds", rounds)
        why = f"tuned: noise of one round {_unit(setting):.3g} per coordinate; no bound is proven"
        choices.choose("rounds", rounds, why)
        share = problem.lipschitz / problem.loss.start_norm()
        looks = FeatureCentring.tuned(problem, rounds, share)
        if looks.rounds:
            why = "rounds that release the features' mean and spread; steps are taken around it"
            choices.choose("center", looks.rounds, why)
        eta = min(_LONGEST_STEP / beta, gain / (rounds - looks.rounds) ** power)
        found = choices.choose(
            "eta", eta, f"tuned: at most {_LONGEST_STEP:g}/beta, beta = {beta:.3g}"
        )
        return cls(rounds, positive("eta", found), 0.0, looks)
