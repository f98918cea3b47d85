"""Numbers along the axes of a picture, and how a picture is saved."""

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_ROOM = 0.8  # inches that a number with its thousands takes
_MISSING = "Glyph .* missing from"


def separate(axis: "Axis") -> None:
    """Numbers of an axis as in tables: thousands apart, powers of ten where one has 1e7."""
    from matplotlib import ticker
    from numpy import format_float_scientific, log10, maximum, ptp

    def shown(value: float, _: object = None) -> str:
        if abs(value) < 1000:
            return f"{value:.6g}"
        if max(abs(value), *map(abs, axis.get_view_interval())) < 1e7:
            return f"{value:,.0f}"
        return str(format_float_scientific(value, trim="-", exp_digits=1)).replace("+", "")

    if (scale := axis.get_scale()) in {"log", "symlog"}:  # more numbers would run into each other
        shape: Any = axis.get_transform()
        # Around 0 a symmetric axis is linear: its decades begin where that ends.
        ends = maximum(axis.get_view_interval(), getattr(shape, "linthresh", 0.0))
        subs = (1, 2, 5) if ptp(log10(ends)) < 2 else (1,)
        if scale == "log":
            axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=_most(axis)))
        else:
            axis.set_major_locator(ticker.SymmetricalLogLocator(shape, subs))
        axis.set_minor_formatter(ticker.NullFormatter())  # it would write powers between them
    if isinstance(axis.get_major_formatter(), ticker.LogFormatter | ticker.ScalarFormatter):
        axis.set_major_formatter(ticker.FuncFormatter(shown))


def _most(axis: "Axis") -> int:
    """Numbers that fit beside each other; above each other there is room."""
    from matplotlib.axis import XAxis

    if not isinstance(axis, XAxis):
        return 6
    inches = axis.axes.get_window_extent().width / axis.axes.figure.dpi
    return max(2, min(6, int(inches / _ROOM)))


def save(figure: "Figure", path: Path) -> bool:
    """Write a picture; whether its font lacks some of the characters, which then are boxes."""
    with warnings.catch_warnings(record=True) as told:
        # One line for each character would be printed, whatever was asked of other warnings.
        warnings.filterwarnings("always", _MISSING, UserWarning)
        figure.savefig(path, dpi=120)
    missing = [each for each in told if re.match(_MISSING, str(each.message))]
    for each in told:
        if each not in missing:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return bool(missing)
