"""From the command line to a table."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from shuffle_sim.data.column_kinds import Category, Date, moment_of
from shuffle_sim.data.columns import Bounds, Column, Marks
from shuffle_sim.data.file_columns import column_of
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.schema import Declared, Layout, read_schema
from shuffle_sim.data.tables import Table, bundled, read
from shuffle_sim.errors import ParameterError


def load(
    table: str | None,
    file: Path | None,
    columns: str | None,
    bounds: list[str] | None,
    label: str | None = None,
    person: str | None = None,
    declared: Declared | None = None,
) -> Table:
    """The registered table or the user's file.

    `label` names the column of a file to predict, `person` that of the persons' names, `declared`
    says what else is stated of the file.

    Raises:
        ParameterError: both or neither are named, or what is named cannot be used.
    """
    if (table is None) == (file is None):
        raise ParameterError(
            "table, file",
            (table, file and str(file)),
            "exactly one of the two",
        )
    declared = declared or Declared()
    if table is not None:
        if person:
            raise ParameterError(
                "person", person, "used with --file: a registered table names its own"
            )
        if declared.free:
            allowed = "used with --file: registered tables have published bounds"
            raise ParameterError("choose_bounds", "given", allowed)
        if columns or bounds or label or declared != Declared():
            raise ParameterError(
                "columns, bounds, label, schema",
                columns or bounds or label or "given",
                "used with --file: registered tables have their own",
            )
        return bundled(table)
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
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise ParameterError("columns", columns, "different names: each column is released once")
    return read(file, chosen, named, everywhere, label, person, replace(declared, columns=stated))


def declared_of(
    schema: Path | None,
    missing: str | None,
    categories: list[str] | None,
    delimiter: str | None,
    decimal: str | None,
    thousands: str | None,
    choose_bounds: float | None = None,
) -> Declared:
    """What the options state of a file; they go before the schema.

    With `choose_bounds` numbers need no bounds.

    Raises:
        ParameterError: naming the option.
    """
    free = choose_bounds is not None
    found = Declared(free=free) if schema is None else read_schema(schema, free=free)
    stated: dict[str, Column] = {}
    for text in categories or []:
        name, _, listed = text.rpartition("=")
        if not name or name in stated:
            allowed = "NAME=a,b,c, once for a column; names with a comma go into a --schema"
            raise ParameterError("categories", text, allowed)
        each = tuple(level.strip() for level in listed.split(","))
        stated[name] = Category(name=name, categories=each)
    return replace(
        found,
        columns=dict(found.columns) | stated,
        missing=missing or found.missing,
        layout=layout_of(delimiter, decimal, thousands, found.layout),
    )


def layout_of(
    delimiter: str | None, decimal: str | None, thousands: str | None, known: Layout | None = None
) -> Layout:
    """How a file is written, as options and a schema say."""
    known = known or Layout()
    marks = Marks(
        known.marks.decimal if decimal is None else decimal,
        known.marks.thousands if thousands is None else thousands,
    )
    delimiter = "\t" if delimiter in ("tab", "\\t") else delimiter
    return Layout(delimiter=delimiter or known.delimiter, marks=marks)


def persons_in(file: Path, person: str) -> int:
    """How many persons a column of a file names.

    Raises:
        ParameterError: no such column, or a missing name.
    """
    names = column_of(file, person)
    return Persons.grouped(np.zeros((len(names), 1)), names).users


def _bounds(name: str, text: str) -> Bounds | Date:
    """Two numbers, or for a column of a name two dates."""
    ends = text.split(":")
    try:
        low, high = (float(end) for end in ends)
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
