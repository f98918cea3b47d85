"""What a release states is stated once, or the same everywhere."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M) == [version]


def test_the_changelog_has_the_form_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *released = re.findall(r"^## (.*)$", text, re.M)
    assert first == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", each) for each in released)
    assert set(re.findall(r"^### (.*)$", text, re.M)) <= KINDS


def test_the_lock_has_every_tool_s_exact_version_and_no_library():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements-dev.lock").read_text().splitlines()[1:]
    locked = {re.fullmatch(r"([a-z0-9-]+)==[\w.]+", line)[1] for line in lock}
    extras = project["optional-dependencies"]
    names = {
        group: {re.match(r"[\w-]+", line)[0] for line in lines}
        for group, lines in {**extras, "": project["dependencies"]}.items()
    }
    libraries = names[""] | names["fast"] | names["accounting"]
    assert not locked & libraries
    assert names["dev"] - libraries - {"shuffle-sim", "mpmath"} <= locked
