"""What `shuffle-sim sum` released: printed and drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from protocols.sums.planned import PlannedSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.arrays import Floats
from shuffle_sim.cli import show
from shuffle_sim.cli.running import Ahead, RunSummary, asked_of
from shuffle_sim.data.column_kinds import Date
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.moments import NORMAL_95, ColumnMoments, MomentIntervals, released
from shuffle_sim.data.population import Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.privacy.bounds.central import best
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PaperSum:
    """The paper's constants for the same sum: bits per column, noise over ours; or why not."""

    bits: float | None = None
    ratio: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class NoiseReport:
    """Standard error of the sum, of central noises, and what the paper's constants give."""

    standard_error_of_sum: float
    central: float
    best_central: float
    best_central_noise: str
    paper: PaperSum


@dataclass(frozen=True)
class SumReport:
    """A released table of column means, in the table's own units; `dates`: means that are days."""

    table: str
    people: int
    unit: Unit
    columns: tuple[str, ...]
    dates: Mapping[str, str]
    true: Floats = field(metadata=SIMULATOR_VIEW)
    true_clipped: Floats = field(metadata=SIMULATOR_VIEW)
    true_clipped_variance: Floats | None = field(metadata=SIMULATOR_VIEW)
    clipped_cells: int = field(metadata=SIMULATOR_VIEW)
    private: Floats
    standard_error: Floats
    interval: MomentIntervals
    attacked: bool
    variance: ColumnMoments | None
    lower: Floats
    half_range: Floats
    scaling: str
    encoding: str
    parameters: Mapping[str, Any]
    bits: float
    bits_per_user: float
    chosen_bounds: dict[str, Bounds]
    privacy: Guarantee
    warnings: tuple[str, ...]
    ahead: Ahead
    noise: NoiseReport
    costs: Costs
    wire_bytes_per_user: float
    reports: ReportCounts
    run: RunSummary
    execution: Mapping[str, Any]


def summed_up(
    table: Table,
    view: Table,
    protocol: PlannedSum,
    result: Result,
    accepted: int,
    privacy: Privacy,
    variance: bool,
    rounds: int,
    ahead: Ahead,
    execution: Execution,
    *,
    attacked: bool,
) -> SumReport:
    """Of a run that is over."""
    people, d = len(view.rows), len(table.columns) * (2 if variance else 1)
    error = protocol.standard_error
    try:
        constants = VectorSum.paper(n=people, d=d, privacy=privacy)
        paper = PaperSum(constants.bits, constants.standard_error / error)
    except ParameterError as why:
        paper = PaperSum(refused=str(why))
    least, least_noise = best(privacy.epsilon, privacy.delta, d, rounds)
    central = sigma(privacy.epsilon, privacy.delta, protocol.sensitivity) * rounds**0.5
    means, spread, variances = released(view, result.value, error, accepted, variance=variance)
    inside = np.clip(view.rows, view.lower, view.upper)
    assumptions = (*result.privacy.assumptions, *table.assumptions)
    return SumReport(
        table=table.name,
        people=people,
        columns=table.columns,
        dates=_dates(table, means),
        true=view.rows.mean(axis=0),
        true_clipped=inside.mean(axis=0),
        true_clipped_variance=inside.var(axis=0) if variance else None,
        unit=result.unit,
        clipped_cells=table.clipped_cells,
        private=means,
        standard_error=spread,
        interval=MomentIntervals.of(means, spread),
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
        noise=NoiseReport(error, central, least * protocol.sensitivity, least_noise, paper),
        costs=result.costs,
        wire_bytes_per_user=result.costs.wire_bytes / result.reports.asked,
        reports=result.reports,
        run=RunSummary.of(result),
        execution=asked_of(execution),
    )


def _dates(table: Table, means: Floats) -> dict[str, str]:
    """Private means of dates, as dates."""
    kinds = {each.name for each in table.schema.columns if isinstance(each, Date)}
    days = np.floor(np.clip(means, -1e6, 1e6)).astype("datetime64[D]")  # noise may go beyond
    return {name: str(day) for name, day in zip(table.columns, days, strict=True) if name in kinds}


def _held(attacked: bool) -> str:
    """What an interval holds."""
    mean = "the mean of these people, clipped to the public bounds"
    if attacked:
        return f"Under an attack no interval holds {mean}: it counts the noise alone."
    return f"The private mean ± that holds, 95 times in 100, {mean}."


def print_report(summary: SumReport) -> None:
    """Print it for people."""
    run, noise, columns = summary.run, summary.noise, summary.columns
    show.details.print(
        f"{summary.table}: {summary.people:,} people, {show.plural(len(columns), 'column')}, "
        f"{run.fidelity} messages, runtime {run.runtime}, "
        f"{show.plural(run.workers, 'user shard')}\nPublic scaling: {summary.scaling}.\n"
    )
    reach = "± noise" if summary.attacked else "± 95 %"
    heads = "column mean", "true", "true, clipped", "private", reach, "off, s.e."
    reaches = summary.standard_error * NORMAL_95
    each = summary.true, summary.true_clipped, summary.private, reaches
    off = ((summary.private - summary.true_clipped) / reaches * NORMAL_95).tolist()
    rows = zip(columns, *each, off, strict=True)
    show.print_table(
        heads, ([name, *map(show.number, row), f"{far:+.1f}"] for name, *row, far in rows)
    )
    if (found := summary.variance) is not None and summary.true_clipped_variance is not None:
        ends = found.interval.low, found.interval.high
        variances = zip(columns, summary.true_clipped_variance, found.private, *ends, strict=True)
        show.print_table(
            ("column variance", "true, clipped", "private", "95 % interval"),
            (
                [
                    name,
                    show.number(true),
                    show.number(private),
                    f"{show.number(low)} to {show.number(high)}",
                ]
                for name, true, private, low, high in variances
            ),
        )
    for name, date in summary.dates.items():
        show.notes.print(f"{name} is in days since 1970-01-01: its private mean is {date}.")
    (show.console if summary.attacked else show.notes).print(_held(summary.attacked))
    show.notes.print(
        "The true columns are the simulator's own view. Epsilon does not cover them.\n"
    )
    if summary.unit is Unit.PERSON:
        show.print_fact("Unit", "the person: each counts once, with the mean of its records")
    show.print_privacy(summary.privacy, summary.warnings)
    show.print_bounds(summary.chosen_bounds)
    and_bounds = ", and a histogram for the bounds" if summary.chosen_bounds else ""
    sent = len(columns) * (1 if summary.variance is None else 2)
    show.print_costs(
        summary.bits_per_user,
        f"{sent} x {summary.bits:,}{and_bounds}; "
        f"{show.encoded_as(summary.encoding, summary.parameters)}",
        summary.costs,
        summary.reports,
    )
    paper = noise.paper
    show.print_fact(
        "Noise",
        f"{noise.standard_error_of_sum / noise.central:.3f} x the central Gaussian "
        f"({show.number(noise.standard_error_of_sum)} against {show.number(noise.central)})",
    )
    if noise.best_central_noise != "Gaussian":
        ratio = noise.standard_error_of_sum / noise.best_central
        show.print_fact("", f"{ratio:.3f} x the best central noise ({noise.best_central_noise})")
    show.print_fact(
        "",
        f"the paper's constants (Theorem 3.2) do not apply: {paper.refused}"
        if paper.refused
        else f"the paper's constants (Theorem 3.2): {paper.ratio:,.0f} x this noise with "
        f"{paper.bits:,} bits per user and column",
        where=show.details,
    )
    show.print_reports(
        summary.reports,
        f"{summary.reports.clipped:,} rows above the norm bound, {summary.clipped_cells:,} cells "
        "outside the public bounds",
    )


def draw(summary: SumReport) -> "Figure":
    """Private means beside the true ones, each in the units of its column."""
    half, columns = summary.half_range, summary.columns
    middle, reach = summary.lower + half, NORMAL_95 * summary.standard_error
    shown = slice(0, show.MOST)
    places = np.arange(len(columns))[shown]
    figure = show.new_figure(7, 1.7 + 0.22 * len(places))
    axes = figure.subplots()
    axes.errorbar(
        ((summary.private - middle) / half)[shown],
        places,
        xerr=(reach / half)[shown],
        fmt="o",
        ms=4,
        color=Trust.SHUFFLE.colour,
        label="private, noise of 95 %" if summary.attacked else "private, 95 %",
    )
    true = ((summary.true_clipped - middle) / half)[shown]
    axes.plot(true, places, show.TRUE, ms=9, label="true, clipped")
    each = zip(columns, summary.private, reach, strict=True)
    axes.set_yticks(
        places,
        [f"{name}: {show.number(mean)} ± {show.number(by)}" for name, mean, by in each][shown],
    )
    axes.invert_yaxis()
    part = show.number(100 * float(np.median(reach / (2 * half))))
    found = f"within ±{part}\u00a0% of the range (median)"
    if summary.attacked:
        found = "under attack, no interval holds"
    show.dress(
        axes,
        f"Means of {summary.people:,} people at ε = {summary.privacy.epsilon:.3g}: {found}",
        "where in the public bounds (-1 to 1)",
    )
    show.legend(figure)
    if len(columns) > show.MOST:
        show.add_note(figure, f"{len(columns) - show.MOST:,} more columns are in the table.")
    return figure
