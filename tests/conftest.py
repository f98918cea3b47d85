import importlib
import itertools
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    """Marks parameters that `slow_parameters` or `long_parameters` names, by patterns of ids."""
    for item, mark in itertools.product(items, ("slow", "long")):
        patterns = getattr(item.get_closest_marker(f"{mark}_parameters"), "args", ())
        if any(fnmatchcase(item.callspec.id, pattern) for pattern in patterns):
            item.add_marker(mark)


@pytest.fixture(scope="session")
def example():
    """A script of examples/ as a module, by name: scripts find their parts beside them."""
    sys.path.append(str(EXAMPLES))
    yield importlib.import_module
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="session")
def ball():
    """Rows drawn uniformly from the l2 unit ball."""

    def draw(n: int, d: int, seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(n, d))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) * rng.random((n, 1)) ** (1 / d)

    return draw
