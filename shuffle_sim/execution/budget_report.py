"""What was spent of a budget, by what, and what is left of it: for people and machines."""

from dataclasses import dataclass

from shuffle_sim.execution.budget import Budget
from shuffle_sim.execution.budget_book import histories_of
from shuffle_sim.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class ReportRow:
    """A report: its rounds, the kinds of releases, and epsilon at the total's delta, alone."""

    report: str
    rounds: int
    kinds: tuple[str, ...]
    epsilon: float


@dataclass(frozen=True)
class BudgetReport:
    """What was spent of a budget, by what, and what is left.

    `more` is how many more reports like the last one fit, if each of its rounds is one release.
    """

    budget: str
    population: str
    users: int
    epsilon: float
    delta: float
    spent: Guarantee
    left: float
    reports: list[ReportRow]
    more: int | None

    @classmethod
    def of(cls, budget: Budget) -> "BudgetReport":
        """As the file is now."""
        spent, total, made = budget.spent, budget.total, budget.reports
        rows, more = list[ReportRow](), None
        for each in made:
            kinds = dict.fromkeys(type(charge.event).__name__ for charge in each.charges)
            alone = budget.alone(each).epsilon
            rows.append(ReportRow(each.name, len(each.charges), tuple(kinds), alone))
        if made and len(events := {each.event for each in made[-1].charges}) == 1:
            more = budget.more(events.pop(), histories_of(made[-1:])[0].total())
        whose = str(budget.path), budget.population, budget.users, total.epsilon, total.delta
        return cls(*whose, spent, max(0.0, total.epsilon - spent.epsilon), rows, more)
