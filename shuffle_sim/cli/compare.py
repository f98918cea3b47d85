"""`shuffle-sim compare`, and `plan --task`: methods of a sum or of counts at one privacy."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from protocols.comparison.counts import ERRORS, TASKS, PlannedTask, count_methods, planned_task
from protocols.comparison.methods import Method, sum_methods
from shuffle_sim.cli import show
from shuffle_sim.cli.options import PrivacyOptions, Size, SumOptions, left_out, option
from shuffle_sim.errors import ParameterError, integer, one_of, real
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUM = "sum"


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
        return one_of("task", self.task, (SUM, *TASKS)) != SUM

    def alone(self, **useless: Any) -> None:
        """Refuse what sums take and counts do not.

        Raises:
            ParameterError: one of these options is given: is not None, and of sizes not 1.
        """
        given = {name: None if each in (1, "") else each for name, each in useless.items()}
        left_out(given, self.task)

    @property
    def size(self) -> int:
        """Of the domain.

        Raises:
            ParameterError: it is no whole number.
        """
        base, _, power = (self.domain or "").partition("^")
        try:
            # 2^999999999 would be computed before it is refused.
            return int(int(base) ** min(int(power or "1"), 99))
        except ValueError:
            given = "not given" if self.domain is None else self.domain
            raise ParameterError("domain", given, "such as 1000 or 2^32") from None


@dataclass(frozen=True)
class TaskReport:
    """What is compared, and what came of it."""

    task: str
    n: int
    domain: int
    epsilon: float
    delta: float
    rounds: int
    attackers: int
    plan: PlannedTask | None
    methods: list[Method]
    warnings: tuple[str, ...]


def present_task(
    asked: TaskOptions,
    n: int,
    privacy: PrivacyOptions,
    output: show.Drawn,
    attackers: int = 0,
    noise: SumOptions | None = None,
    objective: str | None = None,
    rounds: int = 1,
) -> None:
    """All methods of a task at one privacy; and with `noise` the plan of its protocol.

    Raises:
        ParameterError: an unknown task, or what it cannot do.
    """
    case = asked.task, n, asked.size
    with show.console.status("calibrating ..."):
        methods = count_methods(*case, privacy.budget, attackers, rounds)
        plan = None
        if noise is not None:
            given = {key: each for key, each in noise.given.items() if key != "honest_fraction"}
            left_out(given, asked.task)
            least = "messages" if objective == "bits" else objective
            more: dict[str, Any] = {"honest_fraction": noise.honest_fraction, "rounds": rounds}
            plan = planned_task(*case, privacy.budget, objective=least, **more)
    budget = privacy.epsilon, privacy.delta
    warnings = privacy.budget.warnings(n)
    found = TaskReport(*case, *budget, rounds, attackers, plan, methods, warnings)
    output.present(found, _print_task, _draw_task)


def _print_task(summary: TaskReport) -> None:
    show.console.print(
        f"[bold]{summary.task}[/], n = {summary.n:,}, domain {summary.domain:,}, epsilon "
        f"{summary.epsilon:g}, delta {summary.delta:g}{_in_all(summary.rounds)}"
    )
    if summary.plan is not None:
        plan = summary.plan.method
        messages, bits, error = map(show.number, (plan.messages, plan.bits, plan.error))
        show.console.print(
            f"[bold]plan[/]: {messages} messages and {bits} bits a user, error {error}, proven "
            f"epsilon {plan.epsilon:.6g}{_in_all(summary.rounds)}"
        )
        if summary.rounds > 1:
            show.console.print(f"One round costs epsilon {summary.plan.alone:.4g}.")
        for part in summary.plan.parameters:
            fields = (f"{name} = {_brief(value)}" for name, value in part.items())
            show.details.print(", ".join(fields))
    show.print_warnings(summary.warnings)
    show.console.print(
        f"The error is the {ERRORS.get(summary.task, 'one that the task states')}.\n"
    )
    rows = []
    for each in (method for method in summary.methods if not method.refused):
        worst = show.number(each.attacked) if math.isfinite(each.attacked) else "unbounded"
        numbers = show.number(each.messages), show.number(each.bits), show.number(each.error)
        more = worst if summary.attackers else "-"
        known = show.number(each.epsilon or 0.0)
        rows.append((each.name, each.setting, each.trust.trusted, *numbers, more, known))
    heads = "method", "setting", "trusted", "messages", "bits", "error", "attacked", "epsilon"
    show.print_table(heads, rows, texts=3)
    print_refusals(summary.methods)
    attacked = f" Attacked: with {summary.attackers:,} malicious users." * bool(summary.attackers)
    show.details.print(
        "\nProtocols of this simulator are calibrated. The other rows are formulas: users that "
        "send one message each are parted over the levels of a tree. Messages, bits and errors are "
        f"of one round.{attacked}"
    )


def _in_all(rounds: int) -> str:
    return f" in all {rounds:,} rounds" if rounds > 1 else ""


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_brief, value))})"
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _draw_task(summary: TaskReport) -> "Figure":
    axes = show.new_axes(7.5, 5)
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
    title = f"least error {show.number(found.error)} by {found.title}\n" if found else ""
    if summary.plan is not None:
        plan = summary.plan.method
        axes.plot([plan.bits], [plan.error], "k*", ms=13, label="the plan")
        title = f"{show.number(plan.bits)} bits for an error of {show.number(plan.error)}\n"
    axes.set(xscale="log", yscale="log")
    return show.finish(
        axes,
        f"{summary.task}: {title}{summary.n:,} users, domain {summary.domain:,}, "
        f"{show.budget(summary)}{_in_all(summary.rounds)}",
        "bits per user",
        fill(f"error: {ERRORS.get(summary.task, 'what the task states')}", 50),
        columns=2,
    )


@dataclass(frozen=True)
class ComparisonReport:
    """What is compared, and what came of it."""

    n: int
    d: int
    epsilon: float
    delta: float
    attackers: int
    methods: list[Method]
    warnings: tuple[str, ...]


def compare_command(
    privacy: PrivacyOptions,
    output: show.Drawn,
    asked: TaskOptions,
    size: Size = Size(users=10_000),
    malicious: float = option(0.01, "Fraction of users that send the worst they can."),
) -> None:
    """Compare sums or counts at one (epsilon, delta): bits, error, and error under attack.

    Example: shuffle-sim compare --n 10000 --epsilon 1 --delta 1e-6 --plot compare.png

    Example: shuffle-sim compare --n 10000 --d 10 --json

    Example: shuffle-sim compare --task histogram --domain 1000 --n 1M --delta 1e-7

    Example: shuffle-sim compare --task heavy-hitters --domain 2^32 --n 1M --delta 1e-7
    """
    n, d = integer("n", size.users), integer("d", size.dimensions)
    # 0.07 x 100 is a little more than 7 in doubles.
    attackers = math.ceil(real("malicious", malicious, 0.0, 0.5, closed=(True, True)) * n - 1e-9)
    if asked.counts:
        asked.alone(d=d)
        present_task(asked, n, privacy, output, attackers)
        return
    with show.console.status("calibrating ..."):
        methods = sum_methods(n, d, privacy.budget, attackers)
    budget = privacy.epsilon, privacy.delta
    summary = ComparisonReport(n, d, *budget, attackers, methods, privacy.budget.warnings(n))
    output.present(summary, _print, _draw)


def _print(summary: ComparisonReport) -> None:
    d = summary.d
    kind = "scalars in [0, 1]" if d == 1 else f"vectors of {d:,} coordinates in the unit ball"
    show.console.print(
        f"\nSum of [bold]{summary.n:,}[/] {kind} at epsilon {summary.epsilon:g}, delta "
        f"{summary.delta:g}.\nMessages and bits are those of one user. Errors are root mean "
        f"squares{' (l2)' if d > 1 else ''}, without and with {summary.attackers:,} malicious "
        "users.\n"
    )
    heads = "method", "setting", "trusted", "messages", "bits", "limit", "error", "attacked"
    rows = []
    for each in (method for method in summary.methods if not method.refused):
        attacked = "unbounded" if math.isinf(each.attacked) else show.number(each.attacked)
        limit = show.number(each.limit_bits) if each.limit_bits else "-"
        numbers = (
            show.number(each.messages),
            show.number(each.bits),
            limit,
            show.number(each.error),
            attacked,
        )
        rows.append((each.name, each.setting, each.trust.trusted, *numbers))
    show.print_table(heads, rows, texts=3)
    print_refusals(summary.methods)
    show.print_warnings(summary.warnings)
    show.details.print(
        "\nAll numbers are closed forms, with rounding at its worst. Malicious users hold the "
        "datum 0 and move the sum as far as their messages can. In the local model nothing bounds "
        "them. The limit is what unbiased reports with this error take at least, were they added "
        "by a trusted party. Central and local noise is continuous; the other sums consist of "
        "integers."
    )


def _draw(summary: ComparisonReport) -> "Figure":
    axes = show.new_axes(8.5, 5.5)
    possible = [each for each in summary.methods if not each.refused and not each.paper]
    marks = iter("osD^vPX*<>hd")
    for name in dict.fromkeys(method.name for method in possible):
        shown = [method for method in possible if method.name == name]
        if shown[0].trust is Trust.CENTRAL:
            _draw_central(axes, shown, summary.attackers)
        else:
            _draw_family(axes, shown, next(marks, "."))
    limits = sorted({(each.limit_bits, each.error) for each in possible if each.limit_bits})
    axes.plot(*zip(*limits, strict=True), "-", color="gray", lw=1, label="information limit")
    if summary.attackers:
        label = f"with {summary.attackers:,} malicious users"
        axes.plot([], [], "o", color="gray", mfc="none", label=label)
    axes.set(xscale="log", yscale="log")
    ours = [each for each in possible if each.trust is Trust.SHUFFLE]
    best = min(ours, key=lambda each: (each.bits, each.error), default=None)
    found = f"{best.title}: the fewest bits, {show.number(best.bits)}\n" if best else ""
    return show.finish(
        axes,
        f"{found}{summary.n:,} users, d = {summary.d:,}, {show.budget(summary)}",
        "bits per user",
        "root mean square error of the sum" + (" (l2)" if summary.d > 1 else ""),
        notes=(f"Not drawn: {text}." for text in papers(summary.methods)),
    )


def _draw_central(axes: "Axes", shown: list[Method], attackers: int) -> None:
    """Lines: the least error that a curator gets, whatever the bits."""
    lines = [
        (method.error, style, method.title)
        for method, style in zip(shown, ("--", "-.", (0, (5, 1))), strict=False)
    ]
    if attackers:
        lines.append((shown[0].attacked, ":", f"{shown[0].name}, with malicious users"))
    for error, style, label in lines:
        axes.axhline(error, color=shown[0].trust.colour, ls=style, lw=1, label=label)


def _draw_family(axes: "Axes", shown: list[Method], mark: str) -> None:
    """A line through the settings, and where malicious users move each."""
    name, colour = shown[0].name, shown[0].trust.colour
    points = sorted(shown, key=lambda method: method.bits)
    bits, errors = [each.bits for each in points], [each.error for each in points]
    axes.plot(bits, errors, f"{mark}-", color=colour, alpha=0.8, label=name)
    for method in shown:
        x, error = method.bits, method.error
        if math.isinf(method.attacked):
            axes.plot([x], [8 * error], " ")  # room for the arrow
            arrow = {"arrowstyle": "->", "color": colour}
            axes.annotate("", (x, 6 * error), (x, error), arrowprops=arrow)
        else:
            axes.plot([x, x], [error, method.attacked], ":", color=colour, lw=1)
            axes.plot([x], [method.attacked], mark, color=colour, mfc="none")


def papers(methods: Iterable[Method]) -> list[str]:
    """What papers' constants give: many would flatten every axis."""
    return [
        f"{each.title}: {show.number(each.bits)} bits, error {show.number(each.error)}"
        for each in methods
        if each.paper and not each.refused
    ]


def print_refusals(methods: Iterable[Method]) -> None:
    """Why some methods of a comparison cannot be had."""
    for method in methods:
        if method.refused:
            show.notes.print(f"{method.title}: refused: {method.refused}")
