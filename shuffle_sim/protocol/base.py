"""The words protocols are written in: round specifications and the protocol itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import all_finite
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.persons import MOST_RECORDS
from shuffle_sim.data.population import Unit
from shuffle_sim.errors import WITHHELD, ParameterError
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Guarantee
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.query import Datum, Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.codec import encode
from shuffle_sim.wire.messages import Tally

__all__ = [
    "BROADCAST",
    "Algorithm",
    "Asked",
    "Datum",
    "Protocol",
    "Query",
    "RoundSpec",
    "State",
    "check_rows",
]

State = TypeVar("State")
Asked = TypeVar("Asked")


@dataclass(frozen=True)
class RoundSpec:
    """Everything that is fixed and public about a round before anyone answers.

    Attributes:
        cohort: who answers.
        query: what is asked of each user's row.
        randomizer: how the answer becomes messages.
        event: what the release of the round's view costs, for the ledger.
        analyze: tally of the view -> estimate; stays with the analyzer, all else is broadcast.
        minimum: fewest accepted reports with which the shuffler releases the round.
    """

    cohort: Cohort
    query: Query
    randomizer: Randomizer
    event: PrivacyEvent
    analyze: Callable[[Tally], Any] = field(compare=False)
    minimum: int = 1

    def broadcast(self, vocabulary: Container[type] | None = None) -> bytes:
        """The public part in canonical bytes, which every role reads and the parameter hash covers.

        Args:
            vocabulary: the classes that the roles know; None: all are allowed.

        Raises:
            TypeError: the round holds what cannot be broadcast.
            ParameterError: the round holds a class out of the vocabulary.
        """
        return encode((self.cohort, self.query, self.randomizer, self.minimum), vocabulary)


BROADCAST = tuple[Cohort, Query, Randomizer, int]
"""The type of what `RoundSpec.broadcast` encodes."""


class Algorithm(ABC, Generic[State, Asked]):
    """Pure functions over an explicit state that say what is asked of the users' data, and of whom.

    Without I/O and without randomness of its own: a runtime or the curator answers what is asked.
    What makes one refuses a parameter out of range by a `ParameterError`, which names it, its value
    and what is allowed.
    """

    unit: Unit = Unit.RECORD
    """Of the data that it takes; PERSON: of nothing else than persons."""
    protects: Unit | None = None
    """What the guarantee speaks of, where that is less than all data of a user."""
    records_read: int = 1
    """How many records nominally stand behind a value that a user sends; public."""
    paper_cost: ClassVar[str | None] = None
    """Where the paper states the bits of a user by its formula, if it does."""

    n: int
    _delta: float

    @property
    def users(self) -> int:
        """Number of users: here n."""
        return self.n

    @property
    def most_records(self) -> int:
        """How many records of a person count, its first ones; public."""
        return MOST_RECORDS

    @property
    def believed(self) -> tuple[str, ...]:
        """What privacy takes from the author of a part, such as a loss, in words: here nothing."""
        return ()

    @property
    def delta(self) -> float:
        """The delta at which the run's guarantee is stated: here `_delta`."""
        return self._delta

    @abstractmethod
    def check(self, rows: NDArray[Any]) -> None:
        """Refuse rows of users' data that it cannot work on.

        Raises:
            ParameterError: naming what is wrong.
        """

    def check_records(self, records: NDArray[Any]) -> None:
        """Refuse records of persons that it cannot work on; all pass here.

        Args:
            records: (records, columns), person after person.

        Raises:
            ParameterError: naming what is wrong.
        """

    @abstractmethod
    def init(self) -> State:
        """The state before anything was asked."""

    @abstractmethod
    def plan(self, state: State) -> Asked | None:
        """What is asked next, or None when done."""

    @abstractmethod
    def update(self, state: State, estimate: Any) -> State:
        """The state after the answer."""

    @abstractmethod
    def result(self, state: State) -> Any:
        """What it outputs from its final state."""


class Protocol(Algorithm[State, RoundSpec], ABC, Generic[State]):
    """A shuffle protocol: it plans rounds, which users, shuffler and analyzer run.

    Attributes:
        honest_fraction: of the users in a round whose noise is counted on, assumed in advance.
        trust: who must be trusted.
    """

    honest_fraction: float = 1.0
    trust: Trust = Trust.SHUFFLE
    adaptive: ClassVar[bool] = False
    """Whether what a round costs depends on views: then users agree to less before the run."""
    chosen: ClassVar[tuple[str, ...]] = ()
    """Fields of queries and randomizers that an adaptive one chooses by views."""

    def examples(self) -> Iterable[RoundSpec]:
        """Of an adaptive one: a round of each form that it may ask, as users agree to them before.

        Rounds of one form differ in fields that are `chosen` or move. Here it is the first round's.
        """
        first = self.plan(self.init())
        return () if first is None else (first,)

    @property
    def vocabulary(self) -> tuple[type, ...]:
        """The classes of queries and randomizers it may broadcast, each with a name of its own.

        User shards decode nothing else.
        """
        return (Datum,)

    @property
    def claim(self) -> Guarantee | None:
        """What a theorem of the paper promises for the whole run, if it set the protocol.

        A result states it where the charges confirm it: they cost no more. Else it states these.
        """
        return None

    @property
    def claims_sequential(self) -> bool:
        """Whether it claims to be sequentially interactive.

        The ledger then refuses to charge a user a second time.
        """
        return False


def check_rows(rows: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse an array of users' data that is not numeric, finite and of `shape`.

    The first axis is the users.

    Raises:
        ParameterError: naming the first bad row.
    """
    if rows.dtype.kind not in "fiub":
        raise ParameterError("data.dtype", str(rows.dtype), "a real number type")
    if rows.shape != shape:
        raise ParameterError("data.shape", rows.shape, f"{shape}")
    if rows.dtype.kind == "f" and not all_finite(rows):
        bad = int(np.argmin(np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)))
        raise ParameterError(f"data[{bad}]", WITHHELD, "finite (no NaN, no infinity)")
