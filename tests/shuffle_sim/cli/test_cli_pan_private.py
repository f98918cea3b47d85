"""The pan-private optimiser by command: trained, in phases, compared, resumed, and audited."""

import json

import pytest
from commands import command
from rounds import records

from shuffle_sim.execution.journal import FILE

ON = ("--table", "breast-cancer", "--epsilon", "2", "--radius", "5", "--ridge", "0.3")
PAN = ("--trust", "central", "--mechanism", "pan-private-acsa")
PHASES = {(): "PanPrivateACSA", ("--phases", "2"): "CuratedPhases"}


def told(*words: object, folder: object = ".") -> dict:
    done = command(*words, "--json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("phases", PHASES)
def test_a_killed_run_goes_on_from_its_journal_and_budget(tmp_path, phases):
    told("budget", "create", "year", *ON[:2], "--epsilon", "3", folder=tmp_path)
    asked = "train", *ON, *PAN, *phases, "--checkpoint", "kept", "--budget", "year", "--report", "1"
    first = told(*asked, folder=tmp_path)
    made, privacy = first["protocol"], first["privacy"]
    assert made["name"] == PHASES[phases]
    assert (made["rounds"] > 2, made["rounds_per_user"]) == (True, 1)
    assert privacy["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert any("one intrusion" in each for each in privacy["assumptions"])
    journal = tmp_path / "kept" / FILE
    found = records(journal)
    assert len(found) == 1 + 2 * made["rounds"]
    journal.write_bytes(b"".join(found[:4]))  # charged for the second batch, and killed
    assert told(*asked, "--resume", folder=tmp_path) == first
    assert journal.read_bytes() == b"".join(found)
    spent = told("budget", "show", "year", folder=tmp_path)
    assert [row["rounds"] for row in spent["reports"]] == [made["rounds"]]
    assert spent["spent"]["epsilon"] == pytest.approx(2.0, rel=1e-6)


@pytest.mark.full
def test_it_is_compared_alone_and_in_phases():
    found = told("train", *ON, "--compare", "--all", "--repeats", "1", "--seed", "1")
    rows = {row["method"]: row for row in found["methods"]}
    alone, phased = rows["pan-private-acsa"], rows["pan-private-acsa, in phases"]
    assert 0 < phased["excess_bound"] <= alone["excess_bound"] < float("inf")
    assert alone["trust"] == phased["trust"] == "central"
    assert alone["privacy"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    without = told("train", *ON[:-2], "--compare", "--all", "--repeats", "1", "--seed", "1")
    kinds = {row["method"] for row in without["methods"]}
    assert "pan-private-acsa" in kinds
    assert "pan-private-acsa, in phases" not in kinds  # they need a ridge


@pytest.mark.slow
def test_it_is_audited():
    words = "--mechanism", "pan-private-acsa", "--n", "50", "--d", "2", "--epsilon", "4"
    found = told("audit", *words, "--repeats", "1000", "--seed", "1")
    assert (found["passed"], found["complete"]) == (True, True)
    for each in found["audits"].values():
        assert 0.1 < each["empirical"] < each["claimed"] <= 4.0 + 1e-9


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--mechanism", "pan-private-acsa", "--phases", "2"), "take a ridge"),
        (("--mechanism", "pan-private-acsa", "--phases", "-1", "--ridge", "1"), "phases = -1"),
        (("--mechanism", "gradient", "--phases", "2", "--ridge", "1"), "phases = 2"),
        (("--mechanism", "output", "--phases", "2", "--moment", "4:1"), "in phases does not"),
    ],
)
def test_phases_a_curator_cannot_have_are_refused_in_a_line(given, why):
    done = command("train", "--table", "breast-cancer", "--trust", "central", *given)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert why in done.stderr
