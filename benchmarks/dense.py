"""A sum of rows in memory, whole `run`, compared with numpy's clip and sum without privacy.

`python -m benchmarks dense`. Every number is a ratio of two times that follow each other: the
least, the median and the largest.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np

from benchmarks.placement import spread
from protocols.sums import CarryVectorSum, VectorSum
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.arrays import Floats

N, D, REPEATS, BLOCK = 2_000_000, 10, 25, 8192


def clip_and_sum(rows: Floats) -> Floats:
    """Rows scaled into the unit ball and added, so many at a time that they stay in the cache."""
    total = np.zeros(rows.shape[1])
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        norms = np.sqrt(np.einsum("ij,ij->i", part, part))
        total += (1 / np.maximum(norms, 1)) @ part
    return total


def measure() -> dict[str, object]:
    """Half of the rows are too long."""
    rows = np.random.default_rng(0).normal(size=(N, D))
    rows /= np.median(np.linalg.norm(rows, axis=1))
    found: dict[str, list[float]] = {}
    for sum_ in (VectorSum, CarryVectorSum):
        protocol = sum_.calibrated(n=N, d=D, privacy=Privacy(1.0, 1e-8), noise_ratio=1.05)
        how = Execution(kernel="compiled")
        private = partial(run, protocol, rows, seed=1, fidelity="aggregate", execution=how)
        private()  # compiles
        ratios = [_seconds(partial(clip_and_sum, rows)) / _seconds(private) for _ in range(REPEATS)]
        found[sum_.__name__] = spread(ratios)
    return {"users": N, "coordinates": D, "speed_over_numpy": found, "target": 0.5}


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start
