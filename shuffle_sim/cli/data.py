"""From the command line to a table."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from shuffle_sim.cli.options import DataOptions, LayoutOptions
from shuffle_sim.data.column_kinds import Category, Date, moment_of
from shuffle_sim.data.columns import Bounds, Column, Marks
from shuffle_sim.data.file_columns import column_of
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.schema import Declared, Layout, read_schema
from shuffle_sim.data.tables import Table, bundled, read
from shuffle_sim.errors import ParameterError


def load(data: DataOptions, label: str | None = None, *, target: bool = True) -> Table:
    """The registered table or the user's file, with what the options and a schema state of it.

    Args:
        data: the options.
        label: column of a file to predict.
        target: whether a schema's target is one; else it is a column like the others.

    Raises:
        ParameterError: both or neither are named, or what is named cannot be used.
    """
    declared = declared_of(data)
    if not target:
        declared = replace(declared, target=None)
    file, person, bounds = data.file, data.person, data.bounds
    if (data.table is None) == (file is None):
        given = data.table, file and str(file)
        raise ParameterError("table, file", given, "exactly one of the two")
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
    columns = data.columns
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise ParameterError("columns", columns, "different names: each column is released once")
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


def declared_of(data: DataOptions) -> Declared:
    """What the options state of a file; they go before the schema.

    With `choose_bounds` numbers need no bounds.

    Raises:
        ParameterError: naming the option.
    """
    free = data.choose_bounds is not None
    found = Declared(free=free) if data.schema is None else read_schema(data.schema, free=free)
    stated: dict[str, Column] = {}
    for text in data.categories or []:
        name, _, listed = text.rpartition("=")
        if not name or name in stated:
            allowed = "NAME=a,b,c, once for a column; names with a comma go into a --schema"
            raise ParameterError("categories", text, allowed)
        each = tuple(level.strip() for level in listed.split(","))
        stated[name] = Category(name=name, categories=each)
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
