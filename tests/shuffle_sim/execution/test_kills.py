"""A curator's run killed (SIGKILL) at any line: nothing is released, or a journaled release is.

A program of its own forks one child for each moment. The child counts the lines it runs in the
curator, the journal, the mechanism and the algorithm, and kills itself at a given one. What it
releases goes to a file, as soon as `run` returns.
"""

import json
import os

import pytest
from processes import TESTS, python

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import numpy as np
from protocols import Gibbs, Logistic, ObjectivePerturbation, OutputPerturbation, Problem, RealSpace
from rounds import records
from shuffle_sim import Privacy, run
from shuffle_sim.execution import checkpoint
kinds = {each.__name__: each for each in (OutputPerturbation, ObjectivePerturbation, Gibbs)}
folder = Path(sys.argv[1])
rows = np.zeros((40, 3))
rows[:, 0], rows[:, 2] = 1.0, 1.0
problem = Problem(Logistic(), RealSpace(2), 0.1)
JOURNAL = "checkpoint.py", "journal.py"
WATCHED = ("curator.py", *JOURNAL, "mechanisms.py", "minimum.py", "ledger.py", "released")
kept = checkpoint.Checkpoint.settle

def late(self, outcome):
    (folder / "released").write_bytes(outcome[0].tobytes())
    kept(self, outcome)

SETTLE = {"": kept, "not kept": lambda self, outcome: None, "kept late": late}

def released(place, resume):
    value = run(made, rows, checkpoint=place, resume=resume).value
    (folder / "released").write_bytes(value.tobytes())
    return value

def child(place, moment):
    lines = [0]
    def tracer(frame, event, _):
        if not frame.f_code.co_filename.endswith(WATCHED) and frame.f_code.co_name != "released":
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)
        return tracer
    sys.settrace(tracer)
    released(place, False)
    sys.settrace(None)
    (folder / "lines").write_text(str(lines[0]))

def killed(place, moment):
    for name in ("released", "lines"):
        (folder / name).unlink(missing_ok=True)
    if (pid := os.fork()) == 0:
        child(place, moment)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    out = folder / "released"
    seen = out.read_bytes().hex() if out.exists() else ""
    journal = place / "run.journal"
    journaled = len(records(journal)) if journal.exists() else 0
    again = []
    for _ in range(2):
        released(place, journal.exists())
        again.append(out.read_bytes().hex())
    return {"killed": os.WIFSIGNALED(status), "seen": seen, "records": journaled, "again": again}

found = {}
for kind, defect in (
    ("OutputPerturbation", ""),
    ("Gibbs", ""),
    ("OutputPerturbation", "not kept"),
    ("OutputPerturbation", "kept late"),
):
    made = kinds[kind].calibrated(n=40, problem=problem, privacy=Privacy(4.0, 1e-3))
    checkpoint.Checkpoint.settle = SETTLE[defect]
    place = folder / f"{kind} {defect}"
    place.mkdir()
    released(place / "before", False)  # what is imported or cached late is there before
    child(place / "alone", 0)
    lines = int((folder / "lines").read_text())
    steps = list(range(lines - 200, lines + 1, 5))  # kept and released: both defects are here
    if not defect:
        steps += range(1, lines - 200, 100)
    found[f"{kind} {defect}"] = [killed(place / str(moment), moment) for moment in steps]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    """By algorithm and defect: what a child and two resumed runs left at each moment."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    done = python("-c", PROGRAM, tmp_path_factory.mktemp("kills"), env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lost(moments):
    """Kills after which something was released that the journal does not have."""
    return [each for each in moments if each["seen"] and {*each["again"]} != {each["seen"]}]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["OutputPerturbation", "Gibbs"])
@pytest.mark.long
def test_a_kill_leaves_nothing_released_or_a_journaled_release(kind, kills):
    found = kills[f"{kind} "]
    assert all(each["killed"] for each in found)
    assert lost(found) == []
    # Nothing, a beginning, a charge, a release.
    assert {each["records"] for each in found} == {0, 1, 2, 3}
    assert all(each["records"] == 3 for each in found if each["seen"])
    assert all(first == second for first, second in (each["again"] for each in found))
    assert sum(bool(each["seen"]) for each in found) >= 1


@pytest.mark.full
@pytest.mark.parametrize("defect", ["not kept", "kept late"])
def test_a_release_before_its_journal_would_be_caught(defect, kills):
    found = kills[f"OutputPerturbation {defect}"]
    assert any(each["seen"] and each["records"] < 3 for each in found)
