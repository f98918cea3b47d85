"""Plans of accelerated phases: ridges, stages, centring and noise of the smallest bound."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy

from protocols.central.person.friendly import MAX_POINTS
from protocols.central.person.outlier_removal import Removal
from protocols.optimisation.acceleration import Schedule, envelope_error, gap_of
from protocols.optimisation.centring import Centring, Spread
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import halves
from protocols.optimisation.setting import Setting
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.mechanisms import Gaussian

CENTERS = ("carried", "fixed", "removed")
MAX_PHASES, GROWTHS = 6, (4.0, 16.0, 64.0, 256.0)
STAGES = (1, 2, 4, 8, 12, 16)
"""That are tried: each halves the distance that is left, down to the noise."""
RIDGES = 2.0 ** np.arange(4, -25, -1)
"""lambda_1 that are tried, in units of L/R. They are the same for all n and m, and so are numbers
of phases and stages: what is tried for few persons is tried for more, and bounds do not rise.
"""


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
        batch: persons of a round, each asked once; None: all are asked in every round.

    Raises:
        ParameterError: a guard whose tail is of fewer queries than there are rounds, or batches of
            more persons than there are.
    """

    cohort: Cohort
    ridge: float
    schedules: tuple[Schedule, ...]
    centring: Centring
    mechanism: Gaussian
    removal: Removal | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        """Each round asks the guard once, or a batch of its own."""
        if self.batch is not None:
            most = self.cohort.size // self.rounds
            if integer("batch", self.batch) > most or self.removal is not None:
                allowed = f"at most {most}, in {self.rounds} rounds that clip gradients"
                raise ParameterError("batch", self.batch, allowed)
        if self.removal is not None and self.removal.guard.queries < self.rounds:
            allowed = f"at least {self.rounds}, the phase's rounds"
            raise ParameterError("removal.guard.queries", self.removal.guard.queries, allowed)

    @property
    def rounds(self) -> int:
        """Of the phase."""
        return self.centring.rounds(sum(each.rounds for each in self.schedules))

    @property
    def rounds_per_user(self) -> int:
        """In which a person answers."""
        return self.rounds if self.batch is None else 1

    @property
    def answers(self) -> int:
        """Of all persons."""
        return self.rounds * (self.cohort.size if self.batch is None else self.batch)

    def asked(self, index: int) -> Cohort:
        """The persons of a round."""
        if self.batch is None:
            return self.cohort
        start = self.cohort.ranges[0][0] + index * self.batch
        return Cohort.of(start, start + self.batch)


Made = tuple[AcceleratedPhase, float] | None
Planned = dict[tuple[int, float, str, float | None], Made]


def planned(
    setting: Setting,
    made: Planned,
    count: int,
    base: float,
    growth: float,
    center: str,
    smoothing: float | None,
) -> tuple[float, tuple[AcceleratedPhase, ...]] | None:
    """(bound, phases) with ridges base growth^i; None where a phase cannot work.

    Phases minimise the envelope where there is one; its error is in the bound once. What several
    plans have in common is in `made`: phases of as many persons with the same ridge.
    """
    problem, n = setting.problem, setting.n
    L, m = problem.objective_lipschitz, problem.records
    bound, before, start = envelope_error(problem, smoothing), setting.distance**2, 0
    phases = []
    for at, most in enumerate(halves(n, count)):
        size = min(most, MAX_POINTS) if center == "removed" else most
        ridge = base * growth**at
        strong = ridge + problem.ridge
        # The start is the ridge's centre: the slope there is L at most, so the minimiser is within
        # L/strong.
        near = min((L / strong) ** 2, problem.domain.diameter**2)
        key = size, ridge, center, smoothing
        if key not in made:
            made[key] = _phase(setting, size, ridge, near, center, smoothing)
        found = made[key]
        if found is None:
            return None
        phase, left = found
        # The ridge at the distance that the phase before left, and 2 L^2/(lambda n m) for new
        # records.
        bound += ridge / 2 * before + 2 * L**2 / (strong * size * m)
        phases.append(replace(phase, cohort=Cohort.of(start, start + size)))
        before, start = left, start + size
    # Jensen: the mean distance is at most the root of the mean square.
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
    size: int,
    ridge: float,
    near: float,
    center: str,
    smoothing: float | None,
) -> Made:
    """The phase, and a bound of the squared distance from its minimiser that it leaves."""
    problem = setting.problem
    strong, beta = ridge + problem.strong_convexity, problem.planned_smoothness(smoothing) + ridge
    # With 2 beta R^2/T^2 for the gap, 2 gap/strong is R^2/4: a stage halves the distance.
    steps = math.ceil(math.sqrt(16 * beta / strong))
    spreads: list[Spread | None] = [None]
    if center == "carried":
        spreads = [_spread(setting, size, deviations) for deviations in _DEVIATIONS]
    found: list[Made] = []
    # sqrt(beta/lambda) rounds of a stage are (n m)^(1/4) at the theorem's ridge.
    most = max(_MOST_ROUNDS, round(10 * (setting.n * problem.records) ** 0.25))
    for stages in STAGES:
        if _COARSE + stages * steps > most:
            break
        case = setting, size, ridge, near, beta, stages, steps
        if center == "removed":
            found += [_removing(*case)]
        else:
            found += [_clipping(*case, spread) for spread in spreads]
    return min((each for each in found if each is not None), key=lambda each: each[1], default=None)


def _spread(setting: Setting, size: int, deviations: float) -> Spread:
    """Where persons answer again, a probability p becomes e^epsilon p at most: u pays for it."""
    rare = float(scipy.special.ndtr(-deviations)) * math.exp(-setting.privacy.epsilon)
    given = Choices({"deviations": -float(scipy.special.ndtri(rare))})
    (spread,) = Spread.tried(setting, given, size)
    return spread


def _clipping(
    setting: Setting,
    size: int,
    ridge: float,
    near: float,
    beta: float,
    stages: int,
    steps: int,
    spread: Spread | None,
) -> Made:
    """With gradients clipped; None where the center would be noise."""
    problem = setting.problem
    strong = ridge + problem.strong_convexity
    rounds = stages * steps + (0 if spread is None else _COARSE)
    unit = setting.squared_noise(size, rounds) / problem.lipschitz**2
    centring, bias, rare = Centring.fixed(problem.lipschitz), (0.0, 0.0), 0.0
    if spread is not None:
        a, tau, limit = spread.contraction(unit, problem.d), spread.tau, problem.lipschitz
        if a >= _MAX_CONTRACTION or tau >= limit:
            return None
        centring = Centring(limit=limit, spread=tau, contraction=a, drift=beta, coarse=_COARSE)
        beyond = spread.bias(setting.privacy.epsilon, 0.0, limit)
        bias, rare = (beyond, 2 * limit / (strong * size)), 2 * limit * setting.privacy.delta
    schedules, squared = [], near
    for _ in range(stages):
        R = math.sqrt(squared)
        # No proof keeps iterates so near: the bound says that it assumes `CLOSE`.
        reach = min(problem.domain.diameter, 2 * R)
        sigma = math.sqrt(unit) * centring.accelerated_radius(steps, reach)
        schedules.append(Schedule(steps, beta, sigma, R))
        gap = gap_of(steps, beta, sigma, R)
        gap += stage_bias(bias, rare, steps, beta, R, problem.domain.diameter)
        # ||x - x*||^2 <= 2 gap/strong.
        squared = min(problem.domain.diameter**2, 2 * gap / strong)
    mechanism = _gaussian(setting.privacy, rounds)
    everyone = Cohort.of(0, size)
    return AcceleratedPhase(everyone, ridge, tuple(schedules), centring, mechanism), squared


def stage_bias(
    near: tuple[float, float], rare: float, steps: int, beta: float, R: float, diameter: float
) -> float:
    """What clip bias adds to the gap of a stage: docs, theory, User level, "Bias of a stage".

    Args:
        near: (b, s): of persons that concentrate, and how far one of them moves the minimiser.
        rare: of those that do not, with probability delta.
        steps: T of the stage.
        beta: of its objective.
        R: from its start to its minimiser, in root mean square.
        diameter: of the domain.
    """
    b, s = near
    times = steps * (steps + 1) / (2 * beta)
    farthest = math.sqrt(2) * R + math.sqrt(times * (b * s + rare * diameter)) + times * b
    return b * min(farthest + s, diameter) + rare * diameter


def _removing(
    setting: Setting, size: int, ridge: float, near: float, beta: float, stages: int, steps: int
) -> Made:
    """With the friendly mean; None where there are too few persons."""
    problem = setting.problem
    strong = ridge + problem.strong_convexity
    # McDiarmid for all persons at once ("Radii"); two of them may lie on opposite sides of the
    # mean.
    apart = problem.spread * (1 + math.sqrt(2 * math.log(size / _FAIL)))
    try:
        removal = Removal.calibrated(setting.privacy, size, stages * steps, 2 * apart)
    except ParameterError:
        return None
    noise = removal.mean.sensitivity * removal.mechanism.noise_multiplier
    sigma, schedules, squared = math.sqrt(problem.d) * noise, [], near
    for _ in range(stages):
        R = math.sqrt(squared)
        schedules.append(Schedule(steps, beta, sigma, R))
        squared = min(problem.domain.diameter**2, 2 * gap_of(steps, beta, sigma, R) / strong)
    fixed, everyone = Centring.fixed(problem.lipschitz), Cohort.of(0, size)
    removed = removal.mechanism, removal
    return AcceleratedPhase(everyone, ridge, tuple(schedules), fixed, *removed), squared


_gaussian = lru_cache(Gaussian.calibrated)
_MOST_ROUNDS = 1000
_MAX_CONTRACTION = 0.7
_COARSE, _FAIL = 8, 1e-3
_DEVIATIONS = 4.0, 6.0
"""u at epsilon 0. Clip bias costs e^epsilon where persons are asked again; u grows to pay that."""
