"""From the command line to a table."""

from pathlib import Path

import numpy as np

from shuffle_sim.data.persons import Persons
from shuffle_sim.data.tables import Bounds, Table, bundled, column_of, read
from shuffle_sim.errors import ParameterError


def load(
    table: str | None,
    file: Path | None,
    columns: str | None,
    bounds: list[str] | None,
    label: str | None = None,
    person: str | None = None,
) -> Table:
    """The bundled table or the user's file.

    `label` names the column of a file to predict, `person` that of the persons' names.

    Raises:
        ParameterError: both or neither are named, or what is named cannot be used.
    """
    if (table is None) == (file is None):
        raise ParameterError(
            "table, file",
            (table, file and str(file)),
            "exactly one of the two",
        )
    if table is not None:
        if person:
            raise ParameterError("person", person, "used with --file: no bundled table has persons")
        if columns or bounds or label:
            raise ParameterError(
                "columns, bounds, label",
                columns or bounds or label,
                "used with --file: bundled tables have their own",
            )
        return bundled(table)
    assert file is not None
    named: dict[str, Bounds] = {}
    everywhere: Bounds | None = None
    for text in bounds or []:
        name, _, limits = text.rpartition("=")
        if name in named or (not name and everywhere is not None):
            raise ParameterError("bounds", text, "given once for a column, and once for all others")
        if name:
            named[name] = _bounds(limits)
        else:
            everywhere = _bounds(limits)
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise ParameterError("columns", columns, "different names: each column is released once")
    return read(file, chosen, named, everywhere, label, person)


def persons_in(file: Path, person: str) -> int:
    """How many persons a column of a file names.

    Raises:
        ParameterError: no such column, or a missing name.
    """
    names = column_of(file, person)
    return Persons.grouped(np.zeros((len(names), 1)), names).users


def _bounds(text: str) -> Bounds:
    try:
        low, high = (float(end) for end in text.split(":"))
    except ValueError as error:
        raise ParameterError(
            "bounds", text, "low:high or name=low:high, as in --bounds age=0:120"
        ) from error
    return low, high
