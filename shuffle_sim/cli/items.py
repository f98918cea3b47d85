"""`shuffle-sim heavy-hitters`, and what all commands of counts read from a file."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from protocols.counts import FoundHistogram, HeavyHitters, columns_of, prefix_of, text_of
from shuffle_sim.arrays import Floats
from shuffle_sim.cli.counts_report import Counts, CountsReport, Heavy, Released, central_laplace
from shuffle_sim.cli.data import declared_of
from shuffle_sim.cli.options import (
    DataOptions,
    HonestFraction,
    HostOptions,
    LayoutOptions,
    PrivacyOptions,
    same,
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

BLANK = -2.0
"""The place of a blank cell: a user of no category."""


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


def named(
    cells: dict[str, Any], declared: Declared, name: str, file: Path | None
) -> tuple[Named, Floats]:
    """A column with public categories, and each user's place in them, or `BLANK`."""
    column = column_in(cells, name, file or Path())
    kind = declared.columns.get(name)
    if not isinstance(kind, Named):
        allowed = (
            f"stated, as in --categories {name}=a,b,c or a --schema; categories that nobody knows "
            "are found by --find of shuffle-sim histogram"
        )
        raise ParameterError(f"categories of {name}", None, allowed)
    places = kind.places(column)
    return kind, np.where(np.isnan(places), BLANK, places)


def numbers(
    cells: dict[str, Any], name: str, limits: tuple[float, float], marks: Marks, file: Path | None
) -> Floats:
    """A column of numbers without blanks.

    Raises:
        ParameterError: another column, or a blank cell, with its row.
    """
    kind = Number(name=name, limits=limits)
    values = kind.values(column_in(cells, name, file or Path()), marks)[:, 0]
    if np.isnan(values).any():
        kind.refuse(int(np.argmax(np.isnan(values))), "a number, not blank (the first row is 1)")
    return values


def run_counts(
    made: Any, rows: Floats, source: Source, host: HostOptions, execution: Execution, *, json: bool
) -> Result:
    """Say what it costs, then run it."""
    name = source.file.stem if source.file is not None else ""
    how = Running.of(host, execution, name, source.file)
    start = announce(how.ahead(made, rows), (), yes=how.yes, json=json)
    return how.run(made, rows, on_start=start)


def show(found: CountsReport, output: Drawn) -> None:
    """Print it and draw it, as asked for."""
    output.present(found, type(found).show, type(found).draw)


_TEXT = 8  # bytes of a text that an item is known by


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
    table = Items.of(source, column, bits)
    made = HeavyHitters.calibrated(
        n=len(table.items),
        privacy=privacy.budget,
        bits=table.size,
        kept=kept,
        honest_fraction=honest_fraction,
    )
    result = run_counts(made, table.rows, source, host, execution, json=output.json)
    found = result.value
    summary = Heavy(
        column=column,
        items=tuple(map(table.name, found.items.tolist())),
        true=table.counts(found.items),
        counts=found.counts,
        low=found.low,
        high=found.high,
        least_count=found.least_count,
        missed=found.missed,
        false_items=found.false_items,
        run=Released.of(result, made),
    )
    show(summary, output)


def count_found(
    source: Source,
    column: str,
    privacy: PrivacyOptions,
    honest_fraction: float,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
) -> None:
    """A histogram over the texts that many users have; all its rounds are charged together."""
    table = Items.of(source, column, None)
    made = FoundHistogram.calibrated(
        n=len(table.items),
        privacy=privacy.budget,
        bits=table.size,
        honest_fraction=honest_fraction,
    )
    result = run_counts(made, table.rows, source, host, execution, json=output.json)
    found = result.value
    true = table.counts(found.items)
    summary = Counts(
        column=column,
        categories=(*map(table.name, found.items.tolist()), "(all others)"),
        true=np.append(true, len(table.items) - true.sum()),
        counts=found.counts,
        shares=found.counts / max(found.search.reports, 1),
        low=found.low,
        high=found.high,
        confidence=0.95,
        standard_error=math.sqrt(made.variance()),
        central_laplace=central_laplace(privacy.epsilon),
        run=Released.of(result, made),
    )
    show(summary, output)


@dataclass(frozen=True)
class Items:
    """A column as items.

    Attributes:
        items: of each user, (users,).
        bits: of whole numbers; None: items are texts.
    """

    items: NDArray[np.uint64]
    bits: int | None

    @classmethod
    def of(cls, source: Source, column: str, bits: int | None) -> "Items":
        """Of a column of a file.

        Raises:
            ParameterError: no such column, or a cell that is no whole number below 2^bits.
        """
        cells, _ = source.cells()
        different, places = unique_texts(column_in(cells, column, source.file or Path()))
        return cls(np.array([_item(text, bits) for text in different], np.uint64)[places], bits)

    @property
    def size(self) -> int:
        """Bits of an item."""
        return 8 * _TEXT if self.bits is None else self.bits

    @property
    def rows(self) -> Floats:
        """As users hold them."""
        if self.size <= 53:
            return self.items.astype(float)
        return columns_of(int(each) for each in self.items)

    def name(self, item: int) -> str:
        """For people."""
        return (text_of(item) or "(blank)") if self.bits is None else str(item)

    def counts(self, items: NDArray[np.uint64]) -> Floats:
        """True ones, of these items."""
        return np.array([(self.items == each).sum() for each in items], float)


def _item(text: str, bits: int | None) -> int:
    if bits is None:
        return prefix_of(text, _TEXT)
    if not text.isdecimal() or int(text) >= 2**bits:
        allowed = f"whole numbers from 0 to 2^{bits} - 1; texts are found without --bits"
        raise ParameterError("column", "a cell", allowed)
    return int(text)
