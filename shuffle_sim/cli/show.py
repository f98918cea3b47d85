"""How results are printed: for people with rich, for machines as JSON."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

from shuffle_sim.cli.files import save_picture
from shuffle_sim.execution.result import SIMULATOR_VIEW

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Summary = TypeVar("Summary")

FOOTER = (
    "Simulator's view: true values and scores come from the data without noise. Epsilon does not "
    "cover them."
)
(_MARK,) = SIMULATOR_VIEW

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


def simulator_view(value: object) -> dict[str, Json]:
    """What of `value` the simulator alone knows, in the places where `plain` leaves it out."""
    found = _view(value)
    return found if isinstance(found, dict) else {}


def _view(value: object) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        views = {
            each.name: plain(getattr(value, each.name))
            if _MARK in each.metadata
            else _view(getattr(value, each.name))
            for each in fields
            if each.repr
        }
        return {name: view for name, view in views.items() if view is not None} or None
    if isinstance(value, Mapping):
        found = {str(key): _view(item) for key, item in value.items()}
        return {name: view for name, view in found.items() if view is not None} or None
    if isinstance(value, list | tuple):
        each = [_view(item) for item in value]
        return each if any(view is not None for view in each) else None
    return None


def plain(value: object) -> Json:
    """`value` as JSON can hold it: dataclasses as objects, arrays as lists, infinity as a string.

    Fields that a dataclass leaves out of its `repr` are left out here, too, and what the simulator
    alone knows.

    Raises:
        TypeError: JSON cannot hold it.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        shown = [each.name for each in fields if each.repr and _MARK not in each.metadata]
        return {name: plain(getattr(value, name)) for name in shown}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity" if value > 0 else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"JSON cannot hold {value!r}")


def grid(*heads: str, texts: int = 1) -> Grid:
    """A table without lines; all columns after the first `texts` hold numbers."""
    made = Grid(*heads, box=None, header_style="bold", pad_edge=False)
    for column in made.columns[:texts]:
        column.overflow = "fold"  # a name that is cut is no name
    for column in made.columns[texts:]:
        column.justify = "right"
    return made


def number(value: float) -> str:
    """A number in the few digits that people read."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


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
