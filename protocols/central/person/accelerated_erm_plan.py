"""Plans of accelerated phases: ridges, stages, centring and noise of the smallest bound."""

import math
from dataclasses import dataclass, replace

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
from shuffle_sim.errors import ParameterError
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

    Raises:
        ParameterError: a guard whose tail is of fewer queries than there are rounds.
    """

    cohort: Cohort
    ridge: float
    schedules: tuple[Schedule, ...]
    centring: Centring
    mechanism: Gaussian
    removal: Removal | None = None

    def __post_init__(self) -> None:
        """Each round asks the guard once."""
        if self.removal is not None and self.removal.guard.queries < self.rounds:
            allowed = f"at least {self.rounds}, the phase's rounds"
            raise ParameterError("removal.guard.queries", self.removal.guard.queries, allowed)

    @property
    def rounds(self) -> int:
        """Of the phase."""
        return self.centring.coarse + sum(each.rounds for each in self.schedules)


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
    spread = None
    if center == "carried":
        # Where persons answer again, a probability p becomes e^epsilon p at most ("Radii"): u pays
        # for it.
        rare = float(scipy.special.ndtr(-_DEVIATIONS)) * math.exp(-setting.privacy.epsilon)
        given = Choices({"deviations": -float(scipy.special.ndtri(rare))})
        (spread,) = Spread.tried(setting, given, size)
    found = []
    for stages in STAGES:
        if _COARSE + stages * steps > _MOST_ROUNDS:
            break
        case = setting, size, ridge, near, beta, stages, steps
        made = _removing(*case) if center == "removed" else _clipping(*case, spread)
        if made is not None:
            found.append(made)
    return min(found, key=lambda each: each[1], default=None)


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
    centring, bias = Centring.fixed(problem.lipschitz), 0.0
    if spread is not None:
        a, tau, limit = spread.contraction(unit, problem.d), spread.tau, problem.lipschitz
        if a >= _MAX_CONTRACTION or tau >= limit:
            return None
        centring = Centring(limit=limit, spread=tau, contraction=a, drift=beta, coarse=_COARSE)
        bias = spread.bias(setting.privacy.epsilon, setting.privacy.delta, limit)
    schedules, squared = [], near
    t = np.arange(1.0, steps + 1)
    for _ in range(stages):
        R = math.sqrt(squared)
        reach = min(problem.domain.diameter, 2 * R)
        radius = problem.lipschitz
        if centring.carried:
            # theta_md moves by a_t |theta_t - theta_{t-1}| + a_{t+1} |theta_t - theta_ag|, a_t =
            # 2/(t + 1).
            radii = centring.radii(4 * reach / (t[:-1] + 1))
            # The proof of AC-SA weights a round's squared noise by t^2.
            radius = float(np.linalg.norm(t * radii) / np.linalg.norm(t))
        sigma = math.sqrt(unit) * radius
        schedules.append(Schedule(steps, beta, sigma, R))
        gap = gap_of(steps, beta, sigma, R) + bias * problem.domain.diameter
        # ||x - x*||^2 <= 2 gap/strong.
        squared = min(problem.domain.diameter**2, 2 * gap / strong)
    mechanism = Gaussian.calibrated(setting.privacy, rounds)
    everyone = Cohort.of(0, size)
    return AcceleratedPhase(everyone, ridge, tuple(schedules), centring, mechanism), squared


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


_MOST_ROUNDS = 1000
_MAX_CONTRACTION = 0.7
_COARSE, _FAIL = 8, 1e-3
_DEVIATIONS = 4.0
"""u at epsilon 0. Clip bias costs e^epsilon where persons are asked again; u grows to pay that."""
