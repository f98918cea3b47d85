"""What one round leaves behind for the driver, and for the journal."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shuffle_sim.roles import Conclusion, PlannedRound, ShardRecord, ShuffleRecord, ViewRecord
from shuffle_sim.wire.messages import Tally

_Record = TypeVar("_Record", ShardRecord, ShuffleRecord, ViewRecord)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What one round leaves behind for the driver: the records of all sides, and the tally."""

    users: ShardRecord
    shuffler: ShuffleRecord
    tally: Tally
    analyzer: ViewRecord = field(default_factory=ViewRecord)

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All of it in plain values, for the journal."""
        records = _lowered(self.users), _lowered(self.shuffler), _lowered(self.analyzer)
        return (*records, self.tally)

    @classmethod
    def of(cls, outcome: tuple[Any, ...]) -> "Exchange":
        """The exchange of an `outcome`."""
        users, shuffler, analyzer, tally = outcome
        return cls(
            users=_raised(ShardRecord, users),
            shuffler=_raised(ShuffleRecord, shuffler),
            tally=tally,
            analyzer=_raised(ViewRecord, analyzer),
        )


def _lowered(record: ShardRecord | ShuffleRecord | ViewRecord) -> tuple[Any, ...]:
    """Its fields, counters as sorted pairs."""
    return tuple(
        tuple(sorted(field.items())) if isinstance(field, Counter) else field
        for field in vars(record).values()
    )


def _raised(kind: type[_Record], fields: tuple[Any, ...]) -> _Record:
    # An empty record tells which of its fields are counters.
    counted = {name for name, value in vars(kind()).items() if isinstance(value, Counter)}
    named: dict[str, Any] = dict(zip(vars(kind()), fields, strict=True))
    return kind(**named | {name: Counter(dict(named[name])) for name in counted})


def exchange_of(
    users: list[ShardRecord], shuffler: list[ShuffleRecord], conclusion: Conclusion
) -> tuple[Exchange, PlannedRound | None]:
    """The round's records added up, and the next round."""
    return Exchange(
        users=ShardRecord.total(users),
        shuffler=ShuffleRecord.total(shuffler),
        tally=conclusion.tally,
        analyzer=conclusion.found,
    ), conclusion.following
