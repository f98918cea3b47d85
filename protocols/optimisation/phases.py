"""Phases: each starts at the result of the one before. They know no model of trust.

`PhaseChain` goes through them, whatever they are. `Steps` are phases of releases about their start,
as a curator's are. `Phases` are optimisers over disjoint users, for strongly convex objectives
(Cheu et al. 2022, Theorem 4.8).
"""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocols.optimisation.base import Optimiser
from protocols.optimisation.choices import Choices
from protocols.optimisation.search import least
from protocols.optimisation.setting import ADAPTABLE, Setting
from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.protocol.release import CentralAlgorithm, demand_whole

MAX_PHASES = 6
GROWTHS = (1.0, 2.0, 4.0)

T = TypeVar("T")


@dataclass(frozen=True)
class PhasedState:
    """Which phase, and its optimiser's state."""

    phase: int
    inner: Any


class PhaseChain(Optimiser[PhasedState]):
    """Phases one after the other, each started at the result of the one before.

    Attributes:
        phases: what is public of each, in order.
    """

    phases: Sequence[Any]

    @abstractmethod
    def begun(self, at: int, theta: Floats) -> Any:
        """The state of phase `at` at its start."""

    @abstractmethod
    def asked(self, at: int, inner: Any) -> Any:
        """What a phase asks next, or None when it is over."""

    @abstractmethod
    def answered(self, at: int, inner: Any, estimate: Any) -> Any:
        """The state of a phase after an answer."""

    @abstractmethod
    def ended(self, at: int, inner: Any) -> Any:
        """The result of a phase."""

    def init_at(self, theta: Floats) -> PhasedState:
        return PhasedState(0, self.begun(0, theta))

    def plan(self, state: PhasedState) -> Any:
        return self.asked(state.phase, state.inner) if self.phases else None

    def update(self, state: PhasedState, estimate: Any) -> PhasedState:
        at, following = state.phase, state.phase + 1
        inner = self.answered(at, state.inner, estimate)
        # At once, so that a state always is of a phase that asks, but for the last.
        if following < len(self.phases) and self.asked(at, inner) is None:
            return PhasedState(following, self.begun(following, self.ended(at, inner)))
        return PhasedState(at, inner)

    def result(self, state: PhasedState) -> Any:
        return self.ended(state.phase, state.inner)


@dataclass(frozen=True)
class Step:
    """Where a phase began, and what was released in it since."""

    theta: Floats
    released: tuple[Floats, ...] = ()


class Steps(PhaseChain):
    """Phases that ask for a public number of values about their start."""

    @abstractmethod
    def release(self, at: int, step: Step) -> Any:
        """What a phase asks next."""

    def asks(self, at: int) -> int:
        """How many values that are."""
        return 1

    def taken(self, at: int, step: Step, estimate: Any) -> Floats:
        """The point that an answer gives: here the released one, brought into the domain."""
        return self.problem.domain.project(np.asarray(estimate, np.float64))

    def begun(self, at: int, theta: Floats) -> Step:
        return Step(theta)

    def asked(self, at: int, inner: Step) -> Any:
        return None if len(inner.released) == self.asks(at) else self.release(at, inner)

    def answered(self, at: int, inner: Step, estimate: Any) -> Step:
        return Step(inner.theta, (*inner.released, self.taken(at, inner, estimate)))

    def ended(self, at: int, inner: Step) -> Floats:
        return inner.released[-1] if inner.released else inner.theta


def halves(n: int, count: int) -> list[int]:
    """Users of each phase: n/2, n/4, ..., and the last is as large as the one before."""
    # Some are left over. A last phase that took them would shrink from n = 7 (3, 1, 3) to n = 8.
    return [n >> min(at + 1, count - 1) for at in range(count)]


def demand_disjoint(n: int, cohorts: Iterable[Cohort]) -> None:
    """Refuse phases that share users, or ask for more than there are.

    Raises:
        ParameterError: naming the first such cohort.
    """
    stop = 0
    for cohort in cohorts:
        if cohort.stop > n or cohort.ranges[0][0] < stop:
            raise ParameterError("cohort", cohort.ranges, f"of users {stop} to {n - 1}: disjoint")
        stop = cohort.stop


def moved(cohort: Cohort, by: int) -> Cohort:
    """The cohort, `by` users further on."""
    return Cohort(tuple((low + by, high + by) for low, high in cohort.ranges))


@dataclass(kw_only=True, eq=False)
class Phases(PhaseChain):
    """Optimisers one after the other, each on users of its own, each started at the result before.

    A lambda-strongly convex objective turns a gap into a distance, ||theta - theta*||^2 <= 2
    gap/lambda: every phase starts nearer and may take shorter steps. Formal guarantee: that of the
    worst phase, as groups are disjoint. Noise and trust are the optimisers' own.

    Attributes:
        n: users.
        phases: the optimisers, in order, of at most n users together.
        choices: what was chosen, and why; those of phase i under "i: name".
        bound: proven bound of the last phase.
    """

    takes: ClassVar[tuple[str, ...]] = ("optimiser", "phases", "growth")
    """The class of every phase; k, how many; r, by which factor every group is larger."""
    adapts = ADAPTABLE
    runs_as: ClassVar[type] = Optimiser
    """What every phase is, beside an optimiser."""

    n: int
    phases: Sequence[Optimiser[Any]]
    choices: dict[str, str] = field(default_factory=lambda: {"phases": "given"})

    def __post_init__(self) -> None:
        """Check that the phases fit together."""
        phases = self.phases = tuple(self.phases)
        if not phases:
            raise ParameterError("phases", phases, "at least one optimiser")
        for phase in phases:
            self._fits("phases", type(phase))
        *starts, asked = np.cumsum([0, *(phase.n for phase in phases)]).tolist()
        if asked > integer("n", self.n):
            raise ParameterError("phases", asked, f"of at most n = {self.n} users together")
        if len({phase.privacy for phase in phases}) > 1:
            raise ParameterError("phases", [phase.privacy for phase in phases], "of one privacy")
        if len({phase.unit for phase in phases}) > 1:
            raise ParameterError("phases", [str(phase.unit) for phase in phases], "of one unit")
        self.unit, self.records_read = phases[0].unit, phases[0].records_read
        self._starts, self.problem, self.privacy = starts, phases[0].problem, phases[0].privacy
        self.rounds, self.bound = sum(phase.rounds for phase in phases), phases[-1].bound
        for i, phase in enumerate(phases):
            self.choices = self.choices | {f"{i}: {key}": why for key, why in phase.choices.items()}

    @classmethod
    def _fits(cls, parameter: str, kind: Any) -> type[Optimiser[Any]]:
        if isinstance(kind, type) and issubclass(kind, Optimiser) and issubclass(kind, cls.runs_as):
            demand_whole(parameter, kind)
            return kind
        raise ParameterError(parameter, kind, f"an optimiser that runs as {cls.runs_as.__name__}")

    @property
    def rounds_per_user(self) -> int:
        return max(phase.rounds_per_user for phase in self.phases)

    @property
    def assumes(self) -> str:
        return "; ".join(dict.fromkeys(phase.assumes for phase in self.phases if phase.assumes))

    def check(self, rows: NDArray[Any]) -> None:
        if len(rows) != self.n:
            raise ParameterError("data.shape", rows.shape, f"{self.n} rows")
        for start, phase in zip(self._starts, self.phases, strict=True):
            phase.check(rows[start : start + phase.n])

    def begun(self, at: int, theta: Floats) -> Any:
        return self.phases[at].init_at(theta)

    def asked(self, at: int, inner: Any) -> Any:
        spec = self.phases[at].plan(inner)
        if spec is None:
            return None
        return dataclasses.replace(spec, cohort=moved(spec.cohort, self._starts[at]))

    def answered(self, at: int, inner: Any, estimate: Any) -> Any:
        return self.phases[at].update(inner, estimate)

    def ended(self, at: int, inner: Any) -> Any:
        return self.phases[at].result(inner)

    @classmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """The phases of `optimiser` with the smallest final bound.

        Tried are k = `phases` in 1..6, and group sizes proportional to r^i for r = `growth` in
        {1, 2, 4}. R_1 = min(reach, 2 L/lambda), R_{i+1} = min(R_i, sqrt(2 bound_i/lambda)).
        """
        _, sizes = cls._best(setting, choices)
        optimiser: type[Optimiser[Any]] = choices["optimiser"]

        def make(each: Setting) -> Optimiser[Any]:
            return optimiser.calibrated_for(each, Choices())

        made = _chained(setting, sizes, make, attrgetter("bound"))
        given = {"phases", "growth"} <= choices.given.keys()
        why = "given" if given else f"smallest final bound {made[-1].bound:.4g}"
        facts = {"phases": f"{len(sizes)}, of {sizes} users: {why}"}
        return cls(n=setting.n, phases=made, choices=facts)

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """k phases of n/k users each, with the printed parameters of `optimiser`.

        k = 1 + ceil(log_r log_2 n). The proof has gap_{i+1} <= gap_i^(1/r) in units of the last
        one, from at most n: r = 2/p with D^p in the gap. D_1 = min(D, 2 L/lambda) and D_{i+1} =
        sqrt(2 gap_i/lambda): by the phase's bound, or else by the theorem's rate.

        Source: Cheu et al. (2022), Theorem 4.8, the end of Theorem 4.9, and Theorem C.3, 3 and 4.
        """
        optimiser, n, kinks = cls._demand(setting, choices), setting.n, not setting.problem.smooth
        printed = 1 + math.ceil(math.log(math.log2(max(n, 4)), 2 / optimiser.printed_power[kinks]))
        k = integer("phases", choices.choose("phases", printed, "1 + ceil(log_r log_2 n)"))
        if setting.n < k:
            raise ParameterError("n", setting.n, f"at least {k}: a user for each phase")
        width = dataclasses.replace(setting, initial_distance=setting.width)
        optimiser.printed_gap(width)  # refuses what no paper has

        def make(each: Setting) -> tuple[Optimiser[Any], float]:
            made = optimiser.paper_for(each, Choices())
            proven = math.isfinite(made.bound)
            return made, made.bound if proven else optimiser.printed_gap(each)

        made = _chained(width, [setting.n // k] * k, make, itemgetter(1))
        return cls(n=setting.n, phases=[each for each, _ in made], choices=choices.reasons)

    @classmethod
    def expected_bound(cls, setting: Setting, choices: Choices) -> float:
        return cls._best(setting, choices)[0]

    @classmethod
    def _demand(cls, setting: Setting, choices: Choices) -> type[Optimiser[Any]]:
        """The optimiser of the phases; refused without strong convexity."""
        if (strong := setting.problem.strong_convexity) <= 0:
            allowed = "above 0 for phases: take a ridge (--ridge), or the optimiser without phases"
            raise ParameterError("strong_convexity", strong, allowed)
        return cls._fits("optimiser", choices["optimiser"])

    @classmethod
    def _best(cls, setting: Setting, choices: Choices) -> tuple[float, list[int]]:
        """(bound, users of every phase)."""
        n, optimiser = setting.n, cls._demand(setting, choices)
        asked, growth = choices["phases"], choices["growth"]
        counts = range(1, MAX_PHASES + 1) if asked is None else [integer("phases", asked, 1, n)]
        growths = GROWTHS if growth is None else [positive("growth", growth)]

        def bound(each: Setting) -> float:
            return optimiser.expected_bound(each, Choices())

        def last(k: int, r: float) -> float | None:
            sizes = _sizes(n, k, r)
            alike = k == 1 and r != growths[0]  # one group is the same, however groups grow
            return None if alike or not min(sizes) else _chained(setting, sizes, bound, float)[-1]

        few = ParameterError("phases", asked, f"fewer: {n} users do not fill the groups")
        value, (k, r) = least(last, counts, growths, otherwise=few)
        return value, _sizes(n, k, r)


class CuratedPhases(Phases, CentralAlgorithm[PhasedState]):
    """`Phases` that a curator runs: every phase is one of its algorithms."""

    runs_as = CentralAlgorithm
    phases: Sequence[Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        every = [words for phase in self.phases for words in phase.assumptions]
        self.assumptions = tuple(dict.fromkeys(every))
        self.rests_on_loss = any(phase.rests_on_loss for phase in self.phases)


class Phased(Phases, Protocol[PhasedState]):
    """`Phases` that are run as a shuffle protocol: every phase is one."""

    runs_as = Protocol
    phases: Sequence[Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.honest_fraction = min(phase.honest_fraction for phase in self.phases)

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return tuple(dict.fromkeys(word for phase in self.phases for word in phase.vocabulary))


def _chained(
    setting: Setting, sizes: list[int], make: Callable[[Setting], T], bound_of: Callable[[T], float]
) -> list[T]:
    """What is made for groups of these sizes, each started as near as the bound before allows."""
    problem, made = setting.problem, []
    # lambda/2 r^2 <= F(start) - F* <= L r: no start is farther than 2 L/lambda.
    distance = min(setting.distance, 2 * problem.objective_lipschitz / problem.strong_convexity)
    for size in sizes:
        made.append(make(dataclasses.replace(setting, n=size, initial_distance=distance)))
        gap = bound_of(made[-1])
        distance = min(distance, math.sqrt(2 * gap / problem.strong_convexity))
    return made


def _sizes(n: int, k: int, r: float) -> list[int]:
    """Groups proportional to r^i, each rounded down by itself; 1e-9: it may round below n."""
    weights = np.power(r, np.arange(k))  # no size falls where n grows
    return [int(size) for size in np.floor(weights / weights.sum() * n + 1e-9)]
