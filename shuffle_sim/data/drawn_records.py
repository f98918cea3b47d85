"""Persons of whom one record counts, which each of them draws alone: for counts of records."""

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.data.file_columns import names_of
from shuffle_sim.data.population import InMemory, Unit, plain_array


def one_record_each(person: ArrayLike, called: str = "person") -> NDArray[np.intp]:
    """The row of each person that counts; persons come in the order of their names.

    The draw is made by a hash of the name: it depends on nobody else, and a later run asks for the
    same record. A person sends one record, so that privacy does not rest on the draw; that counts
    are of persons' mean shares does.

    Args:
        person: the name of each row's person, shape (records,): numbers or strings.
        called: the parameter that errors name.

    Raises:
        ParameterError: a name is missing.
    """
    names = names_of(called, plain_array(called, person))
    every, owner, records = np.unique(names, return_inverse=True, return_counts=True)
    hashes = (sha256(str(name).encode()).digest()[:8] for name in every.tolist())
    draws = np.array([int.from_bytes(each) / 2**64 for each in hashes])
    # A double near 1 times the number of records may round up to it.
    place = np.minimum((draws * records).astype(np.intp), records - 1)
    starts = np.cumsum(records) - records
    found: NDArray[Any] = np.argsort(owner, kind="stable")[starts + place]
    return found


class DrawnRecords(InMemory):
    """Persons with one row each, the record that `one_record_each` draws."""

    @property
    def unit(self) -> Unit:
        return Unit.PERSON
