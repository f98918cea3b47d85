"""Person-level gradient descent in the shuffle model, by carried-centre clipping."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from protocols.optimisation.acceleration import smoothing_for
from protocols.optimisation.base import AverageState
from protocols.optimisation.centring import with_drift
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.shuffle.user_level import UserLevel, UserLevelPlan
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import positive

_ETAS = np.geomspace(1e-5, 1e5, 400)
"""Steps that are tried, in units of R/(L sqrt T)."""


def _tail(steps: int) -> int:
    """How many of the last iterates are averaged: half of them."""
    return (steps + 1) // 2


@dataclass(kw_only=True, eq=False)
class UserLevelGD(UserLevel[AverageState]):
    """Gradient descent over all persons in every round; the result averages the last iterates.

    These are the last h = ceil(T/2). With rho the radii's root mean square and kappa^2 a round's
    noise in the unit ball, the gap is R^2/(2 eta h) + (T/h) eta (kappa rho)^2/(2 (1 - eta beta)) on
    the persons' own objective, plus T/h times the clip bias times the diameter, plus
    L spread eta (T-1)/(n m) for generalising. The last term is an assumption (stability of descent
    without clipping), and so is that records are i.i.d.

    Attributes:
        eta: the step.
    """

    tuned = True
    takes = "rounds", "eta", "smoothing", "center", "coarse", "deviations", "fail"
    """Rounds of interaction, the coarse ones included; the step; beta of the envelope; "carried" or
    "fixed"; k0; k; u; the chance of more noise than planned; as of the attribute.
    """

    eta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eta", self.eta)

    def begin(self, theta: Floats) -> AverageState:
        return AverageState(0, theta, np.zeros(self.problem.d))

    def where(self, inner: AverageState) -> Floats:
        return inner.theta

    def advance(self, inner: AverageState, gradient: Floats) -> AverageState:
        after = self.problem.domain.project(inner.theta - self.eta * gradient)
        done = inner.round + 1
        late = done > self.steps - _tail(self.steps)
        return AverageState(done, after, inner.total + after if late else inner.total)

    def output(self, inner: AverageState) -> Floats:
        count = inner.round - (self.steps - _tail(self.steps))
        return inner.total / count if count > 0 else inner.theta

    @classmethod
    def _planned(
        cls, setting: Setting, choices: Choices, case: UserLevelPlan, noise: float
    ) -> UserLevelPlan:
        problem, centring, T = setting.problem, case.centring, case.steps
        kinks, length, R = not problem.smooth, problem.objective_lipschitz, setting.distance
        beta = problem.planned_smoothness()
        # With kinks the ridge alone limits the step: the envelope's beta is 1/eta.
        stable = 1 / max(problem.ridge, 1e-300) if kinks else 1 / max(beta, 1e-300)
        scale = R / (length * math.sqrt(T))
        etas, longest = _ETAS * scale, 0.95 * stable
        if longest < etas[-1]:
            etas = np.append(etas[etas < longest], longest)
        if choices["eta"] is not None:
            etas = np.array([positive("eta", choices["eta"])])
        drift = 1 / etas + problem.ridge if kinks else np.full(etas.size, beta)
        smooth = etas * drift < 1
        limit, kappa = centring.limit, math.sqrt(noise)
        radius = np.full(etas.size, limit)
        if centring.carried:
            # sum |move|^2 <= 4 eta (L R + eta sum |noise|^2), where eta beta <= 1.
            # Root mean square of moves without noise; where nothing is proven each is at most eta
            # L.
            still = np.where(smooth, 2 * np.sqrt(etas * length * R / T), etas * length)
            # Minkowski over the recursion of radii: moves count with a^k beta/(1 - a^(k+1)).
            pushed = centring.contraction**centring.recentring * drift / (1 - centring.rate)
            level = centring.spread / (1 - centring.contraction) + pushed * still
            # Noise moves theta, and its length is kappa times the radius: solved for the radius.
            held = 1 - pushed * 2 * etas * kappa
            # The first radius fades by a^(k+1) a step: its share of a root mean square over T.
            start = centring.first() / math.sqrt(T * (1 - centring.rate**2))
            found = np.where(held > 0, level / np.maximum(held, 1e-12), np.inf) + start
            radius = np.minimum(limit, found)
        loss = noise * radius**2
        general = problem.lipschitz * problem.spread / math.sqrt(problem.records)
        cost = etas * general * (T - 1) / case.batch
        tail = _tail(T)
        plain = etas * (length**2 + loss) / 2
        if kinks:
            plain = plain + etas * problem.lipschitz**2 / 2 * (tail / T)
        descent = np.where(smooth, etas * loss / (2 * np.maximum(1 - etas * drift, 1e-12)), np.inf)
        each = np.minimum(plain, descent) + case.bias * problem.domain.diameter
        bounds = R**2 / (2 * etas * tail) + T / tail * each + cost
        at = int(np.argmin(bounds))
        made = with_drift(centring, float(drift[at]))
        return dataclasses.replace(
            case, bound=float(bounds[at]), centring=made, facts=(float(etas[at]),)
        )

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        plan, mean = cls._prepared(setting, choices)
        (best,) = plan.facts
        eta = positive("eta", choices.choose("eta", best, f"smallest bound {plan.bound:.4g}"))
        smoothing = smoothing_for(setting.problem, choices, 1 / eta, "1/eta")
        own: dict[str, Any] = {"rounds": plan.rounds, "eta": eta, "smoothing": smoothing}
        own |= {"bound": plan.bound, "centring": plan.centring}
        return cls.made(setting, mean, choices, **own)
