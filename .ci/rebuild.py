"""Rebuild what the docs show, with the commands that stand in them.

    python .ci/rebuild.py [PAGE ...]            outputs of examples and commands: minutes
    python .ci/rebuild.py --check [PAGE ...]    changes nothing; status 1 where a page is stale
    python .ci/rebuild.py --figures [PAGE ...]  pictures, too: hours

A page's Python blocks run in one namespace; a block `text` after one is what it printed. A block
`console` shows lines of its command's output, not always all; a line that is not there any more
becomes the nearest that is. A picture's command stands in a comment before it, and writes a file
of that name into FOLDER.
"""

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"<!-- figure: (.+?) -->\n+!\[[^\]]*\]\((.+?)\)", re.DOTALL)


def pages() -> list[Path]:
    """The documentation and the front page."""
    return [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]


def installed(*words: str) -> "subprocess.CompletedProcess[str]":
    """What the installed command did."""
    script = str(Path(sys.executable).parent / "shuffle-sim")
    return subprocess.run([script, *words], capture_output=True, text=True, check=False)


def rebuilt(name: str, page: str, command: Callable[..., Any] = installed) -> str:
    """The page with what its examples print now. They run in the current directory.

    `command` runs shuffle-sim with words, and gives its output, errors and status.

    Raises:
        RuntimeError: A command fails or warns, or a line shown is like none of its output.
    """
    names: dict[str, object] = {"__name__": "docs"}
    printed = ""

    def shown(block: re.Match[str]) -> str:
        nonlocal printed
        language, text = block.groups()
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, name, "exec"), names)
            printed = out.getvalue()
        elif language == "text" and printed:
            text = printed
        elif language == "console":
            text = "".join(line + "\n" for line in _console(name, text, command))
        return f"```{language}\n{text}```"

    return BLOCK.sub(shown, page)


def _console(name: str, text: str, command: Callable[..., Any]) -> Iterator[str]:
    output: list[str] = []
    joined = re.sub(r"\\\n", "\\\\\0", text)
    for line in joined.splitlines():
        if line.startswith("$ shuffle-sim "):
            words = shlex.split(line.replace("\\\0", "").removeprefix("$ shuffle-sim "))
            done = command(*words)
            if done.returncode or done.stderr or not done.stdout.strip():
                why = f"status {done.returncode}, {done.stderr or 'no output'}"
                raise RuntimeError(f"{name}: shuffle-sim {shlex.join(words)}: {why}")
            output = [line.rstrip() for line in done.stdout.splitlines()]
            yield line.replace("\0", "\n")
            continue
        near = [line] if not line or line.startswith("$ ") or line in output else []
        near = near or difflib.get_close_matches(line, output, n=1)
        if not near:
            raise RuntimeError(f"{name}: no line of the command's output is like {line!r}")
        yield near[0]


def draw(page: Path) -> None:
    """Make the pictures of a page by their commands, each put in place when it is whole."""
    files: dict[str, list[str]] = {}
    for command, file in FIGURE.findall(page.read_text()):
        files.setdefault(" ".join(command.split()), []).append(file)
    for command, made in files.items():
        print(f"{page.name}: {', '.join(made)}: {command}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            subprocess.run(
                command.replace("FOLDER", folder),
                shell=True,
                check=True,
                cwd=ROOT,
                env={**os.environ, "PATH": path},
            )
            for file in made:
                (part := page.with_name(f".{file}")).write_bytes((Path(folder) / file).read_bytes())
                part.replace(page.with_name(file))


def main() -> int:
    """Rebuild the pages named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", default=pages())
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if stale")
    parser.add_argument("--figures", action="store_true", help="make the pictures, too: hours")
    given = parser.parse_args()
    stale = False
    for page in (each.resolve() for each in given.pages):
        before, name = page.read_text(), str(page.relative_to(ROOT))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            after = rebuilt(name, before)
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), name, name, "", "", 0, ""
        )
        print("\n".join(lines) or f"{name}: true", flush=True)
        stale |= before != after
        if not given.check:
            if before != after:
                page.write_text(after)
            if given.figures:
                draw(page)
    return int(stale and given.check)


if __name__ == "__main__":
    sys.exit(main())
