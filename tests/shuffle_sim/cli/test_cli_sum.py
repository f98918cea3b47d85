import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Done, command, installed

from shuffle_sim.data.tables import bundled

SHAPES = {
    "breast-cancer": (569, 30),
    "digits": (1797, 64),
    "diabetes": (442, 10),
    "wine": (178, 13),
}
BOUNDS = {"age": (0.0, 120.0), "income": (-500.0, 500.0), "share": (0.0, 1.0)}


def sum_of(folder: Path, *arguments: str) -> Done:
    return command("sum", *arguments, folder=folder)


def summary(folder: Path, *arguments: str) -> dict:
    done = sum_of(folder, *arguments, "--json", "--seed", "7")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def off_by(found: dict) -> np.ndarray:
    """Private minus true, in predicted standard errors."""
    return (np.array(found["private"]) - found["simulator_view"]["true_clipped"]) / found[
        "standard_error"
    ]


def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: np.round(rng.uniform(low, high, 400), 3) for name, (low, high) in BOUNDS.items()}


def write_csv(path: Path) -> None:
    rows = [
        ",".join(columns()),
        *(",".join(map(str, row)) for row in zip(*columns().values(), strict=True)),
    ]
    path.write_text("\n".join(rows))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table(columns()), path)


def write_npz(path: Path) -> None:
    np.savez(path, **columns())


# Bundled tables


@pytest.mark.full
@pytest.mark.parametrize(
    "table",
    [*(name for name in SHAPES if name != "wine"), pytest.param("wine", marks=pytest.mark.wheel)],
)
def test_every_table_is_summed_within_its_predicted_error(tmp_path, table):
    people, d = SHAPES[table]
    found = summary(tmp_path, "--table", table)
    assert (found["table"], found["people"], len(found["columns"])) == (table, people, d)
    view = found["simulator_view"]
    for values in (view["true"], *map(found.get, ("private", "standard_error", "half_range"))):
        assert np.isfinite(values).all()
        assert len(values) == d
    assert 0 < found["privacy"]["epsilon"] <= 1.0
    assert (found["privacy"]["delta"], found["privacy"]["relation"]) == (1e-6, "replace-one")
    assert found["privacy"]["basis"]
    assert any("not private" in note for note in found["privacy"]["assumptions"])
    assert found["encoding"] == "carry"
    assert list(found["parameters"]) == ["g", "r", "b", "levels"]
    assert (
        found["costs"]["payload_bits_per_user"]
        == found["costs"]["messages_per_user"]
        == d * found["bits"]
    )
    assert found["costs"]["measured"]
    assert found["wire_bytes_per_user"] * people == pytest.approx(found["costs"]["wire_bytes"])
    assert found["wire_bytes_per_user"] >= d * found["bits"] / 8
    accounts = found["reports"]
    assert accounts["asked"] == accounts["accepted"] == people
    assert (accounts["missing"], accounts["dropped"]) == (0, {})
    assert view["reports"] == {"clipped": 0, "nonfinite": 0, "left_out": 0}
    assert found["run"] == {
        "fidelity": "literal",
        "runtime": "inprocess",
        "workers": 1,
        "seed": 7,
        "security": "none",
    }
    noise = found["noise"]
    assert 1 < noise["standard_error_of_sum"] / noise["central"] <= 1.05
    assert noise["paper"]["ratio"] > 100
    clipped = (
        (bundled(table).rows < bundled(table).lower) | (bundled(table).rows > bundled(table).upper)
    ).any(axis=0)
    assert view["clipped_cells"] >= clipped.sum()
    assert np.abs(off_by(found)[~clipped]).max() < 6
    assert np.abs(off_by(found)).max() > 0.1  # noise there is


@pytest.mark.parametrize("more", [[], ["--variance"]])
def test_users_who_are_absent_add_no_noise(tmp_path, more):
    asked = ["--table", "diabetes", "--seed", "5", *more]
    whole = summary(tmp_path, *asked)
    found = summary(tmp_path, *asked, "--attack", "dropout:rate=0.5")
    people, left = found["people"], found["reports"]["accepted"]
    assert 0 < left < people
    # Noise of `left` users, in a mean of as many.
    expected = np.array(whole["standard_error"]) * (people / left) ** 0.5
    assert found["standard_error"] == pytest.approx(expected)


@pytest.mark.full
def test_a_run_without_a_seed_is_another_run(tmp_path):
    first, second = (
        json.loads(sum_of(tmp_path, "--table", "diabetes", "--json").stdout) for _ in range(2)
    )
    assert first["private"] != second["private"]
    assert first["run"]["seed"] is None
    assert not any("not private" in note for note in first["privacy"]["assumptions"])


@pytest.mark.full
def test_privacy_bits_workers_and_fidelity_are_those_asked_for(tmp_path):
    asked = [
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--max-bits",
        "40",
        "--workers",
        "3",
        "--fidelity",
        "aggregate",
    ]
    found = summary(tmp_path, "--table", "wine", *asked)
    assert 1.5 < found["privacy"]["epsilon"] <= 2
    assert found["privacy"]["delta"] == 1e-6
    assert found["parameters"]["g"] + found["parameters"]["b"] <= 40
    assert found["run"] == {
        "fidelity": "aggregate",
        "runtime": "inprocess",
        "workers": 3,
        "seed": 7,
        "security": "none",
    }
    assert not found["costs"]["measured"]


# Files


@pytest.mark.full
def test_csv_parquet_and_npz_give_the_same_release(tmp_path):
    bounds = [
        word
        for name, (low, high) in BOUNDS.items()
        for word in ("--bounds", f"{name}={low}:{high}")
    ]
    found = {}
    for suffix, write in {"csv": write_csv, "parquet": write_parquet, "npz": write_npz}.items():
        write(tmp_path / f"people.{suffix}")
        found[suffix] = summary(tmp_path, "--file", f"people.{suffix}", *bounds)
        assert found[suffix].pop("table") == f"people.{suffix}"
        assert found[suffix]["ahead"].pop("seconds") > 0  # measured: it is never twice the same
    assert found["csv"] == found["parquet"] == found["npz"]
    assert found["csv"]["columns"] == list(BOUNDS)
    assert found["csv"]["simulator_view"]["true"] == pytest.approx(
        [column.mean() for column in columns().values()], rel=1e-12
    )
    assert found["csv"]["half_range"] == [60, 500, 0.5]
    assert np.abs(off_by(found["csv"])).max() < 6


def test_columns_are_ordered_and_one_bound_may_serve_the_rest(tmp_path):
    write_parquet(tmp_path / "people.parquet")
    chosen = ["--columns", "share, income", "--bounds", "income=-400:400", "--bounds", "-1:3"]
    found = summary(tmp_path, "--file", "people.parquet", *chosen)
    assert found["columns"] == ["share", "income"]
    assert found["half_range"] == [2, 400]
    assert found["simulator_view"]["clipped_cells"] == (np.abs(columns()["income"]) > 400).sum() > 0
    assert abs(off_by(found)[0]) < 6


def test_a_name_may_have_a_comma_and_a_mean_may_be_a_date(tmp_path):
    (tmp_path / "people.csv").write_text('"height, cm",born\n' + "170,2000-03-05\n" * 500)
    bounds = ["--bounds", "height, cm=100:220", "--bounds", "born=2000-01-01:2000-12-31"]
    chosen = ["--file", "people.csv", "--columns", 'born, "height, cm"', *bounds]
    privacy = ["--epsilon", "20", "--delta", "1e-6"]
    found = summary(tmp_path, *chosen, *privacy)
    assert found["columns"] == ["born", "height, cm"]
    day = np.datetime64(found["dates"]["born"])
    assert abs(day - np.datetime64("2000-03-05")) <= np.timedelta64(10, "D")  # noise: a day
    assert list(found["dates"]) == ["born"]
    told = " ".join(sum_of(tmp_path, *chosen, *privacy, "--seed", "7").stdout.split())
    assert f"born is in days since 1970-01-01: its private mean is {day}." in told


def test_an_npz_matrix_is_a_table_with_numbered_columns(tmp_path):
    np.savez(tmp_path / "m.npz", np.stack(list(columns().values()), axis=1))
    found = summary(tmp_path, "--file", "m.npz", "--columns", "2,0", "--bounds", "0:120")
    assert found["columns"] == ["2", "0"]
    assert np.abs(off_by(found)).max() < 6


# For people


WORDS = ("true, clipped", "private", "± 95 %", "Privacy", "Noise", "delta 1e-06")


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["for people", "json"])
@pytest.mark.full
def test_plot_writes_a_png_beside_what_is_printed(tmp_path, form):
    done = sum_of(tmp_path, "--table", "wine", "--seed", "7", "--plot", "out.png", *form)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    if form:
        assert json.loads(done.stdout)["table"] == "wine"
    else:
        assert [
            word for word in (*bundled("wine").columns, *WORDS) if word not in done.stdout
        ] == []


@pytest.mark.full
def test_help_shows_an_example_and_the_options(tmp_path):
    done = installed("sum", "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Example: shuffle-sim sum --table breast-cancer --epsilon 1" in done.stdout
    assert all(
        f"--{option}" in done.stdout
        for option in ("table", "file", "columns", "bounds", "delta", "max-bits", "json", "plot")
    )


@pytest.mark.full
def test_the_bare_command_shows_its_help_and_no_traceback(tmp_path):
    done = installed(folder=tmp_path)
    assert "sum" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2)


@pytest.mark.full
def test_version_is_that_of_the_package(tmp_path):
    done = installed("--version", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"shuffle-sim {version('shuffle-sim')}\n",
        "",
    )


# Bad input

ON_CSV = ["--file", "../people.csv", "--bounds", "-500:500"]
BAD = {
    "no table": [],
    "table and file": [*ON_CSV, "--table", "wine"],
    "unknown table": ["--table", "iris"],
    "bounds of a bundled table": ["--table", "wine", "--bounds", "0:1"],
    "missing file": ["--file", "no.csv", "--bounds", "0:1"],
    "truncated parquet": ["--file", "../cut.parquet", "--bounds", "0:1"],
    "truncated npz": ["--file", "../cut.npz", "--bounds", "0:1"],
    "column that is not there": [*ON_CSV, "--columns", "age,height"],
    "no bounds": ["--file", "../people.csv", "--columns", "age"],
    "reversed bounds": ["--file", "../people.csv", "--bounds", "120:0"],
    "gap": ["--file", "../gap.csv", "--bounds", "0:9"],
    "strings": ["--file", "../strings.csv", "--bounds", "0:9"],
    "epsilon nan": [*ON_CSV, "--epsilon", "nan"],
    "delta 1": [*ON_CSV, "--delta", "1"],
    "delta too small": [*ON_CSV, "--delta", "1e-51"],
    "noise ratio and bits": [*ON_CSV, "--noise-ratio", "1.1", "--max-bits", "60"],
    "too few bits": [*ON_CSV, "--max-bits", "0.5"],
    "no such encoding": [*ON_CSV, "--encoding", "binary"],
    "unknown runtime": [*ON_CSV, "--runtime", "spark"],
    "more workers than people": [*ON_CSV, "--workers", "401"],
    "negative seed": [*ON_CSV, "--seed", "-1"],
    "picture in no folder": [*ON_CSV, "--plot", "no/out.png"],
    "picture onto a folder": [*ON_CSV, "--plot", ".."],
    "picture of no known kind": [*ON_CSV, "--plot", "out.xyz"],
    "epsilon that is no number": [*ON_CSV, "--epsilon", "one"],
    "resume without a checkpoint": [*ON_CSV, "--resume"],
    "resume from a folder that is not there": [*ON_CSV, "--resume", "--checkpoint", "no"],
    "checkpoint in a file": [*ON_CSV, "--checkpoint", "../people.csv"],
    "unknown option": [*ON_CSV, "--epsilom", "1"],
    "option without its value": [*ON_CSV, "--epsilon"],
    "stray argument": [*ON_CSV, "wine"],
}


PROCESSES = "no table", "truncated npz", "unknown option"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of the files that bad commands name; each runs in an empty folder beside them."""
    root = tmp_path_factory.mktemp("bad")
    for suffix, write in {"csv": write_csv, "parquet": write_parquet, "npz": write_npz}.items():
        write(root / f"people.{suffix}")
        whole = (root / f"people.{suffix}").read_bytes()
        (root / f"cut.{suffix}").write_bytes(whole[: len(whole) // 2])
    (root / "gap.csv").write_text("a,b\n1,2\n,3\n")
    (root / "strings.csv").write_text("a,b\n1,x\n2,y\n")
    return root


@pytest.mark.parametrize("case", BAD)
@pytest.mark.full
def test_bad_input_gives_one_line_and_code_2_and_writes_nothing(folder, case):
    here = folder / case.replace(" ", "-")
    here.mkdir()
    plot = [] if "--plot" in BAD[case] else ["--plot", "out.png"]
    ask = installed if case in PROCESSES else command
    done = ask("sum", *plot, *BAD[case], folder=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("shuffle-sim: error: ")
    assert [*here.rglob("*")] == []
