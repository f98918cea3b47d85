"""What a private sum gave: summed up, printed and drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from protocols.sums.planned import PlannedSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.arrays import Floats
from shuffle_sim.cli.ahead import Ahead
from shuffle_sim.cli.files import new_figure
from shuffle_sim.cli.outcome import (
    print_bounds,
    print_costs,
    print_fact,
    print_privacy,
    print_reports,
)
from shuffle_sim.cli.running import RunSummary
from shuffle_sim.cli.show import console, grid, number, plural
from shuffle_sim.cli.sums import shown
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.moments import NORMAL_95, Intervals, Moments, released
from shuffle_sim.data.population import Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.result import SIMULATOR_VIEW, ReportCounts, Result
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import Guarantee, Privacy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Paper:
    """The paper's constants for the same sum: bits per column, noise over ours; or why not."""

    bits: int | None = None
    ratio: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Noise:
    """Standard error of the sum, the central Gaussian's, and what the paper's constants give."""

    standard_error_of_sum: float
    central: float
    paper: Paper


@dataclass(frozen=True)
class Summary:
    """A released table of column means, in the table's own units."""

    table: str
    people: int
    unit: Unit
    columns: tuple[str, ...]
    true: Floats = field(metadata=SIMULATOR_VIEW)
    true_clipped: Floats = field(metadata=SIMULATOR_VIEW)
    true_clipped_variance: Floats | None = field(metadata=SIMULATOR_VIEW)
    clipped_cells: int = field(metadata=SIMULATOR_VIEW)
    private: Floats
    standard_error: Floats
    interval: Intervals
    attacked: bool
    variance: Moments | None
    lower: Floats
    half_range: Floats
    scaling: str
    encoding: str
    parameters: Mapping[str, Any]
    bits: int
    bits_per_user: int
    chosen_bounds: dict[str, Bounds]
    privacy: Guarantee
    warnings: tuple[str, ...]
    ahead: Ahead
    noise: Noise
    costs: Costs
    wire_bytes_per_user: float
    reports: ReportCounts
    run: RunSummary


def summed_up(
    table: Table,
    view: Table,
    protocol: PlannedSum,
    result: Result,
    accepted: int,
    privacy: Privacy,
    variance: bool,
    ahead: Ahead,
    *,
    attacked: bool,
) -> Summary:
    """Of a run that is over."""
    people, d = len(view.rows), len(table.columns) * (2 if variance else 1)
    error = protocol.standard_error
    try:
        constants = VectorSum.paper(n=people, d=d, privacy=privacy)
        paper = Paper(constants.bits, constants.standard_error / error)
    except ParameterError as why:
        paper = Paper(refused=str(why))
    central = sigma(privacy.epsilon, privacy.delta, protocol.sensitivity)
    means, spread, variances = released(view, result.value, error, accepted, variance=variance)
    inside = np.clip(view.rows, view.lower, view.upper)
    assumptions = (*result.privacy.assumptions, *table.assumptions)
    return Summary(
        table=table.name,
        people=people,
        columns=table.columns,
        true=view.rows.mean(axis=0),
        true_clipped=inside.mean(axis=0),
        true_clipped_variance=inside.var(axis=0) if variance else None,
        unit=result.unit,
        clipped_cells=table.clipped_cells,
        private=means,
        standard_error=spread,
        interval=Intervals.of(means, spread),
        attacked=attacked,
        variance=variances,
        lower=table.lower,
        half_range=(table.upper - table.lower) / 2,
        scaling=table.scaling,
        encoding=protocol.encoding,
        parameters=protocol.parameters,
        bits=protocol.bits,
        bits_per_user=ahead.bits_per_user,
        chosen_bounds=table.chosen_bounds,
        privacy=replace(result.privacy, assumptions=assumptions),
        warnings=privacy.warnings(people),
        ahead=ahead,
        noise=Noise(error, central, paper),
        costs=result.costs,
        wire_bytes_per_user=result.costs.wire_bytes / result.reports.asked,
        reports=result.reports,
        run=RunSummary.of(result),
    )


def _held(attacked: bool) -> str:
    """What an interval holds."""
    mean = "the mean of these people, clipped to the public bounds"
    if attacked:
        return f"Under an attack no interval holds {mean}: it counts the noise alone."
    return f"The private mean ± that holds, 95 times in 100, {mean}."


def show(summary: Summary) -> None:
    """Print it for people."""
    run, noise, columns = summary.run, summary.noise, summary.columns
    console.print(
        f"\n[bold]{summary.table}[/]: {summary.people:,} people, {plural(len(columns), 'column')}, "
        f"{run.fidelity} messages, runtime {run.runtime}, {plural(run.workers, 'user shard')}"
    )
    console.print(f"Public scaling: {summary.scaling}.\n")
    if summary.unit is Unit.PERSON:
        console.print("The unit is the person: each counts once, with the mean of its records.\n")
    means = grid("column mean", "true", "true, clipped", "private", "± 95 %", "off, s.e.")
    for name, *numbers in zip(
        columns,
        summary.true,
        summary.true_clipped,
        summary.private,
        summary.standard_error * NORMAL_95,
        strict=True,
    ):
        _, clipped, private, reach = numbers
        off = f"{(private - clipped) / reach * NORMAL_95:+.1f}"
        means.add_row(name, *map(number, numbers), off)
    console.print(means)
    if summary.variance is not None:
        variances = grid("column variance", "true, clipped", "private", "95 % interval")
        each, trues = summary.variance, summary.true_clipped_variance
        assert trues is not None
        for name, true, private, low, high in zip(
            columns,
            trues,
            each.private,
            each.interval.low,
            each.interval.high,
            strict=True,
        ):
            ends_of = f"{number(low)} to {number(high)}"
            variances.add_row(name, number(true), number(private), ends_of)
        console.print(variances)
    console.print(
        "The true columns are the simulator's own view; the analyzer sees only the permuted "
        f"messages. {_held(summary.attacked)} Clipping is a bias of the bounds, not noise.\n"
    )
    print_privacy(summary.privacy, summary.warnings)
    print_bounds(summary.chosen_bounds)
    and_bounds = ", and a histogram for the bounds" if summary.chosen_bounds else ""
    sent = len(columns) * (1 if summary.variance is None else 2)
    print_costs(
        summary.bits_per_user,
        f"{sent} x {summary.bits:,}{and_bounds}; {shown(summary.encoding, summary.parameters)}",
        summary.costs,
        summary.reports,
    )
    paper = noise.paper
    print_fact(
        "Noise",
        f"{noise.standard_error_of_sum / noise.central:.3f} x the central Gaussian "
        f"({number(noise.standard_error_of_sum)} against {number(noise.central)} per "
        "coordinate of the sum)",
        f"the paper's constants (Theorem 3.2) do not apply: {paper.refused}"
        if paper.refused
        else f"the paper's constants (Theorem 3.2): {paper.ratio:,.0f} x this noise with "
        f"{paper.bits:,} bits per user and column",
    )
    print_reports(
        summary.reports,
        f"{summary.reports.clipped:,} rows above the norm bound, {summary.clipped_cells:,} cells "
        "outside the public bounds",
    )


def draw(summary: Summary) -> "Figure":
    """Private means beside the true ones."""
    half = summary.half_range
    middle = summary.lower + half
    places = np.arange(len(summary.columns))
    figure = new_figure(7, 1.5 + 0.22 * len(places))
    axes = figure.subplots()
    axes.errorbar(
        (summary.private - middle) / half,
        places,
        xerr=1.96 * summary.standard_error / half,
        fmt="o",
        ms=4,
        label="private, 95 % by predicted s.e.",
    )
    true = (summary.true_clipped - middle) / half
    axes.plot(true, places, "k|", ms=9, label="true, clipped")
    axes.set_yticks(places, summary.columns)
    axes.invert_yaxis()
    axes.set_xlabel("column mean, on the public range scaled to [-1, 1]")
    axes.set_title(
        f"{summary.table}: {summary.people} people, ε = {summary.privacy.epsilon:.3g}, δ = "
        f"{summary.privacy.delta:g}"
    )
    figure.legend(loc="outside lower center", ncols=2)  # beside the data, not over it
    return figure
