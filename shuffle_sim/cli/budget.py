"""`shuffle-sim budget`: make a budget that runs share, and show what is left of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shuffle_sim.cli.data import load
from shuffle_sim.cli.options import DataOptions, PrivacyOptions
from shuffle_sim.cli.running import content_of
from shuffle_sim.cli.show import Output, console, number, plural, print_table
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.budget import Budget
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


def budget_command(
    action: Annotated[str, typer.Argument(help="create or show.", metavar="create|show")],
    path: Annotated[
        Path,
        typer.Argument(
            help="The budget.", metavar="FILE", parser=lambda text: check_name("budget", text)
        ),
    ],
    privacy: PrivacyOptions,
    data: DataOptions,
    output: Output,
    population: Annotated[
        str | None,
        typer.Option(help="Name of the people whose budget it is. Default: that of the table."),
    ] = None,
    users: Annotated[int | None, typer.Option("--n", help="Number of users.")] = None,
) -> None:
    """Make a budget that runs share, or show what was spent of it, by what, and what is left.

    Example: shuffle-sim budget create year --population customers --n 10M --epsilon 1 --delta 1e-8

    Example: shuffle-sim budget show year

    With a table, all runs must be on the same data:

    Example: shuffle-sim budget create wine.budget --table wine --epsilon 2
    """
    if action == "create":
        name, many, content = population, users, b""
        if (data.table, data.file) != (None, None):
            table = load(data)
            many = len(table.rows) if table.person is None else len(set(table.person))
            name, content = population or table.name, content_of(table, data.file)
            if users not in (None, many):
                raise ParameterError("n", users, f"{many}, as the table has it, or left out")
        if name is None or many is None:
            raise ParameterError("population, n", (name, users), "both given, or a table")
        total = privacy.budget
        budget = Budget.create(path, privacy=total, population=name, users=many, content=content)
    elif action == "show":
        budget = Budget(path)
    else:
        raise ParameterError("action", action, "create or show")
    output.present(_summary(budget), _print)


def _summary(budget: Budget) -> BudgetReport:
    spent, total, made = budget.spent, budget.total, budget.reports
    rows, more = list[ReportRow](), None
    for each in made:
        kinds = dict.fromkeys(type(charge.event).__name__ for charge in each.charges)
        alone = budget.alone(each).epsilon
        rows.append(ReportRow(each.name, len(each.charges), tuple(kinds), alone))
    if made and len(events := {each.event for each in made[-1].charges}) == 1:
        more = budget.more(events.pop(), len(list(made[-1].placed(budget.users))))
    whose = str(budget.path), budget.population, budget.users, total.epsilon, total.delta
    return BudgetReport(*whose, spent, max(0.0, total.epsilon - spent.epsilon), rows, more)


def _print(summary: BudgetReport) -> None:
    console.print(
        f"\n[bold]{summary.budget}[/], of {summary.population}: {plural(summary.users, 'user')}, "
        f"epsilon {summary.epsilon:g} at delta {summary.delta:g}\n"
    )
    if summary.reports:
        heads = "report", "kinds of releases", "rounds", "epsilon alone"
        rows = (
            (each.report, ", ".join(each.kinds), f"{each.rounds:,}", number(each.epsilon))
            for each in summary.reports
        )
        print_table(heads, rows, texts=2)
    console.print(
        f"\nSpent: epsilon {summary.spent.epsilon:.6g}; left: {summary.left:.6g}. Reports compose: "
        "their epsilons do not simply add up."
    )
    if summary.more is not None:
        console.print(f"{plural(summary.more, 'more report')} like the last one would fit.")
