"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from protocols.selection.bounds import ChosenBounds
from protocols.sums.planned import PlannedSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli.counts import by_group
from shuffle_sim.cli.data import load
from shuffle_sim.cli.options import (
    Attacks,
    DataOptions,
    HostOptions,
    PrivacyOptions,
    Repeated,
    SumOptions,
    left_out,
)
from shuffle_sim.cli.pictures import MOST, TRUE, add_note, dress, legend, new_figure
from shuffle_sim.cli.running import Ahead, Running, RunSummary, announce, asked_of
from shuffle_sim.cli.show import (
    Drawn,
    console,
    details,
    encoded_as,
    notes,
    number,
    plural,
    print_bounds,
    print_costs,
    print_fact,
    print_privacy,
    print_reports,
    print_table,
)
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.moments import NORMAL_95, ColumnMoments, MomentIntervals, encoded, released
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import ReportCounts, Result
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
from shuffle_sim.privacy.trust import Trust
from shuffle_sim.protocol.encodings import NOISE_RATIO

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sum_command(
    data: DataOptions,
    privacy: PrivacyOptions,
    noise: SumOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    attack: Attacks = None,
    rounds: Repeated = 1,
    variance: Annotated[
        bool,
        typer.Option("--variance", help="Release variances, too: twice the numbers, more noise."),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(help="Column with public categories: count, sum and mean in each of them."),
    ] = None,
) -> None:
    """Release the column means of a table by a shuffle-private vector sum.

    Example: shuffle-sim sum --table breast-cancer --epsilon 1 --delta 1e-5 --runtime ray

    Example: shuffle-sim sum --file people.csv --columns age,income --bounds age=0:120 --bounds
    income=0:500000

    Example: shuffle-sim sum --file people.csv --columns age,income --choose-bounds 0.2

    Each day of a year, within one budget (see `shuffle-sim budget --help`):

    Example: shuffle-sim sum --file today.csv --bounds 0:9 --rounds 365 --budget year --report may-1
    --population customers

    With --person, a person counts once, with the mean of its records:

    Example: shuffle-sim sum --file visits.csv --person patient --bounds dose=0:10
    """
    if by is not None:
        useless = {"attack": attack, "variance": variance or None, "table": data.table}
        left_out(useless, "sum --by")
        left_out({**noise.given, "honest_fraction": None}, "sum --by")
        by_group(data, by, privacy, noise.honest_fraction, host, execution, output)
        return
    source, budget, share = load(data, target=False), privacy.budget, data.choose_bounds
    view = _view(source)  # one row for each user, in the table's units
    n, d = len(view.rows), len(source.columns) * (2 if variance else 1)

    def made(left: Privacy) -> Any:
        return noise.encoded(n, d, left, scalar=False, rounds=rounds)[1]

    asked = within = made(budget)
    if share is not None:
        if variance:
            raise ParameterError("variance", variance, "left out with --choose-bounds")
        asked = ChosenBounds.calibrated(
            made,
            n=n,
            by=view.row_map(view.scale.norm),
            privacy=budget,
            share=share,
            encoding=noise.encoding,
            honest_fraction=noise.honest_fraction,
        )
        within = asked.inner
    how = Running.of(host, execution, source, data.file)
    adversary = attacks(attack or [])
    rows = _rows(source, view, variance)
    ahead = how.ahead(asked, rows)
    fewer = _fewer(
        within,
        lambda ratio: _noisier(noise, ratio).encoded(n, d, budget, scalar=False, rounds=rounds),
    )
    start = announce(ahead, fewer, yes=how.yes, json=output.json)
    how = replace(how, options=how.options | {"adversary": adversary})
    result = how.run(asked, rows, on_start=start)
    accepted = result.reports.accepted
    if share is not None:
        found = result.value
        accepted = found.reports
        view = source = source.bounded(found.low, found.high)
        result = replace(result, value=found.value)
    facts = result, accepted, budget, variance, ahead, execution
    summary = summed_up(source, view, within, *facts, attacked=adversary is not None)
    output.present(summary, show, draw)


def _noisier(noise: SumOptions, ratio: float) -> SumOptions:
    return replace(noise, noise_ratio=ratio, max_bits=None)


def _view(table: Table) -> Table:
    """One row for each user: a record, or the mean of a person's records within the bounds."""
    if table.person is None:
        return table
    inside = np.clip(table.rows, table.lower, table.upper)
    means = PersonMeans(Persons.grouped(inside, table.person))
    return replace(table, rows=np.asarray(means.rows(0, means.users)), person=None)


def _fewer(protocol: Any, made: Callable[[float], tuple[str, Any]]) -> Iterator[str]:
    """What fewer bits would cost in accuracy."""
    for factor in (1.5, 2.0, 4.0):
        with suppress(ParameterError):
            other = made(factor * NOISE_RATIO)[1]
            if other.bits < protocol.bits:
                times = other.standard_error / protocol.standard_error
                bits = f"{other.d * other.bits:,} bits a user"
                yield f"--noise-ratio {factor * NOISE_RATIO:g}: {bits}, {times:.2f} x the error"


def _rows(table: Table, view: Table, variance: bool) -> Population:
    """What users send: a scaled row, and its squares if variances are asked for."""
    if table.free:
        return InMemory(view.rows)
    if table.person is None:
        return InMemory(encoded(view) if variance else view.scaled())
    if variance:
        return PersonMeans(Persons.grouped(encoded(view), np.arange(len(view.rows))))
    return PersonMeans(Persons.grouped(table.scaled(), table.person))


@dataclass(frozen=True)
class PaperSum:
    """The paper's constants for the same sum: bits per column, noise over ours; or why not."""

    bits: float | None = None
    ratio: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class NoiseReport:
    """Standard error of the sum, the central Gaussian's, and what the paper's constants give."""

    standard_error_of_sum: float
    central: float
    paper: PaperSum


@dataclass(frozen=True)
class SumReport:
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
    central = sigma(privacy.epsilon, privacy.delta, protocol.sensitivity)
    means, spread, variances = released(view, result.value, error, accepted, variance=variance)
    inside = np.clip(view.rows, view.lower, view.upper)
    assumptions = (*result.privacy.assumptions, *table.assumptions)
    return SumReport(
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
        noise=NoiseReport(error, central, paper),
        costs=result.costs,
        wire_bytes_per_user=result.costs.wire_bytes / result.reports.asked,
        reports=result.reports,
        run=RunSummary.of(result),
        execution=asked_of(execution),
    )


def _held(attacked: bool) -> str:
    """What an interval holds."""
    mean = "the mean of these people, clipped to the public bounds"
    if attacked:
        return f"Under an attack no interval holds {mean}: it counts the noise alone."
    return f"The private mean ± that holds, 95 times in 100, {mean}."


def show(summary: SumReport) -> None:
    """Print it for people."""
    run, noise, columns = summary.run, summary.noise, summary.columns
    details.print(
        f"{summary.table}: {summary.people:,} people, {plural(len(columns), 'column')}, "
        f"{run.fidelity} messages, runtime {run.runtime}, {plural(run.workers, 'user shard')}\n"
        f"Public scaling: {summary.scaling}.\n"
    )
    reach = "± noise" if summary.attacked else "± 95 %"
    heads = "column mean", "true", "true, clipped", "private", reach, "off, s.e."
    reaches = summary.standard_error * NORMAL_95
    each = summary.true, summary.true_clipped, summary.private, reaches
    off = ((summary.private - summary.true_clipped) / reaches * NORMAL_95).tolist()
    rows = zip(columns, *each, off, strict=True)
    print_table(heads, ([name, *map(number, row), f"{far:+.1f}"] for name, *row, far in rows))
    if (found := summary.variance) is not None and summary.true_clipped_variance is not None:
        ends = found.interval.low, found.interval.high
        variances = zip(columns, summary.true_clipped_variance, found.private, *ends, strict=True)
        print_table(
            ("column variance", "true, clipped", "private", "95 % interval"),
            (
                [name, number(true), number(private), f"{number(low)} to {number(high)}"]
                for name, true, private, low, high in variances
            ),
        )
    (console if summary.attacked else notes).print(_held(summary.attacked))
    notes.print("The true columns are the simulator's own view. Epsilon does not cover them.\n")
    if summary.unit is Unit.PERSON:
        print_fact("Unit", "the person: each counts once, with the mean of its records")
    print_privacy(summary.privacy, summary.warnings)
    print_bounds(summary.chosen_bounds)
    and_bounds = ", and a histogram for the bounds" if summary.chosen_bounds else ""
    sent = len(columns) * (1 if summary.variance is None else 2)
    print_costs(
        summary.bits_per_user,
        f"{sent} x {summary.bits:,}{and_bounds}; "
        f"{encoded_as(summary.encoding, summary.parameters)}",
        summary.costs,
        summary.reports,
    )
    paper = noise.paper
    print_fact(
        "Noise",
        f"{noise.standard_error_of_sum / noise.central:.3f} x the central Gaussian "
        f"({number(noise.standard_error_of_sum)} against {number(noise.central)})",
    )
    print_fact(
        "",
        f"the paper's constants (Theorem 3.2) do not apply: {paper.refused}"
        if paper.refused
        else f"the paper's constants (Theorem 3.2): {paper.ratio:,.0f} x this noise with "
        f"{paper.bits:,} bits per user and column",
        where=details,
    )
    print_reports(
        summary.reports,
        f"{summary.reports.clipped:,} rows above the norm bound, {summary.clipped_cells:,} cells "
        "outside the public bounds",
    )


def draw(summary: SumReport) -> "Figure":
    """Private means beside the true ones, each in the units of its column."""
    half, columns = summary.half_range, summary.columns
    middle, reach = summary.lower + half, NORMAL_95 * summary.standard_error
    shown = slice(0, MOST)
    places = np.arange(len(columns))[shown]
    figure = new_figure(7, 1.7 + 0.22 * len(places))
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
    axes.plot(true, places, TRUE, ms=9, label="true, clipped")
    each = zip(columns, summary.private, reach, strict=True)
    axes.set_yticks(
        places, [f"{name}: {number(mean)} ± {number(by)}" for name, mean, by in each][shown]
    )
    axes.invert_yaxis()
    part = number(100 * float(np.median(reach / (2 * half))))
    found = f"within ±{part} % of the range (median)"
    if summary.attacked:
        found = "under attack, no interval holds"
    dress(
        axes,
        f"Means of {summary.people:,} people at ε = {summary.privacy.epsilon:.3g}: {found}",
        "where in the public bounds (-1 to 1)",
    )
    legend(figure)
    if len(columns) > MOST:
        add_note(figure, f"{len(columns) - MOST:,} more columns are in the table.")
    return figure
