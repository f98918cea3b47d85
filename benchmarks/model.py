"""A model of one process: seconds of a run from users, coordinates and bits, fitted and held out.

Processor time of whole runs with the compiled kernel, the least of some repeats: fixed, and a user,
a value, and at literal fidelity a message. The fit has no negative part and weighs relative errors.
"""

from time import process_time

import numpy as np
import scipy

from benchmarks.clock import best
from protocols import VectorSum
from shuffle_sim import Execution, run
from shuffle_sim.arrays import Floats

Point = tuple[int, int, int]
"""Users, coordinates, bits a coordinate."""
FITTED: dict[str, list[Point]] = {
    "aggregate": [(25_000, 5, 58), (100_000, 5, 58), (100_000, 10, 58), (400_000, 10, 58)],
    "literal": [
        *((10_000, 5, 58), (40_000, 5, 58), (40_000, 10, 58)),
        *((40_000, 10, 116), (80_000, 10, 58)),
    ],
}
HELD_OUT: dict[str, list[Point]] = {
    "aggregate": [(200_000, 10, 58), (200_000, 20, 58), (800_000, 10, 58)],
    "literal": [(100_000, 10, 58), (30_000, 20, 58), (50_000, 10, 200)],
}
LARGE: Point = (10**9, 10, 58)
CORES = 64


def measure() -> dict[str, object]:
    """Coefficients, errors at held-out points, and what is predicted for many users and cores."""
    data = np.random.default_rng(0).normal(scale=0.2, size=(800_000, 20))
    found: dict[str, object] = {}
    for fidelity, fitted in FITTED.items():
        literal = fidelity == "literal"
        seconds = np.array([_seconds(each, fidelity, data) for each in fitted])
        terms = np.array([_terms(each, literal) for each in fitted])
        parts, _ = scipy.optimize.nnls(terms / seconds[:, None], np.ones(len(seconds)))
        errors = {
            str(each): float(_terms(each, literal) @ parts / _seconds(each, fidelity, data) - 1)
            for each in HELD_OUT[fidelity]
        }
        large = float(_terms(LARGE, literal) @ parts)
        found[fidelity] = {
            "nanoseconds": [1e9 * part for part in parts],
            "relative_errors_held_out": errors,
            "seconds_of_10^9_users": large,
            f"seconds_on_{CORES}_cores_at_full_and_half_efficiency": [
                large / CORES,
                2 * large / CORES,
            ],
        }
    return found


def _terms(point: Point, literal: bool) -> Floats:
    users, d, bits = point
    return np.array([1.0, users, users * d, *([users * d * bits] * literal)])


def _seconds(point: Point, fidelity: str, data: Floats) -> float:
    users, d, bits = point
    protocol = VectorSum(n=users, d=d, g=bits - 14, b=14)
    rows = data[:users, :d].copy()
    return best(
        lambda: run(
            protocol, rows, fidelity=fidelity, execution=Execution(kernel="compiled"), seed=1
        ),
        4,
        process_time,
    )
