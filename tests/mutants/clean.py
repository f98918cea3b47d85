"""What is audited without a defect: every randomizer, runtime, kernel and generator, in small."""

from collections.abc import Callable
from functools import partial
from typing import Any

from protocols import (
    L2Ball,
    Logistic,
    Problem,
    ScalarSum,
    ShuffleGD,
    ShuffleSGD,
    SingleMessageSum,
    SplitAndMixSum,
    VectorSum,
)
from shuffle_sim import Privacy
from shuffle_sim.execution.options import Execution

from . import counting, registry

_FEW = Privacy(3.0, 1e-4)
_PROBLEM = Problem(Logistic(), L2Ball(2, 1.0))


def _vector() -> Any:
    return VectorSum(n=40, d=2, g=4, b=12)


CLEAN: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "vector": (_vector, {}),
    "scalar": (lambda: ScalarSum(n=40, g=5, b=9, p=0.2), {}),
    "single": (lambda: SingleMessageSum.calibrated(n=60, privacy=_FEW), {}),
    "split": (lambda: SplitAndMixSum.calibrated(n=30, privacy=_FEW, rounding=0.3), {}),
    "split vector": (registry.split_vector, {}),
    "carry": (registry.carry, {}),
    "sgd": (
        lambda: ShuffleSGD.calibrated(
            n=40, problem=_PROBLEM, privacy=_FEW, batch=20, encoding="unary"
        ),
        {},
    ),
    "gd": (
        lambda: ShuffleGD.calibrated(
            n=40, problem=_PROBLEM, privacy=_FEW, rounds=2, noise_ratio=1.3
        ),
        {},
    ),
    "processes": (_vector, {"runtime": "processes", "workers": 2}),
    "onion": (_vector, {"security": "onion"}),
    "transport": (_vector, {"security": "transport"}),
    "shards": (_vector, {"shuffler_shards": 3}),
    "compiled": (_vector, {"execution": Execution(kernel="compiled")}),
    "chacha20": (_vector, {"execution": Execution(generator="chacha20")}),
    **{
        method: (partial(counting.histogram, method, n=60), {})
        for method in ("response", "unary", "fixed-blanket", "pollution", "two-sided")
    },
}
"""By name: what makes the protocol, and the options of the run."""
