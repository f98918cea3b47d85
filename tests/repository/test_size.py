"""Limits of size, which keep modules, functions and the list of names readable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import protocols

ROOT = Path(__file__).parents[2]
PACKAGES = ("shuffle_sim", "protocols", "actors")
MODULE, FUNCTION, PARAMETERS = 350, 80, 20
"""Lines of a module and of a function, and parameters of a function, at most."""
COMMANDS = 16
"""Modules of the command line, at most: together they have some 5,000 lines."""
NAMES = 80
"""Exported by `protocols`, at most."""


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def too_large(text: str) -> list[str]:
    """What in a module is above a limit."""
    found = ["module"] if text.count("\n") > MODULE else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            long = (node.end_lineno or 0) - node.lineno + 1 > FUNCTION
            given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            if long or len(given) > PARAMETERS:
                found.append(node.name)
    return found


@pytest.mark.full
def test_no_module_and_no_function_is_too_large() -> None:
    found = {str(path): large for path in sources() if (large := too_large(path.read_text()))}
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1\n" * MODULE, []),
        ("x = 1\n" * (MODULE + 1), ["module"]),
        ("def f():\n" + "    pass\n" * (FUNCTION - 1), []),
        ("def f():\n" + "    pass\n" * FUNCTION, ["f"]),
        (f"def f({', '.join(f'a{i}' for i in range(PARAMETERS + 1))}): ...\n", ["f"]),
    ],
)
def test_what_is_above_a_limit_is_found(text: str, found: list[str]) -> None:
    assert too_large(text) == found


def test_the_command_line_has_few_modules() -> None:
    modules = [path for path in (ROOT / "shuffle_sim/cli").glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= COMMANDS


def test_protocols_exports_few_names() -> None:
    assert len(protocols.__all__) <= NAMES
