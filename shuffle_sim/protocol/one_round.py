"""The shortest protocols: one round over all users, and local randomisers of one message each."""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.privacy.amplification import ShuffledEvent
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.planner import honest_users
from shuffle_sim.protocol.base import Datum, Protocol, RoundSpec, check_rows
from shuffle_sim.protocol.query import Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Alphabet, Tally


class LocalRandomizer(Randomizer):
    """One message a user, by a pure epsilon0-private local randomiser: shuffling amplifies it.

    Subclass it as a frozen dataclass with these fields. What `epsilon0` promises is the author's
    proof; audits hold the stated law to it.

    Attributes:
        symbols: of its messages, 0 to symbols - 1.
        epsilon0: largest log of the ratio of any message's probabilities for any two data.
    """

    view: ClassVar[str] = "counts"
    symbols: int
    epsilon0: float

    @cached_property
    def alphabet(self) -> Alphabet:
        return Alphabet(1, self.symbols)

    @property
    def per_label(self) -> int:
        return 1

    def event(self, users: int, query: Query) -> PrivacyEvent:
        return ShuffledEvent(users, self.epsilon0)


class OneRound(Protocol[Any]):
    """Asks all users once for their datum; the state is None, then what `analyze` made of the view.

    Its result is what the randomizer's `estimate` makes of the tally, or else the tally.
    """

    def __init__(
        self, n: int, randomizer: Randomizer, delta: float, honest_fraction: float = 1.0
    ) -> None:
        """Take the randomizer, whose event is charged.

        Args:
            n: users.
            randomizer: of their answers.
            delta: at which the guarantee is stated.
            honest_fraction: of the users whose randomness is counted on.

        Raises:
            ParameterError: out of range, or the randomizer derives no event.
        """
        self.n, self.randomizer = integer("n", n), randomizer
        self.honest = honest_users(honest_fraction, n)
        self.honest_fraction = honest_fraction
        self._delta = real("delta", delta, 0.0, 1.0, closed=(False, False))
        self._cost(Datum())  # refuses what the accountant cannot do

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, delta={self._delta:g}, {self.randomizer})"

    def _cost(self, query: Query) -> PrivacyEvent:
        event = self.randomizer.event(self.honest, query)
        if event is None:
            name = type(self.randomizer).__name__
            raise ParameterError("randomizer", name, "one whose `event` says what a view costs")
        return event

    @property
    def minimum(self) -> int:
        """Reports without which no view is released.

        Only an honest fraction below 1 agrees on a floor; at 1 any dropout is stated in the
        result's epsilon instead.
        """
        return self.honest if self.honest_fraction < 1 else 1

    @property
    def vocabulary(self) -> tuple[type, ...]:
        return (type(self.query), type(self.randomizer))

    @property
    def query(self) -> Query:
        """What is asked of each row: the datum itself."""
        return Datum()

    def analyze(self, tally: Tally) -> Any:
        """What becomes of a view."""
        return getattr(self.randomizer, "estimate", lambda tally: tally)(tally)

    @property
    def claims_sequential(self) -> bool:
        return True

    def check(self, rows: NDArray[Any]) -> None:
        check_rows(rows, (self.n, *np.shape(rows)[1:]))

    def init(self) -> Any:
        return None

    def plan(self, state: Any) -> RoundSpec | None:
        if state is not None:
            return None
        everybody, query = Cohort.of(0, self.n), self.query
        # Of the query that is asked, not of `Datum`: it may prove more of its values.
        event = self._cost(query)
        return RoundSpec(everybody, query, self.randomizer, event, self.analyze, self.minimum)

    def update(self, state: Any, estimate: Any) -> Any:
        return estimate

    def result(self, state: Any) -> Any:
        if state is None:
            raise ParameterError("state", state, "that of a finished round")
        return self.answer(state)

    def answer(self, view: Any) -> Any:
        """The result, from what `analyze` made of the view."""
        return view
