"""`shuffle-sim predict` and `shuffle-sim evaluate`: what a saved model says of a file."""

import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffle_sim.cli import options as o
from shuffle_sim.cli.files import check_path, whole
from shuffle_sim.cli.show import console, grid, number, present
from shuffle_sim.data.file_columns import column_in
from shuffle_sim.data.model import load_model
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
    label: Annotated[
        str | None, typer.Option(help="Column with the true values. Default: the model's own.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Score a saved model on a file with true labels.

    The scores come from the rows without noise: no epsilon covers them.

    Example: shuffle-sim evaluate model.json people.csv
    """
    made = load_model(model)
    rows, cells = made.table(file)
    target = made.schema.targets(column_in(cells, label or made.target, file))
    scores = made.scores(rows, target)
    present(Scores(str(model), str(file), label or made.target, scores), _print, json=json)


def _print(summary: Scores) -> None:
    table = grid("score", "value")
    for name, value in summary.scores.items():
        table.add_row(name.replace("_", " "), number(value))
    console.print(f"\n[bold]{summary.model}[/] on {summary.file}, predicting {summary.target}\n")
    console.print(table)
    console.print("These scores are the simulator's own view: epsilon does not cover them.")
