"""Densities ~ e^(-k F) of rows, and exact draws from them.

By rejection, not by a Markov chain: a chain's distance from its law cannot be checked, and it ends
pure privacy. Docs: theory, Output perturbation, "Gibbs mechanism".
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.central.record.gridded import gain_of, gridded, on_line
from protocols.central.record.proposals import near_least, proposed
from protocols.erm.cells import (
    RowsMean,
    demand_boxes,
    draw_in_boxes,
)
from protocols.erm.objective import most_loss
from protocols.erm.risk import Risk
from protocols.erm.smooth import ERM
from protocols.problems.domains import RealSpace
from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import Loss, refuse_rows
from protocols.problems.problem import Problem
from protocols.problems.smoothed import Smoothed
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, positive, real
from shuffle_sim.privacy.events import GaussianPairEvent, PrivacyEvent, RangeEvent
from shuffle_sim.privacy.mechanisms import EXPONENTIAL, Mechanism, Norm
from shuffle_sim.protocol.release import Sensitivity, WholeStatistic

_BATCH, _CACHED = 1 << 22, 1 << 14  # numbers of a batch of proposals' margins, and of a part
_MOST_PROPOSALS = 256
_GIBBS = "Gibbs mechanism (Gopi, Lee and Liu 2022, Theorem 4)"
_ROUNDINGS = 1 - 1e-6
"""Of k, for sums of 10^8 rows in doubles."""
HOPELESS = 300.0
"""c B^2/(2 ridge), minus the logarithm of the acceptance at worst, beyond which it is refused."""
SWIFT = 12.0
"""The same at most of what is chosen: e^12 proposals at worst, of any rows."""


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

    def of(self, rows: Floats) -> ERM | RowsMean:
        rows = np.asarray(rows, float)
        if isinstance(self.risk, FlatRisk):
            return RowsMean(self.risk.loss, rows, self.risk.ridge, self.risk.domain)
        found = self.risk.objective(rows)
        assert isinstance(found, ERM)
        return found


class Utility(Potential):
    """-F as the utility of every point of a bounded domain."""

    @property
    def sensitivity(self) -> Sensitivity:
        """2/n of how far one row's loss moves over the domain."""
        proof = "F - F' is 1/n of the difference of two losses, and each has the range `swing`"
        return Sensitivity(2 * self.risk.swing / self.users, "range", proof)


class FlatRisk(Risk):
    """A risk that needs neither a ridge nor a certificate: drawn from in boxes, never minimised."""

    certified = False

    def __post_init__(self) -> None:
        """Refuse slopes without a bound, a negative ridge, and domains of many boxes."""
        real("ridge", self.ridge, 0.0, math.inf, closed=(True, False))
        demand_boxes(self.domain)
        _demand_slope(self.loss, self.lipschitz_within(self.domain.radius))


class Density(Mechanism[Floats]):
    """One point of density ~ e^(-k F), F strongly convex and smooth."""

    @abstractmethod
    def sharpness(self, ridge: float, sensitivity: float) -> float:
        """k."""

    def sample(self, value: Any, sensitivity: float, rng: np.random.Generator) -> Floats:
        assert isinstance(value, ERM | RowsMean)
        k = self.sharpness(value.strong_convexity, sensitivity)
        if isinstance(value, RowsMean):
            return draw_in_boxes(rng, value, k * _ROUNDINGS)
        return draw(rng, value, k)

    def odds(
        self, value: Any, other: Any, sensitivity: float, released: Floats
    ) -> tuple[float, bool]:
        """For audits: how a draw speaks for another value; exactly with up to two coordinates.

        With more a constant is missing.
        """
        k = self.sharpness(value.strong_convexity, sensitivity)
        if value.d > 2:
            return float(k * (value.value(released) - other.value(released))), False
        gain, mean = gain_of(value, other, k)
        return float(gain(released[None])[0]) - mean, True

    def uniform(
        self, value: Any, sensitivity: float, released: Floats, rng: np.random.Generator
    ) -> Floats:
        """For audits: a draw as independent uniform numbers, one for each coordinate, up to two.

        The first by its marginal, the second by its law given the first, on a fine grid. Of more
        coordinates one number: where the draw lies on a random line through it, by the law given
        that line.
        """
        k = self.sharpness(value.strong_convexity, sensitivity)
        if value.d <= 2:
            return gridded(value, k).uniform(released)
        way = rng.normal(size=value.d)
        return on_line(value, k, released, way / np.linalg.norm(way))


@dataclass(frozen=True)
class GibbsDraw(Density):
    """With the trade-off of a Gaussian pair of distance mu (Gopi, Lee and Liu 2022).

    Attributes:
        mu: above 0.
    """

    norm: ClassVar[Norm] = "gradient"
    mu: float

    @property
    def event(self) -> PrivacyEvent:
        return GaussianPairEvent(self.mu, _GIBBS)

    def sharpness(self, ridge: float, sensitivity: float) -> float:
        """k = ridge (mu / sensitivity)^2."""
        # mu = S sqrt(k/lambda) for a gradient that moves by S (Gopi, Lee and Liu 2022).
        return ridge * (self.mu / sensitivity) ** 2


@dataclass(frozen=True)
class ExponentialDraw(Density):
    """Pure, on a bounded set (Algorithm 9 of Lowy and Razaviyayn 2021).

    Attributes:
        epsilon: above 0.
    """

    norm: ClassVar[Norm] = "range"
    epsilon: float

    @property
    def event(self) -> PrivacyEvent:
        return RangeEvent(self.epsilon, EXPONENTIAL)

    def sharpness(self, ridge: float, sensitivity: float) -> float:
        """k = epsilon / sensitivity: F - F' has that range at most."""
        return self.epsilon / sensitivity


def draw(rng: np.random.Generator, objective: ERM, k: float) -> Floats:
    """One point of density ~ e^(-k F), exactly, by rejection from a Gaussian.

    With any w0 and g = grad F(w0): F(w) >= F(w0) + <g, w - w0> + (lambda/2) ||w - w0||^2. w0 only
    decides on the speed. There is no cap on tries: a cap would tell. The time depends on the data.
    """
    ridge, domain = objective.strong_convexity, objective.domain
    near = near_least(objective, k)
    slope = objective.gradient(near)
    centre, scale = near - slope / ridge, 1 / math.sqrt(k * ridge)
    # By n alone; the first accepted of a batch has the law of tries one by one.
    size = max(1, min(_MOST_PROPOSALS, _BATCH // objective.n))
    step = max(8, _CACHED // objective.n)
    while True:
        proposals, kept = proposed(rng, domain, centre, scale, size)
        logs = np.log(rng.random(size))
        if not kept.any():
            continue
        inside, tried = proposals[kept], logs[kept]
        for low in range(0, len(inside), step):  # those after the first accepted are not looked at
            part = slice(low, low + step)
            # The ridge is in F and in the paraboloid: what is left is the Bregman distance of the
            # losses.
            excess = objective.bregman(near, inside[part])
            accepted = np.flatnonzero(tried[part] < -k * excess)
            if len(accepted):
                return np.array(inside[part][accepted[0]])


def swift(d: int) -> float:
    """The largest beta/lambda of which a draw accepts e^-SWIFT of its proposals, whatever the rows.

    Its Bregman distance is at most (w - w0)' H (w - w0)/2, and H has the trace beta at most. So a
    Gaussian proposal is accepted with probability prod_j (1 + h_j/lambda)^{-1/2} at least, which
    equal h_j make least: (1 + beta/(d lambda))^{-d/2}.
    """
    return min(2 * HOPELESS, d * math.expm1(min(2 * SWIFT / d, 100.0)))


def demand_fast(risk: Risk) -> Risk:
    """The risk, but refuse what a rejection sampler may take for ever on.

    Raises:
        ParameterError: kinks, a loss of unbounded slope, or a ridge that is too small.
    """
    if not math.isfinite(risk.smoothness):
        allowed = "smooth: with kinks a draw may take for ever; take output, or Gibbs if linear"
        raise ParameterError("loss", risk.loss, allowed)
    _demand_slope(risk.loss, risk.lipschitz_within(risk.domain.radius))
    if risk.smoothness / (2 * risk.strong_convexity) > HOPELESS:
        least = risk.smoothness / (2 * HOPELESS)
        allowed = f"at least {least:.3g}: below, a draw may take for ever"
        raise ParameterError("ridge", risk.ridge, allowed)
    return risk


def enveloped(
    problem: Problem, ridge: float, smoothing: float | None, radius: float
) -> tuple[Problem, float]:
    """The problem that can be drawn from, and how far below the loss it lies at most.

    For kinks it is that of the Moreau envelope; without a given beta of the largest that is swift.

    Args:
        problem: whose loss may have kinks.
        ridge: of the draw.
        smoothing: beta; None: chosen, where there are kinks.
        radius: no draw is longer.

    Raises:
        ParameterError: an envelope of a loss that has none, needs none, or has no bounded slope.
    """
    loss, curved = problem.loss, ridge + problem.loss.strong_convexity()
    if smoothing is None and (loss.smoothness() is not None or not isinstance(loss, LinearLoss)):
        return problem, 0.0
    beta = swift(problem.d) * positive("ridge", curved) if smoothing is None else smoothing
    smooth, steepest = Smoothed.of(loss, beta), loss.lipschitz(radius)
    _demand_slope(loss, steepest)
    # |slope|^2/(2 beta) at every point: the prox moves by slope/beta.
    return replace(problem, loss=smooth), steepest**2 / (2 * beta)


def unbounded(problem: Problem, ridge: float) -> Risk:
    """The risk over R^d; draws accept e^-HOPELESS of their proposals at least, whatever the rows.

    Raises:
        ParameterError: what the problem's own domain refuses, or as `demand_fast`.
    """
    Risk.of(problem, ridge)
    return demand_fast(Risk.of(Problem(problem.loss, RealSpace(problem.d), ridge)))


def demand_digits(risk: Risk, rows: NDArray[Any]) -> None:
    """Refuse rows whose loss is so large that its changes have no digits left.

    Raises:
        ParameterError: naming the first.
    """
    wide = min(risk.domain.diameter, 2 * risk.reach)
    most = most_loss(risk.lipschitz, wide)
    near = np.abs(risk.loss.values(risk.domain.center, rows)) <= most
    refuse_rows(~near, f"of loss {most:.4g} at most in the domain's middle; bound the labels")


def _demand_slope(loss: Loss, steepest: float) -> None:
    if not math.isfinite(steepest):
        allowed = "of bounded slope over the domain: F - F' must be Lipschitz on all of it"
        raise ParameterError("loss", loss, allowed)
