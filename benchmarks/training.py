"""Fully interactive GD at aggregate fidelity against the same GD without privacy in blocked numpy.

10^6 users, 10 features, logistic loss. Ratios are of processor time: other load on the machine
hardly shows in them. Both take the same steps from the same start; the private run includes its
set-up, its checks of the data and its accounting.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.reference_job import D
from protocols import ShuffleGD
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.arrays import Floats

USERS, ROUNDS, FEW, REPEATS = 10**6, 1000, 100, 5


def users(n: int) -> Floats:
    """Features in the unit ball, labels of a logistic model."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, D))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    labelled: Floats = np.c_[x, np.where(rng.random(n) < 1 / (1 + np.exp(-4 * x[:, 0])), 1.0, -1.0)]
    return labelled


def without_privacy(
    signed: Floats, eta: float, radius: float, rounds: int, block: int = 8192
) -> Floats:
    """Projected descent on rows of label times features; the average of its iterates."""
    theta, total = np.zeros(D), np.zeros(D)
    for _ in range(rounds):
        gradient = np.zeros(D)
        for start in range(0, len(signed), block):
            part = signed[start : start + block]
            c = part @ theta
            np.exp(c, out=c)
            c += 1
            np.divide(-1, c, out=c)
            gradient += c @ part
        total += theta
        theta = theta - eta / len(signed) * gradient
        theta *= min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-300))
    return total / rounds


def processor(call: Callable[[], object]) -> float:
    """Seconds of processor time, all threads together."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measure() -> dict[str, object]:
    rows, radius = users(USERS), 4.0
    signed = rows[:, :-1] * rows[:, -1:]
    made = {
        rounds: ShuffleGD.calibrated(
            n=USERS,
            problem=Problem(Logistic(), L2Ball(D, radius)),
            privacy=Privacy(1.0, 1e-6),
            rounds=rounds,
            eta=1.0,
        )
        for rounds in (FEW, ROUNDS)
    }

    def ratio(rounds: int, kernel: str) -> float:
        private = processor(
            lambda: run(
                made[rounds], rows, fidelity="aggregate", execution=Execution(kernel=kernel), seed=1
            )
        )
        return private / processor(lambda: without_privacy(signed, 1.0, radius, rounds))

    run(
        made[FEW],
        rows[:USERS],
        fidelity="aggregate",
        execution=Execution(kernel="compiled"),
        seed=1,
    )  # compiles
    few = {kernel: [ratio(FEW, kernel) for _ in range(REPEATS)] for kernel in ("numpy", "compiled")}
    return {
        "users": USERS,
        "rounds": ROUNDS,
        f"ratios_of_{FEW}_rounds": few,
        "medians": {kernel: float(np.median(ratios)) for kernel, ratios in few.items()},
        "ratio_of_all_rounds": {kernel: ratio(ROUNDS, kernel) for kernel in ("numpy", "compiled")},
        "target": 3.0,
    }
