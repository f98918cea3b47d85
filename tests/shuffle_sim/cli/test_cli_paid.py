"""Paid choices from the command line: --choose-bounds and --select."""

import json

import numpy as np
import pytest

from shuffle_sim import load_model
from shuffle_sim.cli.app import main

PEOPLE = 4000


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A table whose bounds nobody states."""
    rng = np.random.default_rng(0)
    age, pay = rng.uniform(18, 90, PEOPLE), rng.lognormal(8, 0.5, PEOPLE)
    lines = ["age,pay,job,person,old,score"]
    lines += [
        f"{a:.0f},{p:.2f},{'ab'[at % 2]},{at // 2},{'yes' if a > 55 else 'no'},{3 * a:.1f}"
        for at, (a, p) in enumerate(zip(age.tolist(), pay.tolist(), strict=True))
    ]
    path = tmp_path_factory.mktemp("paid") / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def command(monkeypatch, capsys, tmp_path, people):
    """A command on that table: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, *arguments: str) -> tuple[int, str, str]:
        given = ["shuffle-sim", name, "--file", str(people), "--seed", "1", *arguments]
        monkeypatch.setattr("sys.argv", given)
        with pytest.raises(SystemExit) as left:
            main()
        return (left.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def printed(command):
    def call(*arguments: str) -> dict:
        code, output, errors = command(*arguments, "--json")
        assert (code, errors) == (0, "")
        return json.loads(output)

    return call


@pytest.mark.full
def test_a_sum_chooses_bounds_and_pays_for_them(printed):
    found = printed("sum", "--columns", "age,pay", "--choose-bounds", "0.2", "--epsilon", "2")
    assert found["chosen_bounds"]["age"] == [16, 128]
    assert found["chosen_bounds"]["pay"][0] < 3000 < found["chosen_bounds"]["pay"][1]
    assert (found["costs"]["rounds"], found["privacy"]["epsilon"] <= 2) == (2, True)
    off = np.array(found["private"]) - found["simulator_view"]["true_clipped"]
    assert (np.abs(off) < 5 * np.array(found["standard_error"])).all()
    assert found["bits_per_user"] > 2 * found["bits"]  # the histogram's bits are told, too
    stated = printed("sum", "--columns", "age,pay", "--bounds", "0:10000", "--epsilon", "2")
    assert stated["chosen_bounds"] == {}
    assert found["standard_error"][0] < stated["standard_error"][0] / 10


@pytest.mark.full
def test_only_columns_without_bounds_are_chosen(printed):
    given = "--columns", "age,pay", "--bounds", "pay=0:10000", "--choose-bounds", "0.2"
    assert list(printed("sum", *given)["chosen_bounds"]) == ["age"]


def test_dropouts_leave_an_average_over_the_sum_s_reports(printed):
    given = "--columns", "age", "--choose-bounds", "0.2", "--attack", "dropout:rate=0.3"
    found = printed("sum", *given)
    assert found["reports"]["asked"] == 2 * PEOPLE
    assert abs(found["private"][0] - found["simulator_view"]["true_clipped"][0]) < 2


@pytest.mark.full
def test_a_model_in_chosen_bounds_is_saved_in_the_table_s_units(printed, people):
    given = "--columns", "age,pay,job", "--categories", "job=a,b", "--label", "old"
    found = printed("train", *given, "--choose-bounds", "0.2", "--model-out", "m.json")
    assert list(found["chosen_bounds"]) == ["age", "pay"]
    assert found["simulator_view"]["scores"]["accuracy"] > 0.85
    assert found["privacy"]["epsilon"] <= 1
    model = load_model("m.json")
    rows, columns = model.table(people)
    assert np.mean(model.predict(rows) == columns["old"]) > 0.85
    assert model.schema.limits[1][0] == 128


@pytest.mark.full
def test_a_regression_gets_bounds_and_a_model_is_selected(printed):
    given = "--columns", "age", "--label", "score", "--loss", "squared", "--choose-bounds", "0.3"
    found = printed("train", *given, "--select", "radius=0.001,50", "--rounds", "8")
    assert found["chosen_bounds"]["score"][1] in (256, 512)
    assert found["selected"]["chosen"] == "radius 50"
    assert set(found["selected"]["scores"]) == {"radius 0.001", "radius 50"}
    assert found["costs"]["rounds"] == 18
    assert found["privacy"]["epsilon"] <= 1
    scores = found["simulator_view"]
    assert scores["scores"]["mean_absolute_error"] < scores["constant"]["mean_absolute_error"] / 3


@pytest.mark.full
def test_people_read_what_was_chosen_and_that_epsilon_covers_it(command):
    given = "--columns", "age", "--label", "old", "--choose-bounds", "0.3", "--rounds", "6"
    code, output, errors = command("train", *given, "--select", "ridge=0,0.1")
    assert (code, errors) == (0, "")
    assert "chosen by a private histogram, which epsilon covers" in output
    assert "by noisy scores (epsilon covers them)" in output


def test_a_curator_selects_by_the_exponential_mechanism(command, printed):
    given = ["train", *FREE[:4], "--bounds", "0:120", "--trust", "central", "--pure"]
    given += ["--mechanism", "output", "--select", "ridge=0.01,0.1"]
    found = printed(*given)
    assert found["selected"]["chosen"] in ("ridge 0.01", "ridge 0.1")
    assert found["selected"]["scores"] == {}
    assert 0.99 < found["privacy"]["epsilon"] <= 1
    assert found["privacy"]["delta"] == 0
    assert found["simulator_view"]["scores"]["accuracy"] > 0.8
    code, output, _ = command(*given)
    assert (code, "by the exponential mechanism (epsilon covers it)" in output) == (0, True)


@pytest.mark.full
def test_a_schema_leaves_bounds_out_only_where_they_are_chosen(command, printed, tmp_path):
    (tmp_path / "s.toml").write_text(
        '[columns.age]\ntype = "number"\nunit = "years"\n'
        '[columns.pay]\ntype = "number"\nbounds = [0, 9000]\n'
    )
    given = "sum", "--schema", "s.toml"
    code, _, errors = command(*given)
    assert code == 2
    assert "age" in errors
    assert list(printed(*given, "--choose-bounds", "0.2")["chosen_bounds"]) == ["age"]


AGE = ("--columns", "age")
OLD = ("--columns", "age,pay", "--bounds", "0:9000", "--label", "old")
FREE = ("--columns", "age", "--label", "old", "--choose-bounds", "0.2")
REFUSED = {
    "no bounds": (("sum", *AGE), "age", "--choose-bounds"),
    "share of 1": (("sum", *AGE, "--choose-bounds", "1"), "choose_bounds", "(0, 1)"),
    "nothing to choose": (
        ("sum", *AGE, "--bounds", "0:99", "--choose-bounds", "0.2"),
        "choose_bounds",
        "every column has bounds",
    ),
    "too little for so many": (
        ("sum", *AGE, "--choose-bounds", "0.001"),
        "choose_bounds",
        "bin is told from noise",
    ),
    "variances": (("sum", *AGE, "--choose-bounds", "0.2", "--variance"), "variance", "left out"),
    "several rounds": (
        ("sum", *AGE, "--choose-bounds", "0.2", "--rounds", "365"),
        "rounds",
        "left out",
    ),
    "persons": (
        ("sum", *AGE, "--choose-bounds", "0.2", "--person", "person"),
        "choose_bounds",
        "persons",
    ),
    "no middle": (
        ("sum", *AGE, "--choose-bounds", "0.2", "--missing", "midpoint"),
        "missing",
        "age",
    ),
    "a curator": (("train", *FREE, "--trust", "central"), "choose_bounds", "central"),
    "a comparison": (("train", *FREE, "--compare"), "choose_bounds", "compare"),
    "a picture": (("train", *FREE, "--plot", "p.png"), "plot", "losses"),
    "select nothing": (("train", *OLD, "--select", "radius="), "select", "NAME=a,b,c"),
    "select twice": (
        ("train", *OLD, "--select", "radius=1,2", "--select", "radius=3,4"),
        "select",
        "once",
    ),
    "select one": (("train", *OLD, "--select", "radius=1"), "select", "2 to 16"),
    "select another": (("train", *OLD, "--select", "epsilon=1,2"), "select", "radius"),
    "a fraction of nothing": (("train", *OLD, "--select-fraction", "0.2"), "select_fraction", ""),
    "select for a curator": (
        ("train", *OLD, "--select", "rounds=1,2", "--trust", "central"),
        "select",
        "radius, ridge, norm_bound, with --trust central",
    ),
    "several releases of a curator": (
        ("train", *OLD, "--select", "radius=1,2", "--trust", "central", "--pilot"),
        "select",
        "one release",
    ),
    "a rotation for a curator": (
        ("train", *OLD, "--rotation", "5", "--trust", "central"),
        "rotation",
        "central",
    ),
    "a curator's scorers": (
        (
            *("train", *OLD, "--select", "radius=1,2", "--trust=central", "--pure"),
            *("--mechanism=output", "--select-fraction=0.2"),
        ),
        "select_fraction",
        "central",
    ),
    "tuned steps for a curator": (
        ("train", *OLD, "--choose", "practice", "--trust", "central", "--mechanism", "output"),
        "choose",
        "proven bounds",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.full
def test_what_does_not_fit_is_refused_by_name_in_one_line(command, case):
    arguments, *named = REFUSED[case]
    code, output, errors = command(*arguments)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert all(each in errors for each in named), errors


def test_bundled_tables_have_bounds(monkeypatch, capsys):
    given = ["shuffle-sim", "sum", "--table", "wine", "--choose-bounds", "0.2"]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code, "choose_bounds" in capsys.readouterr().err) == (2, True)
