"""`shuffle-sim histogram`, `heavy-hitters`, `quantiles`, `sum --by`: how many, of which kind."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from protocols.counts import (
    GroupMeans,
    HeavyHitters,
    Histogram,
    Quantiles,
    columns_of,
    prefix_of,
    text_of,
)
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.cli.counts_report import Counts, Found, Groups, Heavy, Ranks, Released
from shuffle_sim.cli.data import bounds_of, declared_of
from shuffle_sim.cli.declared import option, same
from shuffle_sim.cli.options import (
    OBJECTIVE,
    DataOptions,
    HonestFraction,
    HostOptions,
    LayoutOptions,
    PrivacyOptions,
    SumOptions,
)
from shuffle_sim.cli.running import Running, announce
from shuffle_sim.cli.show import Drawn
from shuffle_sim.data.column_kinds import Named, Number
from shuffle_sim.data.columns import Marks, unique_texts
from shuffle_sim.data.file_columns import column_in
from shuffle_sim.data.file_columns import columns_of as columns_in
from shuffle_sim.data.schema import Declared
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result

if TYPE_CHECKING:
    pass

_TEXT = 8  # bytes of a text that a heavy hitter is known by
_SHARES = "0.05,0.25,0.5,0.75,0.95"


@dataclass(frozen=True)
class Source(LayoutOptions):
    """A file, and what is public of its columns."""

    file: Path | None = same(DataOptions, "file")
    categories: list[str] | None = same(DataOptions, "categories")
    bounds: list[str] | None = same(DataOptions, "bounds")
    schema: Path | None = same(DataOptions, "schema")

    def cells(self) -> tuple[dict[str, Any], Declared]:
        """The columns of the file by name, and what is stated of them.

        Raises:
            ParameterError: no file, or one that cannot be read.
        """
        if self.file is None:
            raise ParameterError("file", None, "given")
        layout = {each.name: getattr(self, each.name) for each in fields(LayoutOptions)}
        declared = declared_of(
            DataOptions(**layout, schema=self.schema, categories=self.categories)
        )
        texts = list(declared.columns)
        return columns_in(self.file, declared.layout, texts), declared


@dataclass(frozen=True)
class CountOptions:
    """How noise is made."""

    objective: str = field(default="messages", metadata={"option": OBJECTIVE})
    max_messages: float | None = option(None, "Messages that a user may send, on average.")
    honest_fraction: float = same(SumOptions, "honest_fraction")


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
) -> None:
    """Count users by category: unbiased counts, shares, and certified ranges; by two columns, too.

    Example: shuffle-sim histogram --file visits.csv --column region --categories
    region=north,south,east,west

    Example: shuffle-sim histogram --file visits.csv --column region --schema visits.toml
    --objective error --plot regions.png
    """
    cells, declared = source.cells()
    columns = [column] if across is None else [column, across]
    named = [_named(cells, declared, name, source.file) for name in columns]
    places = np.stack([places for _, places in named], axis=1)
    sizes = tuple(len(each.classes) for each, _ in named)
    made = Histogram.calibrated(
        n=len(places),
        categories=sizes if len(sizes) > 1 else sizes[0],
        privacy=privacy.budget,
        method=method,
        **vars(noise),
    )
    rows = places if len(sizes) > 1 else places[:, 0]
    result = _run(made, rows, source, host, execution, json=output.json)
    value = np.asarray(result.value, float)
    ranges = made.interval(value, together=True, reports=result.reports.accepted)
    cell = dense(made.query(rows))
    true = np.bincount(np.asarray(cell, int)[cell >= 0], minlength=value.size).astype(float)
    summary = Counts(
        column=" x ".join(columns),
        categories=tuple(_crossed([each.classes for each, _ in named])),
        true=true,
        counts=value.ravel(),
        shares=value.ravel() / max(result.reports.accepted, 1),
        low=ranges.low.ravel(),
        high=ranges.high.ravel(),
        confidence=ranges.confidence,
        standard_error=math.sqrt(made.variance()),
        central_laplace=_central_laplace(privacy.epsilon),
        run=Released.of(result, made),
    )
    _present(summary, output)


def _central_laplace(epsilon: float) -> float:
    """Standard error of a curator's discrete Laplace: one user moves two counts by one."""
    return math.sqrt(2) * math.exp(-epsilon / 4) / -math.expm1(-epsilon / 2)


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
    values = _numbers(cells, column, (low, high), declared.layout.marks, source.file)
    asked = tuple(_share(text) for text in shares.split(","))
    made = Quantiles.calibrated(
        n=len(values),
        low=low,
        high=high,
        privacy=privacy.budget,
        leaves=leaves,
        honest_fraction=honest_fraction,
    )
    result = _run(made, values, source, host, execution, json=output.json)
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
    _present(summary, output)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError("shares", text, "numbers from 0 to 1, such as 0.25,0.5") from None


def heavy_hitters_command(
    source: Source,
    privacy: PrivacyOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    column: Annotated[str, typer.Option(help="Column of the file.")],
    bits: Annotated[
        int | None,
        typer.Option(help="Of whole numbers as items, up to 2^bits. Default: items are texts."),
    ] = None,
    kept: Annotated[int, typer.Option(help="Prefixes that a level keeps at most.")] = 100,
    honest_fraction: HonestFraction = 1.0,
) -> None:
    """Find the items that many users have, without a list of them: texts by their first 8 bytes.

    Example: shuffle-sim heavy-hitters --file visits.csv --column page --epsilon 4

    Example: shuffle-sim heavy-hitters --file visits.csv --column zip --bits 20
    """
    cells, _ = source.cells()
    different, places = unique_texts(column_in(cells, column, source.file or Path()))
    size = 8 * _TEXT if bits is None else bits
    codes = [_item(text, bits) for text in different]
    made = HeavyHitters.calibrated(
        n=len(places),
        privacy=privacy.budget,
        bits=size,
        kept=kept,
        honest_fraction=honest_fraction,
    )
    items = np.array(codes, np.uint64)[places]
    rows = items.astype(float) if size <= 53 else columns_of(int(each) for each in items)
    result = _run(made, rows, source, host, execution, json=output.json)
    found = result.value
    true = {
        int(each): int(many)
        for each, many in zip(*np.unique(items, return_counts=True), strict=True)
    }
    names = [int(each) for each in found.items]
    summary = Heavy(
        column=column,
        items=tuple(text_of(each) if bits is None else str(each) for each in names),
        true=np.array([true.get(each, 0) for each in names], float),
        counts=found.counts,
        low=found.low,
        high=found.high,
        least_count=found.least_count,
        missed=found.missed,
        false_items=found.false_items,
        run=Released.of(result, made),
    )
    _present(summary, output)


def _item(text: str, bits: int | None) -> int:
    if bits is None:
        return prefix_of(text, _TEXT)
    if not text.isdecimal() or int(text) >= 2**bits:
        allowed = f"whole numbers from 0 to 2^{bits} - 1; texts are found without --bits"
        raise ParameterError("column", "a cell", allowed)
    return int(text)


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
    values = _numbers(cells, column, (low, high), declared.layout.marks, source.file)
    kind, places = _named(cells, declared, by, source.file)
    made = GroupMeans.calibrated(
        n=len(values),
        groups=len(kind.classes),
        low=low,
        high=high,
        privacy=privacy.budget,
        honest_fraction=honest_fraction,
    )
    rows = np.stack([places, values], axis=1)
    result = _run(made, rows, source, host, execution, json=output.json)
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
        run=Released.of(result, made),
    )
    _present(summary, output)


def _named(
    cells: dict[str, Any], declared: Declared, name: str, file: Path | None
) -> tuple[Named, Floats]:
    """A column with public categories, and each user's place in them; -2: a blank cell."""
    column = column_in(cells, name, file or Path())
    kind = declared.columns.get(name)
    if not isinstance(kind, Named):
        allowed = (
            f"stated, as in --categories {name}=a,b,c or a --schema; categories that nobody knows "
            "are found by shuffle-sim heavy-hitters"
        )
        raise ParameterError(f"categories of {name}", None, allowed)
    places = kind.places(column)
    return kind, np.where(np.isnan(places), -2.0, places)


def _numbers(
    cells: dict[str, Any], name: str, limits: tuple[float, float], marks: Marks, file: Path | None
) -> Floats:
    """A column of numbers without blanks.

    Raises:
        ParameterError: another column, or a blank cell, with its row.
    """
    kind = Number(name=name, limits=limits)
    values = kind.values(column_in(cells, name, file or Path()), marks)[:, 0]
    if np.isnan(values).any():
        kind.refuse(int(np.argmax(np.isnan(values))), "a number (the first row is 1)")
    return values


def _run(
    made: Any, rows: Floats, source: Source, host: HostOptions, execution: Execution, *, json: bool
) -> Result:
    """Say what it costs, then run it."""
    name = source.file.stem if source.file is not None else ""
    how = Running.of(host, execution, name, source.file)
    start: Callable[[], object] = partial(
        announce(how.ahead(made, rows), (), yes=how.yes, json=json)
    )
    return how.run(made, rows, on_start=start)


def _present(found: Found, output: Drawn) -> None:
    """Print it and draw it, as asked for."""
    output.present(found, type(found).show, type(found).draw)
