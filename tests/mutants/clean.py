"""What is audited without a defect: all that is registered by name, in small."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from protocols import (
    CarryScalarSum,
    CarryVectorSum,
    CentralSum,
    DeletionStability,
    Grouped,
    GroupMeans,
    HeavyHitters,
    L2Ball,
    Logistic,
    MeanEstimation,
    Problem,
    Quantiles,
    RunningTotals,
    SaddleERM,
    ScalarSum,
    SingleMessageSum,
    SplitAndMixSum,
    VectorSum,
)
from protocols.learning.training import Trainer
from shuffle_sim import Privacy
from shuffle_sim.auditing import audit_central
from shuffle_sim.auditing.audit import audit
from shuffle_sim.data.population import Unit
from shuffle_sim.execution.options import Execution
from shuffle_sim.registry import names, registered

from . import counting, long_sums
from . import registry as known

_FEW = Privacy(3.0, 1e-4)
_USERS, _RECORDS = 40, 2
LEAST = 1000
"""Repeats of an audit."""


def _vector() -> Any:
    return VectorSum(n=40, d=2, g=4, b=12)


def _trainer(kind: str, name: str, loss: str = "logistic", **given: Any) -> Trainer:
    persons = registered(kind, name).unit is Unit.PERSON
    return Trainer.of(loss, 2, _FEW, records=_RECORDS if persons else None, **given)


def _optimiser(name: str, n: int = _USERS, **given: Any) -> Any:
    own = {key: given.pop(key) for key in ("encoding", "noise_ratio") if key in given}
    return _trainer("protocol", name, **own).protocol(name, n, **given)


Made = tuple[Callable[[], Any], dict[str, Any]]
PROTOCOLS: dict[str, Callable[[], Any]] = {
    "vector-sum": _vector,
    "scalar-sum": lambda: ScalarSum(n=40, g=5, b=9, p=0.2),
    "single-message": lambda: SingleMessageSum.calibrated(n=60, privacy=_FEW),
    "split-and-mix": lambda: SplitAndMixSum.calibrated(n=30, privacy=_FEW, rounding=0.3),
    "split-and-mix-vector": known.split_vector,
    "carry-scalar-sum": lambda: CarryScalarSum.calibrated(n=300, privacy=_FEW, noise_ratio=1.5),
    "carry-vector-sum": lambda: CarryVectorSum.calibrated(
        n=300, d=2, privacy=_FEW, noise_ratio=1.5
    ),
    "laplace-scalar-sum": long_sums.floods,
    "sparse-vector-sum": long_sums.buckets,
    "running-totals": lambda: RunningTotals.calibrated(
        n=40, rounds=4, privacy=_FEW, noise_ratio=1.3
    ),
    "shuffle-sgd": partial(_optimiser, "shuffle-sgd", batch=20, encoding="unary"),
    "shuffle-acsa": partial(_optimiser, "shuffle-acsa", 60, batch=20),
    "shuffle-gd": partial(_optimiser, "shuffle-gd", rounds=2, noise_ratio=1.3),
    "user-level-gd": partial(_optimiser, "user-level-gd", rounds=2),
    "user-level-acsa": partial(_optimiser, "user-level-acsa", rounds=2),
    "histogram": partial(counting.histogram, n=60),
    "heavy-hitters": lambda: HeavyHitters.calibrated(n=60, privacy=_FEW, levels=(2, 2)),
    "quantiles": lambda: Quantiles.calibrated(n=60, low=0.0, high=1.0, privacy=_FEW, leaves=16),
    "group-means": lambda: GroupMeans.calibrated(
        n=60, groups=3, low=0.0, high=1.0, privacy=_FEW, bits=2
    ),
}
"""The protocols, by the name that each is registered under."""
_MORE: dict[str, Made] = {
    "carry": (known.carry, {}),
    **{
        method: (partial(counting.histogram, method, n=60), {})
        for method in ("response", "unary", "fixed-blanket", "pollution", "two-sided")
    },
    "processes": (_vector, {"runtime": "processes", "workers": 2}),
    "ray": (_vector, {"runtime": "ray", "workers": 2}),
    "onion": (_vector, {"security": "onion"}),
    "transport": (_vector, {"security": "transport"}),
    "shards": (_vector, {"shuffler_shards": 3}),
    "compiled": (_vector, {"execution": Execution(kernel="compiled")}),
    "chacha20": (_vector, {"execution": Execution(generator="chacha20")}),
}
CLEAN: dict[str, Made] = {name: (make, {}) for name, make in PROTOCOLS.items()} | _MORE
"""By name: what makes the protocol, and the options of the run."""


def _curated(name: str, n: int = _USERS, **given: Any) -> tuple[Any, Any, Any]:
    """A curator's algorithm, and two tables that differ in one row or person."""
    trainer = _trainer("algorithm", name, **given)
    return trainer.central(name, n), *trainer.neighbours(n)["opposite"]


def _central_sum() -> tuple[Any, Any, Any]:
    rows = np.zeros((_USERS, 2))
    first, second = (_first(rows, [end, 0.0]) for end in (1.0, -1.0))
    return CentralSum.calibrated(n=_USERS, d=2, privacy=_FEW), first, second


def _centred() -> tuple[Any, Any, Any]:
    trainer = _trainer("algorithm", "centred-objective", intercept=0.5)
    rows = np.tile([0.8, 0.5, 1.0], (_USERS, 1))
    return trainer.central("centred-objective", _USERS), rows, _first(rows, [-0.8, 0.5, 1.0])


def _stable() -> tuple[Any, Any, Any]:
    problem = Problem(MeanEstimation(), L2Ball(2, 1.0), records=_RECORDS, ridge=0.5)
    persons = np.full((8, _RECORDS, 2), 0.3)
    made = DeletionStability.calibrated(n=8, problem=problem, privacy=Privacy(8.0, 0.5))
    return made, persons, _first(persons, -0.3)


def _saddle() -> tuple[Any, Any, Any]:
    problem = Problem(Grouped(Logistic(), 2), L2Ball(2, 1.0), ridge=0.1)
    rows = np.tile([0.8, 0.5, 1.0, 0.0], (_USERS, 1))
    rows[_USERS // 2 :, -1] = 1.0  # the group
    made = SaddleERM.calibrated(n=_USERS, problem=problem, privacy=_FEW)
    return made, rows, _first(rows, [-0.8, 0.5, 1.0, 1.0])


def _first(rows: Any, other: Any) -> Any:
    """With another first row."""
    changed = rows.copy()
    changed[0] = other
    return changed


CURATED: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    name: partial(_curated, name) for name in names("algorithm")
} | {
    "central-sum": _central_sum,
    "centred-objective": _centred,
    "deletion-stability": _stable,
    "saddle-erm": _saddle,
}
"""The curator's algorithms by the name that each is registered under, and two tables."""
_HOW: dict[str, dict[str, Any]] = {
    "output-perturbation, chacha20": {"execution": Execution(generator="chacha20")},
    "output-perturbation, processes": {"runtime": "processes", "workers": 2},
    "output-perturbation, ray": {"runtime": "ray", "workers": 2},
}
CURATED |= dict.fromkeys(_HOW, CURATED["output-perturbation"])


def alarms(name: str, seed: int) -> list[Any]:
    """The checks that fail in an audit of what has no defect."""
    if name in CURATED:
        options = _HOW.get(name, {})
        checks = audit_central(*CURATED[name](), repeats=LEAST, seed=seed, **options).checks
    else:
        make, options = CLEAN[name]
        checks = audit(make(), repeats=LEAST, seed=seed, **options).checks
    return [each for each in checks if each.passed is False]
