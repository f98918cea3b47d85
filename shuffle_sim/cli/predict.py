"""`shuffle-sim predict` and `evaluate` of a saved model on a file, and `schema` of a file."""

import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffle_sim.cli.data import layout_of
from shuffle_sim.cli.options import LayoutOptions, Output
from shuffle_sim.cli.show import check_path, console, number, present, print_table, whole
from shuffle_sim.data.file_columns import column_in, kinds_of
from shuffle_sim.data.model import load_model
from shuffle_sim.data.schema import draft
from shuffle_sim.execution.result import SIMULATOR_VIEW

ModelFile = Annotated[Path, typer.Argument(help="A model, as train --model-out wrote it (.json).")]
DataFile = Annotated[Path, typer.Argument(help="A file with the columns that it was trained on.")]


@dataclass(frozen=True)
class Scores:
    """Of a model on a file."""

    model: str
    file: str
    target: str
    scores: dict[str, float] = field(metadata=SIMULATOR_VIEW)


def predict_command(
    model: ModelFile,
    file: DataFile,
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions (.csv). Default: print them.")
    ] = None,
) -> None:
    """Predict by a saved model: a line for each row of a file, with probabilities if it has them.

    The model is public. What it says of a row is as private as that row.

    Example: shuffle-sim predict model.json people.csv --out predictions.csv
    """
    check_path("out", out, (".csv",))
    made = load_model(model)
    rows, _ = made.table(file)
    probabilities = made.probabilities(rows)
    heads = [made.target]
    if probabilities is not None and made.classes is not None:
        heads += [f"probability of {' '.join(each)}" for each in made.classes]

    def lines() -> Iterator[list[Any]]:
        yield heads
        for at, found in enumerate(made.predict(rows).tolist()):
            more = [] if probabilities is None else probabilities[at].tolist()
            lost = found is None or (isinstance(found, float) and math.isnan(found))
            yield [""] * len(heads) if lost else [found, *(f"{each:.6g}" for each in more)]

    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines())
        return
    with whole("out", out) as part, part.open("w", newline="", encoding="utf-8") as written:
        csv.writer(written, lineterminator="\n").writerows(lines())
    console.print(f"Predictions: {out}")


def evaluate_command(
    model: ModelFile,
    file: DataFile,
    output: Output,
    label: Annotated[
        str | None, typer.Option(help="Column with the true values. Default: the model's own.")
    ] = None,
) -> None:
    """Score a saved model on a file with true labels.

    The scores come from the rows without noise: no epsilon covers them.

    Example: shuffle-sim evaluate model.json people.csv
    """
    made = load_model(model)
    rows, cells = made.table(file)
    target = made.schema.targets(column_in(cells, label or made.target, file))
    scores = made.scores(rows, target)
    present(Scores(str(model), str(file), label or made.target, scores), _print, json=output.json)


def _print(summary: Scores) -> None:
    console.print(f"\n[bold]{summary.model}[/] on {summary.file}, predicting {summary.target}\n")
    scores = summary.scores.items()
    print_table(
        ("score", "value"), ((name.replace("_", " "), number(each)) for name, each in scores)
    )
    console.print("These scores are the simulator's own view: epsilon does not cover them.")


def schema_command(
    file: Annotated[Path, typer.Argument(help="Your own .csv, .tsv, .parquet or .npz file.")],
    marks: LayoutOptions,
    out: Annotated[
        Path | None, typer.Option(help="File for the draft (.toml). Default: print it.")
    ] = None,
) -> None:
    """Draft a schema: names and types of columns. Bounds and categories are yours to fill in.

    No value is read beyond its type, and none is written: bounds must not come from the data.

    Example: shuffle-sim schema people.csv --out people.toml
    """
    check_path("out", out, (".toml",))
    layout = layout_of(marks)
    text = draft(file.name, *kinds_of(file, layout))
    if out is None:
        print(text, end="")
        return
    with whole("out", out) as part:
        part.write_text(text, encoding="utf-8")
    console.print(f"Draft: {out}. Fill in what is public, then give it as --schema {out}.")
