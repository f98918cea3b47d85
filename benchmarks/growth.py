"""How a round's cost grows with users, dimensions, bits, rounds, actors: ratios to the smallest."""

import time
from typing import Any

import numpy as np

from benchmarks.scale import seconds_a_round
from protocols import VectorSum
from shuffle_sim import Execution, run
from shuffle_sim.arrays import Floats

N, D, G, B = 200_000, 10, 44, 14


def rows(n: int, d: int) -> Floats:
    made: Floats = np.random.default_rng(0).normal(size=(n, d))
    made /= 1.001 * np.linalg.norm(made, axis=1, keepdims=True)
    return made


def seconds(n: int = N, d: int = D, g: int = G, b: int = B, **how: Any) -> float:
    """Of a round, the least of three runs."""
    protocol, data = VectorSum(n=n, d=d, g=g, b=b), rows(n, d)
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        run(protocol, data, seed=1, execution=Execution(kernel="numpy"), **how)
        taken.append(time.perf_counter() - start)
    return min(taken)


def growth(times: dict[int, float]) -> dict[str, float]:
    """Relative to the first."""
    first = next(iter(times.values()))
    return {str(size): value / first for size, value in times.items()}


def measure() -> dict[str, object]:
    seconds(1000, fidelity="literal")  # what is loaded once
    found: dict[str, object] = {}
    for fidelity in ("literal", "counts", "aggregate"):
        found[fidelity] = {
            "users": growth(
                {n: seconds(n, fidelity=fidelity) for n in (100_000, 200_000, 400_000, 800_000)}
            ),
            "dimensions": growth({d: seconds(d=d, fidelity=fidelity) for d in (5, 10, 20, 40)}),
            "bits": growth({b: seconds(b=b, fidelity=fidelity) for b in (6, 56, 156, 356)}),
        }
    big = rows(2_000_000, D)
    found["rounds"] = growth(
        {
            t: t * seconds_a_round(100_000, big[:100_000], t + 1, fidelity="aggregate")
            for t in (2, 4, 8, 16)
        }
    )
    found["actors"] = growth(
        {
            w: seconds_a_round(len(big), big, 4, fidelity="aggregate", runtime="ray", workers=w)
            for w in (1, 2, 4)
        }
    )
    found["shuffler_shards"] = growth(
        {s: seconds(fidelity="literal", shuffler_shards=s) for s in (1, 2, 4)}
    )
    return found
