"""`fit` on 10^6 rows of 50 columns beside scikit-learn's SGDClassifier of 50 epochs.

Both in this process, in turn, on the same rows. Wall and processor time; the aim is a ratio below
3. `python -m benchmarks fit`.
"""

from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from protocols import ShuffleLogisticRegression

ROWS, COLUMNS, EPOCHS = 1_000_000, 50, 50


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
    }
