"""The schedule of AC-SA (Lan 2012) and its proven bound; the smoothing of losses with kinks."""

import math
from dataclasses import dataclass

from protocols.problems.domains import Domain
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive, real

SCHEDULES = ("default", "paper")


@dataclass(frozen=True)
class Schedule:
    """Weights a_t and inverse steps L_t of AC-SA, t = 1, ..., T.

    default: a_t = 2/(t+1), L_t = (2/t)(beta + (sigma/R) sqrt(T (T+1)(2T+1)/24)); the gap is at most
    2 beta R^2/(T (T+1)) + R sigma sqrt(2 (2T+1)/(3 T (T+1))) (proof:
    docs/theory/accelerated-descent.md).
    paper: a_t = 2/(t+2), L_t = ((T+2)^{3/2} sigma/R + beta)/(t+1), refused where L_t < beta a_t:
    its proof fails there, and without noise it diverges.

    Attributes:
        rounds: T.
        beta: smoothness.
        sigma: root of the oracle's variance.
        distance: R, the root mean square distance to start from; for the paper's schedule the
            diameter D.
        kind: one of SCHEDULES.
    """

    rounds: int
    beta: float
    sigma: float
    distance: float
    kind: str = "default"

    def __post_init__(self) -> None:
        """Check the ranges, and the paper's condition."""
        integer("rounds", self.rounds)
        real("smoothness", self.beta, 0.0, math.inf, closed=(True, False))
        real("sigma", self.sigma, 0.0, math.inf, closed=(True, False))
        positive("initial_distance", self.distance)
        if self.kind not in SCHEDULES:
            raise ParameterError("schedule", self.kind, f"one of {', '.join(SCHEDULES)}")
        if self.beta + self.sigma == 0:
            raise ParameterError(
                "smoothness",
                self.beta,
                "above 0 where there is no noise: no step would be too long",
            )
        last = (
            self.rounds
        )  # the condition is tightest in the last round: L_t/(beta a_t) falls with t
        if self.kind == "paper" and self.at(last)[1] < self.beta * self.at(last)[0]:
            least = self.beta * last / (last + 2) * self.distance / (last + 2) ** 1.5
            raise ParameterError(
                "sigma", self.sigma, f"at least {least:.4g} for the paper's schedule: below, L_t "
                                     "< beta a_t and it can diverge; "
                "take schedule='default'"
            )  # fmt: skip

    def at(self, t: int) -> tuple[float, float]:
        """(a_t, L_t)."""
        last = self.rounds
        if self.kind == "paper":
            return 2 / (t + 2), ((last + 2) ** 1.5 * self.sigma / self.distance + self.beta) / (
                t + 1
            )
        noise = self.sigma / self.distance * math.sqrt(last * (last + 1) * (2 * last + 1) / 24)
        return 2 / (t + 1), 2 / t * (self.beta + noise)

    def middle(self, t: int, theta: Floats, aggregate: Floats) -> Floats:
        """theta_md, where round t takes its gradient."""
        weight, _ = self.at(t)
        return weight * theta + (1 - weight) * aggregate

    def step(
        self, t: int, theta: Floats, aggregate: Floats, gradient: Floats, domain: Domain
    ) -> tuple[Floats, Floats]:
        """(theta, aggregate) after round t: Proj(theta - g/L_t), the aggregate follows by a_t."""
        theta = domain.project(theta - gradient / self.at(t)[1])
        return theta, self.middle(t, theta, aggregate)

    @property
    def gap(self) -> float:
        """The proven bound of the default schedule; infinite for the paper's, which has none."""
        if self.kind == "paper":
            return math.inf
        return gap_of(self.rounds, self.beta, self.sigma, self.distance)


def gap_of(rounds: int, beta: float, sigma: float, distance: float) -> float:
    """The proven bound of the default schedule: 2 beta R^2/(T (T+1)) + R sigma sqrt(2 (2T+1)/(3 T
    (T+1))).
    """
    steps = rounds * (rounds + 1)
    return 2 * beta * distance**2 / steps + distance * sigma * math.sqrt(
        2 * (2 * rounds + 1) / (3 * steps)
    )


def smoothing_for(lipschitz: float, distance: float, rounds: int) -> float:
    """The envelope's beta = L sqrt(T (T+1))/(2R): balances 2 beta R^2/(T (T+1)) with the envelope's
    error L^2/(2 beta).
    """
    return lipschitz * math.sqrt(rounds * (rounds + 1)) / (2 * distance)


def smoothing_of(
    problem: Problem, distance: float, rounds: int, given: float | None
) -> float | None:
    """The envelope's beta: as given, none for a smooth loss, else the one that minimises the
    bound.
    """
    if given is not None:
        return positive("smoothing", given)
    return None if problem.smooth else smoothing_for(problem.lipschitz, distance, rounds)
