"""The pictures of `rates.py`."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from rates_studies import HARD, REALISTIC, Method

if TYPE_CHECKING:
    from rates import Slope


def pictures(slopes: Sequence["Slope"]) -> dict[str, bytes]:
    """PNG files by name: hard instances against n, against d and epsilon, and realistic losses."""
    drawn = {
        "rates-n.png": (HARD, "n"),
        "rates-d.png": (HARD, "d"),
        "rates-epsilon.png": (HARD, "epsilon"),
    }
    found = {
        name: _picture(slopes, *what)
        for name, what in {**drawn, "rates-realistic.png": (REALISTIC, "n")}.items()
    }
    return {name: content for name, content in found.items() if content}


def _picture(slopes: Sequence["Slope"], methods: Sequence[Method], axis: str) -> bytes:
    with mpl.rc_context({"backend": "agg", "font.size": 8, "axes.titlesize": 8}):
        from matplotlib.figure import Figure

        chosen = [
            (m, each)
            for m in methods
            for each in slopes
            if (each.method, each.axis) == (m.name, axis)
        ]
        if not chosen:
            return b""
        figure = Figure(figsize=(11, 5), layout="constrained")
        for place, (method, slope) in enumerate(chosen, 1):
            _panel(figure.add_subplot(2, 4, place), method, slope)
        lines: dict[str, Any] = {}
        for panel in figure.axes:
            lines |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4)
        figure.supylabel("excess population loss")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=90)
        return buffer.getvalue()


def _panel(panel: Any, method: Method, slope: "Slope") -> None:
    x = np.array([getattr(each.point, slope.axis) for each in slope.points], float)
    y = np.array([each.mean for each in slope.points])
    errors = [2 * each.error for each in slope.points]
    panel.errorbar(
        x, y, errors, fmt="o", ms=3, color="tab:blue", label="measured, 2 standard errors"
    )
    panel.plot(
        x, [each.bound for each in slope.points], color="tab:gray", lw=0.8, label="proven bound"
    )
    centre = np.exp(np.log(x).mean()), np.exp(np.log(y).mean())
    panel.plot(
        x,
        centre[1] * (x / centre[0]) ** slope.theory,
        "--",
        color="tab:orange",
        label="theory's slope (privacy term)",
    )
    if slope.points[0].sampling:
        panel.plot(
            x,
            [np.mean(each.sampling) for each in slope.points],
            "s",
            ms=3,
            color="tab:green",
            label="without privacy",
        )
    if slope.axis == "n":
        noise, strong = slope.points[0].noise, method.sampling == 1
        problem = method.instance(10).problem
        length = problem.lipschitz
        unit = length**2 / problem.strong_convexity if strong else length * problem.reach
        panel.plot(
            x,
            unit * x**-method.sampling,
            ":",
            color="tab:red",
            lw=1,
            label="worst-case sampling term",
        )
        panel.plot(
            x,
            unit * (noise / x) ** method.power,
            ":",
            color="tab:purple",
            lw=1,
            label="worst-case privacy term",
        )
        place = noise**method.crossover if math.isfinite(method.crossover) else math.inf
        if x[0] < place < x[-1]:
            panel.axvline(place, color="black", lw=0.6, label="theory's crossover")
        note = f"crossover at n = {place:.2g}" if math.isfinite(place) else "no crossover"
        panel.set_xlabel(f"n ({note})")
    else:
        panel.set_xlabel(slope.axis)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_title(
        f"{method.name}\nslope {slope.slope:.2f} ± {slope.error:.2f}, theory {slope.theory:.2f}"
    )
