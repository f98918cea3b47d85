"""Persons with many records: descent by a shuffle protocol, over plain descent on the same table.

10^5 persons, 100 records each, 10 features, 30 rounds, two Ray actors. Plain descent is blocked
numpy in one process. The ratio on Ray is of wall times, and needs two free cores. That in process
is of processor times.
"""

import os
import time
from typing import Any

import numpy as np

from benchmarks.clock import best
from protocols import L2Ball, Logistic, Problem, UserLevelGD
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import Persons
from shuffle_sim.execution.result import Result

M, D, ROUNDS, BLOCK = 100, 10, 30, 16_384


def table(n: int) -> Floats:
    """(n, M, D + 1)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, M, D))
    x /= np.maximum(1.0, np.sqrt(np.einsum("nmd,nmd->nm", x, x)))[:, :, None]
    y = np.where(x[:, :, 0] + 0.3 * rng.standard_normal((n, M)) > 0, 1.0, -1.0)
    return np.concatenate([x, y[:, :, None]], axis=2)


def plain(rows: Floats, eta: float) -> Floats:
    """Gradient descent without privacy, a block of records at a time."""
    flat, theta = rows.reshape(-1, D + 1), np.zeros(D)
    for _ in range(ROUNDS):
        total = np.zeros(D)
        for low in range(0, len(flat), BLOCK):
            x, y = flat[low : low + BLOCK, :-1], flat[low : low + BLOCK, -1]
            total += x.T @ (-y / (1 + np.exp(y * (x @ theta))))
        theta = theta - eta * total / len(flat)
    return theta


def measure() -> dict[str, Any]:
    n = int(os.environ.get("PERSONS", "100000"))
    rows = table(n)
    problem = Problem(Logistic(), L2Ball(D, 3.0), records=M)
    made = UserLevelGD.calibrated(
        n=n, problem=problem, privacy=Privacy(1.0, 1e-6), rounds=ROUNDS, eta=3.8
    )
    without = best(lambda: plain(rows, 3.8), 1)
    busy = best(lambda: plain(rows, 3.8), 1, time.process_time)
    persons = Persons.in_memory(rows)
    found: list[Result] = []

    def trained(runtime: str, workers: int) -> None:
        found.append(run(made, persons, fidelity="aggregate", runtime=runtime, workers=workers))

    private = best(lambda: trained("ray", 2), 1)
    alone = best(lambda: trained("inprocess", 1), 1, time.process_time)
    return {
        "persons": n,
        "plain seconds": without,
        "ray seconds": private,
        "ratio": private / without,
        "processor ratio in process": alone / busy,
        "epsilon": found[0].privacy.epsilon,
    }
