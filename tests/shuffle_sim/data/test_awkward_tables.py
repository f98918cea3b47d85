"""Tables as people have them: each is read as meant, or refused with the way out in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shuffle_sim.cli.data import Source, declared_of, load
from shuffle_sim.cli.options import DataOptions
from shuffle_sim.data.columns import unique_texts
from shuffle_sim.data.tables import Table, read
from shuffle_sim.errors import ParameterError

pytestmark = pytest.mark.wheel


def stated(**given):
    return declared_of(DataOptions(**given))


def table(path: Path, text: str | bytes, bounds=("0:100",), columns=None, **given) -> Table:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    label = given.pop("label", None)
    return load(DataOptions(file=path, columns=columns, bounds=list(bounds), **given), label)


# name: file, text, what is stated, columns, rows

READ = {
    "semicolons": ("t.csv", "a;b\n1;2\n3;4\n", {}, ["a", "b"], [[1, 2], [3, 4]]),
    "semicolons and decimal commas": (
        "t.csv",
        "a;b\n1,5;2\n3;4,25\n",
        {"decimal": ","},
        ["a", "b"],
        [[1.5, 2], [3, 4.25]],
    ),
    "tabs": ("t.tsv", "a\tb\n1\t2\n", {}, ["a", "b"], [[1, 2]]),
    "tabs in a csv": ("t.csv", "a\tb\n1\t2\n", {}, ["a", "b"], [[1, 2]]),
    "bars": ("t.csv", "a|b\n1|2\n", {}, ["a", "b"], [[1, 2]]),
    "a delimiter of one's own": ("t.csv", "a:b\n1:2\n", {"delimiter": ":"}, ["a", "b"], [[1, 2]]),
    "byte-order mark": ("t.csv", b"\xef\xbb\xbfa,b\n1,2\n", {}, ["a", "b"], [[1, 2]]),
    "a spreadsheet's own first line": ("t.csv", "sep=;\na;b\n1;2\n", {}, ["a", "b"], [[1, 2]]),
    "blanks around names": ("t.csv", " a , b b\t\n1,2\n", {}, ["a", "b b"], [[1, 2]]),
    "blanks around numbers": ("t.csv", "a,b\n 1 ,2\n3, 4\n", {}, ["a", "b"], [[1, 2], [3, 4]]),
    "one name twice": ("t.csv", "a,a,a\n1,2,3\n", {}, ["a", "a.2", "a.3"], [[1, 2, 3]]),
    "a name that a second one would get": (
        "t.csv",
        "a,a.2,a\n1,2,3\n",
        {},
        ["a", "a.2", "a.3"],
        [[1, 2, 3]],
    ),
    "a column without a name": ("t.csv", ",b\n1,2\n", {}, ["column 1", "b"], [[1, 2]]),
    "quoted cells and a comma in a name": (
        "t.csv",
        '"a, of b","b"\n"1","2"\n',
        {},
        ["a, of b", "b"],
        [[1, 2]],
    ),
    "thousands with a comma": (
        "t.csv",
        'a;b\n"1,234.5";2\n1;2\n',
        {"thousands": ",", "bounds": ["0:10000"]},
        ["a", "b"],
        [[1234.5, 2], [1, 2]],
    ),
    "thousands with a point, decimal commas": (
        "t.csv",
        "a;b\n-1.234.567,5;2\n",
        {"thousands": ".", "decimal": ",", "bounds": ["-1e7:1e7"]},
        ["a", "b"],
        [[-1234567.5, 2]],
    ),
    "thousands with a blank that does not break": (
        "t.csv",
        "a;b\n1\u00a0234;2\n",
        {"thousands": " ", "bounds": ["0:1e4"]},
        ["a", "b"],
        [[1234, 2]],
    ),
    "line ends of Windows": ("t.csv", "a,b\r\n1,2\r\n3,4\r\n", {}, ["a", "b"], [[1, 2], [3, 4]]),
    "no line end at the end": ("t.csv", "a,b\n1,2", {}, ["a", "b"], [[1, 2]]),
    "empty lines between rows": ("t.csv", "a,b\n1,2\n\n3,4\n\n", {}, ["a", "b"], [[1, 2], [3, 4]]),
    "a line end in a cell": (
        "t.csv",
        'a,b,c\n1,2,"x\ny"\n',
        {"columns": "a,b"},
        ["a", "b"],
        [[1, 2]],
    ),
    "blanks left out": ("t.csv", "a,b\n1,\n3,4\n", {"missing": "drop"}, ["a", "b"], [[3, 4]]),
    "blanks in the middle": (
        "t.csv",
        "a,b\n1,NA\n?,4\n",
        {"missing": "midpoint"},
        ["a", "b"],
        [[1, 50], [50, 4]],
    ),
    "blanks with a sign": (
        "t.csv",
        "a,b\n1,\n3,4\n",
        {"missing": "indicator"},
        ["a", "a is blank", "b", "b is blank"],
        [[1, 0, 50, 1], [3, 0, 4, 0]],
    ),
    "blanks in a file of one column": (
        "t.csv",
        "a\n1\n\n3\n",
        {"missing": "midpoint"},
        ["a"],
        [[1], [50], [3]],
    ),
    "categories": (
        "t.csv",
        "a,b\n1,red\n2,blue\n3, red \n",
        {"categories": ["b=red,green"]},
        ["a", "b=red", "b=green", "b=other"],
        [[1, 1, 0, 0], [2, 0, 0, 1], [3, 1, 0, 0]],
    ),
    "categories that look like numbers": (
        "t.csv",
        "b\n007\n7\n",
        {"categories": ["b=007,8"]},
        ["b=007", "b=8", "b=other"],
        [[1, 0, 0], [0, 0, 1]],
    ),
    "dates": (
        "t.csv",
        "a,b\n1,1970-01-11\n2,1969-12-31\n",
        {"bounds": ["0:9", "b=1960-01-01:1980-01-01"]},
        ["a", "b"],
        [[1, 10], [2, -1]],
    ),
    "booleans": ("t.csv", "a,b\n1,true\n2,false\n", {}, ["a", "b"], [[1, 1], [2, 0]]),
}


@pytest.mark.parametrize("case", READ)
def test_an_awkward_table_is_read_as_it_is_meant(tmp_path, case):
    name, text, given, columns, rows = READ[case]
    made = table(tmp_path / name, text, **given)
    assert list(made.columns) == columns
    assert made.rows.tolist() == rows
    assert np.linalg.norm(made.scaled(), axis=1).max() <= 1 + 1e-12


def test_there_are_twenty_of_them_and_more():
    assert len(READ) >= 20
    assert len(REFUSED) >= 20


REFUSED = {
    "blanks": ("a,b\n1,\n", {}, "column b, row 1", "--missing drop, midpoint or indicator"),
    "a word among numbers": ("a,b\n1,2\n3,many\n", {}, "column b, row 2", "--thousands"),
    "thousands": ('a;b\n"1,234";2\n', {}, "column a", "--thousands|--categories"),
    "thousands in wrong places": (
        "a;b\n1,5;2\n1,234;2\n",
        {"thousands": ","},
        "column a, row 1",
        "--decimal",
    ),
    "text": ("a,b\n1,red\n", {}, "column b", "--categories.*--schema.*--columns"),
    "a category that is blank": (
        "b\nred\n-\n",
        {"categories": ["b=red"]},
        "column b, row 2",
        "--missing",
    ),
    "dates without date bounds": ("a,b\n1,2020-01-01\n", {}, "column b", "1900-01-01"),
    "no date": (
        "a,b\n1,2020-01-01\n2,31.12.2020\n",
        {"bounds": ["0:9", "b=1960-01-01:1980-01-01"]},
        "column b, row 2",
        "format in a --schema",
    ),
    "a zone where the bounds have none": (
        "b\n2020-01-01T10:00Z\n",
        {"bounds": ["b=1960-01-01:1980-01-01"]},
        "column b, row 1",
        "without a zone",
    ),
    "every row has a blank": ("a,b\n1,\n,2\n", {"missing": "drop"}, "missing", "midpoint"),
    "no header": ("1.5,2\n3,4\n", {}, "file", "write the columns' names above"),
    "an empty first line": ("\na,b\n1,2\n", {}, "file", "first line is empty"),
    "other bytes than UTF-8": (
        "gr\xf6\xdfe\n1\n".encode("latin-1"),
        {},
        "file",
        "save it as UTF-8",
    ),
    "other bytes below": (b"a,b\n1,gr\xf6\n", {}, "file", "save it as UTF-8"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), {}, "file", "save it as UTF-8"),
    "ragged rows": ("a,b\n1,2\n3\n", {}, "file", "columns"),
    "a name of two lines": ('"a\nb",c\n1,2\n', {}, "file", "on one line"),
    "a comma for both": ("a,b\n1,2\n", {"decimal": ","}, "file", "--delimiter"),
    "a delimiter of two characters": ("a,b\n1,2\n", {"delimiter": "::"}, "delimiter", "one char"),
    "marks that are one": (
        "a;b\n1;2\n",
        {"decimal": ",", "thousands": ","},
        "thousands",
        "not the decimal mark",
    ),
    "infinity": ("a,b\n1,inf\n", {}, "column b, row 1", "finite"),
    "one category twice": ("b\nx\n", {"categories": ["b=x,x"]}, "categories of b", "different"),
    "categories of a column that is not there": (
        "a\n1\n",
        {"categories": ["b=x,y"]},
        "column",
        "one of a",
    ),
    "another rule for blanks": ("a\n1\n", {"missing": "mean"}, "missing", "one of drop"),
    "dates for all columns": ("a\n1\n", {"bounds": ["1960-01-01:1970-01-01"]}, "bounds", "name="),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_awkward_table_is_refused_with_the_way_out(tmp_path, case):
    text, given, parameter, way = REFUSED[case]
    with pytest.raises(ParameterError, match=way) as caught:
        table(tmp_path / "t.csv", text, **given)
    assert caught.value.parameter == parameter
    assert len(str(caught.value).splitlines()) == 1
    assert "many" not in str(caught.value)  # no cell is shown


def test_a_workbook_is_refused_with_what_is_read(tmp_path):
    with pytest.raises(ParameterError, match="csv"):
        table(tmp_path / "t.xlsx", b"PK")


def test_parquet_has_the_same_kinds_of_columns(tmp_path):
    path = tmp_path / "t.parquet"
    noon = pa.array([43_200_000_000, None], pa.timestamp("us", tz="UTC"))
    columns = {
        " a": pa.array([1, None]),
        "job": pa.array(["nurse", "pilot"]).dictionary_encode(),
        "born": pa.array([1, 2], pa.date32()),
        "seen": noon,
        "ill": pa.array([True, False]),
    }
    pq.write_table(pa.table(columns), path)
    schema = tmp_path / "s.toml"
    schema.write_text(
        'missing = "midpoint"\n[columns.a]\ntype = "number"\nbounds = [0, 9]\n'
        '[columns.job]\ntype = "category"\ncategories = ["nurse", "cook"]\nother = true\n'
        '[columns.born]\ntype = "date"\nbounds = [1970-01-01, 1970-01-11]\n'
        '[columns.seen]\ntype = "date"\nbounds = [1970-01-01T00:00:00Z, 1970-01-05T00:00:00Z]\n'
        '[columns.ill]\ntype = "boolean"\n'
    )
    made = read(path, None, {}, None, declared=stated(schema=schema))
    assert made.columns == ("a", "job=nurse", "job=cook", "job=other", "born", "seen", "ill")
    assert made.rows.tolist() == [[1, 1, 0, 0, 1, 0.5, 1], [4.5, 0, 0, 1, 2, 2, 0]]
    bounds = ["seen=1960-01-01:1980-01-01"]
    with pytest.raises(ParameterError, match="without a zone"):
        load(DataOptions(file=path, columns="seen", bounds=bounds, missing="drop"))


def test_blank_persons_and_labels_are_dropped_with_their_rows(tmp_path):
    text = "a,who,ill\n1,x,yes\n2,,no\n3,x,\n4,y,no\n"
    made = table(tmp_path / "t.csv", text, label="ill", person="who", missing="drop")
    assert made.rows.tolist() == [[1], [4]]
    assert made.target is not None
    assert made.target.tolist() == ["yes", "no"]
    assert made.person is not None
    assert made.person.tolist() == ["x", "y"]
    assert any("epsilon does not cover it" in note for note in made.assumptions)
    whole = table(tmp_path / "t.csv", "a\n1\n2\n", missing="drop")
    assert whole.assumptions == ()


@pytest.mark.parametrize("target", ["label", "schema"])
def test_a_label_has_the_categories_that_are_listed_and_no_other(target, tmp_path):
    path, stated = tmp_path / "s.toml", ["ill=no,yes", "job=clerk,nurse"]
    path.write_text('target = "ill"\n[columns.age]\ntype = "number"\nbounds = [0, 99]\n')
    schema = path if target == "schema" else None
    label = "ill" if target == "label" else None
    found: Any = declared_of(DataOptions(categories=stated, schema=schema), label).columns
    assert found["ill"].classes == ("no", "yes")
    assert found["job"].classes == ("clerk", "nurse", "other")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("logical", ["True,False", "true,false", "yes,no", "1,0"])
def test_truths_and_dates_are_categories_in_every_file(kind, logical, tmp_path):
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-02"], "datetime64[s]")
    active = pa.array([True, False, True])
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        lines = [f"{on.as_py()!s},{str(day)[:10]}" for on, day in zip(active, days, strict=True)]
        path.write_text("active,joined\n" + "\n".join(lines) + "\n")
    else:
        pq.write_table(pa.table({"active": active, "joined": pa.array(days)}), path)
    stated = [f"active={logical}", "joined=2026-01-01,2026-01-02"]
    given = Source(file=path, categories=stated)
    assert given.named("active")[1].tolist() == [0, 1, 0]
    assert given.named("joined")[1].tolist() == [0, 1, 1]


def test_dates_that_no_calendar_of_python_has_are_categories_like_others():
    days = np.array([7_000_000, -900_000], "datetime64[D]")
    moments = np.array(["2026-01-01", "2026-01-01T10:30", "NaT"], "datetime64[us]")
    assert unique_texts(days)[0] == ["-495-11-20", "21135-05-09"]
    assert unique_texts(moments)[0] == ["2026-01-01", "2026-01-01T10:30:00", ""]


def test_yes_and_no_are_numbers_where_bounds_are_given(tmp_path):
    made = table(tmp_path / "t.csv", "a\nyes\n\nNo\n", bounds=["0:1"], missing="drop")
    assert made.rows.ravel().tolist() == [1, 0]
