"""The local randomizer: what turns one user's datum into messages."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.wire.messages import Alphabet, Messages


class Randomizer(ABC):
    """A local randomizer, public and frozen (subclass it as a frozen dataclass of numbers).

    `randomize` *is* the definition, transcribed from its paper. `reports`, `counts` and `tally` may
    sample faster what the analyzer makes of it: the law of the sums of symbols, or where it reduces
    them modulo something, of the sums so reduced. `shuffle_sim.auditing.conformance` checks that
    they do.
    """

    moves: ClassVar[tuple[str, ...]] = ()
    """Fields that may change from round to round at the same event: the scale of the domain."""

    @property
    @abstractmethod
    def alphabet(self) -> Alphabet:
        """The message space."""

    @property
    @abstractmethod
    def per_label(self) -> int:
        """Messages of a user per label, or per column: fixed, or their number would leak."""

    @abstractmethod
    def admit(self, values: Values) -> tuple[Values, int]:
        """Bring values (users, ...) into the domain, and say how many had to be clipped.

        This is done on the user's side.
        """

    @abstractmethod
    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        """One user's report on the admitted datum `x`."""

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        """One report for each of `xs`.

        Inside a label the order carries nothing, so it need not be that of `randomize`.
        """
        packed = [self.randomize(x, rng).packed for x in dense(xs)]
        return Messages(
            self.alphabet,
            self.per_label,
            np.concatenate([np.empty((0, self.report_bytes), np.uint8), *packed]),
        )

    def counts(self, xs: Values, rng: np.random.Generator) -> NDArray[np.integer]:
        """Sums of symbols per user and label, shape (users, labels), of the law of `randomize`.

        For bits they are the numbers of ones.
        """
        rows = [self.randomize(x, rng).sums() for x in dense(xs)]
        return np.array(rows, np.int64).reshape(len(rows), self.alphabet.labels)

    def tally(self, xs: Values, rng: np.random.Generator) -> NDArray[np.int64]:
        """Sums of symbols per label over all users of `xs`, of the law of the sum of `counts`.

        The shape is (labels,).
        """
        total: NDArray[np.int64] = self.counts(xs, rng).sum(axis=0)
        return total

    def event(self, users: int, query: Query) -> PrivacyEvent | None:
        """What the view of a round costs that asks a query, with `users` honest users' randomness.

        What the query proves of its values is read there (`Query.apart`); of any other, values lie
        anywhere in the domain. The engine charges no other event. None: the protocol states one,
        and it is not checked.
        """
        return None

    def reduced(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums of symbols as far as the analyzer looks at them: as they are, or modulo a number."""
        return sums

    @property
    def report_messages(self) -> int:
        """Messages of one user."""
        return self.alphabet.width * self.per_label

    @cached_property
    def largest_sums(self) -> NDArray[np.object_]:
        """The largest sum of one user's symbols under each label, shape (labels,)."""
        columns = np.diff(self.alphabet.edges).astype(object)  # integers of any size
        return np.asarray(columns * (self.per_label * (self.alphabet.symbols - 1)))

    @cached_property
    def least_largest_sum(self) -> int:
        """The largest sum under the label where it is least."""
        return int(self.largest_sums.min())

    @cached_property
    def largest_sum(self) -> int:
        """The largest of them."""
        return int(self.largest_sums.max())

    @property
    def report_bits(self) -> int:
        """Payload bits of one user's report (the papers' count)."""
        return Messages.row_bits(self.alphabet, self.per_label)

    @property
    def report_bytes(self) -> int:
        """Bytes of one user's packed report."""
        return (self.report_bits + 7) // 8
