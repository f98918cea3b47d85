"""Algorithms ask no loss for raw gradients, and no statistic reads what is declared.

A curator's algorithm has gradients of `Clipped`, a shuffle one asks users by a query whose values
the randomizer brings into its ball. Import contracts see no methods, so this reads the sources.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "protocols"
RAW = {"gradients", "gradients_at", "derivative", "prox", "clipped_prox", "row_gradients"}
DECLARED = {"planned_smoothness", "spread", "root", "objective_root", "smooth"} | {
    f"declared_{name}" for name in ("smoothness", "spread", "root")
}


def raw_slopes(source):
    """Lines that read one of the methods, by a dot or by `getattr`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        asked = isinstance(node, ast.Attribute) and node.attr in RAW
        if asked or (isinstance(node, ast.Constant) and str(node.value) in RAW):
            found.append(getattr(node, "lineno", 0))
    return sorted(found)


def declared_in_statistics(source):
    """Lines of statistics that read a constant which a person may declare."""
    classes = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ClassDef)]
    bases = {"Statistic", "WholeStatistic", "GroupedPass"}
    return [
        node.lineno
        for each in classes
        if any(isinstance(base, ast.Name) and base.id in bases for base in each.bases)
        for node in ast.walk(each)
        if isinstance(node, ast.Attribute) and node.attr in DECLARED
    ]


@pytest.mark.parametrize("room", ["central", "shuffle"])
@pytest.mark.full
def test_algorithms_ask_no_loss_for_raw_gradients(room):
    files = sorted((ROOT / room).rglob("*.py"))
    assert len(files) > 10
    for file in files:
        source = file.read_text()
        assert raw_slopes(source) == [], file
        assert declared_in_statistics(source) == [], file


@pytest.mark.parametrize(
    "offence",
    [
        "x = self.problem.loss.gradients(theta, rows)",
        "take = partial(loss.gradients_at, thetas)",
        "x = loss.derivative(margins, y)",
        "f = loss.prox",
        "x = getattr(loss, 'gradients')(theta, rows)",
    ],
)
def test_control_a_planted_offender_is_found(offence):
    source = (ROOT / "central" / "person" / "grouped_descent.py").read_text()
    assert len(raw_slopes(f"{source}\n\n{offence}\n")) == 1


def test_control_a_statistic_that_reads_a_declaration_is_found():
    source = (ROOT / "central" / "person" / "grouped_descent.py").read_text()
    planted = source.replace("self.eta * self.slopes.clip", "self.eta * self.problem.root")
    assert planted != source
    assert len(declared_in_statistics(planted)) == 1
