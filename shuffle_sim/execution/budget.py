"""A privacy budget that runs and commands share over time: the ledger made durable.

A report, such as a day's, is charged with all its rounds before anything of it is drawn. What came
of it is written later where fewer users added their noise: then it costs more. A report whose
outcome is unknown counts as spent, a round with attackers or dropouts as with the fewest users
that its shuffler would release it with; and its name is taken.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffle_sim.data.files import check_name
from shuffle_sim.data.population import population_of
from shuffle_sim.errors import ParameterError, integer, positive
from shuffle_sim.execution.budget_book import (
    Book,
    Spent,
    charge_record,
    composed,
    histories_of,
    report_record,
)
from shuffle_sim.execution.budget_file import BudgetFile
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.ledger import Charge
from shuffle_sim.wire.fingerprint import fingerprint

_LONGEST_NAME = 200  # characters
_SLACK = 1 + 1e-9  # of an epsilon, for what doubles lose in composition
_MOST_MORE = 2**20  # reports that anybody asks about
PLANNED = "which reports are asked, and whom, does not follow from what earlier ones released"
"""What a budget with a delta assumes (docs: theory, Composition); without one epsilons add up."""


class Budget:
    """A total (epsilon, delta) of some people, in a file that any number of runs share.

    Every charge locks the file, reads what others charged, and is refused if the composition of all
    would be above the total. Where the total has a delta, that holds of reports which do not follow
    from what earlier ones released (docs: theory, Composition, Totals chosen by answers).

    Attributes:
        path: of the file.
        population: the people whose it is, by name.
        users: how many they are.
        total: what may be spent.
    """

    def __init__(
        self, path: str | Path, *, population: str | None = None, wait: float = 10.0
    ) -> None:
        """Open a budget that `create` made.

        Args:
            path: of the file.
            population: the people that will be asked; None: only to look, unless the budget is
                bound to data.
            wait: seconds to wait for a lock that another process holds.

        Raises:
            ParameterError: no budget, one of another version, damaged, cut, locked, or of others.
        """
        self.path = check_name("budget", path)
        self._file = BudgetFile(self.path, positive("wait", wait))
        book = self._book()
        self.population, self.users, self.total = book.population, book.users, book.total
        self._content, self._stated = book.content, population is not None or bool(book.content)
        if population not in (None, book.population):
            allowed = f"{book.population!r}, whose budget {self.path} is"
            raise ParameterError("population", population, allowed)

    def __repr__(self) -> str:
        """Whose it is, and where."""
        total = f"epsilon {self.total.epsilon:g}, delta {self.total.delta:g}"
        return f"Budget({str(self.path)!r}: {total} of {self.users:,} people, {self.population!r})"

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        privacy: Privacy,
        population: str,
        users: int,
        data: Any = None,
        content: bytes = b"",
    ) -> "Budget":
        """A new budget, of which nothing is spent.

        Args:
            path: of a file that does not exist.
            privacy: the total.
            population: a name for the people.
            users: how many they are; a run that asks more is refused.
            data: their data, where all runs are to be on the same; None: reports have their own.
            content: its hash, where somebody else took it.

        Raises:
            ParameterError: a bad value, a file that exists or that cannot be written.
        """
        place = check_name("budget", path)
        if not isinstance(privacy, Privacy):
            raise ParameterError("privacy", privacy, "a Privacy(epsilon, delta)")
        known = content if data is None else fingerprint(population_of(data))
        book = Book(_name("population", population), integer("users", users), known, privacy)
        BudgetFile(place, 1.0).create(book)
        return cls(place, population=population)

    @property
    def reports(self) -> tuple[Spent, ...]:
        """What was charged until now, by anybody."""
        return self._book().reports

    @property
    def spent(self) -> Guarantee:
        """What all reports together promise to the person who was asked most."""
        return self._after(self._book().reports)

    def alone(self, report: Spent) -> Guarantee:
        """What a report would promise without the others, at the total's delta."""
        return self._after([report])

    def more(self, event: PrivacyEvent, count: int = 1) -> int:
        """How many more reports of `count` such releases, each asking everybody, fit in the rest.

        No more than 2^20 are counted.
        """
        before = histories_of(self._book().reports)

        def fits(many: int) -> bool:
            return all(self._fits(each + Counter({event: count * many})) for each in before)

        low, high = 0, 1
        while high < _MOST_MORE and fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def report(self, name: str, *, first: int | None = None, content: bytes = b"") -> "Report":
        """One report, such as a day's: what `run` takes as `budget`.

        Args:
            name: of the report; it can be given once.
            first: who of the population is the run's first user, if its users stand in the
                population's order. Reports on other people then cost a person nothing.
            content: hash of the data, as `create` was given it; by default that of the run's data.

        Raises:
            ParameterError: no name, or nobody said whose data it is.
        """
        if not self._stated:
            allowed = f"said as it is opened: Budget(path, population={self.population!r})"
            raise ParameterError("population", None, allowed)
        if first is not None:
            integer("first", first, 0, self.users - 1)
        return Report(self, _name("report", name), first, content)

    # What a run asks

    def admit(self, report: "Report", task: bytes, data: Any, charges: Iterable[Charge]) -> Spent:
        """Charge a report before anything of it is drawn.

        The same run, told by its task, is not charged again. Without a task nothing is written.

        Raises:
            ParameterError: the name is taken, people or data are others, or it does not fit.
            CheckpointError: the disk does not take it.
        """
        made = Spent(report.name, task, report.first, tuple(charges))
        self._check_people(report, data, made.charges)
        with self._file.change() as change:
            for each in change.book.reports:
                if each.name == report.name:
                    if task and each.task == task:
                        return each
                    allowed = f"the name of no report in {self.path}: it was reported before"
                    raise ParameterError("report", report.name, allowed)
            self._demand_room(report.name, change.book, report_record(made))
            if task:
                change.append(report_record(made))
        return made

    def restate(self, name: str, task: bytes, index: int, charge: Charge, *, over: bool) -> None:
        """A round of a report costs this; one that is not over must fit.

        Raises:
            ParameterError: the report is not of this task, or the round does not fit.
            CheckpointError: the disk does not take it.
        """
        with self._file.change() as change:
            names = [(each.name, each.task) for each in change.book.reports]
            if (name, task) not in names:
                allowed = f"charged in {self.path} by this run; it is another file now"
                raise ParameterError("report", name, allowed)
            body = charge_record(names.index((name, task)), index, charge)
            if not over:
                self._demand_room(name, change.book, body)
            change.append(body)

    def _check_people(self, report: "Report", data: Any, charges: Iterable[Charge]) -> None:
        people = population_of(data)
        last = max([people.users, *(each.cohort.stop for each in charges)]) + (report.first or 0)
        if last > self.users:
            allowed = f"of the {self.users:,} people whose budget {self.path} is"
            raise ParameterError("data", f"{last:,} users", allowed)
        if self._content and (report.content or fingerprint(people)) != self._content:
            allowed = f"the data of {self.population!r}, which {self.path} is bound to"
            raise ParameterError("data", f"other data of {people.users:,} users", allowed)

    def _demand_room(self, name: str, book: Book, body: tuple[Any, ...]) -> None:
        reports = book.after(body).reports
        if not all(self._fits(each) for each in histories_of(reports)):
            allowed = (
                f"within {self.path}: epsilon would be {self._after(reports).epsilon:.6g} of "
                f"{self.total.epsilon:g} at delta {self.total.delta:g}, and "
                f"{self._after(book.reports).epsilon:.6g} is spent"
            )
            raise ParameterError("report", name, allowed)

    def _book(self) -> Book:
        with self._file.look() as book:
            return book

    def _after(self, reports: Iterable[Spent]) -> Guarantee:
        """Of the person with the largest epsilon."""
        delta = self.total.delta
        assumed = (PLANNED,) if delta else ()
        histories = histories_of(reports)
        found = [composed(each).guarantee(delta, assumed) for each in histories]
        return max(found, key=lambda each: each.epsilon)

    def _fits(self, events: Counter[PrivacyEvent]) -> bool:
        """Whether one person's releases are within the total."""
        accountant, (epsilon, delta) = composed(events), (self.total.epsilon, self.total.delta)
        # Of several kinds delta is found much sooner than epsilon.
        sooner = accountant.keeps(self.total) or (delta and accountant.get_delta(epsilon) <= delta)
        return bool(sooner or accountant.get_epsilon(delta) <= epsilon * _SLACK)


@dataclass(frozen=True)
class Report:
    """One report of a budget; `Budget.report` makes it, and a run takes it as `budget`.

    Attributes:
        budget: that it is charged to.
        name: of the report.
        first: who of the population is the run's first user; None: nobody knows.
        content: hash of the data, where somebody else took it; else empty.
    """

    budget: Budget
    name: str
    first: int | None = None
    content: bytes = b""


def _name(parameter: str, name: Any) -> str:
    if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable():
        return name
    raise ParameterError(parameter, name, f"a printable text of 1 to {_LONGEST_NAME} characters")
