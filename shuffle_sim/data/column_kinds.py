"""The kinds of columns: a number, a date, a boolean or a category."""

import math
import re
from abc import abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.data.columns import BLANKS, LARGEST, OTHER, Bounds, Column, Marks, unique_texts
from shuffle_sim.errors import ParameterError

_YES, _NO = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")
_LOGICAL = _YES[0], _NO[0]
_EPOCH = datetime(1970, 1, 1)


def no_number(name: str) -> ParameterError:
    """Of a column of texts that stand for no numbers."""
    allowed = (
        "numeric; or say its --decimal mark, list its --categories, give its type in a --schema, "
        "or leave it out of --columns"
    )
    return ParameterError(f"column {name}", "text", allowed)


@dataclass(frozen=True, kw_only=True)
class Number(Column):
    """A number within public limits; beyond, it is clipped."""

    kind = "number"
    limits: Bounds

    def __post_init__(self) -> None:
        low, high = self.limits
        if not -LARGEST <= low < high <= LARGEST:
            allowed = f"two numbers within +-{LARGEST:g}, the lower first"
            raise ParameterError(f"bounds of {self.name}", self.limits, allowed)

    @property
    def bounds(self) -> Bounds:
        return self.limits

    def stated(self) -> dict[str, Any]:
        return {"bounds": list(self.limits)}

    def values(self, cells: NDArray[Any], marks: Marks) -> Floats:
        if cells.dtype.kind == "M":
            allowed = f"of numbers; or bounds as dates: --bounds {self.name}=1900-01-01:2030-01-01"
            raise ParameterError(f"column {self.name}", "dates", allowed)
        if cells.dtype.kind in "OU":
            cells = self._of_text(cells, marks)
        if cells.dtype.kind not in "fiub":
            raise ParameterError(f"column {self.name}", str(cells.dtype), "numeric")
        found = np.asarray(cells, np.float64)
        # NaN is a blank; an infinity would be clipped without a word.
        if np.isinf(found).any():
            self.refuse(int(np.argmax(np.isinf(found))), "finite (the first row is 1)")
        return found[:, None]

    def _of_text(self, cells: NDArray[Any], marks: Marks) -> Floats:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            text = pc.utf8_trim_whitespace(pa.array(cells, from_pandas=True).cast(pa.string()))
        except pa.ArrowException:  # which shows a cell
            raise ParameterError(f"column {self.name}", "objects", "numeric") from None
        blank = pc.or_(pc.is_null(text), pc.is_in(text, pa.array(BLANKS)))
        number = pc.fill_null(pc.match_substring_regex(text, marks.pattern), False)
        bad = pc.invert(pc.or_(blank, number)).to_numpy(zero_copy_only=False)
        if bad.any():
            if not pc.any(number).as_py():
                return self._of_truths(text, blank)
            self.refuse(
                int(np.argmax(bad)),
                f"a number with decimal mark {marks.decimal!r} and "
                f"{repr(marks.thousands) if marks.thousands else 'nothing'} between thousands "
                "(--decimal, --thousands)",
            )
        for mark in marks.between if marks.thousands else ():
            text = pc.replace_substring(text, mark, "")
        if marks.decimal != ".":
            text = pc.replace_substring(text, marks.decimal, ".")
        numbers = pc.if_else(number, text, None).cast(pa.float64())
        return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)

    def _of_truths(self, text: Any, blank: Any) -> Floats:
        """1 and 0 of truths: a column of them without a blank is read so, too."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lower = pc.utf8_lower(text)
        if not pc.all(pc.or_(blank, pc.is_in(lower, pa.array(_YES + _NO)))).as_py():
            raise no_number(self.name)
        truths = pc.if_else(blank, None, pc.is_in(lower, pa.array(_YES))).cast(pa.float64())
        return np.asarray(truths.to_numpy(zero_copy_only=False), np.float64)


@dataclass(frozen=True, kw_only=True)
class FreeNumber(Number):
    """A number whose bounds the run will choose privately; until then every number fits."""

    limits: Bounds = (-LARGEST, LARGEST)


@dataclass(frozen=True, kw_only=True)
class Date(Column):
    """A date or time within public limits, as days since 1970-01-01 (UTC where it has a zone).

    Attributes:
        first, last: the limits; both have a zone, or none has.
        format: as `datetime.strptime` takes it; None: ISO 8601.
    """

    kind = "date"
    first: datetime
    last: datetime
    format: str | None = None

    def __post_init__(self) -> None:
        given = (self.first.isoformat(), self.last.isoformat())
        if (self.first.tzinfo is None) != (self.last.tzinfo is None):
            allowed = "both with a zone, or both without"
            raise ParameterError(f"bounds of {self.name}", given, allowed)
        if not self.first < self.last:
            raise ParameterError(f"bounds of {self.name}", given, "two dates, the earlier first")

    @property
    def bounds(self) -> Bounds:
        return days(self.first), days(self.last)

    def stated(self) -> dict[str, Any]:
        limits = {"bounds": [self.first.isoformat(), self.last.isoformat()]}
        return limits | ({"format": self.format} if self.format else {})

    def values(self, cells: NDArray[Any], marks: Marks) -> Floats:
        zoned = self.first.tzinfo is not None
        if cells.dtype.kind == "M":
            if zoned:
                self.refuse(0, "with a zone, as its bounds; or give bounds without one")
            exact = cells.astype("datetime64[us]")
            # Microseconds of a day.
            found = exact.astype(np.int64) / 86_400e6
            return np.where(np.isnat(exact), math.nan, found)[:, None]
        if cells.dtype.kind not in "OU":
            allowed = "of dates, for such bounds"
            raise ParameterError(f"column {self.name}", str(cells.dtype), allowed)
        how = f"of the form {self.format}" if self.format else "ISO 8601, such as 2026-11-22"
        zone = "with a zone, such as 2026-11-22T08:00Z" if zoned else "without a zone"

        def meaning(text: str) -> float | None:
            try:
                moment = moment_of(text, self.format)
            except ValueError:
                return None
            return days(moment) if (moment.tzinfo is not None) == zoned else None

        allowed = f"a date, {how}, and {zone}, as its bounds (format in a --schema)"
        return self._each(cells, meaning, allowed)[:, None]


class Named(Column):
    """A column whose cells name a class: each has a place in a public list."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """All that a cell can become."""

    @abstractmethod
    def places(self, cells: NDArray[Any]) -> Floats:
        """The place of each cell's class; NaN where it is blank."""

    @property
    def bounds(self) -> Bounds:
        return 0.0, 1.0

    def labels(self, cells: NDArray[Any], marks: Marks) -> NDArray[Any]:
        places = self.places(cells)
        # Place -1 is the last: None, of a blank.
        known = np.array([*self.classes, None], object)
        return np.asarray(known[np.where(np.isnan(places), -1, places).astype(int)])


@dataclass(frozen=True, kw_only=True)
class Boolean(Named):
    """True or false, yes or no, 1 or 0; as 1 or 0."""

    kind = "boolean"

    @property
    def classes(self) -> tuple[str, ...]:
        return "false", "true"

    def places(self, cells: NDArray[Any]) -> Floats:
        known: dict[str, float] = dict.fromkeys(_YES, 1.0) | dict.fromkeys(_NO, 0.0)
        allowed = "true or false, yes or no, 1 or 0; or type = 'category' in a --schema"
        return self._each(cells, lambda text: known.get(text.lower()), allowed)

    def values(self, cells: NDArray[Any], marks: Marks) -> Floats:
        return self.places(cells)[:, None]


@dataclass(frozen=True, kw_only=True)
class Category(Named):
    """One of a public list, as one number for each: 1 for its own, 0 for the others.

    Attributes:
        categories: the list.
        other: whether what is not listed becomes one category more, `OTHER`; else it is refused.
    """

    kind = "category"
    categories: tuple[str, ...]
    other: bool = True

    def __post_init__(self) -> None:
        """Check the list."""
        each = list(self.categories)
        if not each or len(set(each)) < len(each) or not all(each):
            allowed = "a public list of different texts, not read from the data"
            raise ParameterError(f"categories of {self.name}", each, allowed)
        if len(self.classes) < 2:
            allowed = "two at least, or one and other = true"
            raise ParameterError(f"categories of {self.name}", each, allowed)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The list, and `OTHER`."""
        more = self.other and OTHER not in self.categories
        return (*self.categories, *([OTHER] if more else []))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={each}" for each in self.classes)

    @property
    def scaling(self) -> tuple[float, float, float]:
        """Equal shares are the middle; (1, 0, ..., 0) less those is short as it is."""
        share = 1 / len(self.classes)
        return share, 1.0, 1 - share

    def stated(self) -> dict[str, Any]:
        return {"categories": list(self.categories), "other": self.other}

    def places(self, cells: NDArray[Any]) -> Floats:
        """Those of the list, and of `OTHER` for what is not listed."""
        known: dict[str, float] = {each: float(at) for at, each in enumerate(self.classes)}
        other = known.get(OTHER) if self.other else None
        # One kind of file writes True, another yes, and another has no text at all.
        lower = {each.lower(): at for each, at in known.items()}
        logical = {each: lower[each] for each in _LOGICAL if each in lower}
        for yes, no in zip(_YES, _NO, strict=True) if len(self.categories) == 2 else ():
            if yes in lower and no in lower:
                logical = dict.fromkeys(_YES, lower[yes]) | dict.fromkeys(_NO, lower[no])

        def meaning(text: str) -> float | None:
            rest = None if text in BLANKS else logical.get(text.lower(), other)
            return known.get(text, rest)

        return self._each(cells, meaning, "one of its public categories; or set other = true")

    def values(self, cells: NDArray[Any], marks: Marks) -> Floats:
        places = self.places(cells)
        found = np.where(places[:, None] == np.arange(len(self.classes)), 1.0, 0.0)
        # NaN equals no place: without this a blank would look like a row of zeros.
        found[np.isnan(places)] = math.nan
        return found


KINDS: dict[str, type[Column]] = {each.kind: each for each in (Number, Date, Boolean, Category)}


def kind_of(name: str, cells: NDArray[Any], marks: Marks) -> str:
    """The type of a column without a schema: one of KINDS, or "blank".

    Raises:
        ParameterError: naming a column of lists, or of other objects.
    """
    if cells.dtype.kind == "b":
        return Boolean.kind
    if cells.dtype.kind == "M":
        return Date.kind
    texts = {text for text in unique_texts(cells, name)[0] if text not in BLANKS}
    if not texts:
        return "blank"
    if cells.dtype.kind in "fiu" or all(re.match(marks.pattern, text) for text in texts):
        return Number.kind
    if all(text.lower() in _YES + _NO for text in texts):
        return Boolean.kind
    return Date.kind if all(map(_dated, texts)) else Category.kind


def _dated(text: str) -> bool:
    try:
        moment_of(text, None)
    except ValueError:
        return False
    return True


def moment_of(given: Any, form: str | None) -> datetime:
    """A date or time, from text or as it is.

    Raises:
        ValueError: it is none.
    """
    if isinstance(given, datetime):
        return given
    if isinstance(given, date):
        return datetime(given.year, given.month, given.day)
    text = str(given)
    return datetime.fromisoformat(text) if form is None else datetime.strptime(text, form)


def days(moment: datetime) -> float:
    """Since 1970-01-01; of UTC where it has a zone."""
    start = _EPOCH if moment.tzinfo is None else _EPOCH.replace(tzinfo=UTC)
    return (moment - start) / timedelta(days=1)
