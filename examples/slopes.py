"""Slopes of measured excess losses: fits with standard errors, as text and as pictures."""

import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from shuffle_sim.arrays import Floats


def fit(sizes: Sequence[float], means: Sequence[float], errors: Sequence[float]) -> Floats:
    """Slope of log means against log sizes by least squares, and its standard error, (2,).

    The error is that of the scatter of the runs, to first order: it says nothing of a bend.
    """
    x = np.log(sizes) - np.mean(np.log(sizes))
    weights = x / (x @ x)
    scatter = np.divide(errors, means)
    return np.array([weights @ np.log(means), np.linalg.norm(weights * scatter)])


def mean_and_error(runs: Sequence[float]) -> tuple[float, float]:
    """Mean, and its standard error; 0 for a single run."""
    error = np.std(runs, ddof=1) / math.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return float(np.mean(runs)), float(error)


@dataclass(frozen=True)
class Fit:
    """One line of a study.

    Attributes:
        name: of what is measured.
        axis: what varies, as n.
        theory: the slope that is promised.
        sizes: values of the axis.
        runs: excess losses of every run, by size.
        bounds: proven bounds, by size; none are drawn where there are none.
    """

    name: str
    axis: str
    theory: float
    sizes: Sequence[float]
    runs: Sequence[Sequence[float]]
    bounds: Sequence[float] = ()

    @property
    def points(self) -> Floats:
        """Means and standard errors, (2, sizes)."""
        return np.array([mean_and_error(each) for each in self.runs]).T

    @property
    def slope(self) -> tuple[float, float]:
        """And its standard error."""
        slope, error = fit(self.sizes, *self.points)
        return float(slope), float(error)

    def __str__(self) -> str:
        slope, error = self.slope
        means = ", ".join(f"{mean:.2e}" for mean in self.points[0])
        return (
            f"{self.name}, in {self.axis}: slope {slope:.2f} ± {error:.3f}, "
            f"promised {self.theory:.2f} ({means})"
        )


def logarithmic(panel: Any, values: Sequence[float]) -> None:
    """Both axes; on less than two decades each value has its tick, as labels would overlap."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    if max(values) < 100 * min(values):
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.set_xticks([], minor=True)


def draw(fits: Sequence[Fit], path: Path) -> None:
    """A panel each; the file is there whole or not at all."""
    with mpl.rc_context({"backend": "agg", "font.size": 8, "axes.titlesize": 8}):
        from matplotlib.figure import Figure

        columns = min(3 if len(fits) % 3 == 0 else 4, len(fits))
        lines = math.ceil(len(fits) / columns)
        figure = Figure(figsize=(2.9 * columns, 2.7 * lines + 0.4), layout="constrained")
        for place, each in enumerate(fits, 1):
            panel = figure.add_subplot(lines, columns, place)
            means, errors = each.points
            panel.errorbar(
                each.sizes, means, 2 * errors, fmt="o", ms=4, label="measured, 2 standard errors"
            )
            x = np.array(each.sizes, float)
            middle = np.exp(np.log(x).mean()), np.exp(np.log(means).mean())
            promised = middle[1] * (x / middle[0]) ** each.theory
            panel.plot(x, promised, "--", color="tab:orange", label="promised slope")
            if len(each.bounds):
                panel.plot(x, each.bounds, color="tab:gray", label="proven bound")
            logarithmic(panel, each.sizes)
            if means.max() < 2 * means.min():  # a flat line is no staircase of noise
                panel.set_ylim(means.min() / 5, means.max() * 5)
            panel.set_xlabel(each.axis)
            slope, error = each.slope
            panel.set_title(
                f"{each.name}\nslope {slope:.2f} ± {error:.3f}, promised {each.theory:g}"
            )
        figure.supylabel("excess loss")
        shown: dict[str, Any] = {}
        for panel in figure.axes:
            shown |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=3)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=90)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(buffer.getvalue())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
