"""One record of each person: its own, uniform among them, whoever else is there."""

import math
import re

import numpy as np
import pytest
from scipy.stats import chi2

from shuffle_sim import ParameterError
from shuffle_sim.data.columns import BLANKS
from shuffle_sim.data.drawn_records import DrawnRecords, one_record_each
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.data.schema import Declared
from shuffle_sim.data.tables import read

PERSONS, RECORDS = 6000, 5
RATE = 1e-6


def places(rows, names):
    """Where among its person's records each drawn one is."""
    first = {name: at for at, name in reversed(list(enumerate(names)))}
    return np.array([row - first[names[row]] for row in rows])


def uneven(found):
    """Whether the places are not uniform, by a chi-square test with that false-alarm rate."""
    counts, each = np.bincount(found, minlength=RECORDS), len(found) / RECORDS
    return ((counts - each) ** 2 / each).sum() > chi2.isf(RATE, RECORDS - 1)


def test_every_record_of_a_person_is_as_likely_and_the_test_would_see_a_first_one():
    names = np.repeat([f"p{each}" for each in range(PERSONS)], RECORDS).tolist()
    found = places(one_record_each(names), names)
    assert not uneven(found)
    # A tenth of the persons who give their first record is seen.
    found[: PERSONS // 10] = 0
    assert uneven(found)


def test_a_person_is_drawn_alone():
    """Others who come, go, or have other records change nothing; nor does the table's order."""
    names = ["b", "a", "b", "c", "a", "b"] * 4
    rows = one_record_each(names)
    assert [names[row] for row in rows] == ["a", "b", "c"]
    fewer = [name for name in names if name != "a"]
    without = {fewer[row]: row for row in one_record_each(fewer)}
    kept = [at for at, name in enumerate(names) if name != "a"]
    assert {name: kept[row] for name, row in without.items()} == {
        name: row for name, row in zip("abc", rows, strict=True) if name != "a"
    }


def test_numbers_and_texts_name_persons_alike():
    numbers = [7, 3, 7, 7, 3]
    assert one_record_each(numbers).tolist() == one_record_each(list(map(str, numbers))).tolist()


def test_drawn_records_are_of_persons():
    assert DrawnRecords(np.zeros(3)).unit is Unit.PERSON


DOSES = {"dose": (0.0, 9.0)}
BOB = "bob", "ann", " bob", "bob ", "\tbob"


@pytest.mark.parametrize("kind", [np.str_, object])
def test_a_name_is_the_same_with_blanks_around_it(kind, tmp_path):
    """Else a person would send one record for each spelling."""
    names = np.array(BOB, kind)
    assert len(one_record_each(names)) == 2
    people = Persons.grouped(np.arange(5.0)[:, None], names)
    assert sorted(people.records) == [1, 4]
    path = tmp_path / "visits.csv"
    path.write_text("who,dose\n" + "".join(f"{each},1\n" for each in BOB))
    assert set(read(path, None, DOSES, None, None, "who").person) == {"bob", "ann"}


@pytest.mark.parametrize("blank", BLANKS)
def test_a_name_that_is_a_blank_elsewhere_is_none(blank, tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text(f"who,dose\nann,1\nbob,2\n {blank} ,3\n")
    with pytest.raises(ParameterError, match=re.escape("column who, row 3")):
        read(path, None, DOSES, None, None, "who")
    assert len(read(path, None, DOSES, None, None, "who", Declared(missing="drop")).rows) == 2


@pytest.mark.parametrize(
    "names",
    [
        *(["a", ""], ["a", " "], ["a", None], ["a", "N/A"], [1.0, math.nan]),
        np.array(["2026-01-01", "NaT"], "M8[D]"),
        np.array(["a", "NA"], object),
    ],
)
def test_a_name_that_is_missing_is_refused(names):
    with pytest.raises(ParameterError, match=re.escape("column who, row 2")):
        one_record_each(names, "column who")
