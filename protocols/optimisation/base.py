"""What every optimiser shares, whoever adds the noise: its state, how it fails, how it is made."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

from numpy.typing import NDArray

from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.held import hold_to_constants
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.base import Algorithm


class DivergedError(ShuffleSimError, RuntimeError):
    """The optimiser's state is not finite; what was released until then stays in the ledger."""

    def __init__(self, round_index: int) -> None:
        super().__init__(
            f"round {round_index}: the state is not finite any more; take smaller steps"
        )
        self.round = round_index


@dataclass(frozen=True)
class OptimiserState:
    """State of any optimiser: how many rounds are over."""

    round: int


@dataclass(frozen=True)
class AverageState(OptimiserState):
    """theta_t, and the sum of the iterates that are averaged."""

    theta: Floats
    total: Floats


StateT = TypeVar("StateT")


_WHOLE = {"epsilon": "epsilon", "rate": "epsilon", "shares": "epsilon", "delta": "delta"}
"""Of what algorithms make of a budget, by the names of the parts, what people give."""


class Calibrated(ABC):
    """What can be made for a `Setting`: by proven bounds, or with the parameters of a paper."""

    takes: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be given to `calibrated` and `paper` in place of being chosen."""
    adapts: ClassVar[tuple[str, ...]] = ()
    """Attributes of the `Setting` that may be given to `calibrated`."""
    bounded: ClassVar[bool] = True
    """Whether gradients must have a bound; else a clip is chosen by moments."""
    rests_on_loss: bool = False
    """Whether privacy takes convexity or constants of the loss, where no clip enforces them."""

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """The parameters with the smallest proven bound for the noise that is planned.

        Args:
            n: users.
            problem: loss and domain.
            privacy: of the whole run.
            given: what is in `adapts`, as in `Setting`; and what is in `takes`. None: chosen.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        # What describes the setting, not the algorithm: it is not among what may go unused.
        parts = {name: given.pop(name) for name in cls.adapts if name in given}
        return cls._made(cls.calibrated_for, n, problem, privacy, given, parts)

    @classmethod
    def paper(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """The parameters of the paper's theorem, for comparison; arguments as for `calibrated`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        return cls._made(cls.paper_for, n, problem, privacy, given, {})

    @classmethod
    def _made(
        cls,
        make: Callable[[Setting, Choices], Self],
        n: int,
        problem: Problem,
        privacy: Privacy,
        given: dict[str, Any],
        parts: dict[str, Any],
    ) -> Self:
        choices, setting = Choices(given), Setting(n=n, problem=problem, privacy=privacy, **parts)
        if cls.bounded and math.isinf(problem.lipschitz):
            allowed = "finite: only algorithms that choose a clip by moments take an infinite one"
            raise ParameterError("norm_bound", problem.lipschitz, allowed)
        cls.demand_taken(choices)
        try:
            made = make(setting, choices)
        except ParameterError as error:
            if error.parameter == "delta" and not privacy.delta:
                fits = "OutputPerturbation and HeavyTailedERM, of a curator, serve 0 for records"
                raise ParameterError("delta", 0.0, f"above 0 for {cls.__name__}; {fits}") from error
            whole = _WHOLE.get(error.parameter)
            if whole is None or (error.parameter, error.value) == (whole, getattr(privacy, whole)):
                raise
            allowed = f"larger for {cls.__name__}: {error}"
            raise ParameterError(whole, getattr(privacy, whole), allowed) from error
        # What is given and never asked for would be passed over in silence.
        for name in choices.unused:
            raise ParameterError(name, choices[name], "left out: nothing here is chosen by it")
        return made

    @classmethod
    def demand_taken(cls, choices: Choices) -> None:
        """Refuse what it does not take.

        Raises:
            ParameterError: naming the first such parameter.
        """
        for name, value in choices.given.items():
            if name not in cls.takes:
                allowed = f"left out: {cls.__name__} does not take it, but {', '.join(cls.takes)}"
                raise ParameterError(name, value, allowed)

    @classmethod
    @abstractmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the smallest proven bound in a setting."""

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the parameters of the paper's theorem."""
        raise ParameterError("hyper", "paper", f"calibrated: no paper has those of {cls.__name__}")


class Optimiser(Calibrated, Algorithm[StateT, Any], Generic[StateT]):
    """Minimises a problem over n users: with `Protocol` in rounds, or as a `CentralAlgorithm`.

    What `plan` gives, a `RoundSpec` or a `Release`, is all that tells the trust models apart.

    Attributes:
        problem: what is minimised.
        n: users.
        rounds: T; at most, where what is released decides.
        privacy: asked for.
        bound: proven bound of the expected gap; infinite where none is proven.
        choices: what was chosen, and why.
    """

    own_objective: ClassVar[bool] = False
    """Whether another objective than the mean loss is minimised; the bound is then of that one."""

    problem: Problem
    n: int
    rounds: int
    privacy: Privacy
    bound: float
    choices: dict[str, str]

    @classmethod
    def settings(cls, **given: Any) -> Iterator[tuple[str, Callable[[], "Optimiser[Any]"]]]:
        """The settings that a comparison shows, by name; "" for the calibrated one alone.

        `given` is as of `calibrated`.
        """
        yield "", partial(cls.calibrated, **given)

    @classmethod
    def expected_bound(cls, setting: Setting, choices: Choices) -> float:
        """The proven bound for the noise expected in a setting, before any bits are searched."""
        return cls.calibrated_for(setting, choices).bound

    printed_power: ClassVar[tuple[float, float]] = (1.0, 1.0)
    """Highest power of the distance D in `printed_gap`: of smooth losses, and of kinks."""

    @classmethod
    def printed_gap(cls, setting: Setting) -> float:
        """The paper's rate of the expected gap, its unstated constant taken as 1.

        Raises:
            ParameterError: no paper has it in phases.
        """
        raise ParameterError("optimiser", cls.__name__, "one that a paper runs in phases")

    @property
    def delta(self) -> float:
        return self.privacy.delta

    @property
    def rounds_per_user(self) -> int:
        """In how many rounds a user answers at most."""
        return 1

    @property
    def assumes(self) -> str:
        """What the bound assumes of the data beside the problem's constants; "" for nothing."""
        return self.stated

    @property
    def stated(self) -> str:
        """What the bound takes from the author of a loss; "" if privacy does (`believed`)."""
        if self.rests_on_loss or not self.problem.loss.believed():
            return ""
        return f"{type(self.problem.loss).__name__} is convex, and what it states"

    @property
    def believed(self) -> tuple[str, ...]:
        return self.problem.loss.believed() if self.rests_on_loss else ()

    @property
    def claims_sequential(self) -> bool:
        """Where users answer once, it claims so, and is held to it."""
        return self.rounds_per_user == 1

    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows on which the loss's constants do not hold; any, where persons are asked."""
        if self.unit is Unit.PERSON:
            raise ParameterError("data", "records", "of persons, such as Persons.in_memory(...)")
        shape = self.n, self.problem.loss.columns(self.problem.d)
        if rows.shape != shape:
            raise ParameterError("data.shape", rows.shape, str(shape))
        self.check_records(rows)

    @property
    def most_records(self) -> int:
        return self.problem.most_records

    def check_records(self, records: NDArray[Any]) -> None:
        problem = self.problem
        problem.loss.check(records, problem.d)
        if self.believed:
            hold_to_constants(problem.loss, records, problem.d, problem.size)

    def init(self) -> StateT:
        return self.init_at(self.problem.origin)

    @abstractmethod
    def init_at(self, theta: Floats) -> StateT:
        """At another start."""
