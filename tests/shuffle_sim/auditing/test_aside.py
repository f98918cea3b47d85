"""What runs tell aside: honest prints, warnings and hooks are no alarm."""

import warnings

import numpy as np
import pytest
from mutants.curators import Thrice, curated

from shuffle_sim import Execution
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.claims.aside import aside, unkept
from shuffle_sim.auditing.curator.curated import Runs

OTHERS = np.random.default_rng(0).random(400_000)


class PrintsReleased(Thrice):
    """It prints what is released."""

    def update(self, state, released):
        print("released", released)
        return super().update(state, released)


def test_what_is_released_may_be_printed(capsys):
    Runs(*curated(PrintsReleased), {}).followed()
    assert "released" in capsys.readouterr().out


def test_hooks_of_a_caller_may_write(tmp_path):
    def write(*_):
        with (tmp_path / "rounds.log").open("a") as file:
            file.write("a round\n")

    Runs(*curated(Thrice), {"execution": Execution(on_round=write)}).followed()
    assert (tmp_path / "rounds.log").read_text()


@pytest.mark.parametrize(
    ("kind", "text", "seen"),
    [
        (RuntimeWarning, "overflow encountered in log1p", False),
        (RuntimeWarning, "rcond = 1e-17", True),
        (RuntimeWarning, "a row of length 3.5", True),
        (UserWarning, "it did not converge", True),
    ],
)
def test_warnings_that_follow_from_rows(kind, text, seen):
    def run(rows):
        if rows.any():
            warnings.warn(text, kind, stacklevel=2)

    tables = np.zeros(2), np.ones(2)
    if seen:
        with pytest.raises(LawError, match="follows from rows"):
            aside(run, tables)
    else:
        aside(run, tables)


def test_the_same_on_all_rows_is_no_alarm():
    aside(lambda rows: print(f"{len(rows)} rows"), [np.zeros(2), np.ones(2)])


@pytest.mark.parametrize(
    "held",
    [
        lambda rows: rows.tobytes(),
        lambda rows: rows.astype("f4").tobytes(),
        lambda rows: str(rows).encode(),
        lambda rows: "\n".join(f"{each:.9e}" for each in rows.ravel()).encode(),
        lambda rows: b"nothing of them",
        lambda rows: b"nothing of them\n" + b"".join(b"%.15f\n" % each for each in OTHERS),
    ],
)
def test_rows_that_processes_leave_in_files(held, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()

    def run(rows):
        (tmp_path / "folder" / "kept").write_bytes(held(rows))

    tables = [np.random.default_rng(seed).random((8, 2)) for seed in (1, 2)]
    if held(tables[0]).startswith(b"nothing"):
        unkept(run, tables)
    else:
        with pytest.raises(LawError, match="leaves rows in a file"):
            unkept(run, tables)
