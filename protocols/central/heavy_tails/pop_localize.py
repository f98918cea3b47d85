"""Pop-Localize with output perturbation, as printed (Lowy 2026, Algorithms 1, 2 and 4).

For fidelity and comparison; `HeavyTailedERM` is simpler and better. The minimisers are those of the
clipped surrogate, certified as there: the printed Algorithm 3 takes some m^3 steps and more.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from protocols.central.heavy_tails.clipped_minimiser import ClippedMinimiser
from protocols.central.heavy_tails.plan import ACCURACY
from protocols.central.heavy_tails.unbounded import (
    TIMING,
    PureUnbounded,
    aggregate,
    bounded_moments,
)
from protocols.optimisation.choices import Choices
from protocols.optimisation.phases import PhasedState, Step, Steps
from protocols.optimisation.setting import Setting
from protocols.problems.domains import Domain, Intersection, L2Ball
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem, demand, demand_diameter
from protocols.problems.surrogates import demand_surrogate, least_smoothing, stated, surrogate_of
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, one_of, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import L2Laplace
from shuffle_sim.protocol.release import Release

SYSTEMS = ("double", "single")


@dataclass(frozen=True)
class Stage:
    """A release of a block: C/(lambda m) times `tau` is the promised accuracy, `scale` the noise's.

    Attributes:
        tau: distance to the minimiser.
        scale: of the Gamma norm of the noise.
        radius: of the ball in which the next stage stays; infinite: none.
    """

    tau: float
    scale: float
    radius: float = math.inf


class PopLocalize(Steps, PureUnbounded[PhasedState]):
    """Phases of n/2^t users with lambda growing 32 times, each in J blocks, then an aggregate.

    The last phases, whose noise is far below what doubles resolve, are left out.

    A block is solved twice ("double", Algorithm 4): a noisy minimiser places a ball, and the
    minimiser over the ball is released with noise. Or once ("single", Algorithm 2). Formal
    guarantee: pure, and what the ledger says: the printed noise spends 0.53 of epsilon. No bound:
    the printed proof has a gap (docs: theory, Heavy tails).

    Attributes:
        blocks: J.
        system: one of SYSTEMS.
        tight: whether the stages have the noise that they need; else the printed one.
        first: lambda_1.
    """

    takes: ClassVar[tuple[str, ...]] = ("moments", "blocks", "system", "first")
    rounds_per_user = 2
    bound = math.inf

    def __init__(
        self,
        *,
        problem: Problem,
        n: int,
        privacy: Privacy,
        moments: Moments | None = None,
        blocks: int = 1,
        system: str = "double",
        tight: bool = False,
        first: float | None = None,
    ) -> None:
        """`paper` and `calibrated` choose `tight`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        demand(problem, privacy)
        demand_surrogate(problem.loss, problem.d)
        demand_diameter(problem)
        moments = bounded_moments(problem) if moments is None else moments
        one_of("system", system, SYSTEMS)
        self.problem, self.n, self.privacy, self.moments = (
            problem,
            integer("n", n),
            privacy,
            moments,
        )
        self.choices: dict[str, str] = {}
        self.blocks, self.system, self.tight = integer("blocks", blocks), system, tight
        self.sizes: list[int] = []
        while (users := self.n // 2 ** (len(self.sizes) + 1) // self.blocks) >= 1:
            self.sizes.append(users)
        if not self.sizes:
            allowed = f"at most half of the users ({self.n}): each block needs one"
            raise ParameterError("blocks", blocks, allowed)
        epsilon, d, power = privacy.epsilon, problem.d, 1 - 1 / moments.k
        # Algorithm 1: r_1 = G_k (d/(m_1 epsilon))^(1-1/k) + G_2/sqrt(m_1), lambda_1 = (r_1/R)
        # sqrt(32 * 8/7).
        rate = moments.gk * (d / (self.sizes[0] * epsilon)) ** power
        rate += moments.root / math.sqrt(self.sizes[0])
        printed = rate / problem.reach * math.sqrt(32 * 8 / 7)
        self.first = printed if first is None else positive("first", first)
        while self.sizes and not self._certain(len(self.sizes) - 1):
            self.sizes.pop()
        self.phases, self.rounds = self.sizes, len(self.sizes) * self.blocks * self.stages
        self.assumptions = (f"for accuracy only, never for privacy: {moments}", TIMING)
        self.assumptions += stated(problem.loss)

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        return cls._with(setting, choices, tight=False)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        return cls._with(setting, choices, tight=True)

    @classmethod
    def _with(cls, setting: Setting, choices: Choices, tight: bool) -> Self:
        n, problem, privacy = setting.n, setting.problem, setting.privacy
        return cls(problem=problem, n=n, privacy=privacy, tight=tight, **choices.of(*cls.takes))

    @classmethod
    def settings(cls, **given: Any) -> Iterator[tuple[str, Callable[[], Self]]]:
        yield "paper", partial(cls.paper, **given)
        yield "tight noise", partial(cls.calibrated, **given)

    @property
    def stages(self) -> int:
        """Releases of a block."""
        return 2 if self.system == "double" else 1

    def clip(self, phase: int) -> float:
        """C = G_k (m epsilon/d)^(1/k)."""
        users = self.sizes[phase]
        grown = users * self.privacy.epsilon / self.problem.d
        return float(self.moments.gk * grown ** (1 / self.moments.k))

    def stage(self, phase: int, second: bool) -> Stage:
        """Accuracy, noise and radius of a stage, in their own units."""
        unit = self.clip(phase) / (self.first * 32.0**phase * self.sizes[phase])
        d, epsilon = self.problem.d, self.privacy.epsilon / self.stages
        if not self.tight:
            if second:
                return Stage(unit / 6, 6 * unit / epsilon)
            # 6 where 4 would do, and 100 zeta d with zeta = 3: printed (theory, Heavy tails, E9).
            return Stage(unit, 6 * unit / epsilon, 300 * d * unit / epsilon)
        tau = ACCURACY * 2 * unit
        scale = (2 * unit + 2 * tau) / epsilon
        return Stage(tau, scale, float(scipy.special.gammaincinv(d, 0.95)) * scale + tau)

    def asks(self, at: int) -> int:
        return self.blocks * self.stages

    def _anchor(self, step: Step) -> Floats | None:
        """What the first stage of the block released; None: it comes next."""
        return step.released[-1] if len(step.released) % self.stages else None

    def release(self, at: int, step: Step) -> Release:
        users, anchor = self.sizes[at], self._anchor(step)
        stage = self.stage(at, anchor is not None)
        first = sum(self.sizes[:at]) * self.blocks + len(step.released) // self.stages * users
        statistic = self._statistic(at, self._domain(at, anchor), step.theta, stage.tau)
        # The scale is printed; the rate is what it is worth at the sensitivity proven here.
        rate = statistic.sensitivity.value / stage.scale
        noise = L2Laplace(rate, self.problem.d)
        return Release.of(Cohort.of(first, first + users), statistic, noise)

    def taken(self, at: int, step: Step, estimate: Any) -> Floats:
        return self._domain(at, self._anchor(step)).project(np.asarray(estimate, np.float64))

    def ended(self, at: int, inner: Step) -> Floats:
        if len(inner.released) < self.asks(at):
            return inner.theta
        return aggregate(inner.released[self.stages - 1 :: self.stages])

    def _statistic(self, phase: int, domain: Domain, theta: Floats, tau: float) -> ClippedMinimiser:
        users, strong = self.sizes[phase], self.first * 32.0**phase
        loss, clip, radius = self.problem.loss, self.clip(phase), self.problem.domain.radius
        smoothing = max(strong * users, least_smoothing(loss, clip))
        surrogate = surrogate_of(loss, clip, smoothing, radius)
        return ClippedMinimiser(surrogate, domain, theta, strong, self.problem.ridge, tau, users)

    def _certain(self, phase: int) -> bool:
        """Whether doubles can certify the phase's minimisers: lambda grows without end."""
        start = self.problem.origin
        try:
            for anchor in (None, start)[: self.stages]:
                tau = self.stage(phase, anchor is not None).tau
                # A quarter: in a run the centres may lie where doubles round more than at the
                # origin.
                self._statistic(phase, self._domain(phase, anchor), start, tau / 4)
        except ParameterError as error:
            if error.parameter == "tau":
                return False
            raise
        return True

    def _domain(self, phase: int, anchor: Floats | None) -> Domain:
        domain = self.problem.domain
        if anchor is None:
            return domain
        radius = self.stage(phase, False).radius
        if radius >= domain.diameter:
            return domain
        return Intersection(domain, L2Ball(domain.d, radius, anchor))
