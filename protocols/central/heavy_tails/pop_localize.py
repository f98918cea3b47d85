"""Pop-Localize with output perturbation, as printed (Lowy 2026, Algorithms 1, 2 and 4).

For fidelity and comparison; `HeavyTailedERM` is simpler and better. The minimisers are those of the
clipped surrogate, certified as there: the printed Algorithm 3 takes some m^3 steps and more.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
    demand_bounded,
)
from protocols.problems.domains import Domain, Intersection, L2Ball
from protocols.problems.moments import Moments
from protocols.problems.problem import Problem, demand
from protocols.problems.surrogates import Surrogate, demand_convex
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, positive
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


@dataclass(frozen=True)
class LocalState:
    """Phase, block and stage that come next; the phase's centre; what was released in it.

    Attributes:
        phase: index.
        theta: centre of the phase, (d,).
        anchor: of the second stage, or None.
        outputs: of the phase's blocks so far.
    """

    phase: int
    theta: Floats
    anchor: Floats | None = None
    outputs: tuple[Floats, ...] = ()


class PopLocalize(PureUnbounded[LocalState]):
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
        demand_convex(problem.loss)
        demand_bounded(problem)
        moments = bounded_moments(problem) if moments is None else moments
        if system not in SYSTEMS:
            raise ParameterError("system", system, f"one of {', '.join(SYSTEMS)}")
        self.problem, self.n, self.privacy, self.moments = (
            problem,
            integer("n", n),
            privacy,
            moments,
        )
        self.blocks, self.system, self.tight = integer("blocks", blocks), system, tight
        self.sizes: list[int] = []
        while (users := self.n // 2 ** (len(self.sizes) + 1) // self.blocks) >= 1:
            self.sizes.append(users)
        if not self.sizes:
            allowed = f"at most half of the users ({self.n}): each block needs one"
            raise ParameterError("blocks", blocks, allowed)
        epsilon, d, power = privacy.epsilon, problem.d, 1 - 1 / moments.k
        rate = moments.gk * (d / (self.sizes[0] * epsilon)) ** power
        rate += moments.root / math.sqrt(self.sizes[0])
        printed = rate / problem.reach * math.sqrt(32 * 8 / 7)
        self.first = printed if first is None else positive("first", first)
        while self.sizes and not self._certain(len(self.sizes) - 1):
            self.sizes.pop()
        self.rounds = len(self.sizes) * self.blocks * self.stages
        self.assumptions = (f"for accuracy only, never for privacy: {moments}", TIMING)

    @classmethod
    def paper(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """The printed constants."""
        return cls(problem=problem, n=n, privacy=privacy, **given)

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        return cls(problem=problem, n=n, privacy=privacy, tight=True, **given)

    @classmethod
    def settings(
        cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any
    ) -> Iterator[tuple[str, Callable[[], Self]]]:
        common = {"n": n, "problem": problem, "privacy": privacy, **given}
        yield "paper", partial(cls.paper, **common)
        yield "tight noise", partial(cls.calibrated, **common)

    @property
    def stages(self) -> int:
        """Releases of a block."""
        return 2 if self.system == "double" else 1

    def init(self) -> LocalState:
        return LocalState(0, self.problem.origin)

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
            return Stage(unit, 6 * unit / epsilon, 300 * d * unit / epsilon)
        tau = ACCURACY * 2 * unit
        scale = (2 * unit + 2 * tau) / epsilon
        return Stage(tau, scale, float(scipy.special.gammaincinv(d, 0.95)) * scale + tau)

    def plan(self, state: LocalState) -> Release | None:
        if state.phase == len(self.sizes):
            return None
        users, second = self.sizes[state.phase], state.anchor is not None
        stage = self.stage(state.phase, second)
        first = sum(self.sizes[: state.phase]) * self.blocks + len(state.outputs) * users
        statistic = self._statistic(state.phase, self._domain(state), state.theta, stage.tau)
        rate = statistic.sensitivity.value / stage.scale
        noise = L2Laplace(rate, self.problem.d)
        return Release.of(Cohort.of(first, first + users), statistic, noise)

    def update(self, state: LocalState, estimate: Any) -> LocalState:
        point = self._domain(state).project(np.asarray(estimate, np.float64))
        if self.system == "double" and state.anchor is None:
            return replace(state, anchor=point)
        outputs = (*state.outputs, point)
        if len(outputs) < self.blocks:
            return LocalState(state.phase, state.theta, None, outputs)
        return LocalState(state.phase + 1, aggregate(outputs))

    def result(self, state: LocalState) -> Floats:
        return state.theta

    def _statistic(self, phase: int, domain: Domain, theta: Floats, tau: float) -> ClippedMinimiser:
        users, strong = self.sizes[phase], self.first * 32.0**phase
        surrogate = Surrogate(self.problem.loss, self.clip(phase), strong * users)
        return ClippedMinimiser(surrogate, domain, theta, strong, self.problem.ridge, tau, users)

    def _certain(self, phase: int) -> bool:
        """Whether doubles can certify the phase's minimisers: lambda grows without end."""
        start = self.problem.origin
        states = [LocalState(phase, start), LocalState(phase, start, start)][: self.stages]
        try:
            for second, state in enumerate(states):
                tau = self.stage(phase, bool(second)).tau
                self._statistic(phase, self._domain(state), start, tau / 4)
        except ParameterError as error:
            if error.parameter == "tau":
                return False
            raise
        return True

    def _domain(self, state: LocalState) -> Domain:
        domain = self.problem.domain
        if state.anchor is None:
            return domain
        radius = self.stage(state.phase, False).radius
        if radius >= domain.diameter:
            return domain
        return Intersection(domain, L2Ball(domain.d, radius, state.anchor))
