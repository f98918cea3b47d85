"""Plans of accelerated phases: ridges, stages, centring and noise of the smallest bound."""

import math
from dataclasses import dataclass

import numpy as np

from protocols.central.person.outlier_removal import Removal
from protocols.optimisation.acceleration import Schedule, envelope_error, gap_of
from protocols.optimisation.centring import Centring, Spread
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import halves
from protocols.optimisation.setting import Setting
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.mechanisms import Gaussian

CENTERS = ("carried", "fixed", "removed")
MAX_PHASES, MAX_STAGES, GROWTH = 4, 6, 4.0


@dataclass(frozen=True)
class AcceleratedPhase:
    """One phase: a ridge around the result before, and the stages that minimise.

    Attributes:
        cohort: its persons, of no other phase.
        ridge: lambda_i.
        schedules: one for each stage, each started at the result of the one before.
        centring: of all its rounds; its coarse rounds come first.
        mechanism: of each round.
        removal: of outlying gradients, in place of clipping; None: they are clipped.
    """

    cohort: Cohort
    ridge: float
    schedules: tuple[Schedule, ...]
    centring: Centring
    mechanism: Gaussian
    removal: Removal | None = None

    @property
    def rounds(self) -> int:
        """Of the phase."""
        return self.centring.coarse + sum(each.rounds for each in self.schedules)


def planned(
    setting: Setting, count: int, base: float, center: str, smoothing: float | None
) -> tuple[float, tuple[AcceleratedPhase, ...]] | None:
    """(bound, phases) with ridges base 4^i; None where a phase cannot work.

    Phases minimise the envelope where there is one; its error is in the bound once.
    """
    problem, n = setting.problem, setting.n
    L, m = problem.objective_lipschitz, problem.records
    bound, before, start = envelope_error(problem, smoothing), setting.distance**2, 0
    phases = []
    for at, size in enumerate(halves(n, count)):
        ridge = base * GROWTH**at
        strong = ridge + problem.ridge
        near = min((L / strong) ** 2, problem.domain.diameter**2)
        made = _phase(setting, Cohort.of(start, start + size), ridge, near, center, smoothing)
        if made is None:
            return None
        phase, left = made
        bound += ridge / 2 * before + 2 * L**2 / (strong * size * m)
        before, start = left, start + size
        phases.append(phase)
    return bound + L * math.sqrt(before), tuple(phases)


def smoothings(setting: Setting) -> list[float | None]:
    """beta of the envelope that are tried: none for a smooth loss."""
    problem = setting.problem
    if problem.smooth:
        return [None]
    scale = problem.lipschitz / setting.distance
    return [float(scale * 4.0**power) for power in range(8)]


def _phase(
    setting: Setting,
    cohort: Cohort,
    ridge: float,
    near: float,
    center: str,
    smoothing: float | None,
) -> tuple[AcceleratedPhase, float] | None:
    """The phase, and a bound of the squared distance from its minimiser that it leaves."""
    problem, size = setting.problem, cohort.size
    strong, beta = ridge + problem.strong_convexity, problem.planned_smoothness(smoothing) + ridge
    steps = math.ceil(math.sqrt(16 * beta / strong))
    best: tuple[AcceleratedPhase, float] | None = None
    if center == "removed":
        return _removing(setting, cohort, ridge, near, steps, beta)
    for stages in range(1, MAX_STAGES + 1):
        coarse = _COARSE if center == "carried" else 0
        rounds = coarse + stages * steps
        if rounds > _MOST_ROUNDS:
            break
        unit = setting.squared_noise(size, rounds) / problem.lipschitz**2
        centring = _centring(setting, size, unit, coarse, beta, center)
        if centring is None:
            return None
        spread, schedules, squared = Spread.tried(setting, Choices(), size)[1], [], near
        bias = 0.0
        if centring.carried:
            bias = spread.bias(setting.privacy.epsilon, setting.privacy.delta, centring.limit)
        t = np.arange(1.0, steps + 1)
        for _ in range(stages):
            R = math.sqrt(squared)
            reach = min(problem.domain.diameter, 2 * R)
            radii = centring.radii(4 * reach / (t[:-1] + 1))
            sigma = math.sqrt(unit * float(t**2 @ radii**2 / (t @ t)))
            schedules.append(Schedule(steps, beta, max(sigma, 1e-12), R))
            gap = gap_of(steps, beta, sigma, R) + bias * problem.domain.diameter
            squared = min(squared, 2 * gap / strong)
        mechanism = Gaussian.calibrated(setting.privacy, rounds)
        phase = AcceleratedPhase(cohort, ridge, tuple(schedules), centring, mechanism)
        if best is None or squared < best[1]:
            best = phase, squared
    return best


def _removing(
    setting: Setting, cohort: Cohort, ridge: float, near: float, steps: int, beta: float
) -> tuple[AcceleratedPhase, float] | None:
    """The same with the friendly mean; None where there are too few persons, or too many."""
    problem, size = setting.problem, cohort.size
    strong = ridge + problem.strong_convexity
    apart = problem.spread * (1 + math.sqrt(2 * math.log(size / _FAIL)))
    best: tuple[AcceleratedPhase, float] | None = None
    for stages in range(1, MAX_STAGES + 1):
        rounds = stages * steps
        if rounds > _MOST_ROUNDS:
            break
        try:
            removal = Removal.calibrated(setting.privacy, size, rounds, 2 * apart)
        except ParameterError:
            return best
        noise = removal.mean.sensitivity * removal.mechanism.noise_multiplier
        sigma, schedules, squared = math.sqrt(problem.d) * noise, [], near
        for _ in range(stages):
            R = math.sqrt(squared)
            schedules.append(Schedule(steps, beta, sigma, R))
            squared = min(squared, 2 * gap_of(steps, beta, sigma, R) / strong)
        fixed = Centring.fixed(problem.lipschitz)
        phase = AcceleratedPhase(cohort, ridge, tuple(schedules), fixed, removal.mechanism, removal)
        if best is None or squared < best[1]:
            best = phase, squared
    return best


def _centring(
    setting: Setting, size: int, unit: float, coarse: int, beta: float, center: str
) -> Centring | None:
    """For a phase's rounds; None where the center would be noise."""
    problem = setting.problem
    if center == "fixed":
        return Centring.fixed(problem.lipschitz)
    spread = Spread.tried(setting, Choices(), size)[1]
    a, tau = spread.contraction(unit, problem.d), spread.tau
    if a >= _MAX_CONTRACTION or tau >= problem.lipschitz:
        return None
    limit = problem.lipschitz
    return Centring(limit=limit, spread=tau, contraction=a, drift=beta, coarse=coarse)


_MOST_ROUNDS = 400
_MAX_CONTRACTION = 0.7
_COARSE, _FAIL = 8, 1e-3
