"""What a budget holds: whose it is, and the reports that were charged; as values and as records."""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import Charge, PrivacyLedger
from shuffle_sim.registry import loaded, remembered
from shuffle_sim.wire.codec import decode

FORMAT = 1
MOST_ROUNDS = 2**21
"""Of all reports in a budget: more are not composed in a sane time."""


class Spent(NamedTuple):
    """What was charged under a report's name.

    Attributes:
        name: of the report.
        task: of the run, 16 bytes; the same run may go on, no other.
        first: who of the population is the run's first user; None: nobody knows.
        charges: of its rounds in turn.
    """

    name: str
    task: bytes
    first: int | None
    charges: tuple[Charge, ...]

    def placed(self, users: int) -> Iterator[Charge]:
        """Its charges on the population.

        Where places are unknown, everybody is charged with the most of each kind of release that
        any user of the run took part in.
        """
        if self.first is not None:
            for each in self.charges:
                ranges = ((low + self.first, high + self.first) for low, high in each.cohort.ranges)
                yield Charge(Cohort(tuple(ranges)), each.event)
            return
        most, own = Counter[PrivacyEvent](), PrivacyLedger()
        for each in self.charges:
            own.charge(each.cohort, each.event)
        # Counters joined by |: of each kind the most that any user took part in.
        for _, events in own.users():
            most |= events
        yield from (Charge(Cohort.of(0, users), event) for event in most.elements())


class Book(NamedTuple):
    """A budget as it was read.

    Attributes:
        population: the people whose it is, by name.
        users: how many they are.
        content: hash of their data; empty: every report has its own.
        total: what may be spent.
        reports: what was charged.
    """

    population: str
    users: int
    content: bytes
    total: Privacy
    reports: tuple[Spent, ...] = ()

    @property
    def head(self) -> tuple[Any, ...]:
        """The first record."""
        total = float(self.total.epsilon), float(self.total.delta)
        return FORMAT, self.population, self.users, self.content, *total

    @classmethod
    def of(cls, head: tuple[Any, ...]) -> "Book":
        """From its first record.

        Raises:
            ValueError: it is none.
        """
        _, population, users, content, epsilon, delta = head
        kinds = [type(each) for each in (population, users, content, epsilon, delta)]
        _demand(kinds == [str, int, bytes, float, float])
        return cls(population, users, content, Privacy(epsilon, delta))

    def after(self, body: tuple[Any, ...]) -> "Book":
        """With one more record."""
        kind, *rest = body
        reports = list(self.reports)
        if kind == "report":
            name, task, first, runs = rest
            _demand(type(name) is str and type(task) is bytes)
            _demand(first is None or (type(first) is int and first >= 0))
            made = list[Charge]()
            for *charged, many in runs:
                _demand(type(many) is int and many > 0)
                rounds = self.rounds + len(made) + many
                if rounds > MOST_ROUNDS:
                    allowed = f"at most {MOST_ROUNDS:,} in a budget"
                    raise ParameterError("rounds", rounds, allowed)
                made += [_charge(*charged)] * many
            reports.append(Spent(name, task, first, tuple(made)))
            return self._replace(reports=tuple(reports))
        place, index, *charged = rest
        _demand(kind == "charge" and place in range(len(reports)))
        charges = list(reports[place].charges)
        # One beyond the last: a round that was not known ahead.
        _demand(index in range(len(charges) + 1))
        charges[index : index + 1] = [_charge(*charged)]
        reports[place] = reports[place]._replace(charges=tuple(charges))
        return self._replace(reports=tuple(reports))

    @property
    def rounds(self) -> int:
        """Of all reports."""
        return sum(len(each.charges) for each in self.reports)


def _charge(cohort: Any, event: Any) -> Charge:
    _demand(isinstance(cohort, Cohort) and isinstance(event, PrivacyEvent))
    return Charge(cohort, event)


def _demand(holds: bool) -> None:
    if not holds:
        raise ValueError("a record")


def report_record(spent: Spent) -> tuple[Any, ...]:
    """Of a report that is charged; equal rounds in a row are written once."""
    pairs = groupby((each.cohort, each.event) for each in spent.charges)
    runs = tuple((*each, sum(1 for _ in group)) for each, group in pairs)
    return "report", spent.name, spent.task, spent.first, runs


def charge_record(place: int, index: int, charge: Charge) -> tuple[Any, ...]:
    """A round of the report at a place costs this."""
    return "charge", place, index, charge.cohort, charge.event


@remembered
def _vocabulary() -> tuple[type, ...]:
    return Cohort, *(theorem.event for theorem in loaded("theorem").values())


# Every look reads the whole file: most records were decoded at the one before.
@lru_cache(maxsize=1 << 14)
def decoded(body: bytes) -> tuple[Any, ...]:
    """The value of a record; events are of kinds that have a theorem."""
    found = decode(body, _vocabulary())
    if not isinstance(found, tuple) or not found:
        raise ValueError("a record")
    return found


def composed(events: Counter[PrivacyEvent]) -> ShuffleAccountant:
    """All of them, each so often."""
    accountant = ShuffleAccountant()
    for event, count in events.items():
        accountant.compose(event, count)
    return accountant
