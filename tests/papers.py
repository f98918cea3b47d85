"""The table of docs/theory/papers.md: its rows, its calls, and what they are tried on."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim import run
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Unit
from shuffle_sim.protocol.release import CentralAlgorithm

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
STATEMENTS = {
    "Persons: Ghazi et al. 2023": {
        "Theorem": "3.1 3.3 3.6 4.1 4.3 5.1 5.3 D.4 D.7 D.8",
        "Corollary": "3.7",
    },
    "Persons: Lowy, Liu and Asi 2024": {"Theorem": "2.1 3.1 3.2 4.1 A.11 B.1 C.1 C.3 D.3"},
    "Records: Lowy and Razaviyayn 2021": {
        "Theorem": "3.1 3.2 3.3 3.4 3.5 5.1 5.2 5.3 B.1 G.1",
        "Corollary": "2.1 2.2 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 4.1 4.2 4.3 4.4 5.1 5.2",
        "Proposition": (
            "2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.1 3.2 3.3 4.1 4.2 4.3 4.4 5.1 5.2 5.3 G.1 G.2"
        ),
    },
    "Heavy tails: Lowy 2026": {
        "Theorem": "2.1 3.1 4.1 B.1 D.2 D.4 E.1 E.2 E.5 F.6 G.5 G.6",
        "Corollary": "D.7",
        "Proposition": "2.5 2.9 3.2 C.3 C.5 D.1 D.6 E.4 F.5 G.2 G.4",
    },
    "Shuffle model: Cheu et al. 2022": {
        "Theorem": "3.2 4.1 4.3 4.7 4.8 4.9 A.6 C.3",
        "Corollary": "A.9 B.8 B.9 B.10 B.11",
    },
}
"""What each paper numbers besides; lemmas are left to the pages of theory."""
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
LONG = [call for call in CALLS if 'center="removed"' in call]
"""Calls whose run takes ten minutes."""


SEEN = {
    *("AdversarialERM", "DeletionStability", "ExponentialMechanism", "Gibbs"),
    *("LocalisedExponential", "ObjectivePerturbation", "OutputPerturbation", "PhasedERM"),
    *("SaddleERM", "TiltedERM"),
}
"""Whose bound is of the loss on the rows themselves, unless `population` is asked for; others' is
of new rows."""


def kind_of(call: str) -> str:
    """The class that a call makes."""
    return call.split(".")[1]


def on_rows(call: str) -> bool:
    """Whether the bound is of the loss on the rows themselves."""
    return kind_of(call) in SEEN and "population=True" not in call


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


def value(algorithm: Any, rows: Any, theta: Any) -> float:
    """What is minimised, of its own or the problem's, without a ridge that was added."""
    if not algorithm.own_objective:
        return algorithm.problem.risk(theta, rows)
    more = algorithm.risk.ridge - algorithm.problem.ridge
    return algorithm.risk.objective(rows).value(theta) - more / 2 * float(theta @ theta)


def least(algorithm: Any, rows: Any) -> float:
    """Over the domain; twice, as kinks may hold a search up."""

    def at(point: Any) -> float:
        return value(algorithm, rows, algorithm.problem.domain.project(point))

    options, found = {"xatol": 1e-7, "fatol": 1e-12, "maxiter": 2000}, algorithm.problem.origin
    for _ in range(2):
        found = scipy.optimize.minimize(at, found, method="Nelder-Mead", options=options).x
    return at(found)


def excess(algorithm: Any, seeds: int, *, seen: bool) -> Any:
    """Of runs on rows drawn i.i.d. of 4,000: on these rows, or on all."""
    pool, found = records(algorithm, 4000), []
    size, best = (
        algorithm.users * algorithm.problem.records,
        0.0 if seen else least(algorithm, pool),
    )
    options = {} if isinstance(algorithm, CentralAlgorithm) else {"fidelity": "aggregate"}
    for seed in range(seeds):
        rows = pool[np.random.default_rng(seed).integers(len(pool), size=size)]
        theta = np.asarray(run(algorithm, asked(algorithm, rows), seed=seed, **options).value)
        where = rows if seen else pool
        found.append(value(algorithm, where, theta) - (least(algorithm, rows) if seen else best))
    return np.array(found)


def error(found: Any) -> float:
    """Of the mean."""
    return float(found.std(ddof=1) / math.sqrt(len(found)))
