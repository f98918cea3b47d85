"""`plan --task` and `compare --task`: histograms, heavy hitters, quantiles, means by group."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from protocols.comparison.counts import TASKS, count_methods, shown, task_kinds
from protocols.comparison.methods import Method
from shuffle_sim.cli.declared import option
from shuffle_sim.cli.options import PrivacyOptions, SumOptions, left_out
from shuffle_sim.cli.pictures import dress, legend, new_figure
from shuffle_sim.cli.show import (
    Drawn,
    console,
    details,
    number,
    print_refusals,
    print_table,
    print_warnings,
)
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUM = "sum"
_ERRORS = {
    "histogram": "standard error of a category that an average number of users is in",
    "heavy-hitters": "count from which an item is found, but for a chance of 0.001",
    "quantiles": "largest standard error of a rank",
    "group-means": "standard error of a mean in the middle of the range, in ranges",
}


@dataclass(frozen=True)
class TaskOptions:
    """What is asked of all users."""

    task: str = option(SUM, "sum, histogram, heavy-hitters, quantiles or group-means.")
    domain: str | None = option(
        None, "With --task: categories, items such as 2^32, cells of the range, or groups."
    )

    @property
    def counts(self) -> bool:
        """Whether it is no sum.

        Raises:
            ParameterError: there is no such task, or a sum has a domain.
        """
        if self.task == SUM:
            left_out({"domain": self.domain}, SUM)
        elif self.task not in TASKS:
            raise ParameterError("task", self.task, f"one of {', '.join((SUM, *TASKS))}")
        return self.task != SUM

    def alone(self, **useless: Any) -> None:
        """Refuse what sums take and counts do not.

        Raises:
            ParameterError: one of these options is given: is not None, and of sizes not 1.
        """
        left_out(
            {name: None if each in (1, "") else each for name, each in useless.items()}, self.task
        )

    @property
    def size(self) -> int:
        """Of the domain.

        Raises:
            ParameterError: it is no whole number.
        """
        base, _, power = (self.domain or "").partition("^")
        try:
            whole: int = int(base) ** min(int(power or "1"), 99)
            return whole
        except ValueError:
            raise ParameterError("domain", self.domain, "such as 1000 or 2^32") from None


@dataclass(frozen=True)
class PlannedTask:
    """A protocol whose parameters were chosen."""

    method: Method
    parameters: list[dict[str, Any]]


@dataclass(frozen=True)
class Summary:
    """What is compared, and what came of it."""

    task: str
    n: int
    domain: int
    epsilon: float
    delta: float
    attackers: int
    plan: PlannedTask | None
    methods: list[Method]
    warnings: tuple[str, ...]


def present_task(
    asked: TaskOptions,
    n: int,
    privacy: PrivacyOptions,
    output: Drawn,
    attackers: int = 0,
    noise: SumOptions | None = None,
    objective: str = "",
) -> None:
    """All methods of a task at one privacy; and with `noise` the plan of its protocol.

    Raises:
        ParameterError: an unknown task, or what it cannot do.
    """
    with console.status("calibrating ..."):
        methods = count_methods(asked.task, n, asked.size, privacy.budget, attackers)
        plan = None if noise is None else _planned(asked, n, privacy, noise, objective)
    budget = privacy.epsilon, privacy.delta
    warnings = privacy.budget.warnings(n)
    found = Summary(asked.task, n, asked.size, *budget, attackers, plan, methods, warnings)
    output.present(found, _print, _draw)


def _planned(
    asked: TaskOptions, n: int, privacy: PrivacyOptions, noise: SumOptions, objective: str
) -> PlannedTask:
    given = {key: each for key, each in noise.given.items() if key != "honest_fraction"}
    left_out(given, asked.task)
    (name, kind), *_ = task_kinds(asked.task).items()
    made: Any = kind.calibrated(
        **kind.size(n, asked.size, privacy.budget),
        objective="messages" if objective == "bits" else objective,
        honest_fraction=noise.honest_fraction,
    )
    return PlannedTask(shown(name, "the plan", made, 1), [asdict(each) for each in made.parts])


def _print(summary: Summary) -> None:
    console.print(
        f"[bold]{summary.task}[/], n = {summary.n:,}, domain {summary.domain:,}, epsilon "
        f"{summary.epsilon:g}, delta {summary.delta:g}"
    )
    if summary.plan is not None:
        plan = summary.plan.method
        console.print(
            f"[bold]plan[/]: {plan.messages:,.4g} messages and {plan.bits:,.4g} bits a user, error "
            f"{number(plan.error)}, proven epsilon {plan.epsilon:.6g}"
        )
        for part in summary.plan.parameters:
            fields = (f"{name} = {_brief(value)}" for name, value in part.items())
            details.print(", ".join(fields))
    print_warnings(summary.warnings)
    console.print(f"The error is the {_ERRORS.get(summary.task, 'one that the task states')}.\n")
    rows = []
    for each in (method for method in summary.methods if not method.refused):
        worst = number(each.attacked) if math.isfinite(each.attacked) else "unbounded"
        numbers = number(each.messages), number(each.bits), number(each.error)
        more = worst if summary.attackers else "-"
        known = number(each.epsilon or 0.0)
        rows.append((each.name, each.setting, each.trust.trusted, *numbers, more, known))
    heads = "method", "setting", "trusted", "messages", "bits", "error", "attacked", "epsilon"
    print_table(heads, rows, texts=3)
    print_refusals(summary.methods)
    attacked = f" Attacked: with {summary.attackers:,} malicious users." * bool(summary.attackers)
    details.print(
        "\nProtocols of this simulator are calibrated. The other rows are formulas: users that "
        f"send one message each are parted over the levels of a tree.{attacked}"
    )


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_brief, value))})"
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _draw(summary: Summary) -> "Figure":
    figure = new_figure(7.5, 5)
    axes = figure.subplots()
    marks, possible = iter("osD^vPX*<>hd"), [each for each in summary.methods if not each.refused]
    for each in possible:
        colour = each.trust.colour
        if each.trust is Trust.CENTRAL:
            style = "--" if each.setting.startswith("discrete") else ":"
            axes.axhline(each.error, color=colour, ls=style, lw=1, label=each.title)
        else:
            mark = next(marks, ".")
            axes.plot([each.bits], [each.error], mark, color=colour, label=each.title)
    ours = [each for each in possible if each.trust is Trust.SHUFFLE]
    found = min(ours, key=lambda each: each.error, default=None)
    title = f"least error {number(found.error)} by {found.title}\n" if found else ""
    if summary.plan is not None:
        plan = summary.plan.method
        axes.plot([plan.bits], [plan.error], "k*", ms=13, label="the plan")
        title = f"{number(plan.bits)} bits for an error of {number(plan.error)}\n"
    axes.set_xscale("log")
    axes.set_yscale("log")
    dress(
        axes,
        f"{summary.task}: {title}{summary.n:,} users, domain {summary.domain:,}, ε = "
        f"{summary.epsilon:g}, δ = {summary.delta:g}",
        "bits per user",
        "error",
    )
    legend(figure, 2)
    return figure
