"""`shuffle-sim schema`: draft a schema of a file from the names and types of its columns."""

from pathlib import Path
from typing import Annotated

import typer

from shuffle_sim.cli import options as o
from shuffle_sim.cli.data import layout_of
from shuffle_sim.cli.files import check_path, whole
from shuffle_sim.cli.show import console
from shuffle_sim.data.file_columns import kinds_of
from shuffle_sim.data.schema import draft


def schema_command(
    file: Annotated[Path, typer.Argument(help="Your own .csv, .tsv, .parquet or .npz file.")],
    out: Annotated[
        Path | None, typer.Option(help="File for the draft (.toml). Default: print it.")
    ] = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    thousands: o.Thousands = None,
) -> None:
    """Draft a schema: names and types of columns. Bounds and categories are yours to fill in.

    No value is read beyond its type, and none is written: bounds must not come from the data.

    Example: shuffle-sim schema people.csv --out people.toml
    """
    check_path("out", out, (".toml",))
    layout = layout_of(delimiter, decimal, thousands)
    text = draft(file.name, *kinds_of(file, layout))
    if out is None:
        print(text, end="")
        return
    with whole("out", out) as part:
        part.write_text(text, encoding="utf-8")
    console.print(f"Draft: {out}. Fill in what is public, then give it as --schema {out}.")
