"""Accuracy beside diffprivlib's logistic regression (objective perturbation), at epsilon 1.

diffprivlib 0.6.6 needs scikit-learn 1.5, so it gets an environment of its own: made by `venv` and
`pip` in a temporary folder, or found in the folder PEER_ENVIRONMENT. It runs without an intercept,
where its claim holds, on rows of length 1: its neighbours differ in one row, as ours. Both get the
same splits. Ridges are a public list; the best of each model is compared, and nobody pays for that
choice.
"""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.certified import generated
from protocols import (
    Gibbs,
    Logistic,
    ObjectivePerturbation,
    OutputPerturbation,
    Problem,
    RealSpace,
)
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.labelled import held_out, labelled
from shuffle_sim.data.tables import bundled

SEEDS = 20
PURE, APPROXIMATE = Privacy(1.0), Privacy(1.0, 1e-5)
OURS: dict[str, tuple[type[Any], Privacy]] = {
    "output, delta 0": (OutputPerturbation, PURE),
    "objective, delta 0": (ObjectivePerturbation, PURE),
    "output, delta 1e-5": (OutputPerturbation, APPROXIMATE),
    "objective, delta 1e-5": (ObjectivePerturbation, APPROXIMATE),
    "Gibbs, delta 1e-5": (Gibbs, APPROXIMATE),
}
PEER = "diffprivlib, delta 0"
_PACKAGES = ("diffprivlib==0.6.6", "scikit-learn==1.5.2")
_SCRIPT = """
import sys, warnings
import numpy as np
from diffprivlib.models import LogisticRegression
warnings.simplefilter("error")  # no leak of a norm, no minimum that was not reached
warnings.simplefilter("ignore", DeprecationWarning)
given = np.load(sys.argv[1])
found = np.empty((len(given["ridges"]), len(given["train"]), given["rows"].shape[1] - 1))
for place, ridge in enumerate(given["ridges"]):
    for seed, train in enumerate(given["train"]):
        rows = given["rows"][train]
        model = LogisticRegression(epsilon=1.0, data_norm=1.0, C=1 / (ridge * len(rows)),
                                   fit_intercept=False, max_iter=10_000, random_state=seed)
        found[place, seed] = model.fit(rows[:, :-1], rows[:, -1]).coef_[0]
np.save(sys.argv[2], found)
"""


@dataclass(frozen=True)
class Table:
    """Rows of length 1 with labels -1 and +1, and the ridges tried.

    Attributes:
        gibbs: the least ridge at which a Gibbs draw takes seconds: its proposals are accepted
            rarely in many dimensions.
    """

    rows: Callable[[], Floats]
    ridges: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1)
    gibbs: float = 0.003


def scaled(name: str, positive: tuple[str, ...] = ()) -> Floats:
    """A bundled table: columns by their public bounds, a constant, rows of length 1."""
    rows = labelled(bundled(name), classes=True, positive=positive).rows
    rows[:, :-1] /= np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
    return rows


TABLES = {
    "breast cancer": Table(lambda: scaled("breast-cancer")),
    "digits, even or odd": Table(lambda: scaled("digits", ("0", "2", "4", "6", "8"))),
    "generated, 100,000 x 50": Table(lambda: generated(100_000, 50), (0.001, 0.01), math.inf),
}


def measure() -> dict[str, object]:
    """Held-out accuracies by table and model: mean over seeds, by ridge; and the difference.

    PEER_TABLES, separated by semicolons, names some of the tables only.
    """
    names = os.environ.get("PEER_TABLES", ";".join(TABLES)).split(";")
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder), *_PACKAGES)
        return {name: _compared(TABLES[name], python, Path(folder)) for name in names}


def environment(folder: Path, *packages: str) -> Path:
    """The Python of peers' packages, in the folder PEER_ENVIRONMENT or else this one.

    It is made if it is not there.
    """
    name = "environment" if packages == _PACKAGES else packages[0].partition("=")[0]
    place = Path(os.environ.get("PEER_ENVIRONMENT", folder)) / name
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, timeout=600)
    return python


def _compared(table: Table, python: Path, folder: Path) -> dict[str, object]:
    rows, ridges = table.rows(), table.ridges
    places = np.arange(len(rows), dtype=np.float64)[:, None]
    splits = [held_out(places, 0.2, seed) for seed in range(SEEDS)]
    train, test = (np.array([each[side][:, 0] for each in splits], int) for side in (0, 1))
    asked, answer = folder / "asked.npz", folder / "answer.npy"
    np.savez(asked, rows=rows, train=train, ridges=np.array(ridges))
    command = [str(python), "-c", _SCRIPT, str(asked), str(answer)]
    subprocess.run(command, check=True, timeout=3600)
    scores = {PEER: _scores(np.load(answer), rows, test)}
    for name, (kind, privacy) in OURS.items():
        tried = [each for each in ridges if kind is not Gibbs or each >= table.gibbs]
        if tried:
            found = [_trained(kind, privacy, rows, ridge, train) for ridge in tried]
            scores[name] = _scores(np.array(found), rows, test)
    means = {name: each.mean(axis=1) for name, each in scores.items()}
    ours = [name for name in scores if name != PEER]
    best = max(ours, key=lambda name: means[name].max())
    pure = max((name for name in ours if "delta 0" in name), key=lambda name: means[name].max())
    return {
        "accuracy": {
            name: {
                f"ridge {ridge:g}": float(value)
                for ridge, value in zip(ridges[-len(each) :], each, strict=True)
            }
            for name, each in means.items()
        },
        "ours over the peer": _difference(scores, best),
        "ours at delta 0 over the peer": _difference(scores, pure),
    }


def _trained(
    kind: type[Any],
    privacy: Privacy,
    rows: Floats,
    ridge: float,
    train: NDArray[np.int64],
) -> Floats:
    """One model for each seed, (seeds, d)."""
    problem = Problem(Logistic(), RealSpace(rows.shape[1] - 1), ridge)
    made = kind.calibrated(n=train.shape[1], problem=problem, privacy=privacy)
    return np.array([run(made, rows[each], seed=seed).value for seed, each in enumerate(train)])


def _scores(thetas: Floats, rows: Floats, test: NDArray[np.int64]) -> Floats:
    """Held-out accuracy, (ridges, seeds)."""
    return np.array(
        [
            [
                ((rows[held, :-1] @ theta > 0) == (rows[held, -1] > 0)).mean()
                for theta, held in zip(each, test, strict=True)
            ]
            for each in thetas
        ]
    )


def _difference(scores: dict[str, Floats], name: str) -> dict[str, object]:
    """At the best ridge of each: mean over seeds and its interval, by pairs (Student, 95 %)."""
    ours, peer = (scores[each][scores[each].mean(axis=1).argmax()] for each in (name, PEER))
    apart = ours - peer
    half = stats.t.ppf(0.975, SEEDS - 1) * apart.std(ddof=1) / np.sqrt(SEEDS)
    return {
        "model": name,
        "ours": float(ours.mean()),
        "peer": float(peer.mean()),
        "difference": float(apart.mean()),
        "from": float(apart.mean() - half),
        "to": float(apart.mean() + half),
    }
