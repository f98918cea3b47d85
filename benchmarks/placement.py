"""Roles together in two Ray workers over one process, and Ray's overhead a round.

Repeats take one process and two workers in turn, with the same rounds in both; every number is the
least, the median and the largest of the ratios. `python -m benchmarks placement`.
"""

from typing import Any

import numpy as np

from benchmarks.reference_job import rows
from benchmarks.scale import seconds_a_round

REPEATS = 5
SIZES: dict[str, tuple[int, ...]] = {
    "aggregate": (100_000, 2_000_000),
    "counts": (100_000, 2_000_000),
    "literal": (100_000, 500_000),
}
"""Users; a literal round of more takes seconds."""


def measure(sizes: dict[str, tuple[int, ...]] = SIZES) -> dict[str, object]:
    """Ratios; above 1 two workers are faster."""
    most = max(size for each in sizes.values() for size in each)
    data = rows(np.random.default_rng(0), most)
    two: dict[str, list[float]] = {}
    for fidelity, many in sizes.items():
        for users in many:
            how: dict[str, Any] = {"fidelity": fidelity, "kernel": "compiled", "planned": 10_000}
            found = []
            for _ in range(REPEATS):
                alone = seconds_a_round(users, data[:users], 8, **how)
                together = seconds_a_round(
                    users,
                    data[:users],
                    8,
                    **how,
                    runtime="ray",
                    workers=2,
                    placement="together",
                )
                found.append(alone / together)
            two[f"{fidelity}, {users} users"] = spread(found)
    return {
        "two_workers_together_over_one_process": two,
        "target": 1.7,
        "ray_overhead_milliseconds_a_round": overhead(),
        "overhead_targets": {"aggregate": 4.0, "literal": 8.0},
    }


def overhead(users: int = 10_000) -> dict[str, list[float]]:
    """Milliseconds a round that one Ray worker takes more than this process."""
    data = rows(np.random.default_rng(1), users)
    found: dict[str, list[float]] = {"aggregate": [], "literal": []}
    for _ in range(REPEATS):
        for fidelity, values in found.items():
            how: dict[str, Any] = {"fidelity": fidelity, "kernel": "numpy", "planned": users}
            alone = seconds_a_round(users, data, 30, **how)
            hosted = seconds_a_round(
                users, data, 30, **how, runtime="ray", workers=1, placement="together"
            )
            values.append(1000 * (hosted - alone))
    return {fidelity: spread(values) for fidelity, values in found.items()}


def spread(values: list[float]) -> list[float]:
    """The least, the median and the largest."""
    return [min(values), float(np.median(values)), max(values)]
