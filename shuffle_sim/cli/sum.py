"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import options as o
from shuffle_sim.cli.data import load
from shuffle_sim.cli.files import check_picture, new_figure
from shuffle_sim.cli.outcome import print_costs, print_fact, print_privacy, print_reports
from shuffle_sim.cli.running import RunOptions, RunSummary
from shuffle_sim.cli.show import console, grid, number, plural, present
from shuffle_sim.cli.sums import encoded_sum, shown
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population, Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.result import SIMULATOR_VIEW, ReportCounts, Result
from shuffle_sim.privacy.bounds.gaussian import sigma
from shuffle_sim.privacy.guarantee import Guarantee, Privacy
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
    clipped_cells: int = field(metadata=SIMULATOR_VIEW)
    private: Floats
    standard_error: Floats
    lower: Floats
    half_range: Floats
    scaling: str
    encoding: str
    parameters: Mapping[str, Any]
    bits: int
    privacy: Guarantee
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
    person: o.Person = None,
    epsilon: o.Epsilon = 1.0,
    delta: o.Delta = 1e-5,
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
    source, privacy = load(table, file, columns, bounds, person=person), Privacy(epsilon, delta)
    rows = _rows(source)
    people, d = rows.users, len(source.columns)
    _, protocol = encoded_sum(
        people,
        d,
        privacy,
        encoding=encoding,
        scalar=False,
        noise_ratio=noise_ratio,
        max_bits=max_bits,
        honest_fraction=honest_fraction,
    )
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
    result = how.run(
        protocol, rows, seed, adversary=adversary, checkpoint=checkpoint, resume=resume
    )
    assert isinstance(protocol, Encoded)
    true = source.means(np.asarray(rows.rows(0, people)).sum(axis=0), people)
    summary = _summary(source, people, true, protocol, result, privacy)
    present(summary, _print, _draw, json=json, plot=plot)


def _rows(table: Table) -> Population:
    """One row for each user: a record, or the mean of a person's records."""
    if table.person is None:
        return InMemory(table.scaled())
    return PersonMeans(Persons.grouped(table.scaled(), table.person))


def _summary(
    table: Table,
    people: int,
    true: Floats,
    protocol: Encoded,
    result: Result,
    privacy: Privacy,
) -> Summary:
    d = len(table.columns)
    accepted, error = result.reports.accepted, protocol.standard_error
    try:
        constants = registered("protocol", "vector-sum").paper(n=people, d=d, privacy=privacy)
        paper = Paper(constants.bits, constants.standard_error / error)
    except ParameterError as why:
        paper = Paper(refused=str(why))
    central = sigma(privacy.epsilon, privacy.delta, protocol.sensitivity)
    return Summary(
        table=table.name,
        people=people,
        columns=table.columns,
        true=true if table.person is not None else table.rows.mean(axis=0),
        unit=result.unit,
        clipped_cells=table.clipped_cells,
        private=table.means(result.value, accepted),
        standard_error=table.spread(error, accepted),
        lower=table.lower,
        half_range=(table.upper - table.lower) / 2,
        scaling=table.scaling,
        encoding=protocol.encoding,
        parameters=protocol.parameters,
        bits=protocol.bits,
        privacy=result.privacy,
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
    means = grid("column mean", "true", "private", "predicted s.e.", "off by")
    for name, *numbers in zip(
        columns, summary.true, summary.private, summary.standard_error, strict=True
    ):
        true, private, error = numbers
        means.add_row(name, *map(number, numbers), f"{(private - true) / error:+.1f} s.e.")
    console.print(means)
    console.print(
        "The true column is the simulator's own view; the analyzer sees only the permuted "
        "messages.\n"
    )
    print_privacy(summary.privacy)
    print_costs(
        summary.costs.payload_bits_per_user,
        f"{len(columns)} x {summary.bits:,}; {shown(summary.encoding, summary.parameters)}",
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
    axes.plot((summary.true - middle) / half, places, "k|", ms=9, label="true")
    axes.set_yticks(places, summary.columns)
    axes.invert_yaxis()
    axes.set_xlabel("column mean, on the public range scaled to [-1, 1]")
    axes.set_title(
        f"{summary.table}: {summary.people} people, ε = {summary.privacy.epsilon:.3g}, δ = "
        f"{summary.privacy.delta:g}"
    )
    figure.legend(loc="outside lower center", ncols=2)  # beside the data, not over it
    return figure
