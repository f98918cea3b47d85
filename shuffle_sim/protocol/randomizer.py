"""The local randomizer: what turns one user's datum into messages."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.errors import ParameterError, integer, one_of
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.wire.messages import Alphabet, Messages, Tally
from shuffle_sim.wire.words import carrier_bytes, word_bytes

VIEWS = ("sums", "counts", "messages")
"""What an analyzer makes of a view: sums by label, how often each word came, or all words."""
_LARGEST_SUM = 2**62  # symbols that are added: their sums are integers of 64 bits
_MOST_WORDS = 2**24  # messages of a user


class Randomizer(ABC):
    """A local randomizer, public and frozen (subclass it as a frozen dataclass of numbers).

    `randomize` *is* the definition, transcribed from its paper. `reports`, `counts` and `tally` may
    sample faster what the analyzer makes of it: the law of the sums of symbols, or where it reduces
    them modulo something, of the sums so reduced. `shuffle_sim.auditing.check_randomizer` checks
    that they do.

    In the other two views a user sends any number of words up to `per_label`, each on its own:
    numbers below the symbols of an alphabet with one label. There `reports` and `tallied` may be
    faster; `counts`, `tally` and `reduced` are of sums only.
    """

    view: ClassVar[str] = "sums"
    """One of VIEWS."""
    absent: ClassVar[float] = 0.0
    """What stands for a value that is not finite; silence would leak."""
    scales: ClassVar[bool] = False
    """Whether `admit` takes rows (users, d) as `Scaled`, so that a pass over them is saved."""
    moves: ClassVar[tuple[str, ...]] = ()
    """Fields that may change from round to round at the same event: the scale of the domain."""

    @property
    @abstractmethod
    def alphabet(self) -> Alphabet:
        """The message space."""

    @property
    @abstractmethod
    def per_label(self) -> int:
        """Messages of a user per label, or per column: fixed, or their number would leak.

        Of words: how many a user sends at most. The shuffler refuses more.
        """

    @abstractmethod
    def admit(self, values: Values) -> tuple[Values, int]:
        """Bring values (users, ...) into the domain, and say how many had to be clipped.

        This is done on the user's side. What it gives, it leaves as it is.
        """

    @abstractmethod
    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        """One user's report on the admitted datum `x`."""

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        """One report for each of `xs`.

        Inside a label the order carries nothing, so it need not be that of `randomize`.
        """
        # One by one: the definition. Faster ones are held to its law.
        sent = [self.randomize(x, rng) for x in dense(xs)]
        row = self.report_bytes if self.view == "sums" else word_bytes(self.alphabet.symbols)
        rows = np.concatenate([np.empty((0, row), np.uint8), *(user.packed for user in sent)])
        # Of sums every user sends one row; of words as many as it likes.
        each = None if self.view == "sums" else np.array([len(user.packed) for user in sent], int)
        return Messages(self.alphabet, self.per_label, rows, each)

    def singly(self, words: ArrayLike, each: ArrayLike | None = None) -> Messages:
        """Words (messages,) that one user sends, or many users: user after user, so many `each`.

        Raises:
            ParameterError: words that are not of the alphabet, or more of a user than `per_label`.
        """
        return Messages.singly(self.alphabet, self.per_label, words, each)

    def extreme(self, *, highest: bool) -> Messages:
        """The report that moves an estimate up most, or down: all messages are one symbol.

        It is what attackers send; where `proper` refuses it, the farthest that is proper.
        """
        alphabet, symbol = self.alphabet, self.alphabet.symbols - 1 if highest else 0
        if self.view != "sums":
            return self.singly(np.full(self.per_label, symbol, np.uint64))
        each = np.full((1, alphabet.width, self.per_label), symbol, np.uint64)
        return Messages.from_symbols(alphabet, each)

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

    def tallied(self, xs: Values, rng: np.random.Generator) -> Tally:
        """What the analyzer gets of all users of `xs`, but for the order of messages."""
        if self.view == "sums":
            return Tally(self.tally(xs, rng), len(xs))
        return self.reports(xs, rng).tally()

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

    def check_view(self) -> None:
        """Refuse a view that its alphabet does not fit.

        Raises:
            ParameterError: naming what does not fit.
        """
        name, alphabet = type(self).__name__, self.alphabet
        one_of(f"{name}.view", self.view, VIEWS)
        if self.view == "sums":
            integer(f"{name}.alphabet.symbols", alphabet.symbols, 2, _LARGEST_SUM)
            return
        allowed = f"1 in a view of {self.view}: write the label into the word"
        if alphabet.labels != 1 or alphabet.columns:
            raise ParameterError(f"{name}.alphabet.labels", alphabet.labels, allowed)
        integer(f"{name}.per_label", self.per_label, 1, _MOST_WORDS)

    def proper(self, messages: Messages) -> bool:
        """Whether users could send these words: the shuffler refuses others, if it sees them."""
        return True

    @property
    def worked(self) -> int:
        """Values that a report is made from, where they are more than its labels and messages."""
        return 0

    @property
    def usual_messages(self) -> float:
        """Messages of a user on average, public: blocks and fidelity are chosen by it."""
        return self.report_messages

    def usual_draws(self, users: int) -> float:
        """Numbers that an aggregate answer of so many users takes, on average."""
        return users * (self.alphabet.labels if self.view == "sums" else self.usual_messages)

    @property
    def usual_bits(self) -> float:
        """Their payload bits."""
        if self.view == "sums":
            return self.report_bits
        return self.usual_messages * (self.alphabet.symbol_bits - self.label_bits)

    @property
    def label_bits(self) -> int:
        """Bits of a message's label, sent on its own: in a view of words, of those in the word."""
        return self.alphabet.label_bits

    @property
    def report_messages(self) -> int:
        """Messages of one user; of words, at most."""
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
        """Payload bits of one user's report (the papers' count); of words, at most."""
        return Messages.row_bits(self.alphabet, self.per_label)

    @property
    def report_bytes(self) -> int:
        """Bytes of one user's packed report; of words with their number, at most."""
        if self.view == "sums":
            return (self.report_bits + 7) // 8
        return self.head_bytes + self.per_label * word_bytes(self.alphabet.symbols)

    @property
    def head_bytes(self) -> int:
        """Bytes that say how many words a user sends."""
        return 0 if self.view == "sums" else carrier_bytes(self.per_label.bit_length())
