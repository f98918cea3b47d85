"""The schedule of AC-SA (Lan 2012) and its proven bound; the smoothing of losses with kinks."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from protocols.optimisation.base import OptimiserState
from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, one_of, positive, real

SCHEDULES = ("default", "paper")


@dataclass(frozen=True)
class AcceleratedState(OptimiserState):
    """theta_t and the aggregate theta_ag."""

    theta: Floats
    aggregate: Floats


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
        one_of("schedule", self.kind, SCHEDULES)
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
        # gamma of the theorem: L_t - beta a_t is at least 2 gamma/t, which takes up the noise.
        noise = self.sigma / self.distance * math.sqrt(last * (last + 1) * (2 * last + 1) / 24)
        return 2 / (t + 1), 2 / t * (self.beta + noise)

    def middle(self, state: AcceleratedState) -> Floats:
        """theta_md, where the next gradient is taken."""
        weight, _ = self.at(state.round + 1)
        return weight * state.theta + (1 - weight) * state.aggregate

    def step(self, state: AcceleratedState, gradient: Floats, domain: Domain) -> AcceleratedState:
        """theta moves to Proj(theta - g/L_t), and the aggregate by a_t towards it."""
        theta = domain.project(state.theta - gradient / self.at(state.round + 1)[1])
        # The same combination as theta_md, with the new theta.
        aggregate = self.middle(replace(state, theta=theta))
        return AcceleratedState(state.round + 1, theta, aggregate)

    @property
    def gap(self) -> float:
        """The proven bound of the default schedule; infinite for the paper's, which has none."""
        if self.kind == "paper":
            return math.inf
        return gap_of(self.rounds, self.beta, self.sigma, self.distance)


def gap_of(rounds: int, beta: float, sigma: float, distance: float) -> float:
    """2 beta R^2/(T (T+1)) + R sigma sqrt(2 (2T+1)/(3 T (T+1))): proven of the default schedule."""
    steps = rounds * (rounds + 1)
    return 2 * beta * distance**2 / steps + distance * sigma * math.sqrt(
        2 * (2 * rounds + 1) / (3 * steps)
    )


def accelerated_gap(setting: Setting, log: float) -> float:
    """D L/sqrt(n) + (d log)^(2/5) beta^(1/5) D^(6/5) L^(4/5)/(epsilon n)^(4/5).

    With kinks D L/sqrt(n) + (d log)^(1/3) D L/(epsilon n)^(2/3). The constants are taken as 1.

    Source: Cheu et al. (2022), Theorems 4.3 and 4.7 with log = ln^2(d/delta), and C.3 with
    ln(1/delta).
    """
    problem, D, n = setting.problem, setting.width, setting.n
    L, smooth = problem.objective_lipschitz, problem.smooth
    asked, cost = setting.privacy.epsilon * n, problem.d * log
    noise: float = cost ** (1 / 3) * D * L / asked ** (2 / 3)
    if smooth:
        beta = problem.planned_smoothness()
        noise = cost**0.4 * beta**0.2 * D**1.2 * L**0.8 / asked**0.8
    return D * L / math.sqrt(n) + noise


def envelope_error(problem: Problem, smoothing: float | None) -> float:
    """L^2/(2 beta), by how much the Moreau envelope of the loss is below it at most; 0 without one.

    Raises:
        ParameterError: beta is not positive, or is None for a loss with kinks.
    """
    if smoothing is not None:
        return problem.root**2 / (2 * positive("smoothing", smoothing))
    if not problem.smooth:
        raise ParameterError("smoothing", None, f"above 0: {type(problem.loss).__name__} has kinks")
    return 0.0


def smoothing_for(problem: Problem, choices: Choices, beta: float, why: str) -> float | None:
    """The envelope's beta: as given, none for a smooth loss, else `beta`."""
    wanted = (None, "the loss is smooth") if problem.smooth else (beta, why)
    found = choices.choose("smoothing", *wanted)
    return None if found is None else positive("smoothing", found)


def balanced_smoothing(problem: Problem, distance: float, rounds: int) -> float:
    """The beta that balances 2 beta R^2/(T (T+1)) and the envelope's error."""
    # Both terms are equal there: 2 beta R^2/(T (T+1)) = G_2^2/(2 beta).
    return problem.root * math.sqrt(rounds * (rounds + 1)) / (2 * distance)


def _sigma(problem: Problem, batch: int, squared_noise: float) -> float:
    return math.sqrt(problem.spread**2 / batch + squared_noise)


def best_batch(
    setting: Setting, choices: Choices, squared_noise: Callable[[int], float]
) -> tuple[int, int, float]:
    """(batch, rounds, bound): the smallest bound where an average over b has `squared_noise(b)`."""
    problem, distance = setting.problem, setting.distance
    fixed = choices["smoothing"]
    # The best beta follows from the rounds, so it is chosen anew for each of them.
    chosen = fixed is None and not problem.smooth
    error = 0.0 if chosen else envelope_error(problem, fixed)

    def bound(batch: int, rounds: int) -> float:
        beta = balanced_smoothing(problem, distance, rounds) if chosen else fixed
        sigma = _sigma(problem, batch, squared_noise(batch))
        gap = gap_of(rounds, problem.planned_smoothness(beta), sigma, distance)
        return gap + (problem.root**2 / (2 * beta) if chosen else error)

    return setting.best_batch(choices, bound)


def schedule_for(
    setting: Setting, choices: Choices, batch: int, rounds: int, squared_noise: float
) -> tuple[Schedule, float | None]:
    """(schedule, smoothing) for averages with that noise, as given or as the bound wants them."""
    problem, kind = setting.problem, choices["schedule"] or "default"
    why = "L sqrt(T (T+1))/(2R) minimises the bound"
    beta = smoothing_for(
        problem, choices, balanced_smoothing(problem, setting.distance, rounds), why
    )
    distance = problem.domain.diameter if kind == "paper" else setting.distance
    sigma = _sigma(problem, batch, squared_noise)
    schedule = Schedule(rounds, problem.planned_smoothness(beta), sigma, distance, kind)
    facts = f"beta = {schedule.beta:.4g}, sigma = {sigma:.4g}, R = {distance:.4g}"
    choices.choose("schedule", kind, facts)
    return schedule, beta
