"""Users that do not follow the protocol: optional hooks around an honest user.

The library of attacks by name is `shuffle_sim.attacks`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import real
from shuffle_sim.protocol.base import Query, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Messages, Tally

Users = NDArray[np.int64]
Report = Messages | bytes | None
_FAR = 1e150  # beyond every domain, and its square is finite


def payload_of(report: Report) -> bytes:
    """The report's bytes; none for silence."""
    return report.tobytes() if isinstance(report, Messages) else report or b""


@dataclass(frozen=True, kw_only=True)
class AttackContext:
    """What corrupted users know: all that is public about the round, and their block's data.

    Attributes:
        round: its index.
        block: the user block, which one actor hosts.
        users: the block's part of the cohort, ascending.
        query: what is asked.
        randomizer: of the round.
        block_rows: -> the rows of `users`.
    """

    round: int
    block: int
    users: Users
    query: Query
    randomizer: Randomizer
    block_rows: Callable[[], Floats]

    @cached_property
    def rows(self) -> Floats:
        """The rows of `users`."""
        return np.asfortranarray(self.block_rows())

    @cached_property
    def honest(self) -> Floats:
        """The values that all of `users` would send if they were honest."""
        return self.admitted(self.ask(self.rows))

    def ask(self, rows: Floats) -> Floats:
        """The query's values for `rows`."""
        return np.asarray(dense(self.query(rows)), np.float64)

    def admitted(self, values: Floats) -> Floats:
        """Values as a user may claim them: in the randomizer's domain, finite."""
        finite = np.where(np.isfinite(values), values, self.randomizer.absent)
        return dense(self.randomizer.admit(finite)[0])

    def center(self, x: Floats) -> Floats:
        """The middle of the domain of values shaped like `x`.

        There, the farthest values admitted balance.
        """
        ends = (
            self.admitted(np.full((1, *x.shape), _FAR)),
            self.admitted(np.full((1, *x.shape), -_FAR)),
        )
        # Of a ball both ends are scaled to it: their sum is 0, its centre.
        return np.asarray((ends[0] + ends[1])[0] / 2)


@dataclass(frozen=True)
class CallNext:
    """What a corrupted user would send otherwise: honest messages, or the next adversary's report.

    Attributes:
        context: of the round.
        otherwise: value -> report.
    """

    context: AttackContext
    otherwise: Callable[[Floats], Report]

    def __call__(self, x: Floats) -> Report:
        """The report on `x`."""
        return self.otherwise(x)


class Adversary:
    """Override what the attack needs; everything left alone is honest.

    A corrupted user is simulated literally at every fidelity, and its report is added to the honest
    ones. What it knows is its block's (`AttackContext`). Adversaries must be picklable when they
    run on Ray actors.

    Attributes:
        lasting: whether the users corrupted are chosen once for the whole run (`corrupt` sees every
            user of a block and the same generator in every round), or anew in each round among
            those asked.
        silent: whether all of them stay silent; they are not simulated one by one then.
        colludes: whether they tell the analyzer what they send (`disclosed`).
    """

    lasting: bool = False
    silent: bool = False
    colludes: bool = False

    @property
    def members(self) -> "tuple[Adversary, ...]":
        """The adversaries it consists of, outermost first."""
        return (self,)

    def check(self, spec: RoundSpec, row: Floats) -> None:
        """Refuse a protocol or data that the attack does not apply to, before anything starts.

        Args:
            spec: of the first round.
            row: a user's.

        Raises:
            ParameterError: naming what does not fit.
        """

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        """Which of `users` are corrupted in this round; none by default.

        `users` are one block's part of the cohort, ascending.

        `rng` is the adversary's own stream for this block, and for this round unless `lasting`.
        """
        return users[:0]

    def select(self, context: AttackContext, rng: np.random.Generator) -> Users:
        """Like `corrupt`, for a choice that looks at the query or at the values.

        It is never used when `lasting`.
        """
        return self.corrupt(context.round, context.users, rng)

    def rows(self, context: AttackContext, rows: Floats, rng: np.random.Generator) -> Floats:
        """The corrupted users' rows as the query shall see them."""
        return rows

    def values(self, context: AttackContext, xs: Floats, rng: np.random.Generator) -> Floats:
        """The corrupted users' values as they claim them, (users, ...).

        What lies outside the domain is clipped to it.
        """
        return xs

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        """What a corrupted user sends: messages, raw bytes, or None to stay silent.

        Args:
            user: index of the user.
            x: the user's admitted value for this round's query.
            call_next: the honest randomizer (or the next hook): value -> messages; knows the
                `context`.
            rng: the user's stream.
        """
        return call_next(x)

    def send(
        self, context: AttackContext, user: int, packet: bytes, rng: np.random.Generator
    ) -> tuple[bytes, ...]:
        """What the user puts on the wire, in place of the one frame that carries its report."""
        return (packet,)

    def observe(self, tally: Tally) -> None:
        """Sees what the analyzer sees, after each round; called where the analyzer is."""

    def disclosed(self, round_index: int, reports: int, sums: Mapping[int, int]) -> None:
        """Hears what colluders disclosed to the analyzer in a round.

        It is called after the round, where the run was started.

        Args:
            round_index: of the round.
            reports: how many they sent.
            sums: of the symbols they sent, by label, or how often each word; those with none are
                left out. The view without them is the honest users'.
        """


class Chain(Adversary):
    """Several adversaries at once; on a user whom two of them control, the first wraps the second.

    Each chooses its own users. Rows and values pass from the first to the last, a report comes back
    from the last to the first.
    """

    def __init__(self, *adversaries: Adversary) -> None:
        """Take the adversaries, outermost first."""
        self._members = tuple(member for adversary in adversaries for member in adversary.members)

    @property
    def members(self) -> tuple[Adversary, ...]:
        return self._members


class Coalition(Adversary):
    """Each user is corrupted independently with probability `fraction`, for the whole run."""

    lasting = True

    def __init__(self, fraction: float) -> None:
        """Refuse fractions outside [0, 1]."""
        self.fraction = real("fraction", fraction, 0.0, 1.0, closed=(True, True))

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        return users[rng.random(users.size) < self.fraction]


class Dropout(Adversary):
    """Each user stays silent with probability `rate` in each round, independently.

    Users see the query before.
    """

    silent = True

    def __init__(self, rate: float) -> None:
        """Refuse rates outside [0, 1]."""
        self.rate = real("rate", rate, 0.0, 1.0, closed=(True, True))

    def corrupt(self, round_index: int, users: Users, rng: np.random.Generator) -> Users:
        return users[rng.random(users.size) < self.rate]
