"""Persons on the command line: sums, plans and training say whose data are protected."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from shuffle_sim.cli.app import app
from shuffle_sim.errors import ParameterError


@pytest.fixture
def visits(tmp_path):
    """150 persons with one to six visits each, as a CSV file."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 7, 150)
    lines = ["patient,dose,age,ill"]
    for person, count in enumerate(counts):
        base = rng.normal()
        for _ in range(count):
            dose, age = base + rng.normal() / 2, rng.uniform(20, 80)
            lines.append(f"p{person},{dose:.4f},{age:.2f},{'yes' if dose > 0 else 'no'}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, counts


def asked(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def refused(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, ParameterError), done.output
    return str(done.exception)


BOUNDS = ("--bounds", "dose=-4:4", "--bounds", "age=0:100")


@pytest.mark.full
def test_a_sum_counts_each_person_once(visits):
    path, _ = visits
    words = ["sum", "--file", path, "--columns", "dose,age", *BOUNDS, "--seed", 1]
    found = json.loads(asked(*words, "--person", "patient", "--json"))
    assert (found["people"], found["unit"], found["privacy"]["unit"]) == (150, "person", "person")
    table = [line.split(",") for line in path.read_text().splitlines()[1:]]
    rows, names = np.array([row[1:3] for row in table], float), np.array([row[0] for row in table])
    means = [rows[names == name].mean(axis=0) for name in np.unique(names)]
    assert np.allclose(found["simulator_view"]["true"], np.mean(means, axis=0), atol=1e-9)
    alone = json.loads(asked(*words, "--json"))
    assert (alone["people"], alone["privacy"]["unit"]) == (len(rows), "record")
    assert "the person: each counts once" in asked(*words, "--person", "patient")


@pytest.mark.full
def test_a_plan_counts_the_persons_of_a_file(visits):
    path, _ = visits
    plan = json.loads(asked("plan", "--file", path, "--person", "patient", "--d", 2, "--json"))
    same = json.loads(asked("plan", "--n", 150, "--d", 2, "--json"))
    assert (plan["plan"], plan["unit"], same["unit"]) == (same["plan"], "person", "record")
    shown = asked("plan", "--file", path, "--person", "patient")
    assert "all records of one person" in " ".join(shown.split())


@pytest.mark.full
def test_training_is_on_persons(visits):
    path, _ = visits
    words = ["train", "--file", path, "--label", "ill", "--person", "patient", *BOUNDS]
    words += ["--rounds", 4, "--epsilon", 4, "--seed", 3, "--records", 3]
    found = json.loads(asked(*words, "--json"))
    assert found["people"] == {"asked": 120, "held_out": 30}
    assert found["privacy"]["unit"] == "person"
    assert found["protocol"]["name"] == "PracticalUserDescent"
    assert found["privacy"]["epsilon"] <= 4
    proven = json.loads(asked(*words, "--choose", "bound", "--json"))
    assert proven["protocol"]["name"] == "UserLevelGD"
    assert "person" in asked(*words)


def test_a_curator_counts_no_clipped_gradients(visits):
    """It clips inside a statistic: it said that none was above a bound of 0.01."""
    path, _ = visits
    words = ["train", "--file", path, "--label", "ill", "--person", "patient", *BOUNDS]
    words += ["--trust", "central", "--mechanism", "linear-time-phased-sgd", "--norm-bound", 0.01]
    found = json.loads(asked(*words, "--seed", 3, "--json"))
    assert found["protocol"]["name"] == "LinearTimePhasedSGD"
    assert found["simulator_view"]["clipped"] == {"cells": 0, "labels": 0, "gradients": None}
    shown = asked(*words, "--seed", 3)
    assert "0 labels outside the public bounds were clipped" in " ".join(shown.split())
    assert "above the norm bound" not in " ".join(shown.split())


@pytest.mark.full
def test_a_comparison_shows_records_beside_persons(visits):
    path, _ = visits
    words = ["train", "--file", path, "--label", "ill", "--person", "patient", *BOUNDS]
    words += [
        "--rounds",
        4,
        "--epsilon",
        4,
        "--seed",
        3,
        "--compare",
        "--all",
        "--repeats",
        1,
        "--json",
    ]
    rows = {row["method"]: row for row in json.loads(asked(*words))["methods"]}
    assert rows["user-level-gd (person)"]["unit"] == "person"
    assert rows["shuffle-gd"]["unit"] == rows["shuffle-gd"]["privacy"]["unit"] == "record"
    assert rows["central (person)"]["privacy"]["unit"] == "person"
    assert "user-level-gd" not in rows
    assert rows["dp-fedsgd (person)"]["privacy"]["unit"] == "person"
    assert "linear-time-phased-sgd, plain (person)" in rows


@pytest.mark.full
def test_bad_persons_are_refused_by_name(visits, tmp_path):
    path, _ = visits
    train = ["train", "--file", path, "--label", "ill", *BOUNDS]
    for words, named in (
        ([*train, "--person", "doctor"], "doctor"),
        ([*train, "--columns", "dose,age", "--records", "3"], "records"),
        ([*train, "--person", "patient", "--records", "0"], "records"),
        ([*train, "--person", "patient", "--protocol", "shuffle-sgd"], "user-level-gd"),
        (["sum", "--table", "wine", "--person", "patient"], "person"),
        (["plan", "--n", "100", "--person", "patient"], "--file with --person"),
        (["plan"], "--n alone"),
    ):
        assert named in refused(*words)
    gap = tmp_path / "gap.csv"
    gap.write_text("patient,dose\na,1\n,2\nb,3\n")
    missing = refused("sum", "--file", gap, "--bounds", "0:4", "--person", "patient")
    assert "row 2" in missing


@pytest.mark.full
def test_a_bound_says_what_it_assumes_of_persons(tmp_path):
    """With a center the bound rests on i.i.d. records; without one it does not."""
    rng = np.random.default_rng(1)
    dose = np.clip(rng.normal(size=(1500, 3)), -4, 4)
    lines = [
        f"p{person},{value:.3f},{'yes' if value > 0 else 'no'}"
        for person, row in enumerate(dose)
        for value in row
    ]
    path = tmp_path / "long.csv"
    path.write_text("patient,dose,ill\n" + "\n".join(lines) + "\n")
    words = ["train", "--file", path, "--label", "ill", "--person", "patient"]
    words += [
        "--bounds",
        "dose=-4:4",
        "--rounds",
        30,
        "--radius",
        1,
        "--seed",
        3,
        "--choose",
        "bound",
    ]
    many = " ".join(asked(*words, "--records", 20_000).split())
    assert "proven only where records of a person are i.i.d." in many
    assert "as stable as plain descent" in many
    few = json.loads(asked(*words, "--records", 1, "--json"))["protocol"]
    assert few["bound_assumes"] == ""
