"""The Gibbs mechanism and the exponential mechanism: one exact draw of density ~ e^(-k F).

Docs: theory, Output perturbation, "Gibbs mechanism".
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.central.record.density import (
    Density,
    ExponentialDraw,
    FlatRisk,
    GibbsDraw,
    Potential,
    Utility,
    demand_digits,
    demand_fast,
    enveloped,
    swift,
    unbounded,
)
from protocols.central.record.minimum import OneRelease, demand_case, shown
from protocols.central.record.output_perturbation import OutputPerturbation
from protocols.erm.cells import MOST_PARAMETERS, demand_gentle
from protocols.erm.risk import Risk
from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.domains import L2Ball
from protocols.problems.problem import Problem
from shuffle_sim.errors import ParameterError, positive, real
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.guarantee import Privacy


class Gibbs(OneRelease):
    """One exact draw of density ~ e^(-k F): (epsilon, delta), no certificate, any conditioning.

    Rows are those of the problem's loss; the result is theta, shape (d,). Formal guarantee: that of
    a Gaussian pair with mu = 2 L sqrt(k/lambda)/n. A domain of the problem is passed over: the draw
    is from R^d, where no data make it slow. Its time still depends on the data. A linear model's
    loss with kinks gives way to its Moreau envelope, which is nowhere steeper.

    Attributes:
        smoothing: beta of the envelope; None: the loss itself.
        bound: d/k, proven, of the expected excess; and the parts of an envelope and an added ridge.
    """

    takes = ("ridge", "smoothing")
    """In place of the problem's; beta of the envelope of a loss with kinks."""
    mechanism: Density
    _function: ClassVar[type[Potential]] = Potential
    assumptions = ("the time of the draw is not observed: it depends on the data",)

    def __init__(
        self,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        ridge: float,
        smoothing: float | None = None,
    ) -> None:
        """With a ridge; `calibrated` chooses it where the problem has none.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        self.n, self.problem, self.privacy = demand_case(n, privacy), problem, privacy
        self.risk, below = self._risk(problem, ridge, smoothing, self.n, privacy)
        # Privacy takes the slopes wherever a draw may be.
        problem.loss.verify(self._farthest(problem))
        self.statistic = self._function(self.risk, self.n)
        self.mechanism = self._draw(privacy)
        self.bound = self._bound(problem, self.risk, below, self.n, self.mechanism)
        self.smoothing = self.risk.smoothness if below else None
        self.choices = {"ridge": "given"}
        if self.smoothing is not None:
            why = "the largest whose draws are swift at worst" if smoothing is None else "given"
            self.choices["smoothing"] = f"{shown(self.smoothing)}: {why}"

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The ridge of the problem, or the one of the least proven bound where it has none."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        kept = OutputPerturbation.kept_ridge(problem, choices["ridge"])
        common = {"n": n, "problem": problem, "privacy": privacy, "smoothing": choices["smoothing"]}
        if kept is not None:
            return cls(ridge=kept, **common)
        mechanism = cls._draw(privacy)
        # From the least ridge whose draws are swift. A loss without curvature takes any, and so do
        # kinks, whose envelope is chosen by it.
        given = choices["smoothing"]
        curved = problem.loss.smoothness() if given is None else positive("smoothing", given)
        least_ridge = (curved or 0.0) / swift(problem.d) * (1 + 1e-9)
        tried = np.geomspace(least_ridge or 1e-8, 1e3, 121).tolist()

        def bound(ridge: float) -> float | None:
            try:
                found = cls._risk(problem, ridge, choices["smoothing"], n, privacy)
            except ParameterError as error:
                if error.parameter in ("ridge", "domain"):
                    return None
                raise
            return cls._bound(problem, *found, n, mechanism)

        slow = ParameterError("ridge", None, "given: no ridge makes the draw fast")
        _, (best,) = least(bound, tried, otherwise=slow)
        made = cls(ridge=best, **common)
        made.choices["ridge"] = f"{shown(best)}: least proven bound"
        return made

    @staticmethod
    def _farthest(problem: Problem) -> float:
        """No draw is longer."""
        return math.inf

    @classmethod
    def _risk(
        cls, problem: Problem, ridge: float, smoothing: float | None, n: int, privacy: Privacy
    ) -> tuple[Risk, float]:
        """What is drawn from, if that ends in time; how far below the loss it lies at most."""
        real("ridge", ridge, 0.0, math.inf, closed=(True, False))
        drawn, below = enveloped(problem, ridge, smoothing, cls._farthest(problem))
        return unbounded(drawn, ridge), below

    @classmethod
    def _draw(cls, privacy: Privacy) -> Density:
        if not privacy.delta:
            allowed = "above 0; at 0 take ExponentialMechanism, or noise on the output"
            raise ParameterError("delta", privacy.delta, allowed)
        mu = gaussian.mu_of(privacy.epsilon, privacy.delta)
        # A little less, so that what the accountant rounds up stays below what was asked for.
        return GibbsDraw(mu * (1 - 1e-12))

    def check(self, rows: NDArray[Any]) -> None:
        super().check(rows)
        demand_digits(self.risk, rows)

    @classmethod
    def _bound(
        cls, problem: Problem, risk: Risk, below: float, n: int, mechanism: Density
    ) -> float:
        sensitivity = cls._function(risk, n).sensitivity.value
        k = mechanism.sharpness(risk.strong_convexity, sensitivity)
        more = risk.ridge - problem.ridge
        # d/k over the best point, by the divergence of (w - w*) e^(-kF); the added ridge at the
        # border.
        return risk.d / k + below + (more * problem.domain.radius**2 / 2 if more > 0 else 0.0)


class ExponentialMechanism(Gibbs):
    """One exact draw of density ~ e^(-k F) on a bounded domain: pure differential privacy.

    Algorithm 9 of Lowy and Razaviyayn (2021). Formal guarantee: (epsilon, 0), as F - F' has a range
    of at most epsilon/k on the domain. The bound is d/k. Up to three parameters in a ball or a box
    need no ridge, and the loss may have kinks; more need a ridge, and an envelope for kinks.
    """

    _function = Utility

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The ridge of the problem; where it has none and d is above 3, that of the least bound."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        if choices["ridge"] is None and problem.d <= MOST_PARAMETERS:
            own = {"ridge": problem.ridge, "smoothing": choices["smoothing"]}
            return cls(n=n, problem=problem, privacy=privacy, **own)
        return super().calibrated_for(setting, choices)

    @classmethod
    def _draw(cls, privacy: Privacy) -> Density:
        return ExponentialDraw(positive("epsilon", privacy.epsilon))

    @classmethod
    def _risk(
        cls, problem: Problem, ridge: float, smoothing: float | None, n: int, privacy: Privacy
    ) -> tuple[Risk, float]:
        real("ridge", ridge, 0.0, math.inf, closed=(True, False))
        if problem.d > MOST_PARAMETERS or smoothing is not None:
            return cls._enveloped(problem, ridge, smoothing, n, privacy)
        # Few parameters with kinks need no envelope, unless rows are too many for boxes.
        ways: list[Callable[..., tuple[Risk, float]]] = [cls._flat, cls._enveloped]
        refused: dict[Any, ParameterError] = {}
        for way in ways if problem.loss.smoothness() is None else ways[::-1]:
            try:
                return way(problem, ridge, None, n, privacy)
            except ParameterError as error:
                refused[way] = error
        raise refused[ways[0]]

    @staticmethod
    def _farthest(problem: Problem) -> float:
        return problem.domain.radius

    @classmethod
    def _flat(
        cls, problem: Problem, ridge: float, smoothing: float | None, n: int, privacy: Privacy
    ) -> tuple[Risk, float]:
        """What is drawn from in boxes."""
        demand_gentle(n * privacy.epsilon, problem.d)
        return FlatRisk.of(problem, ridge), 0.0

    @classmethod
    def _enveloped(
        cls, problem: Problem, ridge: float, smoothing: float | None, n: int, privacy: Privacy
    ) -> tuple[Risk, float]:
        drawn, below = enveloped(problem, ridge, smoothing, cls._farthest(problem))
        return cls._curved(drawn, ridge, n, privacy), below

    @classmethod
    def _curved(cls, problem: Problem, ridge: float, n: int, privacy: Privacy) -> Risk:
        """What proposals of a Gaussian serve, which is faster than boxes.

        Raises:
            ParameterError: kinks, too small a ridge, or a ball that few proposals are in.
        """
        ball = problem.domain
        if not isinstance(ball, L2Ball) or ball.center.any():
            raise ParameterError("domain", type(ball).__name__, "an L2Ball around 0")
        risk = demand_fast(Risk.of(problem, ridge))
        k = cls._draw(privacy).sharpness(ridge, Utility(risk, n).sensitivity.value)
        near = problem.loss.minimiser_norm(ridge)
        # F is lambda-strongly convex: draws have at most the variance 1/(k lambda) in a coordinate.
        spread = math.sqrt(problem.d / (k * ridge))
        if near + spread > ball.radius:
            allowed = f"larger, or the ball: minimisers reach {near:.3g}, draws {spread:.3g} beyond"
            raise ParameterError("ridge", ridge, allowed)
        return risk
