"""Certified minimisation beside scikit-learn's lbfgs on the same rows, and what a release adds."""

import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression

from protocols import Logistic, OutputPerturbation, Problem, RealSpace, minimise
from protocols.erm.risk import Risk
from shuffle_sim import Privacy
from shuffle_sim.arrays import Floats

N, D, RIDGE, REPEATS = 1_000_000, 50, 1e-3, 3


def generated(n: int, d: int) -> Floats:
    """Rows of length 1 with labels of a logistic model, shape (n, d + 1)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1)[:, None]
    odds = 20 * x @ (rng.normal(size=d) / np.sqrt(d))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), 1.0, -1.0)
    return np.column_stack([x, y])


def measure() -> dict[str, object]:
    """Ratios of processor time, least of three in one run."""
    rng, rows = np.random.default_rng(1), generated(N, D)
    x, y = rows[:, :-1].copy(), rows[:, -1].copy()
    problem = Problem(Logistic(), RealSpace(D), RIDGE)
    made = OutputPerturbation.calibrated(n=N, problem=problem, privacy=Privacy(1.0))
    objective = Risk.of(problem).objective(rows)
    model = LogisticRegression(C=1 / (RIDGE * N), fit_intercept=False)
    found: dict[str, list[float]] = {"sklearn": [], "certified": [], "release": []}
    point = minimise(objective, made.radius)

    def release() -> object:
        return made.mechanism.sample(point.point, made.shift, rng)

    for _ in range(REPEATS):
        found["sklearn"].append(_seconds(lambda: model.fit(x, y)))
        found["certified"].append(_seconds(lambda: minimise(objective, made.radius)))
        found["release"].append(_seconds(release))
    least = {name: min(values) for name, values in found.items()}
    return {
        "rows": N,
        "columns": D,
        "radius over D": made.radius / made.risk.sensitivity(N)[0],
        "passes": point.passes,
        "polished": bool(point.polished),
        "certified over sklearn lbfgs": least["certified"] / least["sklearn"],
        "aim": 3.0,
        "release over certified": least["release"] / least["certified"],
        "seconds of sklearn": least["sklearn"],
    }


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
