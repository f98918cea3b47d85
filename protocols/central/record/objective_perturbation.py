"""Objective perturbation with approximate minima: noise inside the objective.

Chaudhuri, Monteleoni and Sarwate (2011); Kifer, Smith and Thakurta (2012); Iyengar et al. (2019);
Redberg, Koskela and Wang (2023). Replace-one neighbours, by a curve of our own: docs, theory,
Output perturbation, "Objective perturbation".
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from protocols.central.record.minimum import (
    CERTIFIED,
    OneRelease,
    demand_case,
    shown,
)
from protocols.erm.risk import Risk, erm
from protocols.erm.solver import minimise
from protocols.erm.solver.public import CARELESS, check_radius, named, solver_by
from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain, RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive, real
from shuffle_sim.privacy.bounds import gamma, objective
from shuffle_sim.privacy.events import (
    GammaEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureObjectiveEvent,
)
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Mechanism, Norm
from shuffle_sim.protocol.release import Sensitivity, Statistic, WholeStatistic

_SHARE = 0.01  # of epsilon, for the certified distance from the minimiser
_STOP = 1e-5  # of the gradient of the sum at which the solver may stop, in units of L


@dataclass(frozen=True, eq=False)
class Rows:
    """What is minimised once the linear term is drawn: not yet private."""

    risk: Risk
    rows: Floats
    radius: float
    solver: Any

    @property
    def domain(self) -> Domain:
        """R^d."""
        return self.risk.domain

    @property
    def strong_convexity(self) -> float:
        """n times the ridge."""
        return len(self.rows) * self.risk.ridge

    def gradient(self, w: Floats) -> Floats:
        """Of the sum of the losses, with n times the ridge, at w."""
        risk = self.risk
        return len(self.rows) * erm(risk.loss, self.rows, risk.ridge, risk.domain).gradient(w)

    def minimiser(self, linear: Floats) -> Floats:
        """Of the mean loss + ridge + <linear, w>, to the radius."""
        risk = self.risk
        function = erm(risk.loss, self.rows, risk.ridge, risk.domain, linear=linear)
        return minimise(function, self.radius, self.solver).point


class _Still(Rows):
    """Rows whose minimisers are all 0."""

    def minimiser(self, linear: Floats) -> Floats:
        return np.zeros_like(linear)


@dataclass(frozen=True)
class RowGradients(WholeStatistic):
    """The rows as a function of the linear term; one row moves the gradient of the sum by 2 L.

    Attributes:
        risk: of the rows, over R^d.
        radius: to which minimisers are certified.
        solver: its name.
    """

    risk: Risk
    radius: float
    solver: str = "newton"

    @property
    def sensitivity(self) -> Sensitivity:
        """2 L."""
        proof = "two rows' gradients of a loss of slope L are at most 2 L apart"
        return Sensitivity(2 * self.risk.lipschitz, "gradient", proof)

    def careless(self) -> list[tuple[Statistic, float]]:
        return [(replace(self, solver=each), 2 * self.radius) for each in CARELESS]

    def of(self, rows: Floats) -> Rows:
        return Rows(self.risk, np.asarray(rows, float), self.radius, solver_by(self.solver))


@dataclass(frozen=True)
class LinearTerm(Mechanism[Floats]):
    """Draws a linear term, minimises with it, and pays for the distance from the minimiser.

    Attributes:
        law: of the linear term and of what is added after it.
        radius: certified.
    """

    norm: ClassVar[Norm] = "gradient"
    law: ObjectiveEvent | PureObjectiveEvent
    radius: float

    @property
    def event(self) -> PrivacyEvent:
        return self.law

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        assert isinstance(value, Rows)
        d = value.risk.d
        if isinstance(self.law, ObjectiveEvent):
            term = sensitivity * self.law.noise_multiplier * rng.standard_normal(d)
        else:
            term = sensitivity * gamma.draw(rng, self.law.tilt, d)
        # Neighbours' points of one linear term are 2 radius apart ("Approximate minima").
        noise = 2 * self.radius * gamma.draw(rng, self.law.rate, d)
        # The term is of the sum of the losses; their mean is minimised.
        return np.asarray(value.minimiser(term / len(value.rows)) + noise)

    def added(
        self, value: Any, sensitivity: float, released: Floats
    ) -> tuple[PrivacyEvent, Floats]:
        """For audits: the linear term for sensitivity 1, and the event of its law.

        It is what makes the gradient 0, but for the small noise of the release.
        """
        term = -value.gradient(released) / sensitivity
        if isinstance(self.law, ObjectiveEvent):
            return GaussianEvent(self.law.noise_multiplier), term
        return GammaEvent(self.law.tilt, value.risk.d), term

    def after(self, value: Any) -> tuple[Any, PrivacyEvent, float]:
        """For audits: a value of minimiser 0, the law of what is added, and its sensitivity."""
        event = GammaEvent(self.law.rate, value.risk.d)
        return _Still(**vars(value)), event, 2 * self.radius


class ObjectivePerturbation(OneRelease):
    """Noise in the objective: the strongest central method for smooth linear models over R^d.

    Rows are those of the problem's loss; the result is theta, shape (d,). Formal guarantee: that of
    `ObjectiveEvent`, or of `PureObjectiveEvent` at delta = 0. A ball of the problem is passed over:
    theta is minimised over R^d, where the proof holds; the bound is that of R^d.

    Attributes:
        bound: proven, of the expected excess of the problem's objective.
    """

    takes = ("ridge", "solver")
    """In place of the problem's; as of `OutputPerturbation`."""
    assumptions = (CERTIFIED,)
    binary = True  # of classes: two only

    def __init__(
        self,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        ridge: float,
        solver: Any = "newton",
    ) -> None:
        """With a ridge; `calibrated` chooses it where the problem has none.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        self.n, self.problem, self.privacy = demand_case(n, privacy), problem, privacy
        self.risk = _risk(problem, ridge)
        problem.loss.verify(math.inf)  # noise takes minimisers anywhere
        self.law = _law(self.risk, self.n, privacy)
        self.radius = _STOP * self.risk.lipschitz / (self.n * ridge)
        check_radius(self.risk, self.n, self.radius / 2)  # the linear term moves minimisers, too
        self.statistic = RowGradients(self.risk, self.radius, named(solver, self.risk))
        self.mechanism = LinearTerm(self.law, self.radius)
        self.bound = _bound(problem, self.risk, self.n, self.law)
        self.choices = {"ridge": "given"}

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The ridge of the problem, or the one of the least proven bound where it has none."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        ridge, solver = choices["ridge"], choices.get("solver", "newton")
        if ridge is None and problem.ridge > 0:
            ridge = problem.ridge
        if ridge is not None:
            return cls(n=n, problem=problem, privacy=privacy, ridge=ridge, solver=solver)

        def bound(each: float) -> float | None:
            risk = _risk(problem, each)
            try:
                law = _law(risk, n, privacy)
            except ParameterError:
                return None
            return _bound(problem, risk, n, law)

        small = ParameterError("n", n, "larger: no ridge up to 100 hides a row at this epsilon")
        value, (best,) = least(bound, np.geomspace(1e-8, 1e2, 101).tolist(), otherwise=small)
        made = cls(n=n, problem=problem, privacy=privacy, ridge=best, solver=solver)
        made.bound, made.choices = value, {"ridge": f"{shown(best)}: least proven bound"}
        return made


def _risk(problem: Problem, ridge: float) -> Risk:
    """Over R^d.

    Raises:
        ParameterError: a loss for which the change of variables does not hold.
    """
    loss = problem.loss
    if not (isinstance(loss, LinearLoss) and loss.twice_differentiable):
        other = "output or gibbs" if problem.smooth else "output"
        allowed = f"twice differentiable, such as Logistic(); take mechanism {other}"
        raise ParameterError("loss", loss, allowed)
    if not math.isfinite(loss.lipschitz(math.inf)):
        raise ParameterError("loss", loss, "of bounded slope over all of R^d")
    positive("ridge", ridge)
    return Risk.of(Problem(loss, RealSpace(problem.d), ridge, norm_bound=problem.norm_bound))


def _law(risk: Risk, n: int, privacy: Privacy) -> ObjectiveEvent | PureObjectiveEvent:
    """The least noise.

    Raises:
        ParameterError: the ridge is too small for epsilon, whatever the noise.
    """
    rate = _SHARE * privacy.epsilon
    left, curvature = privacy.epsilon - rate, risk.smoothness / (n * risk.ridge)
    coupled = type(risk.loss) is Logistic  # a subclass may have another slope
    if privacy.delta:
        multiplier = objective.multiplier_for(left, privacy.delta, curvature, coupled)
        if math.isfinite(multiplier):
            # More noise than the root by its tolerance: the charge must not exceed what was asked
            # for.
            return ObjectiveEvent(multiplier * (1 + 1e-9), curvature, rate, coupled)
    elif left > objective.pure(1e-9, curvature, coupled):
        tilt = scipy.optimize.brentq(
            lambda each: objective.pure(each, curvature, coupled) - left, 1e-9, left, rtol=1e-13
        )
        return PureObjectiveEvent(tilt * (1 - 1e-9), curvature, rate, coupled)
    # ln(1 + c/(n ridge)) alone must be below epsilon: no noise makes it smaller.
    least = risk.smoothness / (n * math.expm1(left))
    raise ParameterError("ridge", risk.ridge, f"above {least:.3g} at this n and epsilon")


def _bound(problem: Problem, risk: Risk, n: int, law: ObjectiveEvent | PureObjectiveEvent) -> float:
    """E ||b||^2/(2 n^2 lambda), since the gradient at the minimiser is -b/n; and what z' adds."""
    d, ridge, unit = risk.d, risk.ridge, 2 * risk.lipschitz / n
    if isinstance(law, ObjectiveEvent):
        square = d * (unit * law.noise_multiplier) ** 2
    else:
        square = unit**2 * gamma.mean_square(law.tilt, d)
    radius = _STOP * risk.lipschitz / (n * ridge)
    # Minkowski: the noise for 2 radius in root mean square, and the radius.
    after = 2 * radius * math.sqrt(gamma.mean_square(law.rate, d)) + radius
    slope = math.sqrt(square)
    # F has the slope -b/n at the exact minimiser; the descent lemma goes on from there.
    excess = square / (2 * ridge) + slope * after + (risk.smoothness + ridge) / 2 * after**2
    more = ridge - problem.ridge
    if more <= 0:
        return excess
    size = real("radius", problem.domain.radius, 0.0, math.inf)
    return excess + more * size**2 / 2
