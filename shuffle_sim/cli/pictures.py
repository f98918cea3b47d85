"""Pictures in one style: a title that says what was found, units, thousands, notes below.

A trust model has one colour everywhere (`Trust.colour`). What the simulator alone knows is black.
"""

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from shuffle_sim.cli.files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MOST = 30
"""Bars of a picture; the rest is a note."""
TRUE = "k|"
"""What the simulator alone knows."""
FOOTER = (
    "Simulator's view: true values and scores come from the data without noise. Epsilon does not "
    "cover them."
)
_POWERS = 1e7  # from here on numbers are powers of ten


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
        _separate(axis)


def _separate(axis: "Axis") -> None:
    """Numbers of an axis as in tables: thousands apart, powers of ten where they are large."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, ScalarFormatter

    def shown(value: float, _: object = None) -> str:
        whole = f"{value:,.0f}" if abs(value) < _POWERS else f"{value:.0e}".replace("e+0", "e")
        return whole if abs(value) >= 1000 else f"{value:.6g}"

    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(numticks=6))  # more would run into each other
    if isinstance(axis.get_major_formatter(), LogFormatter | ScalarFormatter):  # not names
        axis.set_major_formatter(FuncFormatter(shown))


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


def save_picture(figure: "Figure", path: Path) -> None:
    """Write the picture.

    Raises:
        ParameterError: it cannot be written.
    """
    with whole("plot", path) as part:
        figure.savefig(part, dpi=120)
