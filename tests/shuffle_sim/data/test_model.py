import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commands import command
from typer.testing import CliRunner

from shuffle_sim import load_model
from shuffle_sim.cli.app import app
from shuffle_sim.data.column_kinds import Category, Number
from shuffle_sim.data.model import LinearModel
from shuffle_sim.data.schema import Schema
from shuffle_sim.errors import ParameterError

SCHEMA = Schema(
    columns=(
        Number(name="age", limits=(0.0, 100.0), unit="years"),
        Category(name="job", categories=("cook", "nurse")),
    ),
    missing="midpoint",
)
COMMON = {"schema": SCHEMA, "target": "ill", "labels": "", "privacy": {}, "private": True}
TWO = LinearModel(
    loss="Logistic",
    weights=np.array([0.1, 1.0, -1.0, 0.0]),
    intercept=np.array(-5.0),
    classes=(("no", "never"), ("yes",)),
    target_bounds=None,
    **COMMON,
)
THREE = LinearModel(
    loss="Softmax",
    weights=np.array([[0.0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2.0]]),
    intercept=np.zeros(3),
    classes=(("a",), ("b",), ("c",)),
    target_bounds=None,
    **COMMON,
)
REAL = LinearModel(
    loss="Squared",
    weights=np.array([0.01, 0, 0, 0]),
    intercept=np.array(0.0),
    classes=None,
    target_bounds=(100.0, 300.0),
    **COMMON,
)
MODELS = {"two": TWO, "three": THREE, "real": REAL}
TABLE = "age,job,ill\n80,cook,yes\n20,nurse,never\n500,pilot,yes\n,nurse,no\n"


def saved(folder: Path, model: LinearModel) -> Path:
    path = folder / "m.json"
    path.write_text(json.dumps(model.public()))
    return path


def table(folder: Path, text: str = TABLE) -> Path:
    path = folder / "t.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_a_model_survives_its_file(tmp_path, name):
    model = MODELS[name]
    again = load_model(saved(tmp_path, model))
    assert again.public() == model.public()
    rows, _ = again.table(table(tmp_path))
    np.testing.assert_array_equal(again.margins(rows), model.margins(rows))
    assert json.loads((tmp_path / "m.json").read_text())["units"] == {"age": "years"}


def test_two_classes(tmp_path):
    rows, cells = TWO.table(table(tmp_path))
    # 8 + 1 - 5; 2 - 1 - 5; clipped to 100; the middle of age and of nothing
    np.testing.assert_allclose(TWO.margins(rows), [4, -4, 5, -1])
    assert TWO.predict(rows).tolist() == ["yes", "no never", "yes", "no never"]
    probabilities = TWO.probabilities(rows)
    assert probabilities is not None
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp([-4, 4, -5, 1])))
    scores = TWO.scores(rows, cells["ill"])
    assert (scores["accuracy"], scores["accuracy_of_the_commonest_class"]) == (1, 0.5)
    losses = np.logaddexp(0, -np.array([4, 4, 5, 1]))
    assert scores["log_loss"] == pytest.approx(losses.mean())


def test_three_classes_and_numbers(tmp_path):
    rows, _ = THREE.table(table(tmp_path))
    assert THREE.predict(rows).tolist() == ["a", "b", "c", "b"]
    assert THREE.scores(rows, np.array(["a", "b", "a", "b"]))["accuracy"] == 0.75
    assert REAL.predict(rows).tolist() == [280, 220, 300, 250]
    scores = REAL.scores(rows, np.array([280.0, 220, 300, 240]))
    assert scores["mean_absolute_error"] == 2.5
    assert scores["r2"] == pytest.approx(1 - 100 / np.var([280, 220, 300, 240]) / 4)
    assert scores["labels_outside_the_bounds"] == 0
    # As in training, one beyond the bounds is their end.
    far = REAL.scores(rows, np.array([280.0, 220, 1e7, 240]))
    assert far["labels_outside_the_bounds"] == 1
    assert far["mean_absolute_error"] == (REAL.target_bounds[1] - 300 + 10) / 4


def test_a_row_that_the_model_drops_has_no_prediction(tmp_path):
    public = TWO.public()
    public["schema"]["missing"] = "drop"
    model = LinearModel.from_public(public)
    rows, cells = model.table(table(tmp_path))
    assert model.predict(rows).tolist() == ["yes", "no never", "yes", None]
    assert model.scores(rows, cells["ill"])["rows"] == 3


def test_a_label_that_is_blank_is_named_with_its_row(tmp_path):
    public = TWO.public()
    public["schema"]["missing"] = "drop"
    model = LinearModel.from_public(public)
    rows, _ = model.table(table(tmp_path))
    labels = np.array(["yes", "no", "yes", None], object)
    assert model.scored_by("cured").scores(rows, labels)["rows"] == 3
    # A row without a prediction counts as a row of the file.
    with pytest.raises(ParameterError, match=r"column cured, row 4.*leave rows without it"):
        model.scored_by("cured").scores(np.concatenate([rows[3:], rows[:3]]), labels)
    labels[3] = "perhaps"
    with pytest.raises(ParameterError, match="column cured, row 4"):
        model.scored_by("cured").scores(np.concatenate([rows[3:], rows[:3]]), labels)


@pytest.mark.parametrize("words", [["evaluate"], ["predict"]])
def test_of_a_blank_the_commands_say_what_helps(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    public = TWO.public()
    public["schema"]["missing"] = None
    saved(tmp_path, LinearModel.from_public(public))
    done = command(*words, "m.json", table(tmp_path))
    assert done.returncode == 2
    assert "train with a rule for missing values, or leave such rows out" in done.stderr
    assert "--missing" not in done.stderr


def test_the_commands_write_predictions_and_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, TWO)
    table(tmp_path)
    run = CliRunner().invoke
    printed = run(app, ["predict", "m.json", "t.csv"])
    assert printed.exit_code == 0
    assert run(app, ["predict", "m.json", "t.csv", "--out", "p.csv"]).exit_code == 0
    assert printed.stdout == Path("p.csv").read_text()
    lines = list(csv.reader(printed.stdout.splitlines()))
    assert lines[0] == ["ill", "probability of no never", "probability of yes"]
    assert [line[0] for line in lines[1:]] == ["yes", "no never", "yes", "no never"]
    found = json.loads(run(app, ["evaluate", "m.json", "t.csv", "--json"]).stdout)
    assert found["simulator_view"]["scores"]["accuracy"] == 1
    assert "scores" not in found  # no epsilon covers them
    assert "accuracy" in run(app, ["evaluate", "m.json", "t.csv"]).stdout


# Bad models and files


def changed(**given):
    return lambda text: json.dumps(json.loads(text) | given)


BAD = {
    "truncated": (lambda text: text[: len(text) // 2], "truncated"),
    "empty": (lambda text: "", "truncated"),
    "a list": (lambda text: "[1]", "format"),
    "another format": (changed(format="onnx"), "format"),
    "another version": (changed(version=2), "of version 1, not 2: train it anew"),
    "fewer weights": (changed(weights=[1.0]), "weights of shape"),
    "weights of text": (changed(weights=["x"] * 4), "whole model file"),
    "no number": (changed(weights=[float("nan")] * 4), "finite"),
    "no schema": (changed(schema={}), "columns"),
    "a number beyond doubles": (changed(intercept=10**400), "OverflowError"),
    "bounds of one number": (changed(classes=None, target_bounds=[1]), "IndexError"),
    "one class": (changed(classes=[["yes"]]), "fewer than two classes"),
    "classes without labels": (changed(classes=[[], []]), "without a label"),
    "neither classes nor bounds": (changed(classes=None), "classes or target_bounds"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_no_model_of_this_version_is_refused(tmp_path, case):
    spoil, way = BAD[case]
    path = saved(tmp_path, TWO)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ParameterError, match=way) as caught:
        load_model(path)
    assert caught.value.parameter == "model"
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_no_file_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="No such file"):
        load_model(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("age,ill\n1,yes\n", "column"),
        ("age,job\n1,cook\n", "column"),
        ("age,job,ill\nmany,cook,yes\n", "column age"),
        ("age,job,ill\n1,cook,perhaps\n", "column ill, row 1"),
        ("age,job,ill\n1,cook,\n2,cook,no\n", "column ill, row 1"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_column(tmp_path, text, parameter):
    path = table(tmp_path, text)
    saved(tmp_path, TWO)
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "m.json"), str(path)])
    assert isinstance(done.exception, ParameterError)
    assert done.exception.parameter == parameter
