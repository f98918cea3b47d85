"""The table of the papers' items: complete, and every call in it runs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuffle_sim import run
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit

PAGE: str = (Path(__file__).parents[2] / "docs/theory/papers.md").read_text()
NAMES: dict[str, Any] = {}
exec(PAGE.split("```python\n")[1].split("```", 1)[0], NAMES)
ALGORITHMS = {
    "Persons: Ghazi et al. 2023": 6,
    "Persons: Lowy, Liu and Asi 2024": 4,
    "Records: Lowy and Razaviyayn 2021": 11,
    "Heavy tails: Lowy 2026": 7,
    "Shuffle model: Cheu et al. 2022": 6,
}
"""How many algorithms each paper numbers."""
PAPERS = {
    part.split("\n")[0]: [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in part.split("\n")
        if line.startswith("| ")
    ][1:]
    for part in PAGE.split("\n## ")[1:]
    if part.split("\n")[0] in ALGORITHMS  # what follows are studies
}
CALLS = [row[1].strip("`") for rows in PAPERS.values() for row in rows if row[1]]
PLANNED = 4000
"""Calls of more users are planned, and not run."""


def numbered(items: str) -> set[int]:
    """The algorithms that a cell names, ranges and lists among them."""
    found: set[int] = set()
    for text in re.findall(r"Algorithms? ([\d, to]+)", items):
        for part in text.split(","):
            ends = [int(each) for each in re.findall(r"\d+", part)]
            found |= set(range(ends[0], ends[-1] + 1)) if ends else set()
    return found


@pytest.mark.parametrize(("paper", "most"), ALGORITHMS.items())
def test_every_algorithm_of_a_paper_has_a_row(paper, most):
    found = set().union(*(numbered(row[0]) for row in PAPERS[paper]))
    assert found == set(range(1, most + 1))


def test_what_is_not_called_says_why():
    for rows in PAPERS.values():
        for row in rows:
            item, _, said = row
            assert item, row
            assert len(said.split()) > 1, row


def asked_of(algorithm: Any, call: str) -> float:
    """The epsilon that a call asks for."""
    privacy = getattr(algorithm, "privacy", None)
    if privacy is None:
        named = re.findall(r"privacy=(\w+(?:\([^)]*\))?)", call)
        privacy = eval(named[0], NAMES)
    return privacy.epsilon


def rows_for(algorithm: Any) -> Any:
    """Rows, or persons' records, that the algorithm takes."""
    rng, n = np.random.default_rng(0), algorithm.users
    if (problem := getattr(algorithm, "problem", None)) is None:
        data = rng.random((n, getattr(algorithm, "d", 1))) / 2
        return data if hasattr(algorithm, "norm_bound") else data[:, 0]
    persons = algorithm.unit is Unit.PERSON
    records = problem.records if persons else 1
    columns = problem.loss.columns(problem.d)
    rows = rng.uniform(-0.5, 0.5, (n * records, columns))
    if (classes := getattr(problem.loss, "classes", 0)) > 1:
        rows[:, -1] = np.arange(len(rows)) % classes
    elif columns > problem.d:
        rows[:, problem.d] = np.where(rows[:, 0] > 0, 1.0, -1.0)
    if columns > problem.d + 1:
        rows[:, problem.d + 1] = np.arange(len(rows)) % problem.loss.groups
    return Persons.in_memory(rows.reshape(n, records, columns)) if persons else rows


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::shuffle_sim.errors.WeakPrivacyWarning")
@pytest.mark.parametrize("call", dict.fromkeys(CALLS))
def test_every_call_of_the_table_runs(call):
    algorithm = eval(call, NAMES)
    if algorithm.users > PLANNED:
        return
    result = run(algorithm, rows_for(algorithm), seed=1)
    assert np.isfinite(result.value).all()
    assert result.privacy.epsilon <= asked_of(algorithm, call) * (1 + 1e-9)
