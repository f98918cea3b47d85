"""`--audit` of the commands that run: the run that was asked for is looked at, and not made."""

import json
import re

import numpy as np
import pytest
from commands import command

from protocols.selection.curator import MeanScores
from shuffle_sim.auditing.audit import AuditReport
from shuffle_sim.auditing.central import CentralAudit
from shuffle_sim.auditing.claims.plan import Check
from shuffle_sim.cli.app import app
from shuffle_sim.data.population import population_of
from shuffle_sim.errors import ParameterError
from shuffle_sim.protocol.release import Sensitivity

HELD = Check("held", True)
REPORT = AuditReport(1.0, 1.0, 0.9, 1e-6, 1000, (HELD,), 20)


@pytest.fixture
def visits(tmp_path):
    path, rng = tmp_path / "visits.csv", np.random.default_rng(0)
    rows = zip(
        rng.integers(120, size=400), rng.choice([*"NSEW"], 400), rng.integers(240, size=400),
        rng.choice([*"yn"], 400), strict=True,
    )  # fmt: skip
    lines = [f"p{who},{where},{minutes},{ill}" for who, where, minutes, ill in rows]
    path.write_text("\n".join(["who,where,minutes,ill", *lines]) + "\n")
    return path


SUM = "sum", "--columns", "minutes", "--bounds", "0:240"
TRAIN = "train", "--columns", "minutes", "--bounds", "0:240", "--label", "ill"
SHUFFLED = {
    "CarryVectorSum": SUM,
    "ChosenBounds": ("sum", "--columns", "minutes", "--choose-bounds", "0.5", "--epsilon", "4"),
    "GroupMeans": (*SUM, "--by", "where", "--categories", "where=N,S,E,W"),
    "Histogram": ("histogram", "--column", "where", "--categories", "where=N,S,E,W"),
    "FoundHistogram": ("histogram", "--column", "where", "--find"),
    "HeavyHitters": ("heavy-hitters", "--column", "where"),
    "Quantiles": ("quantiles", "--column", "minutes", "--bounds", "minutes=0:240"),
    "Selected": (*TRAIN, "--select", "radius=5,20", "--rounds", "3"),
}


OF_ROWS = "Selected", "ChosenBounds"  # persons are refused


@pytest.mark.parametrize(
    ("name", "person"),
    [
        *((name, ()) for name in SHUFFLED),
        *((name, ("--person", "who")) for name in SHUFFLED if name not in OF_ROWS),
    ],
)
def test_what_would_be_run_is_audited_on_its_own_data(name, person, visits, monkeypatch, capsys):
    seen = {}

    def audited(made, data=None, **options):
        seen.update(options, name=type(made).__name__, data=data, users=made.users)
        return REPORT

    monkeypatch.setattr("shuffle_sim.auditing.audit.audit", audited)
    more = ["--audit", "thorough", "--fidelity", "counts", "--security", "transport"]
    asked = [*SHUFFLED[name], "--file", str(visits), *person, *more]
    assert app([*asked, "--workers", "2"], standalone_mode=False) == 0
    assert seen["name"] == name
    assert population_of(seen["data"]).users >= seen["users"] > 100
    assert (seen["fidelity"], seen["security"], seen["workers"]) == ("counts", "transport", 2)
    assert (seen["thorough"], seen["privacy"].delta) == (True, 1e-6)
    assert "passed" in capsys.readouterr().out


CURATED = {
    "CuratedSelection": ("--select", "radius=5,20", "--ridge", "0.1"),
    "OutputPerturbation": ("--mechanism", "output", "--ridge", "0.1", "--pure"),
    "PilotedERM": ("--pilot", "--pure", "--loss", "hinge"),
}


@pytest.mark.parametrize("name", CURATED)
def test_a_curator_s_run_is_audited_on_tables_that_are_hard_to_hide(
    name, visits, monkeypatch, capsys
):
    seen = []

    def audited(made, first, second, **options):
        seen.append((type(made).__name__, (first != second).any(axis=1).sum(), options))
        return CentralAudit(1.0, 0.5, 1e-6, 1000, checks=(HELD,))

    monkeypatch.setattr("shuffle_sim.auditing.central.audit_central", audited)
    monkeypatch.setattr("shuffle_sim.auditing.central.check_distances", lambda *_: HELD)
    asked = [*TRAIN, "--file", str(visits), "--trust", "central", *CURATED[name]]
    assert app([*asked, "--audit", "quick", "--json"], standalone_mode=False) == 0
    assert {each[:2] for each in seen} == {(name, 1)}
    assert not seen[0][2]["thorough"]
    assert json.loads(capsys.readouterr().out)["mechanism"] == name


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--audit", "slow"), "audit = 'slow': must be one of quick, thorough"),
        (("--audit", "quick", "--plot", "p.png"), "plot"),
        (("--audit", "quick", "--checkpoint", "kept"), "checkpoint"),
        (("--audit", "quick", "--budget", "b", "--report", "r"), "budget"),
        (("--audit", "quick", "--model-out", "m.json"), "model_out"),
        (("--audit", "quick", "--compare"), "audit"),
        (("--audit", "quick", "--round-timeout", "9"), "round_timeout"),
        (("--audit", "quick", "--workers", "auto"), "workers = 'auto'"),
    ],
)
def test_what_has_no_use_for_an_audit_is_refused(options, named, visits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=re.escape(named)) as refused:
        app([*TRAIN, "--file", str(visits), *options], standalone_mode=False)
    assert "\n" not in str(refused.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == [visits.name]


@pytest.mark.long
def test_a_clean_run_passes_and_a_defect_in_what_it_alone_reaches_is_found(
    visits, monkeypatch, capsys
):
    """Half of a sensitivity of scores: `audit` takes no --select, so this sees it."""
    asked = [*TRAIN, "--file", str(visits), "--trust", "central", *CURATED["CuratedSelection"]]
    assert app([*asked, "--audit", "quick", "--quiet"], standalone_mode=False) == 0
    half = property(lambda self: Sensitivity(1 / self.users, "range", "half"))
    monkeypatch.setattr(MeanScores, "sensitivity", half)
    assert app([*asked, "--audit", "quick", "--quiet"], standalone_mode=False) == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["inprocess", "processes", "ray"])
def test_a_sum_is_audited_where_it_would_be_run(runtime):
    where = "--runtime", runtime, "--workers", "2"
    done = command("sum", "--table", "wine", *where, "--audit", "quick", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"]
