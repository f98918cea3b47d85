"""What the commands of counts found: tables for people, JSON for machines, pictures of bars."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.cli.show import (
    FOOTER,
    console,
    new_figure,
    number,
    plural,
    print_costs,
    print_fact,
    print_privacy,
    print_reports,
    print_table,
)
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BARS = 30
"""Of a picture or table; the rest is one line."""


@dataclass(frozen=True)
class Released:
    """What every command of counts says of its run."""

    people: int
    messages_per_user: float
    privacy: Guarantee
    costs: Costs
    reports: ReportCounts

    @classmethod
    def of(cls, result: Result, protocol: Any) -> "Released":
        """Of a run that is over."""
        told = result.privacy, result.costs, result.reports
        return cls(protocol.n, float(protocol.messages_per_user), *told)

    def show(self) -> None:
        """For people."""
        print_privacy(self.privacy)
        made_of = f"{self.messages_per_user:,.1f} messages on average"
        print_costs(self.costs.payload_bits_per_user, made_of, self.costs, self.reports)
        print_reports(self.reports, f"{self.reports.clipped:,} values outside what is public")


class Found(ABC):
    """What a command of counts found."""

    @abstractmethod
    def show(self) -> None:
        """For people."""

    @abstractmethod
    def draw(self) -> "Figure":
        """The released numbers beside the true ones, with their ranges."""


@dataclass(frozen=True)
class Counts(Found):
    """A released histogram."""

    column: str
    categories: tuple[str, ...]
    true: Floats = field(metadata=SIMULATOR_VIEW)
    counts: Floats
    shares: Floats
    low: Floats
    high: Floats
    confidence: float
    standard_error: float
    central_laplace: float
    run: Released

    def show(self) -> None:
        order = np.argsort(-self.counts, kind="stable")
        shown, rest = order[:BARS], order[BARS:]
        rows = [
            (
                self.categories[at],
                number(self.true[at]),
                number(self.counts[at]),
                f"{100 * self.shares[at]:.2f} %",
                f"{number(self.low[at])} to {number(self.high[at])}",
            )
            for at in shown
        ]
        if rest.size:
            counts = number(float(self.true[rest].sum())), number(float(self.counts[rest].sum()))
            share = f"{100 * self.shares[rest].sum():.2f} %"
            rows.append((f"{rest.size:,} others", *counts, share, ""))
        certain = f"{100 * self.confidence:g} % all at once"
        print_table((self.column, "true", "count", "share", certain), rows)
        console.print(FOOTER)
        ratio = self.standard_error / self.central_laplace
        print_fact(
            "Noise",
            f"standard error {number(self.standard_error)} of a count; {ratio:.2f} x the central "
            "discrete Laplace",
        )
        self.run.show()

    def draw(self) -> "Figure":
        order = np.argsort(-self.counts, kind="stable")
        title = f"{self.column}: {self.run.people:,} users, ε = {self.run.privacy.epsilon:.3g}"
        values = self.counts, self.low, self.high, self.true
        return _bars(title, "users", self.categories, order, *values)


@dataclass(frozen=True)
class Ranks(Found):
    """Released quantiles, in the column's own units."""

    column: str
    unit: str
    shares: tuple[float, ...]
    true: Floats = field(metadata=SIMULATOR_VIEW)
    values: Floats
    low: Floats
    high: Floats
    confidence: float
    standard_error_ranks: float
    run: Released
    edges: Floats = field(repr=False)
    ranks: Floats = field(repr=False)
    band: tuple[Floats, Floats] = field(repr=False)
    true_ranks: Floats = field(repr=False, metadata=SIMULATOR_VIEW)

    def show(self) -> None:
        unit = f" {self.unit}" if self.unit else ""
        rows = (
            (
                f"{100 * share:g} % below",
                number(self.true[at]) + unit,
                number(self.values[at]) + unit,
                f"{number(self.low[at])} to {number(self.high[at])}",
            )
            for at, share in enumerate(self.shares)
        )
        certain = f"{100 * self.confidence:g} % all at once"
        print_table((self.column, "true", "private", certain), rows)
        console.print(FOOTER)
        part = 100 * self.standard_error_ranks / self.run.people
        print_fact(
            "Noise", f"{number(self.standard_error_ranks)} ranks ({part:.3g} %) at most, s.e."
        )
        self.run.show()

    def draw(self) -> "Figure":
        figure = new_figure(7, 4.5)
        axes = figure.subplots()
        people = self.run.people
        low, high = (100 * each / people for each in self.band)
        axes.fill_between(self.edges, low, high, alpha=0.3, label="95 %, all at once")
        axes.plot(self.edges, 100 * self.ranks / people, label="released")
        axes.plot(self.edges, 100 * self.true_ranks / people, "k:", label="true")
        axes.set_xlabel(f"{self.column} ({self.unit})" if self.unit else self.column)
        axes.set_ylabel("users below, %")
        epsilon = self.run.privacy.epsilon
        axes.set_title(f"{self.column}: {people:,} users, ε = {epsilon:.3g}")
        figure.legend(loc="outside lower center", ncols=3)
        return figure


@dataclass(frozen=True)
class Heavy(Found):
    """Released items that many users have."""

    column: str
    items: tuple[str, ...]
    true: Floats = field(metadata=SIMULATOR_VIEW)
    counts: Floats
    low: Floats
    high: Floats
    least_count: int
    missed: float
    false_items: float
    run: Released

    def show(self) -> None:
        rows = [
            (
                item,
                number(self.true[at]),
                number(self.counts[at]),
                f"{number(self.low[at])} to {number(self.high[at])}",
            )
            for at, item in enumerate(self.items[:BARS])
        ]
        print_table((self.column, "true", "count", "95 % all at once"), rows)
        if len(self.items) > BARS:
            console.print(f"{len(self.items) - BARS:,} more are in --json")
        console.print(FOOTER)
        print_fact(
            "Found",
            f"{plural(len(self.items), 'item')}; one that {self.least_count:,} users have is "
            f"missed with probability {self.missed:g} at most",
            f"an item that nobody has is reported with probability {self.false_items:g} at most",
        )
        self.run.show()

    def draw(self) -> "Figure":
        title = f"{self.column}: self among {self.run.people:,} users"
        values = self.counts, self.low, self.high, self.true
        return _bars(title, "users", self.items, np.arange(len(self.items)), *values)


@dataclass(frozen=True)
class Groups(Found):
    """Released counts, sums and means by group."""

    column: str
    by: str
    groups: tuple[str, ...]
    true_means: Floats = field(metadata=SIMULATOR_VIEW)
    counts: Floats
    sums: Floats
    means: Floats
    mean_low: Floats
    mean_high: Floats
    confidence: float
    run: Released

    def show(self) -> None:
        rows = (
            (
                group,
                number(self.counts[at]),
                number(self.sums[at]),
                number(self.true_means[at]),
                number(self.means[at]),
                f"{number(self.mean_low[at])} to {number(self.mean_high[at])}",
            )
            for at, group in enumerate(self.groups)
        )
        certain = f"mean, {100 * self.confidence:g} % all at once"
        heads = self.by, "count", f"sum of {self.column}", "true mean", "mean", certain
        print_table(heads, rows)
        console.print(FOOTER)
        self.run.show()

    def draw(self) -> "Figure":
        order = np.argsort(-self.counts, kind="stable")
        order = order[np.isfinite(self.means[order])]  # a group of nobody would set the axis
        values = self.means, self.mean_low, self.mean_high, self.true_means
        title = f"{self.column} by {self.by}: {self.run.people:,} users"
        return _bars(title, f"mean of {self.column}", self.groups, order, *values)


def _bars(
    title: str,
    across: str,
    names: Sequence[str],
    order: NDArray[np.intp],
    values: Floats,
    low: Floats,
    high: Floats,
    true: Floats,
) -> "Figure":
    """Released values with their ranges beside the true ones, the largest groups first."""
    shown = order[:BARS]
    figure = new_figure(7, 1.5 + 0.25 * shown.size)
    axes = figure.subplots()
    places, heights = np.arange(shown.size), np.nan_to_num(values[shown])
    axes.barh(places, heights, color="tab:blue", label="released")
    ends = np.stack([heights - low[shown], high[shown] - heights])
    axes.errorbar(
        heights,
        places,
        xerr=np.maximum(ends, 0),
        fmt="none",
        ecolor="black",
        label="95 %, all at once",
    )
    axes.plot(true[shown], places, "k|", ms=10, label="true")
    axes.set_yticks(places, [names[at] for at in shown])
    axes.invert_yaxis()
    axes.set_xlabel(across)
    rest = order.size - shown.size
    axes.set_title(f"{title}; {rest:,} smaller ones are not shown" if rest else title)
    figure.legend(loc="outside lower center", ncols=3)
    return figure
