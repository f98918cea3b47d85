"""`fit` on 10^6 rows of 50 columns beside scikit-learn's SGDClassifier of 50 epochs.

Both in this process, in turn, on the same rows. Wall and processor time; the aim is a ratio below
3. Then the estimators of a curator over their twins of the shuffle model, processor time on fewer
rows; the aim is at most 1.1. `python -m benchmarks fit`.
"""

from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from protocols import (
    PrivateCovariance,
    PrivateKMeans,
    PrivateLogisticRegression,
    PrivateRidge,
    ShuffleCovariance,
    ShuffleKMeans,
    ShuffleLogisticRegression,
    ShuffleRegressor,
)

ROWS, COLUMNS, EPOCHS = 1_000_000, 50, 50
FEWER, TURNS = 50_000, 5
TWINS: dict[str, tuple[Any, Any]] = {
    "logistic": (PrivateLogisticRegression, ShuffleLogisticRegression),
    "squared": (PrivateRidge, ShuffleRegressor),
    "covariance": (PrivateCovariance, ShuffleCovariance),
    "k-means": (PrivateKMeans, ShuffleKMeans),
}


def twins() -> dict[str, float]:
    """Processor time of a curator's fit over the shuffle model's: medians of turns."""
    rng, ratios = np.random.default_rng(0), {}
    x = rng.normal(size=(FEWER, 20)) / 5
    for name, kinds in TWINS.items():
        y = x[:, 0] > 0 if name == "logistic" else np.clip(x[:, 0], -1, 1)
        seconds: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for kind, own in zip(kinds, seconds, strict=True):
                start = process_time()
                kind(epsilon=1.0).fit(x, y)
                own.append(process_time() - start)
        ratios[name] = float(np.median(seconds[0]) / np.median(seconds[1]))
    return ratios


def measure(repeats: int = 2) -> dict[str, object]:
    """Seconds of each, and their ratios by wall and by processor time."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = x @ rng.normal(size=COLUMNS) + 0.3 * rng.normal(size=ROWS) > 0
    found: dict[str, list[float]] = {"ours": [], "SGDClassifier": []}
    scores: dict[str, float] = {}
    cpu: dict[str, list[float]] = {name: [] for name in found}
    made: dict[str, Any] = {
        "ours": lambda: ShuffleLogisticRegression(classes=[False, True]),
        "SGDClassifier": lambda: SGDClassifier(loss="log_loss", max_iter=EPOCHS, tol=None),
    }
    for _ in range(repeats):
        for name, make in made.items():
            wall, own = perf_counter(), process_time()
            model = make().fit(x, y)
            found[name].append(perf_counter() - wall)
            cpu[name].append(process_time() - own)
            scores[name] = float(model.score(x, y))
    return {
        "seconds": found,
        "processor_seconds": cpu,
        "accuracy": scores,
        "ratio": min(found["ours"]) / min(found["SGDClassifier"]),
        "processor_ratio": min(cpu["ours"]) / min(cpu["SGDClassifier"]),
        "meant_to_be_below": 3,
        "curator_over_shuffle": twins(),
        "meant_to_be_at_most": 1.1,
    }
