"""The table of docs/theory/papers.md: its rows, its calls, and what they are tried on."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit

PAGE: str = (Path(__file__).parents[1] / "docs/theory/papers.md").read_text()
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
CALLS = list(dict.fromkeys(row[1].strip("`") for rows in PAPERS.values() for row in rows if row[1]))
PLANNED = 4000
"""Calls of more users are planned, and not run."""


def made(call: str, n: float = 1.0, epsilon: float = 1.0, m: int = 1) -> Any:
    """What a call makes, for so many times its users, epsilon, and records of a person."""
    found = re.fullmatch(r"p\.(\w+)\.(\w+)\((.*)\)", call)
    kind, method, inside = found.groups()
    given = eval(f"dict({inside})", NAMES)
    given["n"] = round(n * given["n"])
    given["privacy"] = replace(given["privacy"], epsilon=epsilon * given["privacy"].epsilon)
    if m > 1:
        given["problem"] = replace(given["problem"], records=m * given["problem"].records)
    return getattr(getattr(NAMES["p"], kind), method)(**given)


def records(algorithm: Any, count: int, seed: int = 0) -> NDArray[Any]:
    """Rows of the loss, in the box of side 1; a tenth of labels are against the first feature."""
    rng, problem = np.random.default_rng(seed), algorithm.problem
    columns = problem.loss.columns(problem.d)
    rows = rng.uniform(-0.5, 0.5, (count, columns))
    if (classes := getattr(problem.loss, "classes", 0)) > 1:
        rows[:, -1] = np.arange(count) % classes
    elif columns > problem.d:
        rows[:, problem.d] = np.where((rows[:, 0] > 0) ^ (rng.random(count) < 0.1), 1.0, -1.0)
    if columns > problem.d + 1:
        rows[:, problem.d + 1] = np.arange(count) % problem.loss.groups
    return rows


def asked(algorithm: Any, rows: NDArray[Any]) -> Any:
    """Records as its users hold them."""
    if algorithm.unit is not Unit.PERSON:
        return rows
    return Persons.in_memory(rows.reshape(algorithm.users, -1, rows.shape[1]))
