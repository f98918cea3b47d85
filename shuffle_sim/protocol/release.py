"""The vocabulary of the trusted curator's algorithms: statistics, releases, and the algorithm.

A `CentralAlgorithm` has the shape of a `Protocol`: what it plans is a `Release` in place of a
round, and the curator (`execution.curator`) answers it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from shuffle_sim.arrays import Floats
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, positive
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.privacy.mechanisms import Mechanism
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.base import Algorithm, State
from shuffle_sim.wire.codec import encode

Part = Callable[[Floats], Floats]
"""rows (users, ...) -> what they add to a total; picklable, as shards of the data may be remote."""
Total = Callable[[Part], Floats]
"""The sum of a part over all rows of the cohort, whichever shards they are in."""


@dataclass(frozen=True)
class Sensitivity:
    """How far apart the statistics of neighbours can be.

    Attributes:
        value: the distance.
        norm: in which it is measured: one of those that mechanisms name ("l2", "l1", ...).
        proof: why, in words, with its source.
    """

    value: float
    norm: str
    proof: str

    def __post_init__(self) -> None:
        positive("sensitivity", self.value)


class Statistic(ABC):
    """What is computed of a cohort's rows; a public frozen dataclass of plain values.

    If it has an attribute `users`, the cohort must have so many: its sensitivity is of them.
    """

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """Of the value, whatever the rows: neighbours differ in one user's."""

    @abstractmethod
    def __call__(self, total: Total, users: int) -> Any:
        """The value that the mechanism makes private.

        Args:
            total: the sum of a part over the cohort's rows; it may be asked for several times.
            users: of the cohort.
        """

    def careless(self) -> "Sequence[tuple[Statistic, float]]":
        """The same by solvers that stop short, and how far apart both values may be; for audits.

        None of them where no solver is trusted as far as its certificate.
        """
        return ()


class WholeStatistic(Statistic):
    """What is computed of all rows of a cohort together, by the curator itself: no sum over shards.

    A minimiser is one: solvers take the rows as they like.
    """

    @abstractmethod
    def of(self, rows: Floats) -> Any:
        """The value that the mechanism makes private; rows of the whole cohort in order."""

    def __call__(self, total: Total, users: int) -> Any:
        raise ParameterError("statistic", type(self).__name__, "asked by `of`: it is no sum")


@dataclass(frozen=True)
class Release:
    """Everything that is fixed and public about a release before the data are looked at.

    Attributes:
        cohort: whose rows the statistic sees.
        statistic: what is computed of them.
        sensitivity: of the statistic.
        mechanism: what makes it private.
        session: index of the release that opened a session of which this is a further query; it
            costs nothing more. None: a release of its own.
    """

    cohort: Cohort
    statistic: Statistic
    sensitivity: Sensitivity
    mechanism: Mechanism[Any]
    session: int | None = None

    def __post_init__(self) -> None:
        """Refuse a mechanism without a sensitivity in its norm."""
        if not isinstance(self.cohort, Cohort):
            raise ParameterError("cohort", self.cohort, "a Cohort, such as Cohort.of(0, 100)")
        if not isinstance(self.mechanism, Mechanism):
            raise ParameterError("mechanism", self.mechanism, "a Mechanism, such as Gaussian(4.2)")
        norm = self.mechanism.norm
        if not isinstance(self.sensitivity, Sensitivity):
            allowed = f"a Sensitivity in {norm}, as the statistic states it with its proof"
            raise ParameterError("sensitivity", self.sensitivity, allowed)
        if norm != self.sensitivity.norm:
            raise ParameterError("sensitivity", self.sensitivity, f"stated in {norm}")
        if self.session is not None and not self.mechanism.sessions:
            allowed = f"None: {type(self.mechanism).__name__} answers one query"
            raise ParameterError("session", self.session, allowed)

    @classmethod
    def of(
        cls,
        cohort: Cohort,
        statistic: Statistic,
        mechanism: Mechanism[Any],
        session: int | None = None,
    ) -> "Release":
        """With the sensitivity that the statistic states."""
        return cls(cohort, statistic, statistic.sensitivity, mechanism, session)

    @property
    def event(self) -> PrivacyEvent | None:
        """What it costs; None for a further query of a session."""
        # A session is paid for when it is opened, for all its queries.
        return self.mechanism.event if self.session is None else None

    def public(self) -> bytes:
        """All of it in canonical bytes.

        Raises:
            ParameterError: the statistic or the mechanism is no dataclass of plain values.
        """
        parts = (self.cohort, self.statistic, self.sensitivity, self.mechanism, self.session)
        try:
            return encode(parts)
        except TypeError as error:
            allowed = (
                f"of a statistic and a mechanism that are dataclasses of plain values ({error})"
            )
            raise ParameterError("release", self.statistic, allowed) from error


class CentralAlgorithm(Algorithm[State, Release], ABC, Generic[State]):
    """An algorithm of a trusted curator as pure functions over an explicit state.

    Attributes:
        trust: who must be trusted; baselines simulate other models than the curator's.
        assumptions: what else must hold beside the theorem, or is not covered by it, in words.
    """

    trust: Trust = Trust.CENTRAL
    assumptions: tuple[str, ...] = ()

    def left_out(self, state: State, estimate: Any) -> Iterable[Charge]:
        """Releases that it will not ask for, as this answer says: here none.

        They are charged as if they were asked: what a run costs must not follow from its answers.
        """
        return ()


def demand_whole(parameter: str, kind: type) -> None:
    """Refuse a part that leaves releases out by its answers: only a whole run charges for them.

    Raises:
        ParameterError: it is such a part.
    """
    plain = CentralAlgorithm.left_out
    if getattr(kind, "left_out", plain) is not plain:
        raise ParameterError(parameter, kind.__name__, "one that asks the same, whatever is seen")
