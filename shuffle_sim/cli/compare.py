"""`shuffle-sim compare`: methods of a private sum, bits per user against error at one privacy."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from protocols.comparison.methods import Method, sum_methods
from shuffle_sim.cli.options import PrivacyOptions, Size
from shuffle_sim.cli.pictures import add_note, dress, legend, new_figure
from shuffle_sim.cli.show import (
    Drawn,
    console,
    details,
    number,
    papers,
    print_refusals,
    print_table,
    print_warnings,
)
from shuffle_sim.cli.tasks import TaskOptions, present_task
from shuffle_sim.errors import integer, real
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    output: Drawn,
    asked: TaskOptions,
    size: Size = Size(users=10_000),
    malicious: Annotated[
        float, typer.Option(help="Fraction of users that send the worst they can.")
    ] = 0.01,
) -> None:
    """Compare sums or counts at one (epsilon, delta): bits, error, and error under attack.

    Example: shuffle-sim compare --n 10000 --epsilon 1 --delta 1e-6 --plot compare.png

    Example: shuffle-sim compare --n 10000 --d 10 --json

    Example: shuffle-sim compare --task histogram --domain 1000 --n 1M --delta 1e-7

    Example: shuffle-sim compare --task heavy-hitters --domain 2^32 --n 1M --delta 1e-7
    """
    n, d = integer("n", size.users), integer("d", size.dimensions)
    attackers = math.ceil(real("malicious", malicious, 0.0, 0.5, closed=(True, True)) * n - 1e-9)
    if asked.counts:
        asked.alone(d=d)
        present_task(asked, n, privacy, output, attackers)
        return
    with console.status("calibrating ..."):
        methods = sum_methods(n, d, privacy.budget, attackers)
    budget = privacy.epsilon, privacy.delta
    summary = ComparisonReport(n, d, *budget, attackers, methods, privacy.budget.warnings(n))
    output.present(summary, _print, _draw)


def _print(summary: ComparisonReport) -> None:
    d = summary.d
    kind = "scalars in [0, 1]" if d == 1 else f"vectors of {d:,} coordinates in the unit ball"
    console.print(
        f"\nSum of [bold]{summary.n:,}[/] {kind} at epsilon {summary.epsilon:g}, delta "
        f"{summary.delta:g}.\nMessages and bits are those of one user. Errors are root mean "
        f"squares{' (l2)' if d > 1 else ''}, without and with {summary.attackers:,} malicious "
        "users.\n"
    )
    heads = "method", "setting", "trusted", "messages", "bits", "limit", "error", "attacked"
    rows = []
    for each in (method for method in summary.methods if not method.refused):
        attacked = "unbounded" if math.isinf(each.attacked) else number(each.attacked)
        limit = number(each.limit_bits) if each.limit_bits else "-"
        numbers = number(each.messages), number(each.bits), limit, number(each.error), attacked
        rows.append((each.name, each.setting, each.trust.trusted, *numbers))
    print_table(heads, rows, texts=3)
    print_refusals(summary.methods)
    print_warnings(summary.warnings)
    details.print(
        "\nAll numbers are closed forms, with rounding at its worst. Malicious users hold the "
        "datum 0 and move the sum as far as their messages can. In the local model nothing bounds "
        "them. The limit is what unbiased reports with this error take at least, were they added "
        "by a trusted party. Central and local noise is continuous; the other sums consist of "
        "integers."
    )


def _draw(summary: ComparisonReport) -> "Figure":
    figure = new_figure(8.5, 5.5)
    axes = figure.subplots()
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
    axes.set_xscale("log")
    axes.set_yscale("log")
    ours = [each for each in possible if each.trust is Trust.SHUFFLE]
    best = min(ours, key=lambda each: (each.bits, each.error), default=None)
    found = f"{best.title}: the fewest bits, {number(best.bits)}\n" if best else ""
    dress(
        axes,
        f"{found}{summary.n:,} users, d = {summary.d:,}, ε = {summary.epsilon:g}, δ = "
        f"{summary.delta:g}",
        "bits per user",
        "root mean square error of the sum" + (" (l2)" if summary.d > 1 else ""),
    )
    legend(figure)
    for text in papers(summary.methods):
        add_note(figure, f"Beyond the axes: {text}.")
    return figure


def _draw_central(axes: "Axes", shown: list[Method], attackers: int) -> None:
    """Lines: the least error that a curator gets, whatever the bits."""
    lines = [
        (method.error, style, method.title)
        for method, style in zip(shown, ("--", "-."), strict=False)
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
