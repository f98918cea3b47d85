"""`make` finds a Python that is new enough, whatever it is called, or says that there is none."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEW = f'exec "{sys.executable}" "$@"'
OLD = f'exec "{sys.executable}" -c "import sys; sys.version_info = (3, 10, 9); $2"'
ABSENT = "exit 127"  # as a version manager's stand-in for what is not installed
WHICH = "which:; @: $(info $(PYTHON))"


def make(folder, pythons, *arguments):
    """`make` where these are the only programs on the path."""
    for name, script in pythons.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        [shutil.which("make"), "-C", ROOT, "--no-print-directory", *arguments],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3.11": NEW, "python3.12": NEW, "python3": NEW}, "python3.11"),
        ({"python3.11": ABSENT, "python3.13": NEW, "python3": NEW}, "python3.13"),
        ({"python3.14": NEW}, "python3.14"),
        ({"python3.11": ABSENT, "python3": NEW}, "python3"),
        ({"python3.12": OLD, "python3": OLD}, ""),
        ({}, ""),
    ],
)
@pytest.mark.full
def test_the_first_python_that_is_new_enough_is_taken(pythons, chosen, tmp_path):
    done = make(tmp_path, pythons, "--eval", WHICH, "which")
    assert (done.stdout.strip(), done.stderr) == (chosen, "")


def test_the_caller_chooses_another(tmp_path):
    done = make(tmp_path, {"python3": NEW}, "--eval", WHICH, "which", "PYTHON=x")
    assert done.stdout.strip() == "x"


@pytest.mark.parametrize(
    ("chosen", "tried"), [([], "python3.11 python3.12"), (["PYTHON=python3"], "python3\n")]
)
@pytest.mark.full
def test_where_no_python_is_new_enough_one_line_says_so(chosen, tried, tmp_path):
    venv = tmp_path / "venv"
    done = make(tmp_path, {"python3": OLD}, f"VENV={venv}", *chosen, f"{venv}/.base")
    assert done.returncode != 0
    assert f"needs Python 3.11 or newer, with venv; tried: {tried}" in done.stderr
    assert not venv.exists()
