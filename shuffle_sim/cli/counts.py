"""`shuffle-sim histogram`, `heavy-hitters`, `quantiles`, `sum --by`: how many, of which kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated

import numpy as np
import typer

from protocols.counts import GroupMeans, Histogram, Quantiles
from shuffle_sim.arrays import dense
from shuffle_sim.cli.counts_report import Counts, Groups, Ranks, Released, central_laplace
from shuffle_sim.cli.data import bounds_of
from shuffle_sim.cli.items import BLANK, Source, count_found, named, numbers, run_counts, show
from shuffle_sim.cli.options import (
    HONEST,
    OBJECTIVE,
    DataOptions,
    HonestFraction,
    HostOptions,
    PrivacyOptions,
    left_out,
    option,
)
from shuffle_sim.cli.show import Drawn
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.options import Execution

_SHARES = "0.05,0.25,0.5,0.75,0.95"


@dataclass(frozen=True)
class CountOptions:
    """How noise is made."""

    objective: str = field(default="messages", metadata={"option": OBJECTIVE})
    max_messages: float | None = option(None, "Messages that a user may send, on average.")
    honest_fraction: float = field(default=1.0, metadata={"option": HONEST})


def histogram_command(
    source: Source,
    privacy: PrivacyOptions,
    noise: CountOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    column: Annotated[str, typer.Option(help="Column of the file.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="pollution, two-sided, response, fixed-blanket or unary; default pollution."
        ),
    ] = None,
    across: Annotated[
        str | None, typer.Option("--with", help="Another column, for a two-way table.")
    ] = None,
    find: Annotated[
        bool,
        typer.Option(
            "--find", help="First find the texts that many users have; epsilon is of both."
        ),
    ] = False,
) -> None:
    """Count users by category: unbiased counts, shares, and certified ranges; by two columns, too.

    Example: shuffle-sim histogram --file visits.csv --column region --categories
    region=north,south,east,west

    Example: shuffle-sim histogram --file visits.csv --column region --schema visits.toml
    --objective error --plot regions.png

    Example: shuffle-sim histogram --file visits.csv --column page --find --epsilon 4
    """
    if find:
        given = {"max_messages": noise.max_messages, "method": method, "with": across}
        left_out(given | {"categories": source.categories}, "--find")
        honest = noise.honest_fraction
        count_found(source, column, privacy, honest, host, execution, output)
        return
    cells, declared = source.cells()
    columns = [column] if across is None else [column, across]
    kinds = [named(cells, declared, name, source.file) for name in columns]
    places = np.stack([places for _, places in kinds], axis=1)
    blank = (places == BLANK).any(axis=1)
    if method == "response" and blank.any():
        allowed = "another where cells are blank: each of its users has to send a category"
        raise ParameterError("method", method, allowed)
    sizes = tuple(len(each.classes) for each, _ in kinds)
    made = Histogram.calibrated(
        n=len(places),
        categories=sizes if len(sizes) > 1 else sizes[0],
        privacy=privacy.budget,
        method=method,
        **vars(noise),
    )
    rows = places if len(sizes) > 1 else places[:, 0]
    result = run_counts(made, rows, source, host, execution, json=output.json)
    value = np.asarray(result.value, float)
    ranges = made.interval(value, together=True, reports=result.reports.accepted)
    cell = dense(made.query(rows))
    true = np.bincount(np.asarray(cell, int)[cell >= 0], minlength=value.size).astype(float)
    summary = Counts(
        column=" x ".join(columns),
        categories=tuple(_crossed([each.classes for each, _ in kinds])),
        true=true,
        counts=value.ravel(),
        shares=value.ravel() / max(result.reports.accepted, 1),
        low=ranges.low.ravel(),
        high=ranges.high.ravel(),
        confidence=ranges.confidence,
        standard_error=math.sqrt(made.variance()),
        central_laplace=central_laplace(privacy.epsilon),
        run=Released.of(result, made, int(blank.sum())),
    )
    show(summary, output)


def _crossed(classes: Sequence[Sequence[str]]) -> list[str]:
    found = [""]
    for each in classes:
        found = [f"{one}, {two}" if one else two for one in found for two in each]
    return found


def quantiles_command(
    source: Source,
    privacy: PrivacyOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    column: Annotated[str, typer.Option(help="Column of the file.")],
    shares: Annotated[
        str, typer.Option(help="Parts of the users below each quantile, with commas between.")
    ] = _SHARES,
    leaves: Annotated[int, typer.Option(help="Cells of the range, at least.")] = 1024,
    honest_fraction: HonestFraction = 1.0,
) -> None:
    """Release quantiles and the whole distribution of a column, with certified ranges.

    Example: shuffle-sim quantiles --file visits.csv --column minutes --bounds minutes=0:240
    --plot minutes.png
    """
    cells, declared = source.cells()
    low, high = bounds_of(source.bounds or [], column, declared)
    values = numbers(cells, column, (low, high), declared.layout.marks, source.file)
    asked = tuple(_share(text) for text in shares.split(","))
    made = Quantiles.calibrated(
        n=len(values),
        low=low,
        high=high,
        privacy=privacy.budget,
        leaves=leaves,
        honest_fraction=honest_fraction,
    )
    result = run_counts(made, values, source, host, execution, json=output.json)
    found, inside = result.value, np.clip(values, low, high)
    ends = np.array([found.interval(share) for share in asked])
    summary = Ranks(
        column=column,
        unit=getattr(declared.columns.get(column), "unit", None) or "",
        shares=asked,
        true=np.quantile(inside, asked),
        values=np.array([found.quantile(share) for share in asked]),
        low=ends[:, 0],
        high=ends[:, 1],
        confidence=0.95,
        standard_error_ranks=float(made.standard_errors.max()),
        run=Released.of(result, made),
        edges=found.edges,
        ranks=found.ranks,
        band=found.band(),
        true_ranks=np.searchsorted(np.sort(inside), found.edges, side="left").astype(float),
    )
    show(summary, output)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError("shares", text, "numbers from 0 to 1, such as 0.25,0.5") from None


def by_group(
    data: DataOptions,
    by: str,
    privacy: PrivacyOptions,
    honest_fraction: float,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
) -> None:
    """Counts, sums and means of one column in each category of another.

    Raises:
        ParameterError: not one column with public bounds, or a group without public categories.
    """
    if data.columns is None or "," in data.columns:
        raise ParameterError("columns", data.columns, "one column with --by")
    column = data.columns.strip()
    known = {each.name: getattr(data, each.name) for each in fields(Source)}
    source = Source(**known)
    cells, declared = source.cells()
    low, high = bounds_of(source.bounds or [], column, declared)
    values = numbers(cells, column, (low, high), declared.layout.marks, source.file)
    kind, places = named(cells, declared, by, source.file)
    made = GroupMeans.calibrated(
        n=len(values),
        groups=len(kind.classes),
        low=low,
        high=high,
        privacy=privacy.budget,
        honest_fraction=honest_fraction,
    )
    rows = np.stack([places, values], axis=1)
    result = run_counts(made, rows, source, host, execution, json=output.json)
    table, inside = result.value, np.clip(values, low, high)
    ranges = made.interval(table)
    members = [inside[places == at] for at in range(len(kind.classes))]
    summary = Groups(
        column=column,
        by=by,
        groups=kind.classes,
        true_means=np.array([each.mean() if each.size else math.nan for each in members]),
        counts=table.counts,
        sums=table.sums,
        means=table.means,
        mean_low=ranges.means[:, 0],
        mean_high=ranges.means[:, 1],
        confidence=ranges.confidence,
        run=Released.of(result, made, int((places == BLANK).sum())),
    )
    show(summary, output)
