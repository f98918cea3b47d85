"""The documentation says what is true: its Python runs and prints what it shows, its commands
run.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    *sorted(
        str(page.relative_to(ROOT))
        for page in ROOT.glob("docs/*.md")
        if BLOCK.search(page.read_text())
    ),
    "README.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_every_example_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}
    printed = ""
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for language, text in blocks:
        if language == "python":
            exec(compile(text, page, "exec"), names)
            printed = capsys.readouterr().out
        elif language == "text" and printed:
            assert printed == text
        elif language == "console":
            for line in text.splitlines():
                if line.startswith("$ shuffle-sim "):
                    command = [
                        str(Path(sys.executable).parent / "shuffle-sim"),
                        *shlex.split(line.removeprefix("$ shuffle-sim ")),
                    ]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    assert done.returncode == 0, done.stderr
                    assert done.stderr == ""
                    assert done.stdout.strip()
