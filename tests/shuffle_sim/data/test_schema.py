import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_sim.data.column_kinds import Boolean, Category, Date, Number, moment_of
from shuffle_sim.data.column_stated import column_from
from shuffle_sim.data.columns import Marks
from shuffle_sim.data.file_columns import kinds_of
from shuffle_sim.data.schema import Layout, Schema, draft, layout_from, read_schema
from shuffle_sim.data.tables import read
from shuffle_sim.errors import ParameterError

TOML = """
target = "retired"
person = "who"
missing = "indicator"
[file]
delimiter = ";"
decimal = ","
thousands = "."
[columns.age]
type = "number"
bounds = [0, 120]
unit = "years"
[columns."net income"]
type = "number"
bounds = [0, 1e5]
[columns.job]
type = "category"
categories = ["clerk", "nurse"]
[columns.born]
type = "date"
bounds = [1900-01-01, 2030-01-01]
format = "%d.%m.%Y"
[columns.retired]
type = "boolean"
"""
TABLE = """age;net income;job;born;retired;who;more
31;1.234,5;clerk;01.02.1980;no;x;?
;20.000;pilot;;yes;y;1
"""


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    schema, table = tmp_path / "s.toml", tmp_path / "t.csv"
    schema.write_text(TOML)
    table.write_text(TABLE)
    return schema, table


def test_a_schema_says_all_that_is_needed(files):
    schema, path = files
    table = read(path, None, {}, None, declared=read_schema(schema))
    assert table.columns == (
        *("age", "age is blank", "net income", "net income is blank"),
        *("job=clerk", "job=nurse", "job=other", "job is blank", "born", "born is blank"),
    )
    middle = (-25567 + 21915) / 2  # days from 1970 to 1900 and 2030
    assert table.rows.tolist() == [
        [31, 0, 1234.5, 0, 1, 0, 0, 0, 3683, 0],
        [60, 1, 20000, 0, 0, 0, 1, 0, middle, 1],
    ]
    assert (table.target_name, table.classes) == ("retired", ("false", "true"))
    assert table.target is not None
    assert table.person is not None
    assert (table.target.tolist(), table.person.tolist()) == (["false", "true"], ["x", "y"])
    assert table.schema is not None
    units = [column.unit for column in table.schema.columns]
    assert units == ["years", "", "", ""]


def test_a_schema_survives_json(files):
    schema, path = files
    made = read(path, None, {}, None, declared=read_schema(schema)).schema
    assert made is not None
    again = Schema.from_public(json.loads(json.dumps(made.public())))
    assert again == made


CELLS = st.tuples(
    st.one_of(st.floats(-50, 50).map(str), st.sampled_from(["", "?", "NA", " 3 "])),
    st.sampled_from(["red", "green", "blue", "", " red "]),
    st.one_of(st.dates().map(str), st.just("")),
    st.sampled_from(["yes", "No", "1", "0", "true", "-"]),
)
COLUMNS = (
    Number(name="a", limits=(-10, 10)),
    Category(name="b", categories=("red", "green")),
    Date(name="c", first=moment_of("1900-01-01", None), last=moment_of("2100-01-01", None)),
    Boolean(name="d"),
)


@pytest.mark.parametrize("missing", ["midpoint", "indicator", "drop"])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(CELLS, min_size=1, max_size=6))
@pytest.mark.full
def test_a_row_is_encoded_by_itself_and_lies_in_the_ball(missing, rows):
    schema = Schema(columns=COLUMNS, missing=missing)

    def encoded(some):
        columns = zip("abcd", zip(*some, strict=True), strict=True)
        return schema.encode({name: np.array(cells, object) for name, cells in columns})

    together = encoded(rows)
    np.testing.assert_array_equal(together, np.concatenate([encoded([row]) for row in rows]))
    scale, (low, high) = schema.scale, schema.limits
    scaled = (np.clip(together, low, high) - scale.center) / scale.half / scale.norm
    norms = np.linalg.norm(scaled, axis=1)
    assert (norms[~np.isnan(norms)] <= 1 + 1e-12).all()
    if missing == "midpoint":
        blank = np.array([row[0].strip() in ("", "?", "NA") for row in rows])
        assert (scaled[blank, 0] == 0).all()


def test_the_norm_is_attained_so_no_accuracy_is_given_away():
    schema, cells = Schema(columns=(*COLUMNS[:2], COLUMNS[3])), {"a": "10", "b": "red", "d": "yes"}
    row = schema.encode({name: np.array([cell], object) for name, cell in cells.items()})
    scaled = (row - schema.scale.center) / schema.scale.half / schema.scale.norm
    assert np.linalg.norm(scaled) == pytest.approx(1)
    signs = Schema(columns=schema.columns, missing="indicator")
    assert signs.scale.norm == pytest.approx(np.sqrt(3))  # a column with its sign is no longer


def test_a_date_with_a_zone_is_a_moment():
    limits = (moment_of("2020-01-01T00:00Z", None), moment_of("2020-01-03T00:00Z", None))
    column = Date(name="c", first=limits[0], last=limits[1])
    cells = np.array(["2020-01-02T01:00+01:00", "2020-01-02T00:00Z"], object)
    found = column.values(cells, Marks())
    assert found[0] == found[1] == (column.bounds[0] + column.bounds[1]) / 2
    with pytest.raises(ParameterError, match="with a zone"):
        column.values(np.array(["2020-01-02"], object), Marks())
    with pytest.raises(ParameterError, match="both with a zone"):
        Date(name="c", first=limits[0], last=moment_of("2020-01-03", None))


def test_what_is_not_listed_is_refused_where_others_are_out():
    column = Category(name="b", categories=("red", "green"), other=False)
    assert column.names == ("b=red", "b=green")
    with pytest.raises(ParameterError, match="other = true") as caught:
        column.values(np.array(["red", "blue"], object), Marks())
    assert caught.value.parameter == "column b, row 2"
    assert "blue" not in str(caught.value)


# Drafts


def test_a_draft_holds_names_and_types_and_no_value(files):
    path = files[1]
    text = draft(path.name, *kinds_of(path, Layout()))
    found = tomllib.loads(text)
    assert {name: column["type"] for name, column in found["columns"].items()} == {
        "age": "number",
        "net income": "number",
        "job": "category",
        "born": "category",
        "retired": "boolean",
        "who": "category",
        "more": "number",
    }
    assert found["file"] == {"decimal": ",", "thousands": ".", "delimiter": ";"}
    assert "nothing else" in text
    for cell in ("31", "1.234", "20.000", "clerk", "pilot", "1980"):
        assert cell not in text


def test_a_draft_names_the_column_that_no_type_fits(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "tags": [["x"], ["y", "z"]]}), tmp_path / "t.parquet")
    with pytest.raises(ParameterError, match="column tags = 'objects'"):
        kinds_of(tmp_path / "t.parquet", Layout())


def test_a_draft_not_filled_in_is_refused_with_what_is_missing(files, tmp_path):
    unfinished = tmp_path / "d.toml"
    unfinished.write_text(draft("t.csv", *kinds_of(files[1], Layout())))
    with pytest.raises(
        ParameterError, match=r"public limits, not computed from the data"
    ) as caught:
        read_schema(unfinished)
    assert caught.value.parameter == "column age of the schema"


def test_a_draft_keeps_odd_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('"a ""b"" \\c",größe\n1,2020-01-01\n')
    found = tomllib.loads(draft("ö.csv", *kinds_of(path, Layout())))
    assert {name: each["type"] for name, each in found["columns"].items()} == {
        'a "b" \\c': "number",
        "größe": "date",
    }


# Bad schemas

BAD = {
    "no toml": ("[columns", "schema", "TOML"),
    "no columns": ("", "schema", "table for each column"),
    "a list of columns": ("columns = [1]", "schema", "table for each column"),
    "an unknown key": ("bounds = 1\n[columns.a]\ntype='boolean'", "schema", "bounds is not known"),
    "no type": ("[columns.a]\nbounds=[0, 1]", "column a of the schema", "number, date"),
    "another type": ("[columns.a]\ntype='text'", "column a of the schema", "number, date"),
    "no bounds": ("[columns.a]\ntype='number'", "column a of the schema", "bounds = "),
    "bounds of text": (
        "[columns.a]\ntype='number'\nbounds=['0', '1']",
        "column a of the schema",
        "numbers",
    ),
    "bounds upside down": (
        "[columns.a]\ntype='number'\nbounds=[1, 0]",
        "bounds of a",
        "lower first",
    ),
    "bounds beyond doubles": (
        f"[columns.a]\ntype='number'\nbounds=[0, {10**400}]",
        "column a of the schema",
        "within",
    ),
    "dates upside down": (
        "[columns.a]\ntype='date'\nbounds=[2000-01-01, 1990-01-01]",
        "bounds of a",
        "earlier first",
    ),
    "numbers of a date": (
        "[columns.a]\ntype='date'\nbounds=['x', 'y']",
        "column a of the schema",
        "dates",
    ),
    "no categories": ("[columns.a]\ntype='category'", "column a of the schema", "categories = "),
    "one category alone": (
        "[columns.a]\ntype='category'\ncategories=['x']\nother=false",
        "categories of a",
        "two",
    ),
    "bounds of a boolean": (
        "[columns.a]\ntype='boolean'\nbounds=[0, 1]",
        "column a of the schema",
        "boolean does not have",
    ),
    "another rule": ("missing='mean'\n[columns.a]\ntype='boolean'", "missing", "one of drop"),
    "another mark": ("[file]\ndecimal=';'\n[columns.a]\ntype='boolean'", "decimal", "comma"),
    "a file's key": ("[file]\nquote='x'\n[columns.a]\ntype='boolean'", "file in", "thousands"),
    "a target of numbers": ("target=3\n[columns.a]\ntype='boolean'", "target of", "name"),
    "a column that is not there": ("[columns.b]\ntype='boolean'", "column", "one of a"),
    "a target that is not there": ("target='b'\n[columns.a]\ntype='boolean'", "column", "one of a"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_schema_that_does_not_fit_is_refused_by_name(tmp_path, case):
    text, parameter, way = BAD[case]
    schema, path = tmp_path / "s.toml", tmp_path / "t.csv"
    schema.write_text(text)
    path.write_text("a\n1\n")
    with pytest.raises(ParameterError, match=way) as caught:
        read(path, None, {}, None, declared=read_schema(schema))
    assert caught.value.parameter.startswith(parameter)
    assert len(str(caught.value).splitlines()) == 1


def test_a_column_whose_name_is_no_text_is_refused():
    with pytest.raises(ParameterError, match="name of a column"):
        column_from(["a"], {"type": "boolean"})


def test_two_columns_that_would_become_one_are_refused():
    with pytest.raises(ParameterError, match="no two"):
        Schema(columns=(Boolean(name="a=x"), Category(name="a", categories=("x", "y"))))


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(ParameterError):
        column_from("a", {"type": "number", "bounds": [0, True]})
    with pytest.raises(ParameterError):
        layout_from({"delimiter": 3})
