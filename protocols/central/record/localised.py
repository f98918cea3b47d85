"""The localised exponential mechanism: a ball by noise on the minimiser, then one draw inside.

Lowy and Razaviyayn (2021), Algorithms 10 and 11, with a certified minimiser and the exact quantile
of the noise. Docs: theory, Output perturbation, "Localised exponential mechanism".
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from protocols.central.record.density import (
    ExponentialDraw,
    Utility,
    demand_digits,
    swift,
    unbounded,
)
from protocols.central.record.minimum import (
    CERTIFIED,
    Minimum,
    OfRisk,
    demand_case,
    shown,
)
from protocols.central.record.output_perturbation import OutputPerturbation
from protocols.erm.risk import Risk
from protocols.erm.solver import THETA
from protocols.erm.solver.public import check_radius, named
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.domains import L2Ball
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import L2Laplace
from shuffle_sim.protocol.release import Release

_SHARES = np.geomspace(0.02, 0.8, 17)
_MISSES = np.geomspace(1e-6, 0.5, 12)
_RIDGES = np.geomspace(1e-6, 1e3, 46)
_RARE = -7.0  # logarithm of the part of proposals inside the ball, below which it is refused


@dataclass(frozen=True)
class Place:
    """Where the algorithm is: the centre of the ball, then the draw; None: not yet released."""

    centre: Floats | None = None
    drawn: Floats | None = None


class LocalisedExponential(OfRisk[Place]):
    """Pure: noise on the certified minimiser gives a ball, and a draw of density ~ e^(-k F) in it.

    Rows are those of the problem's loss; the result is theta, shape (d,). Formal guarantee:
    epsilon, delta = 0, of two pure releases. A domain of the problem is passed over: the ball lies
    in R^d. For badly conditioned problems; where the loss is smooth and well conditioned,
    `OutputPerturbation` has the smaller bound.

    Attributes:
        bound: proven, of the expected excess of the problem's objective.
        share: of epsilon that the centre takes.
        miss: probability with which the minimiser lies outside the ball.
        size: radius of the ball.
    """

    takes = ("ridge", "theta", "solver")
    rounds_per_user = rounds = 2
    assumptions = (CERTIFIED, "the time of the draw is not observed: it depends on the data")

    def __init__(
        self,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        ridge: float,
        share: float,
        miss: float,
        theta: float = THETA,
        solver: Any = "newton",
    ) -> None:
        """Explicit parameters; `calibrated` chooses good ones.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        self.n, self.problem, self.privacy = demand_case(n, privacy), problem, privacy
        self.risk = unbounded(problem, ridge)
        problem.loss.verify(math.inf)  # privacy takes the slopes wherever the ball may lie
        self.share = real("share", share, 0.0, 1.0, closed=(False, False))
        self.miss = real("miss", miss, 0.0, 1.0, closed=(False, False))
        exact, _ = self.risk.sensitivity(self.n)
        self.radius = check_radius(self.risk, self.n, real("theta", theta, 0.0, 1.0) * exact)
        self.statistic = Minimum(self.risk, self.radius, self.n, named(solver, self.risk))
        first = self.share * privacy.epsilon
        self.noise = L2Laplace(first, problem.d)
        # A rounding of the difference must not take both epsilons above their sum.
        self.draw = ExponentialDraw((privacy.epsilon - first) * (1 - 1e-12))
        plan = _Plan(problem, self.risk, self.n, privacy.epsilon, theta)
        self.size, self.bound = plan.size(share, miss), plan.bound(share, miss)
        if not plan.fast(share, miss):
            allowed = "smaller: hardly a proposal would lie in the ball, and a draw take for ever"
            raise ParameterError("share", share, allowed)
        self.choices = {"ridge": "given"}

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The parts of epsilon, and the ridge where the problem has none, of the least bound."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        theta = choices.get("theta", THETA)
        kept = OutputPerturbation.kept_ridge(problem, choices["ridge"])
        found: list[tuple[float, float, float, _Plan]] = []
        for each in [kept] if kept is not None else _RIDGES.tolist():
            try:
                risk = unbounded(problem, each)
                if kept is None and risk.smoothness > swift(problem.d) * risk.strong_convexity:
                    continue
                plan = _Plan(problem, risk, n, privacy.epsilon, theta)
            except ParameterError as error:
                if kept is None and error.parameter == "ridge":
                    continue
                raise
            pairs = [(share, miss) for share in _SHARES.tolist() for miss in _MISSES.tolist()]
            found += [(plan.bound(*pair), *pair, plan) for pair in pairs]
        found.sort(key=lambda each: each[0])
        best = next((each for each in found if each[3].fast(*each[1:3])), None)
        if best is None:
            allowed = "smaller, or mechanism output: no ball makes the draw fast"
            raise ParameterError("d", problem.d, allowed)
        _, share, miss, plan = best
        made = cls(
            n=n,
            problem=problem,
            privacy=privacy,
            ridge=plan.risk.ridge,
            share=share,
            miss=miss,
            theta=theta,
            solver=choices.get("solver", "newton"),
        )
        made.choices = {
            "ridge": "given" if kept is not None else f"{shown(made.ridge)}: least proven bound",
            "share": f"{shown(share)}: least proven bound",
            "miss": f"{shown(miss)}: least proven bound",
        }
        return made

    def check(self, rows: NDArray[Any]) -> None:
        super().check(rows)
        demand_digits(self.risk, rows)

    def init_at(self, theta: Floats) -> Place:
        return Place()

    def plan(self, state: Place) -> Release | None:
        if state.centre is None:
            return Release.of(self.everyone, self.statistic, self.noise)
        if state.drawn is not None:
            return None
        ball = L2Ball(self.risk.d, self.size, state.centre)
        inside = Risk.of(Problem(self.problem.loss, ball, self.risk.ridge))
        return Release.of(self.everyone, Utility(inside, self.n), self.draw)

    def update(self, state: Place, estimate: Any) -> Place:
        released = np.asarray(estimate, np.float64)
        return Place(released) if state.centre is None else Place(state.centre, released)

    def result(self, state: Place) -> Floats:
        if state.drawn is None:
            raise ParameterError("state", state, "that of a finished draw")
        return state.drawn


@dataclass(frozen=True)
class _Plan:
    """The ball, and the proven excess, by public constants alone.

    With q the 1 - miss quantile of a Gamma(d) number G and t = S/eps_1, the ball has the radius
    t q + r. The excess is d/k over the best point of the ball; and that costs (beta/2) (t (G -
    q)_+)^2 at most.
    """

    problem: Problem
    risk: Risk
    n: int
    epsilon: float
    theta: float

    def size(self, share: float, miss: float) -> float:
        """Radius of the ball."""
        quantile = float(scipy.special.gammainccinv(self.risk.d, miss))
        return self._scale(share) * quantile + self.theta * self._exact

    def bound(self, share: float, miss: float) -> float:
        """Of the expected excess."""
        d, risk = self.risk.d, self.risk
        q = float(scipy.special.gammainccinv(d, miss))
        tail = [float(scipy.special.gammaincc(d + each, q)) for each in range(3)]
        # E (G - q)_+^2, as E G^j 1(G > q) = d ... (d + j - 1) P(Gamma(d + j) > q).
        beyond = d * (d + 1) * tail[2] - 2 * q * d * tail[1] + q * q * tail[0]
        outside = (risk.smoothness + risk.ridge) / 2 * self._scale(share) ** 2 * max(beyond, 0.0)
        more = risk.ridge - self.problem.ridge
        added = more * self.problem.domain.radius**2 / 2 if more > 0 else 0.0
        return d / self._sharpness(share, miss) + outside + added

    def fast(self, share: float, miss: float) -> bool:
        """Whether not too few proposals lie in the ball, the minimiser at its border."""
        reach = self._sharpness(share, miss) * self.risk.strong_convexity
        reach *= self.size(share, miss) ** 2  # in variances of a proposal
        d = self.risk.d  # a proposal's squared distance has mean reach + d; nearly normal
        return bool(scipy.special.log_ndtr(-d / math.sqrt(2 * (d + 2 * reach))) > _RARE)

    def _sharpness(self, share: float, miss: float) -> float:
        """k."""
        left = (1 - share) * self.epsilon * self.n
        # F - F' has slope 2 L/n on a ball of diameter 2 R_0; the draw may pay for less.
        return left / (4 * self.risk.lipschitz * self.size(share, miss))

    def _scale(self, share: float) -> float:
        """t."""
        return (1 + 2 * self.theta) * self._exact / (share * self.epsilon)

    @cached_property
    def _exact(self) -> float:
        return self.risk.sensitivity(self.n)[0]
