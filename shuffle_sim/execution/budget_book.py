"""What a budget holds: whose it is, and the reports that were charged; as values and as records."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, reduce
from itertools import groupby
from operator import or_
from typing import Any, NamedTuple

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.ledger import Charge, PrivacyLedger, maximal
from shuffle_sim.registry import loaded, remembered
from shuffle_sim.wire.codec import decode

FORMAT = 1
MOST_ROUNDS = 2**21
"""Of all reports in a budget: more are not composed in a sane time."""
MOST_HISTORIES = 64
"""Of people whose places are unknown, that are told apart: each is composed on its own."""


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


def histories_of(reports: Iterable[Spent]) -> list[Counter[PrivacyEvent]]:
    """Of the people who were asked most, each with all releases; of nobody, one without any.

    Where places are unknown, a person may be any user of a report, and another one of the next.
    """
    placed, others = PrivacyLedger(), list[Spent]()
    for report in reports:
        if report.first is None:
            others.append(report)
        else:
            _charge_all(placed, report.charges, report.first)
    found = maximal(events for _, events in placed.users()) or [Counter()]
    for report in others:
        own = _charge_all(PrivacyLedger(), report.charges)
        found = _after(found, [events for _, events in own.users()])
    return found


def _charge_all(ledger: PrivacyLedger, charges: Iterable[Charge], first: int = 0) -> PrivacyLedger:
    """The ledger after charges on users from the first on."""
    for each in charges:
        ranges = ((low + first, high + first) for low, high in each.cohort.ranges)
        ledger.charge(Cohort(tuple(ranges)), each.event)
    return ledger


def _after(
    before: list[Counter[PrivacyEvent]], histories: Iterable[Counter[PrivacyEvent]]
) -> list[Counter[PrivacyEvent]]:
    """What people took part in after one more report, in which each may be any of its users."""
    own = {frozenset(each.items()): each for each in histories} or {frozenset(): Counter()}
    if len(before) * len(own) <= MOST_HISTORIES**2:
        found = {
            frozenset(both.items()): both
            for each in before
            for new in own.values()
            for both in [each + new]
        }
        if len(found) <= max(MOST_HISTORIES, len(before)):
            return maximal(found.values())
    # Too many to compose: as if everybody had of each kind the most that any user took part in.
    most = reduce(or_, own.values(), Counter[PrivacyEvent]())
    return [each + most for each in before]
