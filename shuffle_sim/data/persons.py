"""Persons with many records each: privacy holds for all records of a person at once.

How many persons there are is public. How many records one of them has is private: no message, no
error and no number of messages depends on it. Nor do memory and time: a person counts with a public
number of its records, the first ones, and nobody is padded to the largest.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.data.file_columns import names_of
from shuffle_sim.data.file_population import ParquetFiles
from shuffle_sim.data.person_rows import PersonRows
from shuffle_sim.data.population import InMemory, Population, Unit, plain_array, population_of
from shuffle_sim.errors import WITHHELD, ParameterError, integer

MOST_RECORDS = 1024
"""Records of a person that count where nothing else is said; public."""
_PIECE = 65_536  # records that are read at a time, where some between them do not count


class Persons(Population):
    """Persons whose records lie one after the other in a population of records.

    Attributes:
        source: the records.
        records: how many of them count for each person, shape (persons,); private.
        equal: whether that is the same number for all.
        left_out: records that do not count; private.
    """

    def __init__(self, source: Population, records: ArrayLike) -> None:
        """Say whose the records of `source` are.

        Args:
            source: of records, in memory, in files or made from a seed.
            records: how many each person has, in order.

        Raises:
            ParameterError: nobody, a person without records, or not all records are somebody's.
        """
        self.source, self.records = source, np.asarray(records)
        if self.records.ndim != 1 or not self.records.size or self.records.dtype.kind not in "iu":
            raise ParameterError("records", self.records[:0], "an integer for each person")
        if self.records.min() < 1:
            person = int(np.argmin(self.records))
            raise ParameterError(f"records[{person}]", int(self.records[person]), "at least 1")
        ends = np.cumsum(self.records, dtype=np.int64)
        if ends[-1] != source.users:
            allowed = f"{source.users} in all: each record is of one person"
            raise ParameterError("records", int(ends[-1]), allowed)
        self._starts, self._limit, self.left_out = ends - self.records, MOST_RECORDS, 0
        self._settled()

    def _settled(self) -> None:
        self._most = int(self.records.max())
        self.equal = bool(self.records.min() == self._most)

    def first(self, most: int) -> "Persons":
        """These persons with their first `most` records, which alone are read and kept.

        Args:
            most: public.
        """
        fewer = copy(self)
        fewer._limit = integer("most", most)
        if self._most <= most:
            return fewer
        fewer.records = np.minimum(self.records, most)
        fewer.left_out = self.left_out + int(self.records.sum() - fewer.records.sum())
        fewer._settled()
        if isinstance(self.source, InMemory):
            fewer.source = InMemory(fewer._table(0, self.users))
            fewer._starts = np.cumsum(fewer.records) - fewer.records
        return fewer

    @classmethod
    def in_memory(cls, data: NDArray[Any] | Iterable[ArrayLike]) -> "Persons":
        """Persons from an array, or from one array for each.

        Args:
            data: shape (persons, m, columns), or for each person an array (records, columns).

        Raises:
            ParameterError: nobody, a person without records or with other columns, or values that
                are not finite numbers.
        """
        if isinstance(data, np.ndarray) and data.dtype != object:
            array = plain_array("data", data)
            if array.ndim != 3 or 0 in array.shape:
                raise ParameterError(
                    "data.shape", array.shape, "(persons, m, columns), all above 0"
                )
            return cls._checked(array.reshape(-1, array.shape[2]), [array.shape[1]] * len(array))
        try:
            arrays = [plain_array(f"data[{at}]", each) for at, each in enumerate(data)]
        except TypeError:
            arrays = []
        if not arrays:
            raise ParameterError("data", data, "an array of persons, or a list of one for each")
        for person, each in enumerate(arrays):
            if each.ndim != 2 or each.shape[1:] != arrays[0].shape[1:] or not each.size:
                allowed = "an array (records, columns), with a record and the columns of the first"
                raise ParameterError(f"data[{person}]", f"{each.ndim} axes", allowed)
        return cls._checked(np.concatenate(arrays), [len(each) for each in arrays])

    @classmethod
    def grouped(cls, rows: ArrayLike, person: ArrayLike, called: str = "person") -> "Persons":
        """The rows of a table by person; persons come in the order of their names.

        Args:
            rows: shape (records, columns).
            person: the name of each row's person, shape (records,): numbers or strings.
            called: the parameter that errors name.

        Raises:
            ParameterError: names are missing, of another number or of several types; or values are
                not finite numbers.
        """
        table, names = plain_array("data", rows), plain_array(called, person)
        if table.ndim != 2 or not table.size:
            raise ParameterError("data.shape", table.shape, "(records, columns), all above 0")
        if names.shape != table.shape[:1]:
            raise ParameterError(called, names.shape, f"a name for each of {len(table)} rows")
        names = names_of(called, names)
        try:
            _, owner, records = np.unique(names, return_inverse=True, return_counts=True)
        except TypeError as error:
            raise ParameterError(called, str(error), "names of one type") from error
        # stable: a person's records stay in the order of the table, as the first ones count.
        return cls._checked(table[np.argsort(owner, kind="stable")], records)

    @classmethod
    def in_parquet(
        cls, paths: Sequence[str | Path], person: str, columns: Sequence[str] | None = None
    ) -> "Persons":
        """Persons in Parquet files, each with all its rows together in one file.

        Only the names are read now; shards read the rows that they need.

        Args:
            paths: the files.
            person: the column that names the person.
            columns: of the records, in this order; by default all others.

        Raises:
            ParameterError: a person in two files or places, a missing name, or as `ParquetFiles`.
        """
        if columns is None and paths:
            every = ParquetFiles.described(Path(paths[0]))[0].names
            columns = [name for name in every if name != person]
        if paths and (not columns or person in columns):
            allowed = f"at least one, and not {person!r}, which names the person"
            raise ParameterError("columns", columns, allowed)
        source = ParquetFiles(paths, columns)
        home: dict[Any, Path] = {}
        records: list[int] = []
        for path, column in source.column(person):
            names = names_of(f"column {person} of {path}", column)
            # A person begins where the name changes; one that comes back is refused below.
            starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1)] if names.size else []
            for name in names[starts].tolist():
                if name in home:
                    allowed = f"in one file, with its rows together; others are in {home[name]}"
                    raise ParameterError(f"{person} in {path}", WITHHELD, allowed)
                home[name] = path
            records += np.diff([*starts, names.size]).tolist()
        return cls(source, records)

    @classmethod
    def _checked(cls, table: NDArray[Any], records: ArrayLike) -> "Persons":
        """Persons whose records are all finite numbers."""
        persons = cls(InMemory(table), records)
        if table.dtype.kind not in "fiub":
            raise ParameterError("data.dtype", str(table.dtype), "a real number type")
        if table.dtype.kind == "f" and not (finite := np.isfinite(table)).all():
            bad = int(np.argmin(finite.all(axis=1)))
            person = int(np.searchsorted(persons._starts, bad, side="right")) - 1
            allowed = "finite in every record (no NaN, no infinity)"
            raise ParameterError(f"data[{person}]", WITHHELD, allowed)
        return persons

    @property
    def users(self) -> int:
        return len(self.records)

    def content(self, start: int, stop: int) -> bytes:
        found = [self.source.content(*span) for span, _ in self._pieces(start, stop)]
        if len(found) == 1 or not any(found):
            return found[0]
        return sha256(b"".join(found)).digest()

    def watched(self) -> "Persons":
        found = copy(self)
        found.source = self.source.watched()
        return found

    def checked(self, check: Callable[[NDArray[Any]], None]) -> None:
        """Have records checked before a run: all in memory, else those of the first person.

        Raises:
            ParameterError: of the check; it names the person, not the record.
        """
        records = self._table(0, self.users if self.source.resident else 1)
        try:
            check(records.reshape(len(records), -1))
        except ParameterError as error:
            found = re.fullmatch(r"data\[(\d+)\]", error.parameter)
            if found is None:
                raise
            person = int(np.searchsorted(np.cumsum(self.records), int(found[1]), side="right"))
            raise ParameterError(f"data[{person}]", error.value, error.allowed) from error

    @property
    def unit(self) -> Unit:
        return Unit.PERSON

    @property
    def resident(self) -> bool:
        return self.equal and self.source.resident

    @property
    def m(self) -> int:
        """Records of each person.

        Raises:
            ParameterError: persons are ragged.
        """
        if not self.equal:
            raise ParameterError("data", "ragged persons", "persons with equally many records each")
        return self._most

    def width(self, user: int) -> int:
        record = min(int(self._starts[user]), self.source.users - 1)
        return (self._most if self.equal else self._limit) * self.source.width(record)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The persons start, ..., stop - 1, as `PersonRows` takes them apart.

        Returns:
            For equal persons shape (persons, m, columns). For ragged ones shape (persons,), of
            objects: for each an array (records, columns).
        """
        table, records = self._table(start, stop), self.records[start:stop]
        table = table.reshape(len(table), -1)
        if self.equal:
            return table.reshape(len(records), -1, table.shape[1])
        # Filled one by one: np.array of equal lengths would make one array of three axes.
        each = np.empty(len(records), object)
        ends = np.cumsum(records)
        for person, (low, high) in enumerate(zip(ends - records, ends, strict=True)):
            each[person] = table[low:high]
        return each

    def _table(self, start: int, stop: int) -> NDArray[Any]:
        """The records of these persons that count, one after the other."""
        parts = []
        for (low, high), persons in self._pieces(start, stop):
            rows, records = self.source.rows(low, high), self.records[persons]
            if len(rows) > (count := int(records.sum())):
                ends = np.cumsum(records)
                # A record that is kept comes from as far as its person's records are moved.
                places = np.repeat(self._starts[persons] - low - (ends - records), records)
                rows = rows[np.arange(count) + places]
            parts.append(rows)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[tuple[int, int], slice]]:
        """(rows of the source, persons) that are read together: no long run that does not count."""
        starts, records = self._starts[start:stop], self.records[start:stop]
        ends, first = starts + records, 0
        whole = int(ends[-1] - starts[0]) == int(records.sum())
        while first < len(ends):
            low = int(starts[first])
            many = int(np.searchsorted(ends, low + _PIECE, side="right"))
            # Small pieces where some do not count: little is read in vain.
            last = len(ends) if whole else max(first + 1, many)
            yield (low, int(ends[last - 1])), slice(start + first, start + last)
            first = last

    def chosen(self, persons: NDArray[np.integer]) -> "Persons":
        """These persons, in this order, with their records in memory."""
        records, starts = self.records[persons], self._starts[persons]
        ends = np.cumsum(records)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - records), records)
        return Persons(InMemory(self.source.rows(0, self.source.users)[places]), records)


class PersonMeans(Population):
    """Persons with one row each, the mean of their records, which every person computes alone."""

    def __init__(self, persons: Persons) -> None:
        """The means of these persons."""
        self.persons = persons

    @property
    def users(self) -> int:
        return self.persons.users

    @property
    def unit(self) -> Unit:
        return Unit.PERSON

    @property
    def resident(self) -> bool:
        return self.persons.source.resident

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        rows = self.persons.rows(start, stop)
        records = PersonRows(rows, rows[0].shape[1])
        return records.means(records.records)


def population_for(
    unit: Unit, data: Population | ArrayLike | Iterable[ArrayLike], most_records: int = MOST_RECORDS
) -> Population:
    """`data` as a population that an algorithm for `unit` can take.

    Args:
        unit: of the algorithm.
        data: a population, an array whose first axis is users, or one array for each person.
        most_records: that count for a person, its first ones.

    Raises:
        ParameterError: the algorithm is for persons, and these are none.
    """
    table = isinstance(data, np.ndarray) and data.dtype != object and data.ndim < 3
    if unit is Unit.PERSON and not isinstance(data, Population) and not table:
        population: Population = Persons.in_memory(cast("Iterable[ArrayLike]", data))
    else:
        population = population_of(cast("Population | ArrayLike", data))
    if unit is Unit.PERSON and population.unit is not Unit.PERSON:
        allowed = "of persons, such as Persons.in_memory(...)"
        raise ParameterError("data", str(population.unit), allowed)
    return population.first(most_records) if isinstance(population, Persons) else population
