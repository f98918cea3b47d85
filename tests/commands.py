"""The command `shuffle-sim`, in this process where no process is the subject."""

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

SCRIPT = Path(sys.executable).parent / "shuffle-sim"
Done = subprocess.CompletedProcess[str]


def command(*arguments: object, folder: Path | str = ".") -> Done:
    """What the command prints here, and its exit code."""
    from shuffle_sim.cli.app import main

    given, told, errors = ["shuffle-sim", *map(str, arguments)], io.StringIO(), io.StringIO()
    code: object = "nothing"
    place, words = chdir(folder), mock.patch("sys.argv", given)
    with place, words, redirect_stdout(told), redirect_stderr(errors):
        try:
            main()
        except SystemExit as left:
            code = left.code
    assert isinstance(code, int), f"main() returned {code}"
    return subprocess.CompletedProcess(given, code, told.getvalue(), errors.getvalue())


def installed(*arguments: object, folder: Path | str = ".") -> Done:
    """The same by the installed script."""
    given = [str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        given, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
