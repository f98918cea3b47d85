"""Tables, schemas and models that do not fit: one line that names the column and the way out."""

import pytest

from protocols import ShuffleLogisticRegression
from shuffle_sim import ParameterError
from shuffle_sim.cli.app import main

TABLE = """a,when,job,y
1,2020-01-01T00:00,clerk,yes
2,2021-01-01T00:00,nurse,no
3,2022-01-01T00:00,pilot,yes
"""
FILES = {
    "t.csv": TABLE,
    "blank.csv": "b,c\n,1\n,2\n",
    "scattered.csv": "b,c\n,1\n2,\n",
    "commas.csv": "b;c\n1,5;1\n2,5;2\n",
    "listed.toml": '[columns.job]\ntype = "category"\ncategories = ["clerk", "nurse"]\n'
    "other = false\n",
    "zone.toml": '[columns.when]\ntype = "date"\n'
    "bounds = [2020-01-01T00:00:00Z, 2030-01-01T00:00:00Z]\n",
    "drop.toml": 'missing = "drop"\n[columns.b]\ntype = "number"\nbounds = [0, 1]\n'
    '[columns.c]\ntype = "number"\nbounds = [0, 9]\n',
    "other.toml": '[columns.pay]\ntype = "number"\nbounds = [0, 1]\n',
    "extra.toml": '[columns.a]\ntype = "number"\nbounds = [0, 1]\nprice = 3\n',
    "kind.toml": '[columns.a]\ntype = "money"\n',
    "text.toml": '[columns.job]\ntype = "number"\nbounds = [0, 1]\n',
    "torn.toml": "[columns.a\n",
    "torn.json": '{"format": "shuffle-sim linear model", "vers',
    "later.json": '{"format": "shuffle-sim linear model", "version": 99}',
    "empty.json": "{}",
    "half.json": '{"format": "shuffle-sim linear model", "version": 1, "loss": "Logistic"}',
}
SUM = ("sum", "--file")
CASES = {
    "a category that is not listed": (
        (*SUM, "t.csv", "--schema", "listed.toml"),
        ("column job, row 3", "other = true"),
    ),
    "texts without bounds": (
        (*SUM, "t.csv", "--columns", "a,job", "--bounds", "a=0:9"),
        ("column job", "--categories", "--schema", "leave it out"),
    ),
    "a date without a zone": (
        (*SUM, "t.csv", "--schema", "zone.toml"),
        ("column when, row 1", "with a zone"),
    ),
    "every row dropped, by one column": (
        (*SUM, "blank.csv", "--schema", "drop.toml"),
        ("missing", "column b has nothing else", "midpoint or indicator"),
    ),
    "every row dropped, by several": (
        (*SUM, "scattered.csv", "--schema", "drop.toml"),
        ("missing", "every row has a blank", "midpoint or indicator"),
    ),
    "decimal commas": ((*SUM, "commas.csv", "--bounds", "0:9"), ("column b", "--decimal")),
    "a schema of another table": (
        (*SUM, "t.csv", "--schema", "other.toml"),
        ("'pay'", "one of a, when, job, y"),
    ),
    "a schema that says too much": (
        (*SUM, "t.csv", "--schema", "extra.toml"),
        ("column a of the schema", "price"),
    ),
    "a type that is none": (
        (*SUM, "t.csv", "--schema", "kind.toml"),
        ("column a of the schema", "number, date, boolean, category"),
    ),
    "text for a number": (
        (*SUM, "t.csv", "--schema", "text.toml"),
        ("column job", "--categories"),
    ),
    "quantiles of days": (
        ("quantiles", "--file", "t.csv", "--column", "when", "--bounds", "2020-01-01:2030-01-01"),
        ("bounds of when", "dates are not taken"),
    ),
    "quantiles of a blank": (
        ("quantiles", "--file", "blank.csv", "--column", "b", "--bounds", "0:1"),
        ("column b, row 1", "leave such rows out"),
    ),
    "no workers": (
        (*SUM, "t.csv", "--columns", "a", "--bounds", "0:9", "--workers", "0"),
        ("workers = 0",),
    ),
    "no workers of an audit": (("audit", "--n", "100", "--workers", "0"), ("workers = 0",)),
    "a torn schema": ((*SUM, "t.csv", "--schema", "torn.toml"), ("schema", "readable TOML")),
    "a torn model": (("predict", "torn.json", "t.csv"), ("model", "truncated")),
    "a model of another version": (("predict", "later.json", "t.csv"), ("version 1, not 99",)),
    "a model that is none": (("evaluate", "empty.json", "t.csv"), ("model", "--model-out")),
    "half a model": (("predict", "half.json", "t.csv"), ("model", "whole model file")),
    "no model": (("predict", "gone.json", "t.csv"), ("model", "can be read")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_line_names_what_is_wrong_and_what_would_do(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    arguments, named = CASES[case]
    monkeypatch.setattr("sys.argv", ["shuffle-sim", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    output, errors = capsys.readouterr()
    assert (left.value.code, output, errors.count("\n")) == (2, "", 1)
    assert all(each in errors for each in named), errors


@pytest.mark.parametrize("bound", [float("inf"), float("nan"), 0.0, -1.0, None])
def test_weights_without_a_bound_are_refused(bound):
    model = ShuffleLogisticRegression(weight_bound=bound, classes=[0, 1])
    with pytest.raises(ParameterError, match="weight_bound"):
        model.fit([[0.1], [0.2]], [0, 1], sample_weight=[1.0, 2.0])
