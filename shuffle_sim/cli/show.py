"""How results are shown: for people with rich, for machines as JSON, in pictures and files.

Pictures have one style: a title that says what was found, units, thousands, notes below. A trust
model has one colour everywhere (`Trust.colour`). What the simulator alone knows is black. Files are
refused before anything is run, and never half-written.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.console import Console
from rich.table import Table as Grid

from shuffle_sim.cli.options import option
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import plain, simulator_view
from shuffle_sim.execution.result import ReportCounts
from shuffle_sim.notebook import narrowed
from shuffle_sim.pictures import save, separate
from shuffle_sim.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def check_path(option: str, path: Path | None, kinds: tuple[str, ...]) -> None:
    """Refuse a file that could not be written.

    Raises:
        ParameterError: not of one of the kinds, or not in a folder that can be written.
    """
    if path is not None:
        check_name(option, path)
        if path.suffix not in kinds or not path.parent.is_dir() or path.is_dir():
            allowed = f"a {' or '.join(kinds)} file in an existing folder"
            raise ParameterError(option, str(path), allowed)
        if not os.access(path.parent, os.W_OK):
            raise ParameterError(option, str(path), "in a folder that can be written")


@contextmanager
def whole(option: str, path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; it replaces `path` when all is written, else it is removed.

    Raises:
        ParameterError: naming the option, if it cannot be written.
    """
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise ParameterError(option, str(path), f"writable ({error.strerror})") from error
    finally:
        with suppress(OSError):  # where nothing can be written, nothing was
            part.unlink()


MOST = 30
"""Bars of a picture; the rest is a note."""
TRUE = "k|"
"""What the simulator alone knows."""
FOOTER = (
    "Simulator's view: true values and scores come from the data without noise. Epsilon does not "
    "cover them."
)


def budget(privacy: Any) -> str:
    """Epsilon and delta of what has them, in a picture."""
    return f"ε = {privacy.epsilon:g}, δ = {privacy.delta:g}"


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def dress(axes: "Axes", title: str, across: str = "", up: str = "") -> None:
    """What was found as the title, what the axes show with its unit, and a grid."""
    axes.set_title(title, loc="left", fontsize=11, wrap=True)
    axes.set_xlabel(across, wrap=True)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        separate(axis)


def new_axes(width: float, height: float) -> "Axes":
    """An empty picture of one part, in inches."""
    return new_figure(width, height).subplots()


def finish(axes: "Axes", *texts: str, notes: Iterable[str] = (), columns: int = 3) -> "Figure":
    """The picture of one part, with the texts of `dress`; below it what marks are, and notes."""
    figure = cast("Figure", axes.figure)
    dress(axes, *texts)
    legend(figure, columns)
    for text in notes:
        add_note(figure, text)
    return figure


def legend(figure: "Figure", columns: int = 3) -> None:
    """What the marks are, below the data and not over them."""
    figure.legend(loc="outside lower center", ncols=columns, fontsize=9)


def add_note(figure: "Figure", text: str) -> None:
    """Say below the picture, and below its other notes, what it does not show by itself."""
    from matplotlib.font_manager import FontProperties

    legends, known = figure.legends, figure.get_supxlabel()
    text = fill(text, int(20 * figure.get_figwidth()))
    if legends:  # a label of the figure would lie under a legend outside the axes
        title = "\n".join(filter(None, (legends[0].get_title().get_text(), text)))
        legends[0].set_title(title, FontProperties(size=7))
    else:
        figure.supxlabel("\n".join(filter(None, (known, text))), fontsize=7, color="dimgray")


Summary = TypeVar("Summary")


class Screen(Console):
    """Where people read; who stops reading ends the command, with all files written."""

    def on_broken_pipe(self) -> None:
        """Let the command say it."""
        raise BrokenPipeError


console = Screen(highlight=False)
"""The result."""
notes = Screen(highlight=False)
"""What the result rests on: not with --quiet."""
details = Screen(highlight=False, quiet=True)
"""Bases, constants, settings and plans: with --verbose."""


@dataclass(frozen=True)
class Output:
    """What is printed."""

    json: bool = option(False, "Print JSON.", "--json")
    quiet: bool = option(False, "Print the result alone.", "--quiet", "-q")
    verbose: bool = option(
        False, "Print bases, constants, settings and plans, too.", "--verbose", "-v"
    )

    def __post_init__(self) -> None:
        """From now on, print so much.

        Raises:
            ParameterError: both less and more are asked for.
        """
        if self.quiet and self.verbose:
            raise ParameterError("quiet, verbose", "both", "one of the two")
        notes.quiet, details.quiet = self.quiet, not self.verbose

    def present(
        self,
        summary: Summary,
        show: Callable[[Summary], object],
        draw: "Callable[[Summary], Figure] | None" = None,
    ) -> None:
        """Print a command's summary, as JSON or for people.

        A picture that is asked for is written before: a reader of what is printed may leave.

        Raises:
            ParameterError: the picture cannot be written.
        """
        plot: Path | None = getattr(self, "plot", None)
        lacks = False
        try:
            if plot is not None and draw is not None:
                figure = draw(summary)
                if simulator_view(summary):
                    add_note(figure, FOOTER)
                with whole("plot", plot) as part:
                    lacks = save(figure, part)
        finally:  # what was paid for is told, whatever becomes of its picture
            (emit if self.json else show)(summary)
        if plot is not None and not self.json:
            notes.print(f"Picture: {plot}")
            if lacks:
                notes.print("Its font lacks some characters: they are boxes in the picture.")


@dataclass(frozen=True)
class Drawn(Output):
    """What is printed and drawn."""

    plot: Path | None = option(None, "File for a picture (.png, .svg or .pdf).")

    def __post_init__(self) -> None:
        """Refuse a picture that could not be written, before anything is run."""
        super().__post_init__()
        check_path("plot", self.plot, (".png", ".svg", ".pdf"))


def emit(value: object) -> None:
    """Print `value` as JSON; what the simulator alone knows stands apart, as `simulator_view`."""
    shown, view = plain(value), simulator_view(value)
    if view and isinstance(shown, dict):
        shown = shown | {"simulator_view": {"note": FOOTER, **view}}
    print(json.dumps(shown, indent=2))


def grid(*heads: str, texts: int = 1) -> Grid:
    """A table without lines; all columns after the first `texts` hold numbers."""
    made = Grid(*heads, box=None, header_style="bold", pad_edge=False)
    for at, column in enumerate(made.columns):
        column.overflow = "fold"  # what is cut is no name and no number
        column.justify = "left" if at < texts else "right"
    return made


def print_table(
    heads: Iterable[str],
    rows: Iterable[Iterable[str]],
    texts: int = 1,
    where: Console = console,
) -> Grid:
    """Print a table; all columns after the first `texts` hold numbers."""
    first, *others = narrowed([heads, *rows], texts, where.width)
    made = grid(*first, texts=texts)
    for row in others:
        made.add_row(*row)
    where.print(made)
    return made


def number(value: float) -> str:
    """A number in the few digits that people read."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


def encoded_as(encoding: str, parameters: Mapping[str, Any]) -> str:
    """For people: an encoding and its parameters."""
    each = ", ".join(f"{name} = {number(value)}" for name, value in parameters.items())
    return f"{encoding}: {each}"


def plural(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def size(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def print_fact(name: str, *lines: str, where: Console = notes) -> None:
    """Lines that start at one column, the first behind the name in bold."""
    for index, line in enumerate(lines):
        head = f"[bold]{name}[/]" + " " * (9 - len(name)) if index == 0 else " " * 9
        where.print(head + line)


def print_privacy(guarantee: Guarantee, warnings: Iterable[str] = ()) -> None:
    """A guarantee, its assumptions, and where it promises little."""
    assumed = (f"assuming: {each}" for each in guarantee.assumptions)
    print_fact("Privacy", str(replace(guarantee, basis="")), *assumed)
    if guarantee.basis:
        print_fact("", f"by {guarantee.basis}", where=details)
    print_warnings(warnings)


def print_warnings(warnings: Iterable[str]) -> None:
    """Where a guarantee promises little."""
    for text in warnings:
        print_fact("", f"[bold]warning[/]: {text}", where=console)


def print_outside(outside: int, values: int) -> None:
    """A warning where most values lie outside: what is released is of the bounds then."""
    if 2 * outside > values:
        text = f"{outside:,} of {values:,} values are outside what is public: choose other bounds"
        print_warnings([f"{text} (the simulator's view)"])


def print_bounds(chosen: Mapping[str, Bounds]) -> None:
    """Bounds that the run chose; epsilon covers the choice."""
    if chosen:
        each = (f"{name}: {low:g} to {high:g}" for name, (low, high) in chosen.items())
        print_fact("Bounds", "chosen by a private histogram, which epsilon covers", *each)


def print_costs(bits: float, made_of: str, costs: Costs, reports: ReportCounts) -> None:
    """What a user sent, and all together."""
    each, how = costs.wire_bytes / reports.asked, "measured" if costs.measured else "by formula"
    print_fact(
        "Cost",
        f"{round(bits):,} bits per user; on the wire {each:.1f} bytes per report, "
        f"{size(costs.moved_bytes)} over all hops ({how})",
    )
    print_fact("", made_of, where=details)


def print_reports(reports: ReportCounts, clipped: str, rounds: int) -> None:
    """What became of the reports, what was clipped, and how many users attacked."""
    often = f" in {rounds:,} rounds" if rounds > 1 else ""
    extra = f" + {reports.extra:,} extra" if reports.extra else ""
    print_fact(
        "Reports",
        f"{reports.asked:,} asked{often}{extra} = {reports.accepted:,} accepted + "
        f"{sum(reports.dropped.values()):,} dropped + {reports.missing:,} missing; {clipped} were "
        "clipped (the simulator's view)",
    )
    if reports.corrupted:
        reasons = ", ".join(f"{count} {reason}" for reason, count in reports.dropped.items())
        dropped = f"; dropped: {reasons}" if reasons else ""
        print_fact("Attack", f"{reports.corrupted:,} users corrupted{dropped}")
