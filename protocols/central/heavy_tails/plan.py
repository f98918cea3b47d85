"""Phases of output perturbation for heavy tails, and their proven bound (theory, Heavy tails).

The bound is a sum over phases t of m_t users each, with B_t the bias of the clip C_t,
Delta_t = 2 C_t/(lambda_t m_t) + 2 tau_t the sensitivity, and `unit` Delta_t the noise:

    E F(w) - F* <= lambda_1 R^2/2 + sum_{t >= 2} (lambda_t/2) (E ||b_{t-1}||^2 + tau_{t-1}^2)
                   + sum_t [(G_1^2 + G_2^2)/(lambda_t m_t) + B_t^2/(2 lambda_t) + G_2^2/(2 beta_t)]
                   + L_F (E ||b_T|| + tau_T).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from protocols.optimisation.search import least
from protocols.problems.moments import Moments
from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, positive, real

MAX_PHASES = 8
RATIOS = (4.0, 8.0, 16.0, 32.0, 64.0)
SHRINKS = (1.0, 2.0, 4.0)
ACCURACY = 0.01
"""tau as a share of 2 C/(lambda m): what exactness costs in noise."""
_GRID = 160
_MAJORITY = 0.7


@dataclass(frozen=True)
class HeavyTailedPhase:
    """One phase: `blocks` releases of a minimiser on `users` users each.

    Attributes:
        users: m of a block.
        strong: lambda of the quadratic around the phase's start.
        clip: C.
        tau: promised distance of what is computed to the minimiser.
        smoothing: beta of the Moreau envelope; None: no envelope.
        blocks: J.
    """

    users: int
    strong: float
    clip: float
    tau: float
    smoothing: float | None = None
    blocks: int = 1

    def __post_init__(self) -> None:
        integer("users", self.users)
        integer("blocks", self.blocks)
        for name in ("strong", "clip"):
            positive(name, getattr(self, name))
        real("tau", self.tau, 0.0, math.inf, closed=(True, False))

    @property
    def sensitivity(self) -> float:
        """Delta = 2 C/(lambda m) + 2 tau."""
        return 2 * self.clip / (self.strong * self.users) + 2 * self.tau

    @classmethod
    def of(cls, users: int, strong: float, clip: float, blocks: int = 1) -> "HeavyTailedPhase":
        """With the default tau and envelope."""
        tau = ACCURACY * 2 * clip / (strong * users)
        return cls(users, strong, clip, tau, strong * users, blocks)


@dataclass(frozen=True)
class NoiseSize:
    """Of a mechanism for sensitivity 1: E ||b||, E ||b||^2, and the 85 % quantile of ||b||."""

    mean: float
    square: float
    quantile: float

    @classmethod
    def l2(cls, epsilon: float, d: int) -> "NoiseSize":
        """||b|| is Gamma(d, 1/epsilon)."""
        high = float(scipy.special.gammaincinv(d, 0.85))
        return cls(d / epsilon, d * (d + 1) / epsilon**2, high / epsilon)

    @classmethod
    def by_spread(cls, spread: float) -> "NoiseSize":
        """Of a root mean square alone: Jensen and Markov."""
        # Markov: the square exceeds spread^2/0.15 with probability 0.15 at most.
        return cls(spread, spread**2, spread / math.sqrt(0.15))


@dataclass(frozen=True)
class Phasing:
    """What phases are planned for.

    Attributes:
        n: users of all phases.
        noise: of the mechanism.
        moments: of A; None where a histogram gives them (`tails`).
        reach: R, from the start to the minimiser at most.
        slope: Lipschitz constant of what is public in F: the ridge's.
        widened: the bias of a clip over that of a clipped gradient, at most (`bias_factor`).
    """

    n: int
    noise: NoiseSize
    moments: Moments
    reach: float
    slope: float = 0.0
    widened: float = 1.0


def bound(phases: tuple[HeavyTailedPhase, ...], setting: Phasing) -> float:
    """The theorem's bound of the expected excess risk; of one block in each phase."""
    columns = np.array(
        [(p.users, p.strong, p.clip, p.tau, p.smoothing or math.inf) for p in phases]
    )
    users, strong, clips, taus, betas = columns.T
    biases = np.array([setting.widened * setting.moments.bias(clip) for clip in clips])
    return float(_bound(setting, users, strong, clips, taus, betas, biases))


def _bound(
    setting: Phasing,
    users: Floats,
    strong: Floats,
    clips: Floats,
    taus: Floats,
    betas: Floats,
    biases: Floats,
    mean: Floats | float | None = None,
    root: Floats | float | None = None,
) -> Floats:
    """Phases along the first axis; the others are cases."""
    g1 = setting.moments.mean if mean is None else mean
    g2 = setting.moments.root if root is None else root
    shifts = 2 * clips / (strong * users) + 2 * taus
    # Noise has mean zero, so its product with the solver's error vanishes.
    squares = setting.noise.square * shifts**2 + taus**2
    total = strong[0] * setting.reach**2 / 2 + (strong[1:] / 2 * squares[:-1]).sum(axis=0)
    fitted = (g1**2 + g2**2) / (strong * users) + biases**2 / (2 * strong) + g2**2 / (2 * betas)
    last = np.max(g1) + setting.slope
    total = total + fitted.sum(axis=0) + last * (setting.noise.mean * shifts[-1] + taus[-1])
    return np.asarray(total)


def likely_bound(phases: tuple[HeavyTailedPhase, ...], setting: Phasing) -> float:
    """Of the excess risk with probability 1 - delta', where the blocks are `blocks_for` of it.

    A block is within r of the phase's minimiser with probability 0.7, the aggregate within 3 r.
    """
    total = phases[0].strong * setting.reach**2 / 2
    radius = 0.0
    for index, phase in enumerate(phases):
        if index:
            # An aggregate is within 3 r of the minimiser ("High probability").
            total += phase.strong * (3 * radius) ** 2 / 2
        if phase.smoothing is not None:
            total += setting.moments.root**2 / (2 * phase.smoothing)
        radius = _radius(setting, phase)
    return total + (setting.moments.mean + setting.slope) * 3 * radius


def _radius(setting: Phasing, phase: HeavyTailedPhase) -> float:
    """r: of a block around the phase's minimiser, with probability 0.7."""
    moments = setting.moments
    # Chebyshev: m gradients' mean is farther off with probability 0.15; the noise with 0.15 more.
    fitted = moments.root / math.sqrt(0.15 * phase.users)
    fitted += setting.widened * moments.bias(phase.clip)
    return fitted / phase.strong + phase.sensitivity * setting.noise.quantile + phase.tau


def blocks_for(failure: float, phases: int = 10, share: float = _MAJORITY) -> int:
    """J = ceil(ln(T/delta')/KL(1/2 || p)): a majority of J blocks is good in every phase.

    Args:
        failure: delta', a failure probability and no privacy parameter.
        phases: T at most.
        share: p, with which a block is good.
    """
    real("failure", failure, 0.0, 1.0, closed=(False, False))
    # KL(1/2 || p); by Chernoff e^(-J KL) bounds that half of J blocks are bad.
    apart = -0.5 * math.log(4 * share * (1 - share))
    return math.ceil(math.log(phases / failure) / apart)


def plan(
    setting: Phasing, blocks: int = 1, count: int | None = None
) -> tuple[tuple[HeavyTailedPhase, ...], float]:
    """The phases with the least bound, and the bound; `likely_bound` for several blocks.

    Searched: T in 1..8, ratio of lambdas, shares of users, and lambda_1 on a geometric grid. Clips
    have closed forms.

    Args:
        setting: users, noise and moments.
        blocks: J of each phase.
        count: T, in place of being chosen.

    Raises:
        ParameterError: blocks larger than the people.
    """
    if integer("blocks", blocks) > setting.n:
        raise ParameterError("blocks", blocks, f"at most the number of users ({setting.n})")
    if blocks > 1:
        return best_phases(setting, blocks, lambda case: _clips_likely(setting, case), count)
    return best_phases(setting, 1, lambda case: _clips(setting, case), count)


@dataclass(frozen=True)
class Case:
    """Users (T, 1) and lambdas (T, grid) of candidates."""

    users: Floats
    strong: Floats


@dataclass(frozen=True)
class Clips:
    """Clips of a case, and the bound with them, both over the grid; B and moments as assumed."""

    clips: Floats
    bounds: Floats


def sizes(n: int, phases: int, shrink: float, blocks: int = 1) -> list[int]:
    """Users of a block in each phase, proportional to shrink^-t; 0 where none are left."""
    shares = np.array([shrink**-t for t in range(phases)])
    return [int(each) for each in n * shares / shares.sum() // blocks]


def best_phases(
    setting: Phasing,
    blocks: int,
    clips_of: Callable[[Case], Clips],
    only: int | None = None,
) -> tuple[tuple[HeavyTailedPhase, ...], float]:
    """The phases with the least bound over T, ratios, shares of users and lambda_1; the bound."""
    scale = setting.moments.mean / setting.reach
    first = scale * np.geomspace(1e-6, 1e4, _GRID)
    counts = range(1, MAX_PHASES + 1) if only is None else [integer("phases", only, 1, MAX_PHASES)]
    made: dict[tuple[int, float, float], tuple[HeavyTailedPhase, ...]] = {}

    def value(count: int, ratio: float, shrink: float) -> float | None:
        each = sizes(setting.n, count, shrink, blocks)
        # One phase has neither ratio nor shares: it is tried once.
        alike = count == 1 and (ratio, shrink) != (RATIOS[0], SHRINKS[0])
        if alike or not min(each):
            return None
        strong = first * ratio ** np.arange(count)[:, None]
        found = clips_of(Case(np.array(each, float)[:, None], strong))
        place = int(np.argmin(found.bounds))
        columns = zip(each, strong[:, place], found.clips[:, place], strict=True)
        made[count, ratio, shrink] = tuple(
            HeavyTailedPhase.of(m, float(s), float(c), blocks) for m, s, c in columns
        )
        return float(found.bounds[place])

    few = ParameterError("phases", only, f"fewer: {setting.n} users do not fill them")
    bound, best = least(value, counts, RATIOS, SHRINKS, otherwise=few)
    return made[best], bound


def _clips(setting: Phasing, case: Case) -> Clips:
    """The clips that minimise the theorem's bound."""
    moments, noise = setting.moments, setting.noise
    per_clip = 2 * (1 + 2 * ACCURACY) / (case.strong * case.users)  # Delta over C
    if math.isinf(moments.k):
        clips = np.full_like(case.strong, moments.gk)
    else:
        power, unit = moments.k - 1, moments.tail
        # With C = tail c, B = c^-(k-1): noise a c^2 against bias b c^-(2k-2).
        bias = 1 / (2 * case.strong)
        clips = np.empty_like(case.strong)
        squares = case.strong[1:] / 2 * noise.square * (per_clip[:-1] * unit) ** 2
        squares = squares + case.strong[1:] / 2 * (ACCURACY * per_clip[:-1] * unit) ** 2
        # The root of 2 a c = (2k - 2) b c^-(2k-1), b the bias; below, of a linear noise in place of
        # a c^2.
        clips[:-1] = unit * (power * bias[:-1] / squares) ** (1 / (2 * moments.k))
        linear = (moments.mean + setting.slope) * noise.mean * per_clip[-1] * unit
        clips[-1] = unit * (2 * power * bias[-1] / linear) ** (1 / (2 * power + 1))
    biases = _biases(setting, clips)
    return Clips(clips, cased(setting, case, clips, biases))


def cased(
    setting: Phasing,
    case: Case,
    clips: Floats,
    biases: Floats,
    mean: Floats | float | None = None,
    root: Floats | float | None = None,
) -> Floats:
    """The theorem's bound over the grid, with the default tau and envelope."""
    strong, users = case.strong, case.users
    taus = ACCURACY * 2 * clips / (strong * users)
    betas = strong * users
    return _bound(setting, users, strong, clips, taus, betas, biases, mean, root)


def _biases(setting: Phasing, clips: Floats) -> Floats:
    moments = setting.moments
    if math.isinf(moments.k):
        return np.maximum(0.0, moments.gk - clips)
    return np.asarray(setting.widened * (moments.tail / clips) ** (moments.k - 1))


def _clips_likely(setting: Phasing, case: Case) -> Clips:
    """The clips that minimise every phase's radius r, and the bound that holds likely."""
    moments, noise = setting.moments, setting.noise
    per_clip = 2 * (1 + 2 * ACCURACY) / (case.strong * case.users)
    slope = noise.quantile * per_clip + 2 * ACCURACY / (case.strong * case.users)
    if math.isinf(moments.k):
        clips = np.full_like(case.strong, moments.gk)
    else:
        power = moments.k - 1
        # The root of slope = (k - 1) tail^(k-1)/(lambda C^k), where r is least.
        clips = moments.tail * (power / (case.strong * slope * moments.tail)) ** (1 / moments.k)
    radius = (moments.root / np.sqrt(0.15 * case.users) + _biases(setting, clips)) / case.strong
    radius = radius + slope * clips
    total = case.strong[0] * setting.reach**2 / 2
    total = total + (case.strong[1:] * (3 * radius[:-1]) ** 2 / 2).sum(axis=0)
    total = total + (moments.root**2 / (2 * case.strong * case.users)).sum(axis=0)
    return Clips(clips, total + (moments.mean + setting.slope) * 3 * radius[-1])
