"""`shuffle-sim sum`: a private vector sum on real data, shown as column means."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from protocols.selection.bounds import ChosenBounds
from protocols.sums.planned import PlannedSum
from shuffle_sim.attacks.catalogue import attacks
from shuffle_sim.cli import options as o
from shuffle_sim.cli.ahead import announce
from shuffle_sim.cli.data import declared_of, load
from shuffle_sim.cli.files import check_picture
from shuffle_sim.cli.running import RunOptions
from shuffle_sim.cli.show import present
from shuffle_sim.cli.sum_report import draw, show, summed_up
from shuffle_sim.cli.sums import encoded_sum
from shuffle_sim.data.moments import encoded
from shuffle_sim.data.persons import PersonMeans, Persons
from shuffle_sim.data.population import InMemory, Population
from shuffle_sim.data.tables import Table
from shuffle_sim.errors import ParameterError
from shuffle_sim.privacy.guarantee import DELTA, Privacy
from shuffle_sim.protocol.encodings import NOISE_RATIO


def sum_command(
    context: typer.Context,
    table: o.TableName = None,
    file: o.File = None,
    columns: o.Columns = None,
    bounds: o.BoundsOption = None,
    choose_bounds: o.ChooseBounds = None,
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

    Example: shuffle-sim sum --file people.csv --columns age,income --choose-bounds 0.2

    With --person, a person counts once, with the mean of its records:

    Example: shuffle-sim sum --file visits.csv --person patient --bounds dose=0:10
    """
    marks = delimiter, decimal, thousands
    stated = declared_of(schema, missing, categories, *marks, choose_bounds)
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
        encoding=encoding,
        scalar=False,
        honest_fraction=honest_fraction,
    )
    asked = within = made(privacy=privacy, noise_ratio=noise_ratio, max_bits=max_bits)[1]
    if choose_bounds is not None:
        if variance:
            raise ParameterError("variance", variance, "left out with --choose-bounds")
        asked = ChosenBounds.calibrated(
            lambda left: made(privacy=left, noise_ratio=noise_ratio, max_bits=max_bits)[1],
            n=people,
            by=view.row_map(view.scale.norm),
            privacy=privacy,
            share=choose_bounds,
            encoding=encoding,
            honest_fraction=honest_fraction,
        )
        within = asked.inner
    check_picture(plot)
    how = RunOptions.given(context)
    adversary = attacks(attack or [])
    rows = _rows(source, view, variance)
    ahead = how.ahead(asked, rows)
    start = announce(ahead, _fewer(within, partial(made, privacy=privacy)), yes=yes, json=json)
    saved: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume}
    result = how.run(asked, rows, seed, adversary=adversary, on_start=start, **saved)
    accepted = result.reports.accepted
    if choose_bounds is not None:
        found = result.value
        accepted = found.reports
        view = source = source.bounded(found.low, found.high)
        result = replace(result, value=found.value)
    assert isinstance(within, PlannedSum)
    given = source, view, within, result, accepted, privacy, variance, ahead
    summary = summed_up(*given, attacked=adversary is not None)
    present(summary, show, draw, json=json, plot=plot)


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
    if table.free:
        return InMemory(view.rows)
    if table.person is None:
        return InMemory(encoded(view) if variance else view.scaled())
    if variance:
        return PersonMeans(Persons.grouped(encoded(view), np.arange(len(view.rows))))
    return PersonMeans(Persons.grouped(table.scaled(), table.person))
