"""The table of the papers' items: complete, and every call in it runs."""

import re
from typing import Any

import numpy as np
import pytest
from papers import ALGORITHMS, CALLS, LONG, NAMES, PAPERS, STATEMENTS, asked, records

from shuffle_sim import run
from shuffle_sim.privacy.bounds.paper import PrintedCost

PLURALS = {"Algorithm": "Algorithms?", "Theorem": "Theorems?", "Proposition": "Propositions?"}
PLURALS["Corollary"] = "Corollar(?:y|ies)"
NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)?"


def numbered(kind: str, items: str) -> set[str]:
    """The numbers of a kind that a cell names, ranges and lists among them."""
    found: set[str] = set()
    for text in re.findall(rf"{PLURALS[kind]} ({NUMBER}(?:(?:, | to ){NUMBER})*)", items):
        for part in text.split(", "):
            first, *last = part.split(" to ")
            head, _, low = first.rpartition(".")
            high = last[0].rpartition(".")[2] if last else low
            found |= {f"{head}.{n}" if head else str(n) for n in range(int(low), int(high) + 1)}
    return found


@pytest.mark.parametrize(("paper", "most"), ALGORITHMS.items())
def test_every_algorithm_of_a_paper_has_a_row(paper, most):
    found = set().union(*(numbered("Algorithm", row[0]) for row in PAPERS[paper]))
    assert found == {str(number) for number in range(1, most + 1)}


@pytest.mark.parametrize(
    ("paper", "kind", "numbers"),
    [(paper, *each) for paper, kinds in STATEMENTS.items() for each in kinds.items()],
)
def test_every_theorem_of_a_paper_has_a_row(paper, kind, numbers):
    found = set().union(*(numbered(kind, row[0]) for row in PAPERS[paper]))
    assert found == set(numbers.split())


def test_what_is_not_called_says_why():
    for rows in PAPERS.values():
        for row in rows:
            item, _, said = row
            assert item, row
            assert len(said.split()) > 1, row


def epsilon_of(algorithm: Any, call: str) -> float:
    """The epsilon that a call asks for."""
    privacy = getattr(algorithm, "privacy", None)
    if privacy is None:
        named = re.findall(r"privacy=(\w+(?:\([^)]*\))?)", call)
        privacy = eval(named[0], NAMES)
    return privacy.epsilon


def rows_for(algorithm: Any) -> Any:
    """Rows, or persons' records, that the algorithm takes."""
    n = algorithm.users
    if (problem := getattr(algorithm, "problem", None)) is None:
        data = np.random.default_rng(0).random((n, getattr(algorithm, "d", 1))) / 2
        return data if hasattr(algorithm, "norm_bound") else data[:, 0]
    return asked(algorithm, records(algorithm, n * problem.records))


RUN = [pytest.param(call, marks=pytest.mark.slow if call in LONG else ()) for call in CALLS]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::shuffle_sim.errors.WeakPrivacyWarning")
@pytest.mark.parametrize("call", RUN)
def test_every_call_of_the_table_runs(call):
    algorithm = eval(call, NAMES)
    if isinstance(algorithm, PrintedCost):  # what no run could send
        assert algorithm.bits > 1e18
        return
    result = run(algorithm, rows_for(algorithm), seed=1)
    assert np.isfinite(result.value).all()
    assert result.privacy.epsilon <= epsilon_of(algorithm, call) * (1 + 1e-9)
