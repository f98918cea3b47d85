"""Which algorithms promise a bound, and where their bounds rise."""

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import protocols
from protocols import L2Ball, Logistic, Moments, PanPrivateACSA, Problem, ShuffleACSA
from protocols.erm import Grouped
from protocols.optimisation.base import Optimiser
from protocols.shuffle import OneShotAverage
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.data.population import Unit
from shuffle_sim.registry import names, registered

SLACK = 1 + 1e-6
"""Of searches between the points of a grid."""
FEW_PERSONS = "DeletionStability"
NO_BOUND = {
    "CentredObjective": "none is proven of features that are centred by their noisy mean",
    FEW_PERSONS: "for a dozen persons only: by its calls in the table",
    "ExponentialGrid": "none is proven of a net",
    "GaussianGD": "none is proven of clipped steps",
    "Phases": "that of what they are made of",
    "PopLocalize": "as printed, with constants of the paper",
    "PureSGD": "none is proven of clipped steps",
    "UserLevelOneShot": "none is proven of averaged minimisers",
}
BESIDE = (OneShotAverage,)
"""What has a bound, and is no `Optimiser`."""
GIVEN: dict[str, dict[str, Any]] = {
    "Phased": {"optimiser": ShuffleACSA},
    "CuratedPhases": {"optimiser": PanPrivateACSA},
}


def exported() -> dict[str, type[Any]]:
    """All classes that are registered or exported."""
    kinds = [registered(kind, name) for kind in ("algorithm", "protocol") for name in names(kind)]
    kinds += [getattr(protocols, name) for name in {*vars(protocols), *protocols.learning.__all__}]
    return {kind.__name__: kind for kind in kinds if isinstance(kind, type)}


def optimisers() -> dict[str, type[Any]]:
    """All optimisers among them, and what has a bound beside."""
    return {
        name: kind
        for name, kind in sorted(exported().items())
        if (issubclass(kind, Optimiser) and not inspect.isabstract(kind)) or kind in BESIDE
    }


def states_a_bound(kind: type[Any]) -> bool:
    """Whether it is made with one that its own code sets."""
    if not hasattr(kind, "calibrated") or inspect.isabstract(kind):
        return False
    return re.search(r"self\.bound = |^    bound: ", inspect.getsource(kind), re.M) is not None


def of_persons(kind: type[Any]) -> bool:
    return kind in BESIDE or getattr(kind, "unit", Unit.RECORD) is Unit.PERSON


def bound_of(
    kind: type[Any],
    n: int,
    records: int,
    epsilon: float,
    loss: Any = None,
    ridge: float = 0.1,
    options: Mapping[str, Any] | None = None,
) -> float | None:
    """None where it cannot be planned."""
    name, given = kind.__name__, dict(GIVEN.get(kind.__name__, {})) | dict(options or {})
    loss = Logistic() if loss is None else loss
    if name == "SaddleERM":
        loss = Grouped(loss, 2)
    own = of_persons(kind) and kind not in BESIDE
    problem = Problem(loss, L2Ball(2, 5.0), ridge, records=records if own else 1)
    if kind in BESIDE:
        given["records"] = records
    elif "moments" in kind.takes:
        given["moments"] = Moments(4, 1.5, 1.0)
    for delta in (1e-8, 0.0):
        try:
            made = kind.calibrated(n=n, problem=problem, privacy=Privacy(epsilon, delta), **given)
        except ParameterError:
            continue
        return float(made.bound)
    return None


def rises(
    bound: Callable[..., float | None],
    base: tuple[float, ...],
    axes: Iterable[Iterable[float]],
    slack: float = SLACK,
) -> list[str]:
    """Where more of one argument gives a larger bound, or none where less gave one."""
    found: list[str] = []
    known: dict[tuple[float, ...], float | None] = {}
    for at, values in enumerate(axes):
        line = [(*base[:at], each, *base[at + 1 :]) for each in values]
        for point in line:
            known[point] = known.get(point) or bound(*point)
        for less, more in itertools.pairwise(line):
            before, after = (math.inf if known[p] is None else known[p] for p in (less, more))
            assert before is not None
            assert after is not None
            if after > before * slack:
                found.append(f"{less} {before:.7g}, {more} {after:.7g}")
    return found
