"""The ledger of a run that is charged to a shared budget."""

from collections.abc import Iterable
from typing import Any

from shuffle_sim.data.cohort import Cohort
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.budget import Report
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.ledger import Charge, PrivacyLedger


class BudgetLedger(PrivacyLedger):
    """The ledger of a run whose every charge stands in a budget, too, before it counts here."""

    def __init__(
        self,
        report: Report,
        task: bytes,
        data: Any,
        ahead: Iterable[Charge],
        *,
        sequential: bool = False,
    ) -> None:
        """Charge what is known ahead.

        Raises:
            ParameterError, CheckpointError: as `Budget.admit`; nothing is charged then.
        """
        super().__init__(sequential=sequential)
        self._report, self._task = report, task
        # Of a run that goes on, as it was left.
        self._written = list(report.budget.admit(report, task, data, ahead).charges)

    def charge(self, cohort: Cohort, event: PrivacyEvent) -> None:
        index = len(self.charges)
        super().charge(cohort, event)
        known = self._written[index : index + 1]
        if not known or known[0].cohort != cohort or not _left_of(event, known[0].event):
            self._write(index, self.charges[index], over=False)

    def doubt(self, honest: int) -> None:
        # Whoever dies after the view was seen cannot tell how many added their noise.
        index, last = len(self.charges) - 1, self.charges[-1]
        if self._written[index] == last:
            self._write(index, Charge(last.cohort, last.event.with_honest(honest)), over=True)

    def settle(self, honest: int) -> None:
        super().settle(honest)
        index = len(self.charges) - 1
        if self._written[index] != self._settled[index]:
            # Over: noise that is missing has cost more, whether it fits or not.
            self._write(index, self._settled[index], over=True)

    def _write(self, index: int, charge: Charge, *, over: bool) -> None:
        report = self._report
        report.budget.restate(report.name, self._task, index, charge, over=over)
        self._written[index : index + 1] = [charge]


def check_report(
    budget: Report | None, data: Any, ahead: Iterable[Charge], *, resume: bool
) -> list[Charge]:
    """What is known ahead of a run's charges, refused if it could not be charged.

    A run that goes on is charged already, or will be.

    Raises:
        ParameterError: no report of a budget, or as `Budget.admit`.
    """
    if budget is None:
        return []
    if not isinstance(budget, Report):
        raise ParameterError("budget", budget, "None or a report: budget.report('2026-01-01')")
    charges = list(ahead)
    if not resume:
        budget.budget.admit(budget, b"", data, charges)
    return charges


def ledger_of(
    budget: Report | None,
    task: bytes,
    data: Any,
    ahead: Iterable[Charge] = (),
    *,
    sequential: bool = False,
) -> PrivacyLedger:
    """A run's ledger; of a report in a budget, one that is charged there.

    Raises:
        ParameterError, CheckpointError: as `BudgetLedger`.
    """
    if budget is None:
        return PrivacyLedger(sequential=sequential)
    return BudgetLedger(budget, task, data, ahead, sequential=sequential)


def _left_of(planned: PrivacyEvent, found: PrivacyEvent) -> bool:
    """Whether an event is the planned one, or what was left of it with fewer honest users."""
    return found == planned or found == planned.with_honest(getattr(found, "honest", 0))
