"""Strongly convex objectives: phases over disjoint groups of users (Cheu et al. 2022, Theorems 4.8
and 4.9).
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.problems.problem import Problem
from protocols.shuffle.acsa import ShuffleACSA
from protocols.shuffle.gd import ShuffleGD
from protocols.shuffle.noisy_mean import NOISE_RATIO, Noise
from protocols.shuffle.optimiser import FirstOrder
from protocols.shuffle.sgd import ShuffleSGD
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Protocol, RoundSpec

MAX_PHASES = 6
GROWTHS = (1.0, 2.0, 4.0)

Optimiser = type[ShuffleSGD] | type[ShuffleACSA] | type[ShuffleGD]


@dataclass(frozen=True)
class PhasedState:
    """Which phase, and its optimiser's state."""

    phase: int
    inner: Any


class Phased(Protocol[PhasedState]):
    """Optimisers one after the other, each on users of its own, each started at the result before.

    A lambda-strongly convex objective turns a gap into a distance, ||theta - theta*||^2 <= 2
    gap/lambda: every phase starts nearer and may take shorter steps. Formal guarantee: that of the
    worst phase, as groups are disjoint.

    Attributes:
        phases: the optimisers.
        choices: what was chosen, and why; those of phase i under "i: name".
        bound: proven bound of the last phase.
    """

    def __init__(
        self, *, n: int, phases: Sequence[FirstOrder[Any]], choices: dict[str, str] | None = None
    ) -> None:
        """Phases over groups of phase.n users, in order; together at most n."""
        if not phases or not all(isinstance(phase, FirstOrder) for phase in phases):
            raise ParameterError(
                "phases", phases, "at least one optimiser, such as ShuffleACSA.calibrated(...)"
            )
        self.n, self.phases = integer("n", n), tuple(phases)
        asked = sum(phase.n for phase in phases)
        if asked > self.n:
            raise ParameterError("phases", asked, f"of at most n = {self.n} users together")
        if len({phase.privacy for phase in phases}) > 1:
            raise ParameterError(
                "phases", [phase.privacy for phase in phases], "of the same privacy"
            )
        self._starts = np.cumsum([0, *(phase.n for phase in phases)]).tolist()
        self.problem, self.privacy, self.bound = (
            phases[0].problem,
            phases[0].privacy,
            phases[-1].bound,
        )
        self.rounds = sum(phase.rounds for phase in phases)
        self.honest_fraction = min(phase.honest_fraction for phase in phases)
        inner = {
            f"{i}: {name}": why
            for i, phase in enumerate(phases)
            for name, why in phase.choices.items()
        }
        self.choices = {"phases": "given", **(choices or {}), **inner}

    @property
    def users(self) -> int:
        """Number of users n."""
        return self.n

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self.privacy.delta

    @property
    def vocabulary(self) -> tuple[type, ...]:
        """What a round may broadcast."""
        return tuple(dict.fromkeys(word for phase in self.phases for word in phase.vocabulary))

    @property
    def claims_sequential(self) -> bool:
        """Where users answer once, it claims so, and is held to it."""
        return self.rounds_per_user == 1

    @property
    def rounds_per_user(self) -> int:
        """In how many rounds a user answers at most."""
        return max(phase.rounds_per_user for phase in self.phases)

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows of the wrong shape, or for which the loss's constants do not hold."""
        if len(rows) != self.n:
            raise ParameterError("data.shape", rows.shape, f"{self.n} rows")
        for start, phase in zip(self._starts, self.phases, strict=False):
            phase.check(rows[start : start + phase.n])

    def init(self) -> PhasedState:
        """The first phase's start."""
        return PhasedState(0, self.phases[0].init())

    def plan(self, state: PhasedState) -> RoundSpec | None:
        """The running phase's next round, on its group."""
        spec = self.phases[state.phase].plan(state.inner)
        if spec is None:
            return None
        shift = self._starts[state.phase]
        return dataclasses.replace(
            spec,
            cohort=Cohort(tuple((low + shift, high + shift) for low, high in spec.cohort.ranges)),
        )

    def update(self, state: PhasedState, estimate: Any) -> PhasedState:
        """The running phase's step; after its last, the next phase starts at its result."""
        phase = self.phases[state.phase]
        inner = phase.update(state.inner, estimate)
        if phase.plan(inner) is None and state.phase + 1 < len(self.phases):
            return PhasedState(
                state.phase + 1, self.phases[state.phase + 1].init_at(phase.result(inner))
            )
        return PhasedState(state.phase, inner)

    def result(self, state: PhasedState) -> Any:
        """The last phase's result."""
        return self.phases[state.phase].result(state.inner)

    @classmethod
    def calibrated(
        cls,
        *,
        n: int,
        problem: Problem,
        privacy: Privacy,
        optimiser: Optimiser = ShuffleACSA,
        phases: int | None = None,
        growth: float | None = None,
        noise_ratio: float = NOISE_RATIO,
        honest_fraction: float = 1.0,
        trust: Trust | str = Trust.SHUFFLE,
    ) -> "Phased":
        """Phases with the smallest final bound: k in 1..6, group sizes proportional to r^i with r
        in {1, 2, 4}.

        R_1 = min(reach, 2 L/lambda), R_{i+1} = min(R_i, sqrt(2 bound_i/lambda)).

        Args:
            n: users.
            problem: loss and domain; the objective must be strongly convex.
            privacy: of the whole run.
            optimiser: of every phase.
            phases: k; chosen where not given.
            growth: r; chosen where not given.
            noise_ratio: of the noise over the central Gaussian's.
            honest_fraction: of the users that add their noise, in every batch.
            trust: whose noise the parameters are chosen for (for baselines).
        """
        noise = Noise.of_problem(problem, privacy, noise_ratio, trust, honest_fraction)
        strong = problem.strong_convexity
        if strong <= 0:
            allowed = "above 0 for phases: take a ridge (--ridge), or the optimiser without phases"
            raise ParameterError("strong_convexity", strong, allowed)
        counts = (
            range(1, MAX_PHASES + 1)
            if phases is None
            else [integer("phases", phases, 1, integer("n", n))]
        )
        ratios = GROWTHS if growth is None else [positive("growth", growth)]
        first = min(problem.reach, 2 * problem.objective_lipschitz / strong)
        tried: list[tuple[float, int, float, list[int]]] = []
        for k in counts:
            for r in ratios if k > 1 else ratios[:1]:
                sizes = _sizes(n, k, r)
                if min(sizes) < 1:
                    continue
                distance = first
                for size in sizes:
                    bound = optimiser.plan_for(size, problem, noise, distance)[2]
                    distance = min(distance, math.sqrt(2 * bound / strong))
                tried.append((bound, k, r, sizes))
        if not tried:
            raise ParameterError("phases", phases, f"fewer: {n} users do not fill the groups")
        bound, k, r, sizes = min(tried, key=lambda each: each[:3])
        made: list[FirstOrder[Any]] = []
        distance = first
        for size in sizes:
            made.append(
                optimiser.calibrated(
                    n=size,
                    problem=problem,
                    privacy=privacy,
                    initial_distance=distance,
                    noise_ratio=noise_ratio,
                    honest_fraction=honest_fraction,
                    trust=trust,
                )
            )
            distance = min(distance, math.sqrt(2 * made[-1].bound / strong))
        why = (
            "given"
            if phases is not None and growth is not None
            else f"smallest final bound {made[-1].bound:.4g}"
        )
        return cls(n=n, phases=made, choices={"phases": f"{k}, of {sizes} users: {why}"})


def _sizes(n: int, k: int, r: float) -> list[int]:
    """Groups proportional to r^i that use all n users."""
    weights = np.power(r, np.arange(k))
    edges = np.floor(np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum() * n + 1e-9).astype(
        int
    )
    return [int(size) for size in np.diff(edges)]
