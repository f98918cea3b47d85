"""Rows of persons, taken apart into records."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import ParameterError
from shuffle_sim.sampling.kernels import compiling


class PersonRows:
    """Rows of persons as a table of records, and what is asked of records as means over persons.

    Attributes:
        records: shape (records, columns), in Fortran order.
    """

    def __init__(self, rows: NDArray[Any], columns: int) -> None:
        """Take the rows apart.

        Args:
            rows: as of `Persons.rows`.
            columns: of a record.

        Raises:
            ParameterError: rows of another shape.
        """
        self._equal, self._shape = rows.dtype != object, rows.shape[:2]
        if self._equal and rows.ndim == 3 and rows.shape[2] == columns:
            self._rows = np.asarray(rows, np.float64)
            # A view, if rows are in Fortran order: record j of all persons, then record j + 1.
            self.records = self._rows.reshape(-1, columns, order="F")
        elif not self._equal and all(each.shape[1:] == (columns,) for each in rows):
            self._lengths = np.array([len(each) for each in rows])
            self._rows = np.concatenate([*rows, np.empty((0, columns))], dtype=np.float64)
            self.records = np.asfortranarray(self._rows)
        else:
            allowed = f"persons' records of {columns} columns each"
            raise ParameterError("data", f"rows of shape {rows.shape[1:]}", allowed)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many records each person has, (persons,)."""
        return np.full(self._shape[0], self._shape[1]) if self._equal else self._lengths

    @property
    def in_order(self) -> Floats:
        """`records`, person after person."""
        return self._rows.reshape(-1, self._rows.shape[-1])

    def spread(self, values: Floats) -> Floats:
        """Each person's value, (persons, d), at each of `records`, (records, d)."""
        if self._equal:
            return np.tile(values, (self._shape[1], 1))
        return np.repeat(values, self.counts, axis=0)

    def means(self, values: Values) -> Floats:
        """The mean over each person's records, shape (persons, d).

        Args:
            values: one for each of `records`, (records, d); not finite: nor is the person's mean.
        """
        if self._equal:
            shape = *self._shape, -1
            if isinstance(values, Scaled):  # in one pass, without the vectors themselves
                factors = values.factors.reshape(self._shape, order="F")
                rows = values.rows.reshape(shape, order="F")
                if compiling() and rows.flags.f_contiguous:
                    from shuffle_sim.sampling.compiled_rows import person_sums

                    sums = np.zeros((rows.shape[2], rows.shape[0]))
                    person_sums(rows.T, factors.T, sums)
                    return np.asarray(sums.T / self._shape[1])
                return np.asarray(np.einsum("pj,pjk->pk", factors, rows) / self._shape[1])
            return np.asarray(values.reshape(shape, order="F").mean(axis=1))
        each = dense(values)
        counts = self.counts
        means = np.zeros((len(counts), each.shape[1]))
        some = counts > 0  # corrupted persons may claim to have no records
        starts = (np.cumsum(counts) - counts)[some]
        # reduceat of an empty piece would give the next piece's first row: hence `some`.
        means[some] = np.add.reduceat(each, starts, axis=0) / counts[some, None]
        return means
