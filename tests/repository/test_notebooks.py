"""The notebooks: kept without outputs, run as they are, and every last value can be shown."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def codes(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_are_two():
    assert [each.stem for each in NOTEBOOKS] == ["compare_optimisers", "size_telemetry"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
@pytest.mark.long
def test_a_notebook_runs_and_shows_tables(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, shown = {"__name__": "notebook"}, []
    for cell in codes(notebook):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, notebook.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
            shown += [value._repr_html_()] if value is not None else []
    assert len(shown) >= 3
    assert all("<table" in each and "nan" not in each for each in shown)
