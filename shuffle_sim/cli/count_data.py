"""What the commands of counts share: columns of a file, a run that says its cost, a picture."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.cli.counts_report import CountsReport
from shuffle_sim.cli.data import declared_of
from shuffle_sim.cli.declared import same
from shuffle_sim.cli.options import DataOptions, HostOptions, LayoutOptions
from shuffle_sim.cli.running import Running, announce
from shuffle_sim.cli.show import Drawn
from shuffle_sim.data.column_kinds import Named, Number
from shuffle_sim.data.columns import Marks
from shuffle_sim.data.file_columns import column_in
from shuffle_sim.data.file_columns import columns_of as columns_in
from shuffle_sim.data.schema import Declared
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.options import Execution
from shuffle_sim.execution.result import Result


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
    """A column with public categories, and each user's place in them; -2: a blank cell."""
    column = column_in(cells, name, file or Path())
    kind = declared.columns.get(name)
    if not isinstance(kind, Named):
        allowed = (
            f"stated, as in --categories {name}=a,b,c or a --schema; categories that nobody knows "
            "are found by --find of shuffle-sim histogram"
        )
        raise ParameterError(f"categories of {name}", None, allowed)
    places = kind.places(column)
    return kind, np.where(np.isnan(places), -2.0, places)


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
        kind.refuse(int(np.argmax(np.isnan(values))), "a number (the first row is 1)")
    return values


def run_counts(
    made: Any, rows: Floats, source: Source, host: HostOptions, execution: Execution, *, json: bool
) -> Result:
    """Say what it costs, then run it."""
    name = source.file.stem if source.file is not None else ""
    how = Running.of(host, execution, name, source.file)
    start: Callable[[], object] = partial(
        announce(how.ahead(made, rows), (), yes=how.yes, json=json)
    )
    return how.run(made, rows, on_start=start)


def show(found: CountsReport, output: Drawn) -> None:
    """Print it and draw it, as asked for."""
    output.present(found, type(found).show, type(found).draw)
