"""Items that many users have, from a column that nobody listed: found, and found and counted."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from protocols.counts import FoundHistogram, HeavyHitters, columns_of, prefix_of, text_of
from shuffle_sim.arrays import Floats
from shuffle_sim.cli.count_data import Source, run_counts, show
from shuffle_sim.cli.counts_report import Counts, Heavy, Released, central_laplace
from shuffle_sim.cli.options import HonestFraction, HostOptions, PrivacyOptions
from shuffle_sim.cli.show import Drawn
from shuffle_sim.data.columns import unique_texts
from shuffle_sim.data.file_columns import column_in
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.options import Execution

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
        return text_of(item) if self.bits is None else str(item)

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
