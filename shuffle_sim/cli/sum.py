"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from protocols.selection.bounds import ChosenBounds
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import sum_report
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
from shuffle_sim.cli.running import Running, announce
from shuffle_sim.cli.show import Drawn
from shuffle_sim.data.moments import encoded
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.options import Execution
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.protocol.encodings import NOISE_RATIO


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
        left_out({**useless, **noise.given, "honest_fraction": None}, "sum --by")
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
    fewer = _fewer(within, partial(_noisier, noise, n=n, d=d, privacy=budget, rounds=rounds))
    start = announce(ahead, fewer, yes=how.yes, json=output.json)
    how = replace(how, options=how.options | {"adversary": adversary})
    result = how.run(asked, rows, on_start=start)
    accepted = result.reports.accepted
    if share is not None:
        found, accepted = result.value, result.value.reports
        view = source = source.bounded(found.low, found.high)
        result = replace(result, value=found.value)
    facts = result, accepted, budget, variance, rounds, ahead, execution
    summary = sum_report.summed_up(source, view, within, *facts, attacked=adversary is not None)
    output.present(summary, sum_report.print_report, sum_report.draw)


def _noisier(noise: SumOptions, ratio: float, **spec: Any) -> tuple[str, Any]:
    return replace(noise, noise_ratio=ratio, max_bits=None).encoded(**spec, scalar=False)


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
