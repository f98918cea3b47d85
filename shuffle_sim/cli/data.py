"""What commands do with files: tables to run on, `schema`, and `predict` and `evaluate`."""

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.cli.options import DataOptions, LayoutOptions, PersonsOptions, option, same
from shuffle_sim.cli.show import Output, check_path, console, number, print_table, whole
from shuffle_sim.data.column_kinds import Category, Date, Named, Number, moment_of
from shuffle_sim.data.columns import Bounds, Column, Marks
from shuffle_sim.data.drawn_records import one_record_each
from shuffle_sim.data.file_columns import column_in, columns_of, kinds_of
from shuffle_sim.data.model import load_model
from shuffle_sim.data.schema import Declared, Layout, draft, read_schema
from shuffle_sim.data.tables import Table, bundled, read
from shuffle_sim.errors import ParameterError, parse_number
from shuffle_sim.execution.plain import SIMULATOR_VIEW


def load(data: DataOptions, label: str | None = None, *, target: bool = True) -> Table:
    """The registered table or the user's file, with what the options and a schema state of it.

    Args:
        data: the options.
        label: column of a file to predict.
        target: whether a schema's target is one; else it is a column like the others.

    Raises:
        ParameterError: both or neither are named, or what is named cannot be used.
    """
    declared = declared_of(data, label)
    if not target:
        declared = replace(declared, target=None)
    file, person, bounds = data.file, data.person, data.bounds
    if (data.table is None) == (file is None):
        both = data.table, file and str(file)
        allowed = "exactly one of the two: --table of a bundled one, or --file of your own"
        raise ParameterError("table, file", both, allowed)
    if data.table is not None:
        return _bundled(data.table, data, label, declared)
    assert file is not None
    if declared.free and (person or declared.person):
        allowed = "left out with persons: their records are clipped before they are averaged"
        raise ParameterError("choose_bounds", "given", allowed)
    named: dict[str, Bounds] = {}
    everywhere: Bounds | None = None
    seen: set[str] = set()
    stated = dict(declared.columns)
    for text in bounds or []:
        name, _, limits = text.rpartition("=")
        if name in seen:
            raise ParameterError("bounds", text, "given once for a column, and once for all others")
        seen.add(name)
        found = _bounds(name, limits)
        if isinstance(found, Date):
            stated[name] = found
        elif name:
            named[name] = found
        else:
            everywhere = found
    chosen = listed(data.columns) if data.columns else None
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise ParameterError("columns", data.columns, "different names: each is released once")
    return read(file, chosen, named, everywhere, label, person, replace(declared, columns=stated))


def _bundled(name: str, data: DataOptions, label: str | None, declared: Declared) -> Table:
    if data.person:
        allowed = "used with --file: a registered table names its own"
        raise ParameterError("person", data.person, allowed)
    if declared.free:
        allowed = "used with --file: registered tables have published bounds"
        raise ParameterError("choose_bounds", "given", allowed)
    if data.columns or data.bounds or label or declared != Declared():
        given = data.columns or data.bounds or label or "given"
        allowed = "used with --file: registered tables have their own"
        raise ParameterError("columns, bounds, label, schema", given, allowed)
    return bundled(name)


def listed(text: str) -> list[str]:
    """Names between commas; in double quotes where they have commas of their own."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True))]


def declared_of(data: DataOptions, label: str | None = None) -> Declared:
    """What the options state of a file; they go before the schema.

    With `choose_bounds` numbers need no bounds. A label that is not listed is refused.

    Raises:
        ParameterError: naming the option.
    """
    free = data.choose_bounds is not None
    found = Declared(free=free) if data.schema is None else read_schema(data.schema, free=free)
    stated: dict[str, Column] = {}
    for text in data.categories or []:
        name, _, levels = text.rpartition("=")
        if not name or name in stated:
            allowed = "NAME=a,b,c, once for a column; levels with a comma or = go into a --schema"
            raise ParameterError("categories", text, allowed)
        other = name not in (label, found.target)
        stated[name] = Category(name=name, categories=tuple(listed(levels)), other=other)
    return replace(
        found,
        columns=dict(found.columns) | stated,
        missing=data.missing or found.missing,
        layout=layout_of(data, found.layout),
    )


def layout_of(marks: LayoutOptions, known: Layout | None = None) -> Layout:
    """How a file is written, as options and a schema say."""
    known = known or Layout()
    stated = Marks(
        known.marks.decimal if marks.decimal is None else marks.decimal,
        known.marks.thousands if marks.thousands is None else marks.thousands,
    )
    delimiter = "\t" if marks.delimiter in ("tab", "\\t") else marks.delimiter
    return Layout(delimiter=delimiter or known.delimiter, marks=stated)


def _bounds(name: str, text: str) -> Bounds | Date:
    """Two numbers, or for a column of a name two dates."""
    ends = text.split(":")
    try:
        low, high = (parse_number(end, float) for end in ends)
    except ValueError as error:
        try:
            first, last = (moment_of(end, None) for end in ends)
        except ValueError:
            raise ParameterError(
                "bounds",
                text,
                "low:high or name=low:high, as in --bounds age=0:120 or --bounds "
                "born=1900-01-01:2030-01-01; times of day go into a --schema",
            ) from error
        if not name:
            raise ParameterError("bounds", text, "dates of one column: name=first:last") from error
        return Date(name=name, first=first, last=last)
    return low, high


def bounds_of(texts: Sequence[str], name: str, declared: Declared) -> Bounds:
    """The public bounds of one column of numbers, by options or a schema.

    Raises:
        ParameterError: none are stated, or those of dates.
    """
    kind: Any = declared.columns.get(name)
    for text in texts:
        column, _, limits = text.rpartition("=")
        if column in ("", name):
            kind = _bounds(name, limits)
    if isinstance(kind, tuple):
        return kind
    if isinstance(kind, Number):
        return kind.limits
    if isinstance(kind, Date):
        allowed = "of numbers: here dates are not taken, but days since a public one are"
        raise ParameterError(f"bounds of {name}", "dates", allowed)
    allowed = f"stated, as in --bounds {name}=0:100: they are public, not computed from data"
    raise ParameterError(f"bounds of {name}", None, allowed)


BLANK = -2.0
"""The place of a blank cell: a user of no category."""


@dataclass(frozen=True)
class Source(PersonsOptions, LayoutOptions):
    """A file, and what is public of its columns; of a person one record counts."""

    categories: list[str] | None = same(DataOptions, "categories")
    bounds: list[str] | None = same(DataOptions, "bounds")
    schema: Path | None = same(DataOptions, "schema")

    @cached_property
    def table(self) -> tuple[dict[str, Any], Declared]:
        """The columns of the file by name, and what is stated of them.

        Raises:
            ParameterError: no file, or one that cannot be read.
        """
        if self.file is None:
            raise ParameterError("file", None, "given")
        layout = {each.name: getattr(self, each.name) for each in fields(LayoutOptions)}
        options = DataOptions(**layout, schema=self.schema, categories=self.categories)
        declared = declared_of(options)
        return columns_of(self.file, declared.layout, list(declared.columns)), declared

    @cached_property
    def counted(self) -> NDArray[np.intp] | None:
        """The row of each person that counts; None: each row is a user.

        Raises:
            ParameterError: no such column of names, or one that is missing.
        """
        person = self.person or self.table[1].person
        where = f"column {person}"
        return None if person is None else one_record_each(self._cells(person, "person"), where)

    def _cells(self, name: str, asked: str = "column") -> NDArray[Any]:
        return column_in(self.table[0], name, self.file or Path(), asked)

    def users(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Of all rows those that count."""
        return cells if self.counted is None else cells[self.counted]

    def column(self, name: str) -> NDArray[Any]:
        """The cells of a column, one for each user.

        Raises:
            ParameterError: there is none.
        """
        return self.users(self._cells(name))

    def named(self, name: str) -> tuple[Named, Floats]:
        """A column with public categories, and each user's place in them, or `BLANK`."""
        column, kind = self.column(name), self.table[1].columns.get(name)
        if not isinstance(kind, Named):
            allowed = (
                f"stated, as in --categories {name}=a,b,c or a --schema; categories that nobody "
                "knows are found by --find of shuffle-sim histogram"
            )
            raise ParameterError(f"categories of {name}", None, allowed)
        places = kind.places(column)
        return kind, np.where(np.isnan(places), BLANK, places)

    def numbers(self, name: str) -> tuple[Floats, float, float]:
        """A column of numbers without blanks, and its public bounds.

        Raises:
            ParameterError: another column, no bounds, or a blank cell, with its row.
        """
        declared = self.table[1]
        kind = Number(name=name, limits=bounds_of(self.bounds or [], name, declared))
        values = kind.values(self._cells(name), declared.layout.marks)[:, 0]
        if np.isnan(values).any():
            first = int(np.argmax(np.isnan(values)))
            allowed = "a number, not blank: leave such rows out of the file (the first row is 1)"
            kind.refuse(first, allowed)
        return self.users(values), *kind.limits


ModelFile = Annotated[Path, typer.Argument(help="A model, as train --model-out wrote it (.json).")]
DataFile = Annotated[Path, typer.Argument(help="A file with the columns that it was trained on.")]


@dataclass(frozen=True)
class ModelScores:
    """Of a model on a file."""

    model: str
    file: str
    target: str
    scores: dict[str, float] = field(metadata=SIMULATOR_VIEW)


def predict_command(
    model: ModelFile,
    file: DataFile,
    out: Path | None = option(None, "File for the predictions (.csv). Default: print them."),
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
    label: str | None = option(None, "Column with the true values. Default: the model's own."),
) -> None:
    """Score a saved model on a file with true labels.

    The scores come from the rows without noise: no epsilon covers them.

    Example: shuffle-sim evaluate model.json people.csv
    """
    made = load_model(model).scored_by(label)
    rows, cells = made.table(file)
    target = made.schema.targets(column_in(cells, made.target, file))
    scores = made.scores(rows, target)
    output.present(ModelScores(str(model), str(file), made.target, scores), _print)


def _print(summary: ModelScores) -> None:
    console.print(f"\n[bold]{summary.model}[/] on {summary.file}, predicting {summary.target}\n")
    rows = ((name.replace("_", " "), number(each)) for name, each in summary.scores.items())
    print_table(("score", "value"), rows)
    console.print("These scores are the simulator's own view: epsilon does not cover them.")


def schema_command(
    file: Annotated[Path, typer.Argument(help="Your own .csv, .tsv, .parquet or .npz file.")],
    marks: LayoutOptions,
    out: Path | None = option(None, "File for the draft (.toml). Default: print it."),
) -> None:
    """Draft a schema: names and types of columns. Bounds and categories are yours to fill in.

    No value is read beyond its type, and none is written: bounds must not come from the data.

    Example: shuffle-sim schema people.csv --out people.toml
    """
    check_path("out", out, (".toml",))
    if out is not None and out.exists():
        raise ParameterError("out", str(out), "a new file: what was filled in there would be lost")
    text = draft(file.name, *kinds_of(file, layout_of(marks)))
    if out is None:
        print(text, end="")
        return
    with whole("out", out) as part:
        part.write_text(text, encoding="utf-8")
    console.print(f"Draft: {out}. Fill in what is public, then give it as --schema {out}.")
