"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import options as o
from shuffle_sim.cli.ahead import Ahead, announce
from shuffle_sim.cli.data import declared_of, load
from shuffle_sim.cli.files import check_picture, new_figure
from shuffle_sim.cli.outcome import print_costs, print_fact, print_privacy, print_reports
from shuffle_sim.cli.running import RunOptions, RunSummary
from shuffle_sim.cli.show import console, grid, number, plural, present
from shuffle_sim.cli.sums import encoded_sum, shown
from shuffle_sim.data.moments import NORMAL_95, Intervals, Moments, encoded, released
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.forecast import forecast
from shuffle_sim.execution.result import SIMULATOR_VIEW, ReportCounts, Result
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import DELTA, Guarantee, Privacy
from shuffle_sim.protocol.encodings import NOISE_RATIO
from shuffle_sim.protocol.kinds import Encoded
from shuffle_sim.registry import registered

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
    variance: Moments | None
    lower: Floats
    half_range: Floats
    scaling: str
    encoding: str
    parameters: Mapping[str, Any]
    bits: int
    privacy: Guarantee
    warnings: tuple[str, ...]
    ahead: Ahead
    noise: Noise
    costs: Costs
    wire_bytes_per_user: float
    reports: ReportCounts
    run: RunSummary


def sum_command(
    table: o.TableName = None,
    file: o.File = None,
    columns: o.Columns = None,
    bounds: o.BoundsOption = None,
    schema: o.SchemaFile = None,
    missing: o.Missing = None,
    categories: o.Categories = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    thousands: o.Thousands = None,
    person: o.Person = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = DELTA,
    noise_ratio: o.NoiseRatio = None,
    max_bits: o.MaxBits = None,
    encoding: o.Encoding = None,
    honest_fraction: o.HonestFraction = 1.0,
    runtime: o.RuntimeName = "inprocess",
    address: o.Address = None,
    workers: o.Workers = "1",
    placement: o.Placement = "apart",
    fidelity: o.Fidelity = None,
    security: o.Security = "none",
    sealing_seconds: o.SealingSeconds = None,
    round_timeout: o.RoundTimeout = None,
    generator: o.GeneratorName = "sfc64",
    seed: o.Seed = None,
    attack: o.Attacks = None,
    checkpoint: o.Checkpoint = None,
    resume: o.Resume = False,
    variance: Annotated[
        bool,
        typer.Option("--variance", help="Release variances, too: twice the numbers, more noise."),
    ] = False,
    yes: o.Yes = False,
    json: o.Json = False,
    plot: o.Plot = None,
) -> None:
    """Release the column means of a table by a shuffle-private vector sum.

    Example: shuffle-sim sum --table breast-cancer --epsilon 1 --delta 1e-5 --runtime ray

    Example: shuffle-sim sum --file people.csv --columns age,income --bounds age=0:120 --bounds
    income=0:500000

    With --person, a person counts once, with the mean of its records:

    Example: shuffle-sim sum --file visits.csv --person patient --bounds dose=0:10
    """
    stated = declared_of(schema, missing, categories, delimiter, decimal, thousands)
    stated = replace(stated, target=None)  # a column like the others here
    source = load(table, file, columns, bounds, person=person, declared=stated)
    privacy = Privacy(epsilon, delta)
    view = _view(source)  # one row for each user, in the table's units
    people = len(view.rows)
    d = len(source.columns) * (2 if variance else 1)
    made = partial(
        encoded_sum,
        people,
        d,
        privacy,
        encoding=encoding,
        scalar=False,
        honest_fraction=honest_fraction,
    )
    _, protocol = made(noise_ratio=noise_ratio, max_bits=max_bits)
    check_picture(plot)
    how = RunOptions.of(
        runtime,
        address,
        workers,
        placement,
        fidelity,
        security,
        sealing_seconds,
        round_timeout,
        generator,
    )
    adversary = attacks(attack or [])
    ahead = Ahead.of(forecast(protocol, security=security), d, fidelity)
    start = announce(ahead, _fewer(protocol, made), yes=yes, json=json)
    rows = _rows(source, view, variance)
    saved: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume}
    result = how.run(protocol, rows, seed, adversary=adversary, on_start=start, **saved)
    assert isinstance(protocol, Encoded)
    summary = _summary(source, view, protocol, result, privacy, variance, ahead)
    present(summary, _print, _draw, json=json, plot=plot)


def _view(table: Table) -> Table:
    """One row for each user: a record, or the mean of a person's records within the bounds."""
    if table.person is None:
        return table
    inside = np.clip(table.rows, table.lower, table.upper)
    means = PersonMeans(Persons.grouped(inside, table.person))
    return replace(table, rows=np.asarray(means.rows(0, means.users)), person=None)


def _fewer(protocol: Any, made: Callable[..., tuple[str, Any]]) -> Iterator[str]:
    """What fewer bits would cost in accuracy."""
    for factor in (1.5, 2.0, 4.0):
        with suppress(ParameterError):
            other = made(noise_ratio=factor * NOISE_RATIO)[1]
            if other.bits < protocol.bits:
                times = other.standard_error / protocol.standard_error
                bits = f"{other.d * other.bits:,} bits a user"
                yield f"--noise-ratio {factor * NOISE_RATIO:g}: {bits}, {times:.2f} x the error"


def _rows(table: Table, view: Table, variance: bool) -> Population:
    """What users send: a scaled row, and its squares if variances are asked for."""
    if table.person is None:
        return InMemory(encoded(view) if variance else view.scaled())
    if variance:
        return PersonMeans(Persons.grouped(encoded(view), np.arange(len(view.rows))))
    return PersonMeans(Persons.grouped(table.scaled(), table.person))


def _summary(
    table: Table,
    view: Table,
    protocol: Encoded,
    result: Result,
    privacy: Privacy,
    variance: bool,
    ahead: Ahead,
) -> Summary:
    people, d = len(view.rows), len(table.columns) * (2 if variance else 1)
    accepted, error = result.reports.accepted, protocol.standard_error
    try:
        constants = registered("protocol", "vector-sum").paper(n=people, d=d, privacy=privacy)
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
        variance=variances,
        lower=table.lower,
        half_range=(table.upper - table.lower) / 2,
        scaling=table.scaling,
        encoding=protocol.encoding,
        parameters=protocol.parameters,
        bits=protocol.bits,
        privacy=replace(result.privacy, assumptions=assumptions),
        warnings=privacy.warnings(people),
        ahead=ahead,
        noise=Noise(error, central, paper),
        costs=result.costs,
        wire_bytes_per_user=result.costs.wire_bytes / result.reports.asked,
        reports=result.reports,
        run=RunSummary.of(result),
    )


def _print(summary: Summary) -> None:
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
        "messages. The private mean ± that holds, 95 times in 100, the mean of these people, "
        "clipped to the public bounds. Clipping is a bias of the bounds, not noise.\n"
    )
    print_privacy(summary.privacy, summary.warnings)
    sent = len(columns) * (1 if summary.variance is None else 2)
    print_costs(
        summary.costs.payload_bits_per_user,
        f"{sent} x {summary.bits:,}; {shown(summary.encoding, summary.parameters)}",
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


def _draw(summary: Summary) -> "Figure":
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
