"""The seconds that `sum` and `train` announce over those that runs take: `execution.sizing`.

Above 1 a run was quicker than announced. `python -m benchmarks ahead`.
"""

from time import perf_counter
from typing import Any

import numpy as np

from protocols import L2Ball, Logistic, Problem, ShuffleGD, VectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.execution.sizing import seconds_of

PRIVACY = Privacy(1.0, 1e-6)
USERS = {"literal": (2_000, 50_000), "counts": (20_000, 300_000), "aggregate": (50_000, 1_000_000)}


def measure(repeats: int = 9) -> dict[str, object]:
    """Announced over measured seconds: quartiles of some runs; other load moves them."""
    found = {}
    for fidelity, sizes in USERS.items():
        for n in sizes:
            for name, protocol, rows in (a_sum(n), a_training(n // 10)):
                told = [seconds_of(protocol, rows, fidelity=fidelity)[0] for _ in range(repeats)]
                ratios = [each / seconds(protocol, rows, fidelity) for each in told]
                low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
                found[f"{fidelity}, {name}, {len(rows):,} users"] = [low, middle, high]
    return {"announced_over_measured": found, "meant_to_be_within": [1 / 2, 4]}


def a_sum(n: int) -> tuple[str, Any, Any]:
    """Ten coordinates, one round."""
    rows = np.random.default_rng(0).uniform(-0.3, 0.3, (n, 10))
    return "sum", VectorSum.calibrated(n=n, d=10, privacy=PRIVACY, noise_ratio=1.1), rows


def a_training(n: int) -> tuple[str, Any, Any]:
    """Ten rounds of gradient descent on nine features and a label."""
    rows = np.random.default_rng(0).uniform(-0.3, 0.3, (n, 11))
    rows[:, -1] = np.where(rows[:, 0] > 0, 1.0, -1.0)
    problem = Problem(Logistic(), L2Ball(10, 1.0))
    made = ShuffleGD.calibrated(problem=problem, n=n, privacy=PRIVACY, rounds=10)
    return "ten rounds", made, rows


def seconds(protocol: Any, rows: Any, fidelity: str) -> float:
    """A whole run in this process."""
    begun = perf_counter()
    run(protocol, rows, fidelity=fidelity, seed=1)
    return perf_counter() - begun
