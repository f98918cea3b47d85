"""Studies of person-level optimisation: the table of clippings, slopes, counts, a real table."""

import bz2
import importlib.util
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from classes import Counted
from typer.testing import CliRunner

from protocols import AcceleratedPhasedERM, L2Ball, Logistic, Problem, UserLevelGD
from shuffle_sim import Privacy, run
from shuffle_sim.cli.app import app

PRIVACY = Privacy(1.0, 1e-6)


@pytest.fixture(scope="module")
def study(example):
    return example("persons")


def slope(study, kind, name, axis, seeds):
    """Of the line of a study, over its three decades."""
    (line,) = (each for each in study.STUDIES[kind] if (each.name, each.axis) == (name, axis))
    assert line.sizes[-1] == 1000 * line.sizes[0]
    return line.fit(seeds, quick=False).slope[0]


@pytest.mark.parametrize("kind", [UserLevelGD, AcceleratedPhasedERM])
@pytest.mark.full
def test_gradients_are_as_many_as_are_planned(kind):
    """Beside the checks of single rows before a run, and of the loss itself."""
    problem = Problem(Counted(), L2Ball(2, 1.0), records=3)
    given = {"rounds": 4} if kind is UserLevelGD else {"phases": 1, "center": "fixed"}
    made = kind.calibrated(n=100, problem=problem, privacy=Privacy(8.0, 1e-3), **given)
    x = np.random.default_rng(0).normal(size=(100, 3, 2)) / 4
    rows = np.concatenate([x, np.where(x[:, :, :1] > 0, 1.0, -1.0)], axis=2)
    Counted.asked.clear()
    run(made, rows, seed=1)
    planned = made.rounds * 300 if isinstance(made, UserLevelGD) else made.gradients
    assert planned <= sum(Counted.asked) <= planned + 3 * (made.rounds_per_user + 2)


@pytest.mark.full
def test_the_extension_gains_from_records(study):
    """The slope in m over three decades is -1, 4 seeds: its standard error is 0.08, and 5 of them
    are allowed. Without a gain it is 0. `python examples/persons.py extension` has more.
    """
    measure = partial(study.extension, "quadratic", "carried")
    line = study.Line("quadratic", "m", -1.0, {"n": 600}, study.decades(100), [], measure)
    assert line.fit(4, quick=False).slope[0] == pytest.approx(-1, abs=0.4)


@pytest.mark.slow
def test_the_table_of_clippings(study):
    """20 seeds, n = 2000, m = 400, real shuffle noise: at least 10 times below clipping at L. The
    interval is two standard errors of each mean.
    """
    found = study.logistic(2000, 400, 20)
    at_length, carried = np.array(found["clip at L"]), np.array(found["carried, u = 3"])
    low = at_length.mean() - 2 * at_length.std(ddof=1) / 20**0.5
    high = carried.mean() + 2 * carried.std(ddof=1) / 20**0.5
    assert at_length.mean() / carried.mean() >= 10
    assert low / high > 7
    problem = Problem(Logistic(), L2Ball(10, 3.0), records=25)
    few = UserLevelGD.calibrated(n=2000, problem=problem, privacy=PRIVACY, rounds=25, eta=3.8)
    assert few.choices["center"].startswith("fixed: bound")  # where it loses, the planner says so


@pytest.mark.slow
@pytest.mark.parametrize("center", ["carried", "fixed"])
@pytest.mark.parametrize(("loss", "gain"), [("quadratic", -1.0), ("linear", -0.5)])
def test_slopes_in_m(study, loss, gain, center):
    """Over three decades, 10 seeds, real shuffle noise, within 0.1."""
    expected = gain if center == "carried" else 0.0
    assert slope(study, "slopes", f"{loss}, {center}", "m", 10) == pytest.approx(expected, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("center", ["carried", "fixed"])
@pytest.mark.parametrize(("loss", "gain"), [("quadratic", -1.0), ("linear", -0.5)])
def test_slopes_of_the_extension_in_m(study, loss, gain, center):
    """Over three decades, 20 seeds, within 0.1: the standard error is 0.03. With a fixed center it
    is output perturbation at L, which gains nothing.
    """
    expected = gain if center == "carried" else 0.0
    found = slope(study, "extension", f"{loss}, {center}", "m", 20)
    assert found == pytest.approx(expected, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "gain"), [("quadratic", -2.0), ("linear", -1.0)])
def test_slopes_of_the_extension_in_n(study, loss, gain):
    """Over three decades, up to a million persons."""
    found = slope(study, "extension", f"{loss}, carried", "n", 20)
    assert found == pytest.approx(gain, abs=0.1)


@pytest.mark.slow
def test_a_real_table_of_men_over_eight_years(tmp_path):
    """wage_panel of the registry package linearmodels: 545 men, 8 years (Vella and Verbeek 1998).

    Only its file is needed: `make test-slow` installs the package without what it depends on.
    """
    package = importlib.util.find_spec("linearmodels")
    assert package is not None, "needs a file of linearmodels; `make test-slow` fetches it"
    assert package.origin is not None
    packed = Path(package.origin).parent / "datasets/wage_panel/wage_panel.csv.bz2"
    path = tmp_path / "wages.csv"
    path.write_bytes(bz2.decompress(packed.read_bytes()))
    words = ["train", "--file", path, "--person", "nr", "--label", "married", "--positive", "1"]
    words += ["--columns", "exper,educ,hours", "--bounds", "exper=0:20", "--bounds", "educ=0:20"]
    words += ["--bounds", "hours=0:5000", "--epsilon", 4, "--rounds", 20, "--records", 8]
    words += ["--choose", "bound"]
    done = CliRunner().invoke(app, [str(word) for word in [*words, "--seed", 1, "--json"]])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["people"] == {"asked": 436, "held_out": 109}
    assert found["privacy"]["unit"] == "person"
    assert found["privacy"]["epsilon"] <= 4
    assert "fixed" in found["protocol"]["choices"]["center"]
