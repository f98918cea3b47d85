"""How results are shown: for people with rich, for machines as JSON, in pictures and files."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.table import Table as Grid

from protocols.comparison.methods import Method
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.files import check_name
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import plain, simulator_view
from shuffle_sim.execution.result import ReportCounts
from shuffle_sim.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Summary = TypeVar("Summary")

FOOTER = (
    "Simulator's view: true values and scores come from the data without noise. Epsilon does not "
    "cover them."
)

console = Console(highlight=False)


def present(
    summary: Summary,
    show: Callable[[Summary], None],
    draw: "Callable[[Summary], Figure] | None" = None,
    *,
    json: bool,
    plot: Path | None = None,
) -> None:
    """Print a command's summary, as JSON or for people, and draw it where a picture is asked for.

    Raises:
        ParameterError: the picture cannot be written.
    """
    if json:
        emit(summary)
    else:
        show(summary)
    if plot is not None and draw is not None:
        figure = draw(summary)
        if simulator_view(summary):
            add_footer(figure)
        save_picture(figure, plot)
        if not json:
            console.print(f"Picture: {plot}")


def add_footer(figure: "Figure") -> None:
    """Say below the picture that it shows what epsilon does not cover."""
    from matplotlib.font_manager import FontProperties

    if figure.legends:  # a label of the figure would lie under a legend outside the axes
        (legend,) = figure.legends
        legend.set_title(FOOTER, FontProperties(size=7))
    else:
        figure.supxlabel(FOOTER, fontsize=7, color="dimgray")


def emit(value: object) -> None:
    """Print `value` as JSON; what the simulator alone knows stands apart, as `simulator_view`."""
    shown, view = plain(value), simulator_view(value)
    if view and isinstance(shown, dict):
        shown = shown | {"simulator_view": {"note": FOOTER, **view}}
    print(json.dumps(shown, indent=2))


def grid(*heads: str, texts: int = 1) -> Grid:
    """A table without lines; all columns after the first `texts` hold numbers."""
    made = Grid(*heads, box=None, header_style="bold", pad_edge=False)
    for column in made.columns[:texts]:
        column.overflow = "fold"  # a name that is cut is no name
    for column in made.columns[texts:]:
        column.justify = "right"
    return made


def print_table(heads: Iterable[str], rows: Iterable[Iterable[str]], texts: int = 1) -> Grid:
    """Print a table; all columns after the first `texts` hold numbers."""
    made = grid(*heads, texts=texts)
    for row in rows:
        made.add_row(*row)
    console.print(made)
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


def print_fact(name: str, *lines: str) -> None:
    """Lines that start at one column, the first behind the name in bold."""
    for index, line in enumerate(lines):
        head = f"[bold]{name}[/]" + " " * (9 - len(name)) if index == 0 else " " * 9
        console.print(head + line)


def print_privacy(guarantee: Guarantee, warnings: Iterable[str] = ()) -> None:
    """A guarantee, its assumptions, and where it promises little."""
    notes = (f"assuming: {note}" for note in guarantee.assumptions)
    print_fact("Privacy", str(guarantee), *notes)
    print_warnings(warnings)


def print_warnings(warnings: Iterable[str]) -> None:
    """Where a guarantee promises little."""
    for text in warnings:
        print_fact("", f"[bold]warning[/]: {text}")


def print_bounds(chosen: Mapping[str, Bounds]) -> None:
    """Bounds that the run chose; epsilon covers the choice."""
    if chosen:
        each = (f"{name}: {low:g} to {high:g}" for name, (low, high) in chosen.items())
        print_fact("Bounds", "chosen by a private histogram, which epsilon covers", *each)


def print_costs(bits: float, made_of: str, costs: Costs, reports: ReportCounts) -> None:
    """What a user sent, and all together."""
    each = costs.wire_bytes / reports.asked
    print_fact(
        "Cost",
        f"{round(bits):,} bits per user ({made_of}); on the wire {each:.1f} "
        f"bytes per report, {size(costs.wire_bytes)} in all "
        f"({'measured' if costs.measured else 'by formula'})",
    )


def print_reports(reports: ReportCounts, clipped: str) -> None:
    """What became of the reports, what was clipped, and how many users attacked."""
    extra = f" + {reports.extra:,} extra" if reports.extra else ""
    print_fact(
        "Reports",
        f"{reports.asked:,} asked{extra} = {reports.accepted:,} accepted + "
        f"{sum(reports.dropped.values()):,} dropped + {reports.missing:,} missing; {clipped} were "
        "clipped",
    )
    if reports.corrupted:
        reasons = ", ".join(f"{count} {reason}" for reason, count in reports.dropped.items())
        dropped = f"; dropped: {reasons}" if reasons else ""
        print_fact("Attack", f"{reports.corrupted:,} users corrupted{dropped}")


def print_refusals(methods: Iterable[Method]) -> None:
    """Why some methods of a comparison cannot be had."""
    for method in methods:
        if method.refused:
            console.print(f"{method.title}: refused: {method.refused}")


def check_picture(path: Path | None) -> None:
    """Refuse a picture that could not be written.

    Raises:
        ParameterError: not a .png, .svg or .pdf file in an existing folder.
    """
    check_path("plot", path, (".png", ".svg", ".pdf"))


def check_path(option: str, path: Path | None, kinds: tuple[str, ...]) -> None:
    """Refuse a file that could not be written.

    Raises:
        ParameterError: not of one of the kinds, or not in an existing folder.
    """
    if path is not None:
        check_name(option, path)
    if path is not None and (path.suffix not in kinds or not path.parent.is_dir() or path.is_dir()):
        raise ParameterError(
            option, str(path), f"a {' or '.join(kinds)} file in an existing folder"
        )


def new_figure(width: float, height: float) -> "Figure":
    """An empty picture, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: "Figure", path: Path) -> None:
    """Write the picture.

    Raises:
        ParameterError: it cannot be written.
    """
    with whole("plot", path) as part:
        figure.savefig(part, dpi=120)


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
        part.unlink(missing_ok=True)
