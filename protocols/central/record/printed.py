"""Output perturbation as Lowy and Razaviyayn (2021) print it: ridge, accuracy, sensitivity.

The class of the objective decides: with kinks or smooth, strongly convex or with a ridge of the
paper's, an average of rows or, as tilted risk, none. c is theirs (`c_delta`); q is d/epsilon, or
sqrt(d) (c + sqrt(c^2 + epsilon))/epsilon where delta is above 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocols.central.record.minimum import shown
from protocols.erm.risk import Risk
from protocols.erm.saddle import SaddleRisk
from protocols.erm.tilted import TiltedRisk
from protocols.problems.problem import Problem
from shuffle_sim.privacy.bounds import paper
from shuffle_sim.privacy.guarantee import Privacy

# They use no smoothness, so the corollaries of theirs are those of the class with kinks.
_OF_KINKS = ("subgradient", "stochastic-subgradient", "adaptive-subgradient")
_LACKING = ", which lacks the 1/(1 + q)^2 of pure privacy that its proof needs"


@dataclass(frozen=True)
class Printed:
    """What the paper sets.

    Attributes:
        risk: with the paper's ridge.
        alpha: how far the minimum may be missed.
        sensitivity: of exact minimisers.
        why: the source of the ridge and of alpha.
    """

    risk: Risk
    alpha: float
    sensitivity: float
    why: dict[str, str]

    @property
    def radius(self) -> float:
        """How far from the minimiser alpha leaves: sqrt(2 alpha/mu)."""
        return math.sqrt(2 * self.alpha / self.risk.strong_convexity)


def printed(
    make: Callable[[float], Risk], problem: Problem, n: int, privacy: Privacy, solver: Any
) -> Printed:
    """What the paper sets for a problem.

    Args:
        make: the risk with a ridge.
        problem: its ridge is kept where it is strongly convex.
        n: rows.
        privacy: of the release.
        solver: its name; a subgradient method takes the corollaries of kinks.
    """
    q = _ratio(privacy, problem.d)
    if problem.strong_convexity > 0:
        risk = make(problem.ridge)
        alpha, source = _strong(risk, n, q, smooth=_smooth(risk, solver))
        ridge = "given" if problem.ridge else "0: the loss is strongly convex"
    else:
        bare = make(1.0)  # over a bounded domain the slopes are those of any ridge
        size = problem.domain.radius
        if bare.smoothness and _smooth(bare, solver):  # of a beta of 0 the ridge would be 0
            strength, alpha, source = _smooth_convex(bare, size, n, q, privacy)
            by = "Theorem 3.5"
        else:
            strength, alpha, source = _convex(bare, size, n, q, privacy)
            by = "Theorem 3.4"
        risk, ridge = make(strength), f"{shown(strength)}: {by}"
    why = {"ridge": ridge, "alpha": f"{shown(alpha)}: {source}"}
    return Printed(risk, alpha, _sensitivity(risk, problem, n), why)


def _ratio(privacy: Privacy, d: int) -> float:
    """q."""
    if not privacy.delta:
        return d / privacy.epsilon
    c = paper.c_delta(privacy.delta)
    return math.sqrt(d) * (c + math.sqrt(c * c + privacy.epsilon)) / privacy.epsilon


def _smooth(risk: Risk, solver: Any) -> bool:
    return math.isfinite(risk.smoothness) and not (isinstance(solver, str) and solver in _OF_KINKS)


def _heaviest(risk: Risk) -> float:
    """C of tilted risk, at most n (Lemma 5.2: a sensitivity never above 2 L/mu); 1 of averages."""
    if not isinstance(risk, TiltedRisk):
        return 1.0
    size = risk.domain.radius if risk.domain.bounded else risk.reach
    exponent = risk.tilt * risk.spread(size)
    return math.exp(min(exponent, 700.0))


def _strong(risk: Risk, n: int, q: float, smooth: bool) -> tuple[float, str]:
    """(alpha, where it is printed) of strongly convex objectives."""
    unit, c = risk.lipschitz**2 / risk.strong_convexity, _heaviest(risk)
    tilted = isinstance(risk, TiltedRisk)
    if smooth:
        kappa = (risk.smoothness + risk.ridge) / risk.strong_convexity
        other = "Theorem 5.3" if isinstance(risk, SaddleRisk) else "Theorem 3.2"
        alpha = unit / n**2 * min(kappa * q**2, c**2)
        return alpha, "proof of Theorem 5.2" if tilted else other
    alpha = unit / n * c * min(c / n, q)
    return alpha, "proof of Theorem 5.1" if tilted else "Corollary 3.2"


def _convex(
    risk: Risk, size: float, n: int, q: float, privacy: Privacy
) -> tuple[float, float, str]:
    """(ridge, alpha, where it is printed) of convex objectives."""
    tilted = isinstance(risk, TiltedRisk)
    rows = 1 if tilted else n
    ridge = risk.lipschitz / size / math.sqrt(1 + rows / q)
    alpha = risk.lipschitz * size * (q / rows) ** 1.5
    if tilted:
        return ridge, alpha, "Corollary 3.5, of any F"
    if privacy.delta:
        return ridge, alpha, "Corollary 3.6" + _LACKING
    return ridge, alpha / (1 + q) ** 2, "Corollary 3.6"


def _smooth_convex(
    risk: Risk, size: float, n: int, q: float, privacy: Privacy
) -> tuple[float, float, str]:
    """(ridge, alpha, where it is printed) of smooth convex objectives."""
    slope, beta = risk.lipschitz, risk.smoothness
    tilted = isinstance(risk, TiltedRisk)
    ridge = (beta * slope**2 / size**2) ** (1 / 3) * (q if tilted else q / n) ** (2 / 3)
    unit = slope ** (4 / 3) * size ** (2 / 3) / beta ** (1 / 3)
    if not tilted:
        return ridge, unit * q ** (-2 / 3) * n ** (-4 / 3), "Corollary 3.8"
    if privacy.delta:  # its powers are wrong, as its proof has q^(-2/3); kept as printed
        d, epsilon, c = risk.d, privacy.epsilon, paper.c_delta(privacy.delta)
        root = math.sqrt(d * (c + math.sqrt(c * c + epsilon)))
        return ridge, unit * epsilon / root * min(1.0, 1 / beta), "Corollary 3.7, of any F"
    return ridge, unit * q ** (-2 / 3), "Corollary 3.7, of any F"


def _sensitivity(risk: Risk, problem: Problem, n: int) -> float:
    """2 (L + ridge R)/(mu n); of tilted risk min(1, C/n) for 1/n."""
    size = problem.domain.radius if problem.domain.bounded else risk.reach
    steepest = risk.lipschitz + risk.ridge * size
    given = problem.strong_convexity > 0  # else the paper has tilted risk as any F alone
    tilted = isinstance(risk, TiltedRisk)
    share = 1.0 if tilted and not given else min(1.0, _heaviest(risk) / n)
    return 2 * steepest / risk.strong_convexity * share
