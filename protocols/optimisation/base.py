"""What every optimiser shares, whoever adds the noise: its state, how it fails, how it is made."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from numpy.typing import NDArray

from protocols.optimisation.choices import Choices
from protocols.optimisation.setting import Setting
from protocols.problems.problem import Problem
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.privacy.guarantee import Privacy


class DivergedError(ShuffleSimError, RuntimeError):
    """The optimiser's state is not finite; what was released until then stays in the ledger."""

    def __init__(self, round_index: int) -> None:
        """Name the round."""
        super().__init__(
            f"round {round_index}: the state is not finite any more; take smaller steps"
        )
        self.round = round_index


@dataclass(frozen=True)
class OptimiserState:
    """State of any optimiser: how many rounds are over."""

    round: int


StateT = TypeVar("StateT")


class Calibrated(ABC):
    """What can be made for a `Setting`: by proven bounds, or with the parameters of a paper."""

    takes: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be given to `calibrated` and `paper` in place of being chosen."""
    adapts: ClassVar[tuple[str, ...]] = (
        "trust",
        "noise_ratio",
        "encoding",
        "rotation",
        "honest_fraction",
        "initial_distance",
        "max_rounds_per_user",
    )
    """Attributes of the `Setting` that may be given to `calibrated`."""

    @classmethod
    def calibrated(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """The parameters with the smallest proven bound for the noise really used.

        Args:
            n: users.
            problem: loss and domain.
            privacy: of the whole run.
            given: what is in `adapts`, as in `Setting`; and what is in `takes`. None: chosen.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        parts = {name: given.pop(name) for name in cls.adapts if name in given}
        setting = Setting(n=n, problem=problem, privacy=privacy, **parts)
        return cls.calibrated_for(setting, cls._choices(given))

    @classmethod
    def paper(cls, *, n: int, problem: Problem, privacy: Privacy, **given: Any) -> Self:
        """The parameters of the paper's theorem, for comparison; arguments as for `calibrated`.

        Raises:
            ParameterError: naming the parameter, its value and what is allowed.
        """
        setting = Setting(n=n, problem=problem, privacy=privacy)
        return cls.paper_for(setting, cls._choices(given))

    @classmethod
    def _choices(cls, given: dict[str, Any]) -> Choices:
        choices = Choices(given)
        for name, value in choices.given.items():
            if name not in cls.takes:
                allowed = f"left out: {cls.__name__} does not take it, but {', '.join(cls.takes)}"
                raise ParameterError(name, value, allowed)
        return choices

    @classmethod
    @abstractmethod
    def calibrated_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the smallest proven bound in a setting."""

    @classmethod
    def paper_for(cls, setting: Setting, choices: Choices) -> Self:
        """With the parameters of the paper's theorem."""
        raise ParameterError("hyper", "paper", f"calibrated: no paper has those of {cls.__name__}")


class Optimiser(Calibrated, Generic[StateT]):
    """Minimises a problem in rounds over n users, as pure functions over an explicit state.

    Attributes:
        problem: what is minimised.
        n: users.
        rounds: T.
        privacy: asked for.
        bound: proven bound of the expected gap; infinite where none is proven.
        choices: what was chosen, and why.
        unit: what a user is.
        records_read: nominal records behind a value that a user sends.
    """

    unit: Unit = Unit.RECORD
    records_read: int = 1
    problem: Problem
    n: int
    rounds: int
    privacy: Privacy
    bound: float
    choices: dict[str, str]

    @property
    def users(self) -> int:
        """Number of users n."""
        return self.n

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self.privacy.delta

    @property
    def rounds_per_user(self) -> int:
        """In how many rounds a user answers at most."""
        return 1

    @property
    def assumes(self) -> str:
        """What the bound assumes of the data beside the problem's constants; "" for nothing."""
        return ""

    @property
    def claims_sequential(self) -> bool:
        """Where users answer once, it claims so, and is held to it."""
        return self.rounds_per_user == 1

    @abstractmethod
    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows on which the loss's constants do not hold.

        Raises:
            ParameterError: naming what is wrong.
        """

    @property
    def most_records(self) -> int:
        """The problem's."""
        return self.problem.most_records

    def check_records(self, records: NDArray[Any]) -> None:
        """Refuse records of persons on which the loss's constants do not hold."""
        self.problem.loss.check(records, self.problem.d)

    def init(self) -> StateT:
        """At the problem's start."""
        return self.init_at(self.problem.origin)

    @abstractmethod
    def init_at(self, theta: Floats) -> StateT:
        """At another start."""

    @abstractmethod
    def plan(self, state: StateT) -> Any:
        """The next round, which has a `cohort`, or None when done."""

    @abstractmethod
    def update(self, state: StateT, estimate: Any) -> StateT:
        """The state after a round's estimate."""

    @abstractmethod
    def result(self, state: StateT) -> Any:
        """The output, from any state."""

    @classmethod
    @abstractmethod
    def expected_bound(cls, setting: Setting, choices: Choices) -> float:
        """The proven bound for the noise expected in a setting, before any bits are searched."""
