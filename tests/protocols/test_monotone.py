"""Proven bounds do not rise with more users, more records of a person, or more epsilon."""

import inspect
import itertools
import math
from typing import Any

import pytest

import protocols
from protocols import L2Ball, Logistic, Moments, Problem, ShuffleACSA
from protocols.erm import Grouped
from protocols.optimisation.base import Optimiser
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.data.population import Unit
from shuffle_sim.registry import names, registered

NS, RECORDS, EPSILONS = (300, 3000, 30_000), (8, 80, 800), (0.3, 1.0, 3.0)
BASE = 30_000, 80, 1.0
"""n, m and epsilon of which one is varied."""
SLACK = 1 + 1e-6
"""Of searches between the points of a grid."""
NO_BOUND = {
    "CentredObjective": "none is proven of features that are centred by their noisy mean",
    "CuratedPhases": "that of its phases",
    "DeletionStability": "for a dozen persons only: its own test",
    "ExponentialGrid": "none is proven of a net",
    "GaussianGD": "none is proven of clipped steps",
    "Phases": "that of what they are made of",
    "PopLocalize": "as printed, with constants of the paper",
    "PureSGD": "none is proven of clipped steps",
    "UserLevelOneShot": "none is proven of averaged minimisers",
}
GIVEN = {"Phased": {"optimiser": ShuffleACSA}}


def optimisers() -> dict[str, type[Any]]:
    """All that are registered or exported."""
    kinds = [registered(kind, name) for kind in ("algorithm", "protocol") for name in names(kind)]
    kinds += [getattr(protocols, name) for name in {*vars(protocols), *protocols.learning.__all__}]
    found = {kind.__name__: kind for kind in kinds if isinstance(kind, type)}
    return {
        name: kind
        for name, kind in sorted(found.items())
        if issubclass(kind, Optimiser) and not inspect.isabstract(kind)
    }


def bound_of(kind: type[Any], n: int, records: int, epsilon: float) -> float | None:
    """None where it cannot be planned."""
    name, persons = kind.__name__, getattr(kind, "unit", Unit.RECORD) is Unit.PERSON
    loss = Grouped(Logistic(), 2) if name == "SaddleERM" else Logistic()
    problem = Problem(loss, L2Ball(2, 5.0), 0.1, records=records if persons else 1)
    given: dict[str, Any] = dict(GIVEN.get(name, {}))
    if "moments" in kind.takes:
        given["moments"] = Moments(4, 1.5, 1.0)
    for delta in (1e-8, 0.0):
        try:
            made = kind.calibrated(n=n, problem=problem, privacy=Privacy(epsilon, delta), **given)
        except ParameterError:
            continue
        return made.bound
    return None


def rises(kind: type[Any]) -> list[str]:
    """Where more of one gives a larger bound, or none where less gave one."""
    n, m, epsilon = BASE
    persons = getattr(kind, "unit", Unit.RECORD) is Unit.PERSON
    lines = {"n": [(each, m, epsilon) for each in NS]}
    lines["epsilon"] = [(n, m, each) for each in EPSILONS]
    lines["m"] = [(n, each, epsilon) for each in RECORDS] if persons else []
    found, known = [], {}
    for axis, line in lines.items():
        for point in line:
            known[point] = known.get(point) or bound_of(kind, *point)
        for less, more in itertools.pairwise(line):
            before, after = (math.inf if known[p] is None else known[p] for p in (less, more))
            if after > before * SLACK:
                found.append(f"{axis}: {less} {before:.5g}, {more} {after:.5g}")
    assert any(value is not None and math.isfinite(value) for value in known.values())
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in optimisers() if name not in NO_BOUND])
def test_bounds_do_not_rise(name):
    assert rises(optimisers()[name]) == []


def test_what_has_no_bound_of_its_own_is_an_optimiser():
    assert set(NO_BOUND) <= set(optimisers())


def test_a_bound_that_rises_would_be_found():
    class Rising:
        """Its bound grows with n."""

        takes = ()

        def __init__(self, bound):
            self.bound = float(bound)

        @classmethod
        def calibrated(cls, *, n, problem, privacy):
            return cls(n)

    assert rises(Rising)
