"""A competitor of real_tables.py: diffprivlib 0.6.6 in an environment of its own; see there.

Reads names of files from standard input. Its logistic regression is objective perturbation with
delta = 0. It runs without an intercept, where its claim holds, on rows with a constant, of length 1
at most. Its neighbours differ in one row. Three ridges are tried.
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression

warnings.simplefilter("ignore")
RIDGES = (1e-4, 1e-3, 1e-2)


def models(given, epsilon, n):
    """By setting, for n rows."""
    seed = int(given["seed"])
    if given["bounds"].size:
        limits, ends = tuple(given["limits"]), tuple(given["bounds"].tolist())
        common = {"bounds_X": limits, "bounds_y": ends, "random_state": seed}
        return {"": LinearRegression(epsilon=epsilon, **common)}
    common = {"epsilon": epsilon, "data_norm": 1.0, "fit_intercept": False, "max_iter": 1000}
    return {
        f"ridge {ridge:g}": LogisticRegression(C=1 / (ridge * n), random_state=seed, **common)
        for ridge in RIDGES
    }


for line in sys.stdin:
    rows = np.load(line.strip())
    X, test = rows["X"], rows["test"]
    if not rows["bounds"].size:
        X, test = (np.column_stack([x, np.ones(len(x))]) / np.sqrt(2) for x in (X, test))
    found = {}
    for epsilon in rows["epsilons"]:
        for name, model in models(rows, float(epsilon), len(X)).items():
            found.setdefault(name, []).append(model.fit(X, rows["y"]).predict(test))
    answer = line.strip() + ".answer.npz"
    np.savez(answer, **{name: np.array(each) for name, each in found.items()})
    print(answer, flush=True)
