"""What the commands of counts found: tables for people, JSON for machines, pictures of bars."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.cli import show
from shuffle_sim.data.population import Unit
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.privacy.bounds.central import discrete_laplace
from shuffle_sim.privacy.guarantee import Guarantee, weaknesses
from shuffle_sim.privacy.ledger import PrivacyLedger
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Released:
    """What every command of counts says of its run."""

    people: int
    messages_per_user: float
    bits_per_user: float
    privacy: Guarantee
    warnings: tuple[str, ...]
    costs: Costs
    reports: ReportCounts
    rounds: int
    whole: Guarantee
    blank: int = field(default=0, metadata=SIMULATOR_VIEW)
    outside: int = field(default=0, metadata=SIMULATOR_VIEW)
    cut: bool = field(default=False, repr=False)

    @property
    def epsilon(self) -> str:
        """As titles of pictures say it."""
        return f"{self.privacy.epsilon:.3g}"

    @classmethod
    def of(
        cls, result: Result, protocol: Any, blank: int = 0, outside: int = 0, rounds: int = 1
    ) -> "Released":
        """Of a run that is over.

        `blank` users have a cell without a value, and no category; numbers of `outside` are beyond
        the public bounds. Of so many rounds, such as days, this is one.
        """
        asked = result.promised
        warnings = weaknesses(asked.epsilon, asked.delta, protocol.n)
        bits = forecast(protocol).user_payload_bits
        ledger = PrivacyLedger()
        for charge in result.ledger.charges * rounds:
            ledger.charge(charge.cohort, charge.event)
        whole = rounds, ledger.guarantee(protocol.delta)
        told = result.privacy, warnings, result.costs, result.reports, *whole
        sent = float(protocol.messages_per_user), bits, *told
        return cls(protocol.n, *sent, blank, outside)

    def show(self) -> None:
        """For people."""
        if self.cut:
            show.console.print("Texts are told apart by their first 8 bytes: some may go on.")
        if self.privacy.unit is Unit.PERSON:
            show.print_fact("Unit", "the person: one of its records counts, drawn at random")
        show.print_privacy(self.privacy, self.warnings)
        if self.rounds > 1:
            every = f"epsilon {show.number(self.whole.epsilon)} at delta {self.whole.delta:g}"
            show.print_fact("Rounds", f"of {self.rounds:,} such reports: {every}")
        made_of = f"{self.messages_per_user:,.1f} messages on average"
        show.print_costs(self.bits_per_user, made_of, self.costs, self.reports)
        clipped = max(self.reports.clipped - self.blank, 0) + self.outside
        outside = f"{clipped:,} values outside what is public"
        show.print_reports(self.reports, outside, self.costs.rounds)
        show.print_outside(clipped, self.reports.asked - self.blank)
        if self.blank:
            users = show.plural(self.blank, "user")
            show.print_fact(
                "Blank",
                f"{users} left a cell blank: counted nowhere, not even as other",
                "That number is the simulator's view, too.",
            )


def _said(numbers: Iterable[float]) -> list[str]:
    return [show.number(each) for each in numbers]


def _ranges(low: Floats, high: Floats) -> list[str]:
    return [" to ".join(ends) for ends in zip(_said(low), _said(high), strict=True)]


class CountsReport(ABC):
    """What a command of counts found."""

    @abstractmethod
    def show(self) -> None:
        """For people."""

    @abstractmethod
    def draw(self) -> "Figure":
        """The released numbers beside the true ones, with their ranges."""


@dataclass(frozen=True)
class Counts(CountsReport):
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

    @classmethod
    def of(
        cls,
        column: str,
        categories: Sequence[str],
        true: Floats,
        counts: Floats,
        ranges: tuple[Floats, Floats, float],
        made: Any,
        run: Released,
        accepted: int,
        epsilon: float,
    ) -> "Counts":
        """Of counts with low ends, high ends and confidence, among as many reports."""
        error = made.error_of(counts)
        own = tuple(categories), true, counts, counts / max(accepted, 1), *ranges, error
        return cls(column, *own, discrete_laplace(epsilon), run)

    def show(self) -> None:
        order = np.argsort(-self.counts, kind="stable")
        shown, rest = order[: show.MOST], order[show.MOST :]
        names, shares = [self.categories[at] for at in shown], 100 * self.shares
        counts = _said(self.true[shown]), _said(self.counts[shown])
        ranges = _ranges(self.low[shown], self.high[shown])
        parts = [f"{round(share, 2) + 0.0:.2f} %" for share in shares[shown]]
        columns = names, *counts, parts, ranges
        rows: list[tuple[str, ...]] = list(zip(*columns, strict=True))
        if rest.size:
            sums = _said([self.true[rest].sum(), self.counts[rest].sum()])
            rows.append((f"{rest.size:,} others", *sums, f"{shares[rest].sum():.2f} %", ""))
        certain = f"{100 * self.confidence:g} % all at once"
        show.print_table((self.column, "true", "count", "share", certain), rows)
        show.notes.print(show.FOOTER)
        beside = ""
        if self.central_laplace:  # of a huge epsilon it is 0 to a double
            ratio = self.standard_error / self.central_laplace
            beside = f"; {ratio:.3g} x the central discrete Laplace"
        noise = f"standard error {show.number(self.standard_error)} of a count at most{beside}"
        show.print_fact("Noise", noise)
        self.run.show()

    def draw(self) -> "Figure":
        order = np.argsort(-self.counts, kind="stable")
        first = f"{self.categories[order[0]]} has the most, {100 * self.shares[order[0]]:.3g} %"
        title = f"{self.column}: {first} of {self.run.people:,} users (ε = {self.run.epsilon})"
        values = self.counts, self.low, self.high, self.true
        figure = _bars(title, "users", self.categories, order, *values)
        if order.size > show.MOST:
            rest = show.number(float(self.counts[order[show.MOST :]].sum()))
            show.add_note(figure, f"The others have {rest} together.")
        return figure


@dataclass(frozen=True)
class Ranks(CountsReport):
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
        names = [f"{100 * share:g} % below" for share in self.shares]
        values = ([each + unit for each in _said(found)] for found in (self.true, self.values))
        rows = zip(names, *values, _ranges(self.low, self.high), strict=True)
        certain = f"{100 * self.confidence:g} % all at once"
        show.print_table((self.column, "true, clipped", "private", certain), rows)
        show.notes.print(show.FOOTER)
        part = 100 * self.standard_error_ranks / self.run.people
        show.print_fact(
            "Noise", f"{show.number(self.standard_error_ranks)} ranks ({part:.3g} %) at most, s.e."
        )
        self.run.show()

    def draw(self) -> "Figure":
        axes = show.new_axes(7, 4.5)
        people = self.run.people
        low, high = (100 * each / people for each in self.band)
        colour = Trust.SHUFFLE.colour
        axes.fill_between(
            self.edges, low, high, color=colour, alpha=0.3, label="95 %, all at once", lw=0
        )
        axes.plot(self.edges, 100 * self.ranks / people, color=colour, label="released")
        axes.plot(self.edges, 100 * self.true_ranks / people, "k:", label="true")
        at = min(range(len(self.shares)), key=lambda each: abs(self.shares[each] - 0.5))
        below = f"{100 * self.shares[at]:g} % of {people:,} users are below"
        title = f"{below} {show.number(self.values[at])} {self.unit}".rstrip()
        across = f"{self.column} ({self.unit})" if self.unit else self.column
        title += f" (ε = {self.run.epsilon})"
        return show.finish(axes, title, across, "users below, %")


@dataclass(frozen=True)
class Heavy(CountsReport):
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
        numbers = _said(self.true), _said(self.counts), _ranges(self.low, self.high)
        rows = list(zip(self.items, *numbers, strict=True))[: show.MOST]
        show.print_table((self.column, "true", "count", "95 % all at once"), rows)
        if len(self.items) > show.MOST:
            show.console.print(f"{len(self.items) - show.MOST:,} more are in --json")
        show.notes.print(show.FOOTER)
        show.print_fact(
            "Found",
            f"{show.plural(len(self.items), 'item')}; one that {self.least_count:,} users have is "
            f"missed with probability {self.missed:g} at most",
            f"an item that nobody has is reported with probability {self.false_items:g} at most",
        )
        self.run.show()

    def draw(self) -> "Figure":
        found = show.plural(len(self.items), "item")
        title = f"{self.column}: {found} found among {self.run.people:,} users"
        title += f" (ε = {self.run.epsilon})"
        values = self.counts, self.low, self.high, self.true
        return _bars(title, "users", self.items, np.arange(len(self.items)), *values)


@dataclass(frozen=True)
class Groups(CountsReport):
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
        numbers = map(_said, (self.counts, self.sums, self.true_means, self.means))
        rows = zip(self.groups, *numbers, _ranges(self.mean_low, self.mean_high), strict=True)
        certain = f"mean, {100 * self.confidence:g} % all at once"
        heads = self.by, "count", f"sum of {self.column}", "true, clipped", "mean", certain
        show.print_table(heads, rows)
        show.notes.print(show.FOOTER)
        self.run.show()

    def draw(self) -> "Figure":
        order = np.argsort(-self.counts, kind="stable")
        wide = self.mean_high - self.mean_low  # a group of hardly anybody would set the axis
        near = np.isfinite(self.means) & (wide <= 4 * np.median(wide[np.isfinite(wide)]))
        order = order[near[order]]
        values = self.means, self.mean_low, self.mean_high, self.true_means
        shown = self.means[order]
        ends = (
            f"{show.number(shown.min())} to {show.number(shown.max())}"
            if shown.size
            else "no group"
        )
        title = f"Mean {self.column} by {self.by}: {ends} (ε = {self.run.epsilon})"
        figure = _bars(title, f"mean of {self.column}", self.groups, order, *values)
        if not near.all():
            show.add_note(figure, "Groups of hardly anybody are in the table alone.")
        return figure


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
    shown = order[: show.MOST]
    axes = show.new_axes(7, 1.5 + 0.25 * shown.size)
    places, heights = np.arange(shown.size), np.nan_to_num(values[shown])
    axes.barh(places, heights, color=Trust.SHUFFLE.colour, alpha=0.6, label="released")
    ends = np.stack([heights - low[shown], high[shown] - heights])
    axes.errorbar(
        heights,
        places,
        xerr=np.maximum(ends, 0),
        fmt="none",
        ecolor="black",
        label="95 %, all at once",
    )
    axes.plot(true[shown], places, show.TRUE, ms=10, label="true")
    axes.set_yticks(places, [names[at] for at in shown])
    axes.invert_yaxis()
    rest = order.size - shown.size
    return show.finish(
        axes, title, across, notes=[f"{rest:,} smaller ones are not shown."] * bool(rest)
    )
