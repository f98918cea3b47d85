"""Draws of density ~ e^(-k F): the Gibbs mechanism and the exponential mechanism, sampled exactly.

By rejection, not by a Markov chain: a chain's distance from its law cannot be checked, and it ends
pure privacy. Docs: theory, Output perturbation, "Gibbs mechanism".
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.central.record.minimum import OneRelease, demand_case, shown
from protocols.central.record.output_perturbation import OutputPerturbation
from protocols.erm.risk import Risk
from protocols.erm.smooth import ERM
from protocols.erm.solver import certify
from protocols.erm.solver.minimise import SOLVERS
from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain, L2Ball, RealSpace
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.privacy.bounds import gaussian
from shuffle_sim.privacy.events import GaussianPairEvent, PrivacyEvent, RangeEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import EXPONENTIAL, Mechanism, Norm
from shuffle_sim.protocol.release import Release, Sensitivity, WholeStatistic

_BATCH = 1 << 22  # numbers of a batch of proposals' margins
_MOST_PROPOSALS = 256
_GIBBS = "Gibbs mechanism (Gopi, Lee and Liu 2022, Theorem 4)"
HOPELESS = 300.0
"""c B^2/(2 ridge), minus the logarithm of the acceptance at worst, beyond which it is refused."""


@dataclass(frozen=True)
class Potential(WholeStatistic):
    """F of the rows as a function; one row moves its gradient by 2 L/n.

    Attributes:
        risk: of the rows.
        users: n.
    """

    risk: Risk
    users: int

    @property
    def sensitivity(self) -> Sensitivity:
        """2 L/n."""
        proof = "one of n losses of slope L differs: F - F' is (2 L/n)-Lipschitz; the ridge cancels"
        return Sensitivity(2 * self.risk.lipschitz / self.users, "gradient", proof)

    def of(self, rows: Floats) -> ERM:
        found = self.risk.objective(np.asarray(rows, float))
        assert isinstance(found, ERM)
        return found


class Density(Mechanism[Floats]):
    """One point of density ~ e^(-k F), F strongly convex and smooth."""

    norm: ClassVar[Norm] = "gradient"

    @abstractmethod
    def sharpness(self, ridge: float, domain: Domain, sensitivity: float) -> float:
        """k."""

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        assert isinstance(value, ERM)
        k = self.sharpness(value.strong_convexity, value.domain, sensitivity)
        found: Floats = draw(rng, value, k)
        return found


@dataclass(frozen=True)
class GibbsDraw(Density):
    """With the trade-off of a Gaussian pair of distance mu (Gopi, Lee and Liu 2022).

    Attributes:
        mu: above 0.
    """

    mu: float

    @property
    def event(self) -> PrivacyEvent:
        return GaussianPairEvent(self.mu, _GIBBS)

    def sharpness(self, ridge: float, domain: Domain, sensitivity: float) -> float:
        """k = ridge (mu / sensitivity)^2."""
        return ridge * (self.mu / sensitivity) ** 2


@dataclass(frozen=True)
class ExponentialDraw(Density):
    """Pure, on a bounded set (Algorithm 9 of Lowy and Razaviyayn 2021).

    Attributes:
        epsilon: above 0.
    """

    epsilon: float

    @property
    def event(self) -> PrivacyEvent:
        return RangeEvent(self.epsilon, EXPONENTIAL)

    def sharpness(self, ridge: float, domain: Domain, sensitivity: float) -> float:
        """k = epsilon / (sensitivity * diameter): F - F' has that range at most."""
        return self.epsilon / (sensitivity * domain.diameter)


def draw(rng: np.random.Generator, objective: ERM, k: float) -> Floats:
    """One point of density ~ e^(-k F), exactly, by rejection from a Gaussian.

    With any w0 and g = grad F(w0): F(w) >= F(w0) + <g, w - w0> + (lambda/2) ||w - w0||^2. w0 only
    decides on the speed. There is no cap on tries: a cap would tell. The time depends on the data.
    """
    ridge, d, domain = objective.strong_convexity, objective.d, objective.domain
    radius = 1e-6 / math.sqrt(k * ridge)
    start = domain.project(objective.start)
    found = SOLVERS["newton"](objective, radius, start, np.random.default_rng(0))
    near = certify(objective, domain.project(found)).point
    slope = objective.gradient(near)
    centre, scale = near - slope / ridge, 1 / math.sqrt(k * ridge)
    size = max(1, min(_MOST_PROPOSALS, _BATCH // objective.n))
    inside = isinstance(domain, RealSpace)
    while True:
        proposals = centre + scale * rng.standard_normal((size, d))
        logs = np.log(rng.random(size))
        kept = np.ones(size, bool)
        if not inside:
            kept = _within(domain, proposals)
        if not kept.any():
            continue
        excess = objective.bregman(near, proposals[kept])
        accepted = np.flatnonzero(logs[kept] < -k * excess)
        if len(accepted):
            chosen: Floats = np.array(proposals[kept][accepted[0]])
            return chosen


def _within(domain: Domain, points: Floats) -> NDArray[np.bool_]:
    if isinstance(domain, L2Ball):
        return np.asarray(np.linalg.norm(points - domain.center, axis=1) <= domain.size)
    return np.array([np.array_equal(domain.project(each), each) for each in points])


class Gibbs(OneRelease):
    """One exact draw of density ~ e^(-k F): (epsilon, delta), no certificate, any conditioning.

    Rows are those of the problem's loss; the result is theta, shape (d,). Formal guarantee: that of
    a Gaussian pair with mu = 2 L sqrt(k/lambda)/n. A domain of the problem is passed over: the draw
    is from R^d, where no data make it slow. Its time still depends on the data.

    Attributes:
        bound: d/k, proven, of the expected excess; and the ridge's part where it was added.
    """

    takes = ("ridge",)
    """In place of the problem's."""
    assumptions = ("the time of the draw is not observed: it depends on the data",)

    def __init__(self, *, n: int, problem: Problem, privacy: Privacy, ridge: float) -> None:
        """With a ridge; `calibrated` chooses it where the problem has none.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        self.n, self.problem, self.privacy = demand_case(n, privacy), problem, privacy
        self.risk = self._risk(problem, ridge, self.n, privacy)
        self.statistic = Potential(self.risk, self.n)
        self.mechanism = self._draw(privacy)
        self.bound = self._bound(problem, self.risk, self.n, self.mechanism)
        self.choices = {"ridge": "given"}

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The ridge of the problem, or the one of the least proven bound where it has none."""
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        kept = OutputPerturbation.kept_ridge(problem, choices["ridge"])
        if kept is not None:
            return cls(n=n, problem=problem, privacy=privacy, ridge=kept)
        mechanism = cls._draw(privacy)
        curved = problem.loss.smoothness() or math.inf
        tried = np.geomspace(curved / (2 * HOPELESS) * (1 + 1e-9), 1e3, 121).tolist()

        def bound(ridge: float) -> float | None:
            risk = cls._possible(problem, ridge, n, privacy)
            return None if risk is None else cls._bound(problem, risk, n, mechanism)

        slow = ParameterError("ridge", None, "given: no ridge makes the draw fast")
        _, (best,) = least(bound, tried, otherwise=slow)
        made = cls(n=n, problem=problem, privacy=privacy, ridge=best)
        made.choices = {"ridge": f"{shown(best)}: least proven bound"}
        return made

    @classmethod
    def _possible(cls, problem: Problem, ridge: float, n: int, privacy: Privacy) -> Risk | None:
        try:
            return cls._risk(problem, ridge, n, privacy)
        except ParameterError as error:
            if error.parameter in ("ridge", "domain"):
                return None
            raise

    @classmethod
    def _risk(cls, problem: Problem, ridge: float, n: int, privacy: Privacy) -> Risk:
        """What is drawn from, if that ends in time whatever the rows."""
        Risk.of(problem, ridge)
        space = Problem(problem.loss, RealSpace(problem.d), ridge)
        return demand_fast(Risk.of(space))

    @classmethod
    def _draw(cls, privacy: Privacy) -> Density:
        if not privacy.delta:
            allowed = "above 0; at 0 take ExponentialMechanism, or noise on the output"
            raise ParameterError("delta", privacy.delta, allowed)
        mu = gaussian.mu_of(privacy.epsilon, privacy.delta)
        return GibbsDraw(mu * (1 - 1e-12))

    @staticmethod
    def _bound(problem: Problem, risk: Risk, n: int, mechanism: Density) -> float:
        sensitivity = 2 * risk.lipschitz / n
        k = mechanism.sharpness(risk.strong_convexity, risk.domain, sensitivity)
        more = risk.ridge - problem.ridge
        return risk.d / k + (more * problem.domain.radius**2 / 2 if more > 0 else 0.0)

    @property
    def release(self) -> Release:
        return Release.of(self.everyone, self.statistic, self.mechanism)


class ExponentialMechanism(Gibbs):
    """One exact draw of density ~ e^(-k F) on a bounded domain: pure differential privacy.

    Algorithm 9 of Lowy and Razaviyayn (2021). Formal guarantee: (epsilon, 0), as F - F' has a range
    of at most epsilon/k on the domain. The bound is d/k.
    """

    @classmethod
    def _draw(cls, privacy: Privacy) -> Density:
        return ExponentialDraw(positive("epsilon", privacy.epsilon))

    @classmethod
    def _risk(cls, problem: Problem, ridge: float, n: int, privacy: Privacy) -> Risk:
        ball = problem.domain
        if not isinstance(ball, L2Ball) or ball.center.any():
            raise ParameterError("domain", type(ball).__name__, "an L2Ball around 0")
        risk = demand_fast(Risk.of(problem, ridge))
        k = cls._draw(privacy).sharpness(ridge, ball, 2 * risk.lipschitz / n)
        near = problem.loss.minimiser_norm(ridge)
        spread = math.sqrt(problem.d / (k * ridge))
        if near + spread > ball.radius:
            allowed = f"larger, or the ball: minimisers reach {near:.3g}, draws {spread:.3g} beyond"
            raise ParameterError("ridge", ridge, allowed)
        return risk


def demand_fast(risk: Risk) -> Risk:
    """The risk, but refuse what a rejection sampler may take for ever on.

    Raises:
        ParameterError: kinks, a loss of unbounded slope, or a ridge that is too small.
    """
    if not math.isfinite(risk.smoothness):
        allowed = "smooth: with kinks a draw may take for ever; take mechanism output"
        raise ParameterError("loss", risk.loss, allowed)
    if not math.isfinite(risk.lipschitz_within(risk.domain.radius)):
        allowed = "of bounded slope over the domain: F - F' must be Lipschitz on all of it"
        raise ParameterError("loss", risk.loss, allowed)
    if risk.smoothness / (2 * risk.strong_convexity) > HOPELESS:
        least = risk.smoothness / (2 * HOPELESS)
        allowed = f"at least {least:.3g}: below, a draw may take for ever"
        raise ParameterError("ridge", risk.ridge, allowed)
    return risk
