"""Persons with many records: descent by a shuffle protocol, over plain descent on the same table.

10^5 persons, 100 records each, 10 features, 30 rounds, two Ray actors. Plain descent is blocked
numpy in one process. The ratios on Ray are of wall times, in turn, with the start of Ray in them,
and need two free cores. Those in process are of processor times. Memory is that of all processes
together, for persons that are made from a seed, a tenth of them and all. `outside` is alone, on one
core: phased output perturbation of persons who disagree.
"""

import os
import time
from typing import Any

import numpy as np

from benchmarks.clock import best
from benchmarks.memory import peak
from protocols import L2Ball, Logistic, PhasedERM, Problem, UserLevelGD
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.persons import Persons
from shuffle_sim.data.population import Generated

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


def generated(n: int) -> None:
    """Two rounds over persons whose records are made where they are asked for: memory alone."""
    source = Generated(n * M, _records)
    made = _protocol(n, 2)
    run(made, Persons(source, np.full(n, M)), fidelity="aggregate", runtime="ray", workers=2)


def _records(rng: np.random.Generator, count: int) -> Floats:
    x = rng.standard_normal((count, D)) / 4
    return np.column_stack([x, np.where(x[:, 0] > 0, 1.0, -1.0)])


def _protocol(n: int, rounds: int) -> UserLevelGD:
    problem = Problem(Logistic(), L2Ball(D, 3.0), records=M)
    privacy = Privacy(1.0, 1e-6)
    return UserLevelGD.calibrated(n=n, problem=problem, privacy=privacy, rounds=rounds, eta=3.8)


def timed(n: int, pairs: int) -> dict[str, list[float]]:
    """Both in turn, so that other load on the machine meets both."""
    rows = table(n)
    made, persons = _protocol(n, ROUNDS), Persons.in_memory(rows)

    def trained(runtime: str, workers: int) -> None:
        result = run(made, persons, fidelity="aggregate", runtime=runtime, workers=workers)
        assert result.privacy.epsilon <= 1

    found: dict[str, list[float]] = {"plain seconds": [], "ray seconds": []}
    found |= {"ratios": [], "processor ratios in process": []}
    for _ in range(pairs):
        without = best(lambda: plain(rows, 3.8), 1)
        private = best(lambda: trained("ray", 2), 1)
        busy = best(lambda: plain(rows, 3.8), 1, time.process_time)
        alone = best(lambda: trained("inprocess", 1), 1, time.process_time)
        for name, value in zip(
            found, (without, private, private / without, alone / busy), strict=True
        ):
            found[name].append(value)
    return found


def outside() -> float:
    """Processor seconds of `PhasedERM` on 2,000 persons x 20, whose labels differ by person.

    In the second release nobody has a slope within gamma of the center.
    """
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2000, 20, D))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    x[:, :, 0] += 2
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    labels = np.broadcast_to(rng.choice([-1.0, 1.0], (2000, 1, 1)), (2000, 20, 1))
    problem = Problem(Logistic(), L2Ball(D, 1.0), records=20, declared_spread=0.05)
    privacy = Privacy(1.0, 1e-6)
    made = PhasedERM.calibrated(n=2000, problem=problem, privacy=privacy, phases=1, releases=2)
    rows = np.concatenate([x, labels], axis=2)
    return best(lambda: run(made, rows, seed=1), 1, time.process_time)


def measure() -> dict[str, Any]:
    n, pairs = int(os.environ.get("PERSONS", "100000")), int(os.environ.get("PAIRS", "3"))
    found = timed(n, pairs)
    peaks = {
        str(count): peak(f"from benchmarks.persons import generated; generated({count})")
        for count in (n // 10, n)
    }
    return {
        "persons": n,
        "processor seconds, 2,000 x 20 persons outside gamma": outside(),
        **found,
        "median ratio": float(np.median(found["ratios"])),
        "peak_mebibytes of all processes, generated": {
            count: each["peak_mebibytes"] for count, each in peaks.items()
        },
    }
