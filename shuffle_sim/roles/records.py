"""What roles give the driver beside bytes: the next round, and the records of this one."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.wire.messages import Tally


@dataclass(frozen=True)
class Additive:
    """A record whose fields all add up."""

    @classmethod
    def total(cls, records: Iterable[Self]) -> Self:
        """All records together, field by field."""
        none = cls()
        fields = [vars(each) for each in records]
        return cls(
            **{
                name: sum(filter(None, (each[name] for each in fields)), start)
                for name, start in vars(none).items()
            }
        )

    def __add__(self, other: Self) -> Self:
        """Both records together."""
        return self.total([self, other])


@dataclass(frozen=True, kw_only=True)
class PlannedRound:
    """What the analyzer asks for next.

    Attributes:
        broadcast: the frame that every role gets.
        cohort: whom the ledger charges.
        event: what it charges.
    """

    broadcast: bytes
    cohort: Cohort
    event: PrivacyEvent


@dataclass(frozen=True, kw_only=True)
class ViewRecord:
    """What the analyzer found in a round's view of sealed messages; empty where they are open.

    Attributes:
        opened: messages.
        dropped: messages by reason; in sums they count as 0, of words they are none.
    """

    opened: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What follows from a view.

    Attributes:
        following: the next round, or None when the protocol is done.
        tally: of the view.
        found: the simulator's record of the view.
    """

    following: PlannedRound | None
    tally: Tally
    found: ViewRecord


@dataclass(frozen=True, kw_only=True)
class ShardRecord(Additive):
    """What one shard of users did in a round, in numbers.

    Attributes:
        asked: users.
        corrupted: of them.
        silent: users that sent nothing.
        extra: packets that corrupted users sent beyond one each.
        disclosed: reports that colluders disclosed to the analyzer.
        clipped: users whose value was clipped.
        nonfinite: users whose value was not finite.
        sums: of the symbols that colluders disclosed, by label; or how often each word.
        sent: of words, how many frames honest users sent, by (users, words) in a frame.
    """

    asked: int = 0
    corrupted: int = 0
    silent: int = 0
    extra: int = 0
    disclosed: int = 0
    clipped: int = 0
    nonfinite: int = 0
    sums: Counter[int] = field(default_factory=Counter)
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class ShuffleRecord(Additive):
    """What the shuffler, or a shard of it, did in a round or in a part of one.

    Attributes:
        accepted: reports.
        singles: of them, those that came one by one, from corrupted users: their noise is not
            counted on.
        dropped: reports by reason.
        bytes_in: received from users.
        bytes_routed: sent to other shards.
        bytes_out: sent to the analyzer.
        shares: messages that each shard got.
        routed: messages in each frame to another shard (`chunks.Size`).
        chunks: messages in each frame of the view (`chunks.Size`).
    """

    accepted: int = 0
    singles: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_routed: int = 0
    bytes_out: int = 0
    shares: Counter[int] = field(default_factory=Counter)
    routed: tuple[int | tuple[int, ...], ...] = ()
    chunks: tuple[int | tuple[int, ...], ...] = ()
