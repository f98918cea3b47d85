"""`shuffle-sim histogram`, `heavy-hitters`, `quantiles`: how many, of which kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocols.counts import (
    Coded,
    FoundHistogram,
    GroupMeans,
    HeavyHitters,
    Histogram,
    Quantiles,
)
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.cli import show
from shuffle_sim.cli.audit import audited
from shuffle_sim.cli.cost import KEPT, LEAVES, METHOD, OBJECTIVE, CountForm
from shuffle_sim.cli.counts_report import Counts, CountsReport, Groups, Heavy, Ranks, Released
from shuffle_sim.cli.data import BLANK, Source
from shuffle_sim.cli.options import (
    HONEST,
    ROUNDS,
    HostOptions,
    PrivacyOptions,
    left_out,
    option,
    same,
)
from shuffle_sim.cli.running import Running, announce
from shuffle_sim.cli.show import Drawn
from shuffle_sim.data.drawn_records import DrawnRecords
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.execution.options import Execution

_SHARES = "0.05,0.25,0.5,0.75,0.95"


@dataclass(frozen=True)
class CountOptions:
    """How noise is made."""

    objective: str = option("messages", OBJECTIVE)
    max_messages: float | None = same(CountForm, "max_messages")
    honest_fraction: float = same(HONEST)


def histogram_command(
    source: Source,
    privacy: PrivacyOptions,
    noise: CountOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    column: str = option(..., "Column of the file."),
    method: str | None = option(None, METHOD),
    across: str | None = option(None, "Another column, for a two-way table.", "--with"),
    rounds: int = ROUNDS,
    find: bool = option(
        False, "First find the texts that many users have; epsilon is of both.", "--find"
    ),
) -> None:
    """Count users by category: unbiased counts, shares, and certified ranges; by two columns, too.

    Example: shuffle-sim histogram --file visits.csv --column region --categories
    region=north,south,east,west

    Example: shuffle-sim histogram --file visits.csv --column region --schema visits.toml
    --objective error --plot regions.png

    Example: shuffle-sim histogram --file visits.csv --column page --find --epsilon 4
    """
    how = CountsRun(source, privacy, host, execution, output)
    if find:
        given = {"max_messages": noise.max_messages, "method": method, "with": across}
        left_out(given | {"categories": source.categories}, "--find")
        how.count_found(column, noise.honest_fraction, rounds)
        return
    columns = [column] if across is None else [column, across]
    kinds = [source.named(name) for name in columns]
    places = np.stack([places for _, places in kinds], axis=1)
    blank = (places == BLANK).any(axis=1)
    if method in ("response", "fixed-blanket") and blank.any():
        allowed = "another where cells are blank: each of its users has to send a category"
        raise ParameterError("method", method, allowed)
    sizes = tuple(len(each.classes) for each, _ in kinds)
    with show.console.status("calibrating ..."):
        made = Histogram.calibrated(
            n=len(places),
            categories=sizes if len(sizes) > 1 else sizes[0],
            privacy=privacy.budget,
            method=method,
            rounds=rounds,
            **vars(noise),
        )
    rows = places if len(sizes) > 1 else places[:, 0]
    value, released = how.run(made, rows, int(blank.sum()), rounds=rounds)
    accepted = released.reports.accepted
    ranges = made.interval(value, together=True, reports=accepted)
    cell = dense(made.query(rows))
    true = np.bincount(np.asarray(cell, int)[cell >= 0], minlength=value.size).astype(float)
    known = ranges.low.ravel(), ranges.high.ravel(), ranges.confidence
    names = _crossed([each.classes for each, _ in kinds])
    counts = names, true, np.ravel(value), known, made, released, accepted
    how.show(Counts.of(" x ".join(columns), *counts, privacy.epsilon))


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
    column: str = option(..., "Column of the file."),
    shares: str = option(_SHARES, "Parts of the users below each quantile, with commas between."),
    leaves: int = option(1024, LEAVES),
    honest_fraction: float = HONEST,
    rounds: int = ROUNDS,
    objective: str = option("error", OBJECTIVE),
) -> None:
    """Release quantiles and the whole distribution of a column, with certified ranges.

    Example: shuffle-sim quantiles --file visits.csv --column minutes --bounds minutes=0:240
    --plot minutes.png
    """
    values, low, high = source.numbers(column)
    asked = tuple(_share(text) for text in shares.split(","))
    with show.console.status("calibrating ..."):
        made = Quantiles.calibrated(
            n=len(values),
            low=low,
            high=high,
            privacy=privacy.budget,
            leaves=leaves,
            objective=objective,
            honest_fraction=honest_fraction,
            rounds=rounds,
        )
    how = CountsRun(source, privacy, host, execution, output)
    inside = np.clip(values, low, high)
    found, released = how.run(made, values, outside=int((inside != values).sum()), rounds=rounds)
    ends = np.array([found.interval(share) for share in asked])
    summary = Ranks(
        column=column,
        unit=getattr(source.table[1].columns.get(column), "unit", None) or "",
        shares=asked,
        true=np.quantile(inside, asked),
        values=np.array([found.quantile(share) for share in asked]),
        low=ends[:, 0],
        high=ends[:, 1],
        confidence=0.95,
        standard_error_ranks=float(made.standard_errors.max()),
        run=released,
        edges=found.edges,
        ranks=found.ranks,
        band=found.band(),
        true_ranks=np.searchsorted(np.sort(inside), found.edges, side="left").astype(float),
    )
    how.show(summary)


def _share(text: str) -> float:
    try:
        return real("shares", float(text), 0.0, 1.0, closed=(True, True))
    except ValueError:
        raise ParameterError("shares", text, "numbers from 0 to 1, such as 0.25,0.5") from None


def heavy_hitters_command(
    source: Source,
    privacy: PrivacyOptions,
    host: HostOptions,
    execution: Execution,
    output: Drawn,
    column: str = option(..., "Column of the file."),
    bits: int | None = option(
        None, "Of whole numbers as items, up to 2^bits. Default: items are texts."
    ),
    kept: int = option(100, KEPT),
    honest_fraction: float = HONEST,
    rounds: int = ROUNDS,
    objective: str = option("error", OBJECTIVE),
) -> None:
    """Find the items that many users have, without a list of them: texts by their first 8 bytes.

    Example: shuffle-sim heavy-hitters --file visits.csv --column page --epsilon 4

    Example: shuffle-sim heavy-hitters --file visits.csv --column zip --bits 20 --rounds 52
    --objective messages
    """
    table, how = (
        Coded.of(source.column(column), bits),
        CountsRun(source, privacy, host, execution, output),
    )
    with show.console.status("calibrating ..."):
        made = HeavyHitters.calibrated(
            n=len(table.items),
            privacy=privacy.budget,
            bits=table.size,
            kept=kept,
            objective=objective,
            honest_fraction=honest_fraction,
            rounds=rounds,
        )
    found, released = how.run(made, table.rows, rounds=rounds)
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
        run=replace(released, cut=table.cut(found.items)),
    )
    how.show(summary)


def by_group(
    how: "CountsRun", column: str | None, by: str, honest_fraction: float, rounds: int
) -> None:
    """Counts, sums and means of one column in each category of another, for `sum --by`.

    Raises:
        ParameterError: not one column with public bounds, or a group without public categories.
    """
    if column is None or "," in column:
        raise ParameterError("columns", column, "one column with --by")
    column = column.strip()
    values, low, high = how.source.numbers(column)
    kind, places = how.source.named(by)
    with show.console.status("calibrating ..."):
        made = GroupMeans.calibrated(
            n=len(values),
            groups=len(kind.classes),
            low=low,
            high=high,
            privacy=how.privacy.budget,
            honest_fraction=honest_fraction,
            rounds=rounds,
        )
    rows, blank = np.stack([places, values], axis=1), int((places == BLANK).sum())
    inside = np.clip(values, low, high)
    table, released = how.run(made, rows, blank, int((inside != values).sum()), rounds)
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
        run=released,
    )
    how.show(summary)


@dataclass(frozen=True)
class CountsRun:
    """Of whom is asked, where that takes place, and what is printed of it."""

    source: Source
    privacy: PrivacyOptions
    host: HostOptions
    execution: Execution
    output: Drawn

    def run(
        self, made: Any, rows: Floats, blank: int = 0, outside: int = 0, rounds: int = 1
    ) -> tuple[Any, Released]:
        """Say what it costs, then run it, as `Released.of` tells it."""
        file = self.source.file
        how = Running.of(self.host, self.execution, file.name if file is not None else "", file)
        users = InMemory(rows) if self.source.counted is None else DrawnRecords(rows)
        audited(how, self.privacy.budget, self.output, made, users, rounds)
        start = announce(how.ahead(made, rows), (), yes=how.yes, json=self.output.json)
        result = how.run(made, users, on_start=start)
        return result.value, Released.of(result, made, blank, outside, rounds)

    def show(self, found: CountsReport) -> None:
        """Print it and draw it, as asked for."""
        self.output.present(found, type(found).show, type(found).draw)

    def count_found(self, column: str, honest_fraction: float, rounds: int) -> None:
        """A histogram over the texts that many users have; its search is charged, too."""
        table = Coded.of(self.source.column(column))
        with show.console.status("calibrating ..."):
            made = FoundHistogram.calibrated(
                n=len(table.items),
                privacy=self.privacy.budget,
                bits=table.size,
                honest_fraction=honest_fraction,
                rounds=rounds,
            )
        found, released = self.run(made, table.rows, rounds=rounds)
        names, true = map(table.name, found.items.tolist()), table.counts(found.items)
        counts = np.append(true, len(table.items) - true.sum()), found.counts
        told = replace(released, cut=table.cut(found.items)), found.search.reports
        known = (found.low, found.high, 0.95), made, *told
        every = [*names, "(all others)"], *counts, *known, self.privacy.epsilon
        self.show(Counts.of(column, *every))
