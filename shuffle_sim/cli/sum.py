"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from protocols.comparison.plans import NoiseReport
from protocols.selection.bounds import ChosenBounds
from protocols.sums.planned import PlannedSum
from shuffle_sim.arrays import Floats
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import show
from shuffle_sim.cli.audit import audited
from shuffle_sim.cli.counts import CountsRun, by_group
from shuffle_sim.cli.data import Source, load
from shuffle_sim.cli.options import (
    ATTACK,
    ROUNDS,
    DataOptions,
    HostOptions,
    PrivacyOptions,
    SumOptions,
    left_out,
    option,
)
from shuffle_sim.cli.running import Ahead, Running, announce
from shuffle_sim.data.columns import Bounds
from shuffle_sim.data.moments import (
    NORMAL_95,
    ColumnMoments,
    MomentIntervals,
    of_users,
    per_user,
    released,
)
from shuffle_sim.data.population import Unit
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError, refuse_given
from shuffle_sim.execution.costs import Costs
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.plain import SIMULATOR_VIEW
from shuffle_sim.execution.result import ReportCounts, Result, RunSummary
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
    output: show.Drawn,
    attack: list[str] | None = ATTACK,
    rounds: int = ROUNDS,
    variance: bool = option(
        False, "Release variances, too: twice the numbers, more noise.", "--variance"
    ),
    by: str | None = option(
        None, "Column with public categories: count, sum and mean in each of them."
    ),
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
    more: dict[str, Any] = {"variance": variance or None}
    if by is not None:
        taken = dict.fromkeys(["honest_fraction", "columns", *vars(Source())])
        left_out({"attack": attack, **more, **noise.given, **vars(data), **taken}, "sum --by")
        file = Source(**{each.name: getattr(data, each.name) for each in fields(Source)})
        counted = CountsRun(file, privacy, host, execution, output)
        by_group(counted, data.columns, by, noise.honest_fraction, rounds)
        return
    source, budget, share = load(data, target=False), privacy.budget, data.choose_bounds
    view = per_user(source)  # one row for each user, in the table's units
    n, d = len(view.rows), len(source.columns) * (2 if variance else 1)
    spec: dict[str, Any] = {"n": n, "d": d, "scalar": False, "rounds": rounds}

    def made(left: Privacy) -> Any:
        return noise.encoded(privacy=left, **spec)[1]

    asked = within = made(budget)
    if share is not None:
        more["rounds"] = None if rounds == 1 else rounds  # each would choose, and pay, again
        refuse_given(more, "left out with --choose-bounds")
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
    rows = of_users(source, view, variance=variance)
    how = how.having(adversary=adversary)
    audited(how, budget, output, asked, rows, rounds)
    ahead = how.ahead(asked, rows)
    fewer = _fewer(noise, within, privacy=budget, **spec)
    start = announce(ahead, fewer, yes=how.yes, json=output.json)
    result = how.run(asked, rows, on_start=start)
    accepted = result.reports.accepted
    if share is not None:
        found, accepted = result.value, result.value.reports
        view = source = source.bounded(found.low, found.high)
        result = replace(result, value=found.value)
    facts = result, accepted, budget, rounds, ahead, how
    output.present(_summed_up(source, view, within, *facts, variance=variance), _print, _draw)


def _fewer(noise: SumOptions, protocol: Any, **spec: Any) -> Iterator[str]:
    """What fewer bits would cost in accuracy."""
    for ratio in (1.5 * NOISE_RATIO, 2.0 * NOISE_RATIO, 4.0 * NOISE_RATIO):
        with suppress(ParameterError):
            other = replace(noise, noise_ratio=ratio, max_bits=None).encoded(**spec)[1]
            if other.bits < protocol.bits:
                times = other.standard_error / protocol.standard_error
                bits = f"{other.d * other.bits:,} bits a user"
                yield f"--noise-ratio {ratio:g}: {bits}, {times:.2f} x the error"


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


def _summed_up(
    table: Table,
    view: Table,
    protocol: PlannedSum,
    result: Result,
    accepted: int,
    privacy: Privacy,
    rounds: int,
    ahead: Ahead,
    how: Running,
    *,
    variance: bool,
) -> SumReport:
    """Of a run that is over."""
    people, d = len(view.rows), len(table.columns) * (2 if variance else 1)
    noise = NoiseReport.of(protocol, people, d, privacy, rounds)
    # Of those who reported: users who are absent add no noise.
    error = float(np.sqrt(protocol.randomizer.variance(accepted)[0]))
    means, spread, variances = released(view, result.value, error, accepted, variance=variance)
    inside = np.clip(view.rows, view.lower, view.upper)
    return SumReport(
        table=table.name,
        people=people,
        columns=table.columns,
        dates=table.dates(means),
        true=per_user(table, clip=False).rows.mean(axis=0),
        true_clipped=inside.mean(axis=0),
        true_clipped_variance=inside.var(axis=0) if variance else None,
        unit=result.unit,
        clipped_cells=table.clipped_cells,
        private=means,
        standard_error=spread,
        interval=MomentIntervals.of(means, spread),
        attacked=how.options["adversary"] is not None,
        variance=variances,
        lower=table.lower,
        half_range=(table.upper - table.lower) / 2,
        scaling=table.scaling,
        encoding=protocol.encoding,
        parameters=protocol.parameters,
        bits=protocol.bits,
        bits_per_user=ahead.bits_per_user,
        chosen_bounds=table.chosen_bounds,
        privacy=result.privacy.assuming(*table.assumptions),
        warnings=privacy.warnings(people),
        ahead=ahead,
        noise=noise,
        costs=result.costs,
        wire_bytes_per_user=result.costs.wire_bytes / result.reports.asked,
        reports=result.reports,
        run=RunSummary.of(result),
        execution=how.execution.asked,
    )


def _print(summary: SumReport) -> None:
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
    cells = ([name, *map(show.number, row), f"{far:+.1f}"] for name, *row, far in rows)
    show.print_table(heads, cells)
    if (found := summary.variance) is not None and summary.true_clipped_variance is not None:
        ends = found.interval.low, found.interval.high
        variances = zip(columns, summary.true_clipped_variance, found.private, *ends, strict=True)
        numbers = ([each[0], *map(show.number, each[1:])] for each in variances)
        ranges = ((*known, f"{low} to {high}") for *known, low, high in numbers)
        show.print_table(("column variance", "true, clipped", "private", "95 % interval"), ranges)
    for name, date in summary.dates.items():
        show.notes.print(f"{name} is in days since 1970-01-01: its private mean is {date}.")
    mean = "the mean of these people, clipped to the public bounds"
    if summary.attacked:
        show.console.print(f"Under an attack no interval holds {mean}: it counts the noise alone.")
    else:
        show.notes.print(f"The private mean ± that holds, 95 times in 100, {mean}.")
    view = "The true columns are the simulator's own view. Epsilon does not cover them.\n"
    show.notes.print(view)
    if summary.unit is Unit.PERSON:
        show.print_fact("Unit", "the person: each counts once, with the mean of its records")
    show.print_privacy(summary.privacy, summary.warnings)
    show.print_bounds(summary.chosen_bounds)
    sent = len(columns) * (1 if summary.variance is None else 2)
    made_of = f"{sent} x {summary.bits:,}"
    made_of += ", and a histogram for the bounds" * bool(summary.chosen_bounds)
    made_of += "; " + show.encoded_as(summary.encoding, summary.parameters)
    show.print_costs(summary.bits_per_user, made_of, summary.costs, summary.reports)
    paper, ours = noise.paper, noise.standard_error_of_sum
    against = f"{show.number(ours)} against {show.number(noise.central)}"
    show.print_fact("Noise", f"{ours / noise.central:.3f} x the central Gaussian ({against})")
    if noise.best_central_noise != "Gaussian":
        ratio = ours / noise.best_central
        show.print_fact("", f"{ratio:.3f} x the best central noise ({noise.best_central_noise})")
    theirs = f" do not apply: {paper.refused}"
    if not paper.refused:
        theirs = f": {paper.ratio:,.0f} x this noise with {paper.bits:,} bits per user and column"
    show.print_fact("", f"the paper's constants (Theorem 3.2){theirs}", where=show.details)
    clipped = f"{summary.reports.clipped:,} rows above the norm bound"
    clipped += f", {summary.clipped_cells:,} cells outside the public bounds"
    show.print_reports(summary.reports, clipped, summary.costs.rounds)
    if summary.unit is not Unit.PERSON:  # whose cells are of all records
        show.print_outside(summary.clipped_cells, summary.people * len(columns))


def _draw(summary: SumReport) -> "Figure":
    """Private means beside the true ones, each in the units of its column."""
    half, columns = summary.half_range, summary.columns
    middle, reach = summary.lower + half, NORMAL_95 * summary.standard_error
    alike = not np.ptp(half) and not np.ptp(middle)  # then one axis in units of the data
    unit, zero = (half, middle) if not alike else (np.ones_like(half), np.zeros_like(half))
    places = np.arange(min(len(columns), show.MOST))
    axes = show.new_axes(7, 1.7 + 0.22 * len(places))
    axes.errorbar(
        ((summary.private - zero) / unit)[places],
        places,
        xerr=(reach / unit)[places],
        fmt="o",
        ms=4,
        color=Trust.SHUFFLE.colour,
        label="private, noise of 95 %" if summary.attacked else "private, 95 %",
    )
    true = ((summary.true_clipped - zero) / unit)[places]
    axes.plot(true, places, show.TRUE, ms=9, label="true, clipped")
    each = zip(columns, map(show.number, summary.private), map(show.number, reach), strict=True)
    axes.set_yticks(places, [f"{name}: {mean} ± {by}" for name, mean, by in each][: show.MOST])
    axes.set_ylim(len(places) - 0.5, -0.5)
    part = show.number(100 * float(np.median(reach / (2 * half))))
    within = f"within ±{part}\u00a0% of the range (median)"
    found = "under attack, no interval holds" if summary.attacked else within
    beyond = f"{len(columns) - show.MOST:,} more columns are in the table."
    return show.finish(
        axes,
        f"Means of {summary.people:,} people at ε = {summary.privacy.epsilon:.3g}: {found}",
        "mean" if alike else "where in the public bounds (-1 to 1)",
        notes=[beyond] * (len(columns) > show.MOST),
    )
