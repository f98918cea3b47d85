"""What is public of a table's columns, and how a user turns its cells into bounded numbers.

The kinds are in `column_kinds`. Each user encodes its own cells: what becomes of a row depends on
the row and on what is public, never on other rows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import WITHHELD, ParameterError

Bounds = tuple[float, float]
LARGEST = 1e100
"""Of a bound: beyond, differences and squares overflow."""
OTHER = "other"
"""The category of what is not listed."""
BLANKS = ("", "-", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "null", "NULL", "None", "none")
"""What a cell without a value holds, blanks around it left out."""


@dataclass(frozen=True)
class Marks:
    """How numbers are written: the decimal mark, and what stands between thousands, if anything."""

    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        """Refuse marks that could not be told apart."""
        if self.decimal not in (".", ","):
            raise ParameterError("decimal", self.decimal, "a point or a comma")
        if self.thousands not in ("", ".", ",", "'", " ", "_") or self.thousands == self.decimal:
            raise ParameterError(
                "thousands", self.thousands, "one of . , ' _ or a blank, and not the decimal mark"
            )

    @property
    def between(self) -> tuple[str, ...]:
        """What may stand between thousands: for a blank those that do not break, too."""
        return (" ", "\u00a0", "\u202f") if self.thousands == " " else (self.thousands,)

    @property
    def pattern(self) -> str:
        """What a number looks like."""
        point = "[.]" if self.decimal == "." else ","
        whole = r"\d+"
        if self.thousands:
            between = f"[{''.join(self.between)}]"
            whole = rf"(?:\d+|\d{{1,3}}(?:{between}\d{{3}})+)"
        return rf"^[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?$"


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A column, and how its cells become numbers.

    Attributes:
        name: in the file.
        unit: of its values, for people.
    """

    kind: ClassVar[str]
    name: str
    unit: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers that a cell becomes."""
        return (self.name,)

    @property
    @abstractmethod
    def bounds(self) -> Bounds:
        """Public bounds of each of the numbers."""

    @property
    def scaling(self) -> tuple[float, float, float]:
        """(middle, half, squared norm).

        A blank cell becomes the middle, which is scaled to zero. No number is further from it than
        half. So scaled, the squares of a cell's numbers add up to the squared norm at most.
        """
        low, high = self.bounds
        return (low + high) / 2, (high - low) / 2, 1.0

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What it names, if that is what it does: as a target it is then no number."""
        return None

    def public(self) -> dict[str, Any]:
        """As JSON and TOML hold it, the name left out."""
        return {"type": self.kind} | self.stated() | ({"unit": self.unit} if self.unit else {})

    def stated(self) -> dict[str, Any]:
        """What its kind alone has, as JSON and TOML hold it."""
        return {}

    @abstractmethod
    def values(self, cells: NDArray[Any], marks: Marks) -> Floats:
        """The numbers, (rows, len(names)); NaN where the cell is blank.

        Raises:
            ParameterError: naming the column, and the first row that holds something else.
        """

    def labels(self, cells: NDArray[Any], marks: Marks) -> NDArray[Any]:
        """What is learnt where it is the target, (rows,); a blank is NaN or None."""
        return np.asarray(self.values(cells, marks)[:, 0])

    def refuse(self, row: int, allowed: str) -> NoReturn:
        """Refuse a cell, without showing it.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(f"column {self.name}, row {row + 1}", WITHHELD, allowed)

    def _each(
        self, cells: NDArray[Any], meaning: Callable[[str], float | None], allowed: str
    ) -> Floats:
        """The meaning of each text; blanks that have none are NaN."""
        # Each different text is looked at once: mostly they are few.
        different, places = unique_texts(cells, self.name)
        found = np.full(len(different), math.nan)
        for place, text in enumerate(different):
            value = meaning(text)
            if value is None and text not in BLANKS:
                self.refuse(int(np.argmax(places == place)), allowed)
            found[place] = math.nan if value is None else value
        return np.asarray(found[places])


def unique_texts(cells: NDArray[Any], name: str = "") -> tuple[list[str], NDArray[np.intp]]:
    """The different texts of a column, blanks around them left out, and each cell's place.

    Raises:
        ParameterError: cells of other kinds, such as lists; it has the column's name, if given.
    """
    if cells.dtype.kind in "fiub":
        found, places = np.unique(cells, return_inverse=True)
        return [_number_text(each) for each in found.tolist()], places
    if cells.dtype.kind == "M":
        found, places = np.unique(cells.astype("datetime64[us]"), return_inverse=True)
        return [_moment_text(each) for each in found], places
    import pyarrow as pa

    try:
        texts = pa.array(cells, from_pandas=True).cast(pa.string())
    except pa.ArrowException:  # which shows a cell
        allowed = "of texts or numbers"
        raise ParameterError(f"column {name}".rstrip(), "objects", allowed) from None
    coded = texts.fill_null("").dictionary_encode()
    places = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.intp)
    return [text.strip() for text in coded.dictionary.to_pylist()], places


def _number_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # A category 3 that stands among blanks comes as 3.0: it is the same text.
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _moment_text(value: np.datetime64) -> str:
    """ISO 8601 in the largest unit that has it: a date at midnight, as in other files."""
    if np.isnat(value):
        return ""
    units = (value.astype(f"datetime64[{unit}]") for unit in ("D", "s", "us"))
    return str(next(each for each in units if each == value))
