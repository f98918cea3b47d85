"""The exponential mechanism on a public net, for one or two parameters.

EM-PGM (Lowy 2026, Algorithm 5) scores a point by the length of a projected gradient step from it.
Clipping each gradient bounds the score's sensitivity for any loss: no convex surrogate is needed.
The printed non-smooth version takes its step and its net from the data, and is not private. Here
both are public.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from protocols.central.heavy_tails.plan import HeavyTailedPhase, NoiseSize, Phasing, plan
from protocols.central.heavy_tails.unbounded import TIMING, PureUnbounded, bounded_moments
from protocols.erm.objective import UNIT
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import PhasedState, Step, Steps
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.problem import Problem, demand, demand_diameter
from protocols.problems.surrogates import Clipped
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Exponential
from shuffle_sim.protocol.release import Release, Sensitivity, Statistic, Total

MOST_POINTS = 10**6
_COARSEST = {1: 2000, 2: 60}  # points along an axis that are taken unasked


def net(domain: Domain, step: float) -> Floats:
    """The points of a grid of that step inside a domain of one or two parameters, and its centre.

    Raises:
        ParameterError: more parameters, or above 10^6 points.
    """
    if domain.d not in (1, 2):
        allowed = "1 or 2: a net grows with the power d. Take HeavyTailedERM for more"
        raise ParameterError("d", domain.d, allowed)
    # So far the domain may reach from its centre: the net covers it, whatever its shape.
    half = math.ceil(domain.reach(domain.center) / positive("step", step))
    if (2 * half + 1) ** domain.d > MOST_POINTS:
        allowed = f"larger: a net above {MOST_POINTS} points ((2 {half} + 1)^{domain.d}) is refused"
        raise ParameterError("step", step, allowed)
    axis = step * np.arange(-half, half + 1)
    points = np.stack(np.meshgrid(*[axis] * domain.d), axis=-1).reshape(-1, domain.d)
    points = points + domain.center
    # Points on the border stay, whatever their projection rounds; the net is public either way.
    inside = [float(np.linalg.norm(domain.project(each) - each)) <= 1e-12 for each in points]
    return np.asarray(points[np.array(inside)])


@dataclass(frozen=True)
class GridScore(Statistic):
    """The utility of each point of a net, shape (points,): minus its score.

    It is ||w - Proj(w - gamma (g(w) + lambda (w - theta)))||/gamma, g the mean clipped gradient.

    Attributes:
        slopes: of any loss, their clip C, and the public beta of the envelope for kinks.
        domain: W.
        points: of the net.
        theta: centre.
        strong: lambda.
        users: m.
        gamma: public step.
    """

    slopes: Clipped
    domain: Domain
    points: Floats
    theta: Floats
    strong: float
    users: int
    gamma: float

    @property
    def sensitivity(self) -> Sensitivity:
        """Range of the changes: 4 C/m, and what doubles round."""
        proof = "projections do not expand: a score moves by 2 C/m at most, up or down; roundings"
        return Sensitivity(4 * (self.slopes.clip / self.users + self._rounding), "range", proof)

    @property
    def _rounding(self) -> float:
        """Of a score: a short step from a point far from 0 loses its digits."""
        clip, domain, d = self.slopes.clip, self.domain, self.domain.d
        far = self.gamma * (clip + self.strong * domain.diameter)
        lost = UNIT * (8 * (d + 8) * (domain.radius + far) + self.gamma * (self.users + d) * clip)
        return (lost + math.sqrt(domain.slack(far))) / self.gamma

    def __call__(self, total: Total, users: int) -> Floats:
        means = total(partial(self.slopes.gradients_of, self.points)) / self.users
        moved = self.points - self.gamma * (means + self.strong * (self.points - self.theta))
        steps = np.array([self.domain.project(each) for each in moved]) - self.points
        return np.asarray(-np.linalg.norm(steps, axis=1) / self.gamma)


class ExponentialGrid(Steps, PureUnbounded[PhasedState]):
    """Phases of the exponential mechanism on a net, each on disjoint users.

    Formal guarantee: pure epsilon, for any loss and any data; the public curvature need not be
    right. No bound is stated: scores are flat far from the minimiser, so volume wins in d = 2.

    Attributes:
        phases: of users, lambda and clip, as planned for output perturbation.
        curvature: H, public; gamma = 1/(lambda + H). Kinks are smoothed to it.
        step: of the net; None: C d/(epsilon m (lambda + H)), but no finer than some 2,000 points
            along an axis (60 in d = 2).
    """

    takes: ClassVar[tuple[str, ...]] = ("moments", "curvature", "step")
    bound = math.inf
    phases: tuple[HeavyTailedPhase, ...]

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        phases: tuple[HeavyTailedPhase, ...],
        curvature: float = 1.0,
        step: float | None = None,
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones.

        Raises:
            ParameterError: more than two parameters, or a net above 10^6 points.
        """
        demand(problem, privacy)
        self.problem, self.n, self.privacy, self.phases = problem, integer("n", n), privacy, phases
        self.curvature, self.step = positive("curvature", curvature), step
        self.assumptions, self.rounds, self.choices = (TIMING,), len(phases), {}
        self._nets = [net(problem.domain, self._step(phase)) for phase in phases]

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        demand_diameter(problem)
        moments, noise = choices["moments"], NoiseSize.l2(privacy.epsilon, problem.d)
        if moments is None:
            moments = bounded_moments(problem)
        phases, _ = plan(Phasing(n, noise, moments, problem.reach))
        own = choices.of("curvature", "step")
        return cls(problem=problem, n=n, privacy=privacy, phases=phases, **own)

    def release(self, at: int, step: Step) -> Release:
        phase, first = self.phases[at], sum(each.users for each in self.phases[:at])
        beta = None if self._smooth else self.curvature
        score = GridScore(
            Clipped(self.problem.loss, phase.clip, beta),
            self.problem.domain,
            self._nets[at],
            step.theta,
            phase.strong,
            phase.users,
            1 / (phase.strong + self.curvature),
        )
        cohort = Cohort.of(first, first + phase.users)
        return Release.of(cohort, score, Exponential(self.privacy.epsilon))

    def taken(self, at: int, step: Step, estimate: Any) -> Floats:
        return np.asarray(self._nets[at][int(estimate)])

    @property
    def _smooth(self) -> bool:
        """Whether the loss has no kinks; those are smoothed to the public curvature."""
        loss = self.problem.loss
        if isinstance(loss, LinearLoss):
            return loss.curvature() is not None
        return loss.smoothness() is not None

    def _step(self, phase: HeavyTailedPhase) -> float:
        if self.step is not None:
            return self.step
        d, domain = self.problem.d, self.problem.domain
        # As fine as noise lets scores tell points apart: step (lambda + H) = C d/(epsilon m).
        fine = phase.clip * d / (self.privacy.epsilon * phase.users)
        return max(fine / (phase.strong + self.curvature), domain.diameter / _COARSEST.get(d, 60))
