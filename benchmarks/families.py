"""Both families of estimators beside diffprivlib: `python -m benchmarks families`.

Linear models: held-out accuracy on 20 splits, by `examples/real_tables.py`, whose records stand in
results/families.jsonl; a run that was stopped goes on. Then mean, components and clusters on whole
tables, 20 seeds. diffprivlib 0.6.6 runs in an environment of its own. It is made from the package
registry in the folder PEER_ENVIRONMENT, or in a temporary one. FAMILIES_SPLITS: fewer splits.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from protocols import PrivateKMeans, PrivatePCA, ShuffleKMeans, ShufflePCA
from shuffle_sim.arrays import Floats

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
from real_tables_data import SMALL, SOURCES, load  # noqa: E402
from real_tables_peers import Peer  # noqa: E402

TABLES, EPSILONS = ("breast-cancer", "digits", "generated"), (0.5, 1.0, 4.0)
METHODS = ("shuffle", "central descent", "central, delta 0", "not private", "diffprivlib")
SPLITS = int(os.environ.get("FAMILIES_SPLITS", "20"))
DELTA, COMPONENTS, CLUSTERS = 1e-5, 3, 5
RECORDS = Path(__file__).parent / "results" / "families.jsonl"
_SCRIPT = """
import sys, warnings
import numpy as np
from diffprivlib import tools
from diffprivlib.models import KMeans, PCA
warnings.simplefilter("ignore")
given = np.load(sys.argv[1])
X, (low, high) = given["X"], given["limits"]
found = {"mean": [], "components": [], "centres": []}
for seed in range(int(given["seeds"])):
    own = {"epsilon": float(given["epsilon"]), "random_state": seed}
    found["mean"].append(tools.mean(X, axis=0, bounds=(low, high), **own))
    pca = PCA(int(given["components"]), data_norm=1.0, bounds=(low, high), **own)
    found["components"].append(pca.fit(X).components_)
    means = KMeans(int(given["clusters"]), bounds=(low, high), **own)
    found["centres"].append(means.fit(X).cluster_centers_)
np.savez(sys.argv[2], **{name: np.array(each) for name, each in found.items()})
"""


def measure() -> dict[str, object]:
    """Mean and standard error by table and method."""
    with tempfile.TemporaryDirectory() as folder:
        peers = Path(os.environ.get("PEER_ENVIRONMENT", folder)).resolve()
        words = ["--tables", *TABLES, "--epsilons", *map(str, EPSILONS), "--methods", *METHODS]
        words += ["--splits", str(SPLITS), "--peers", str(peers), "--out", str(RECORDS)]
        subprocess.run([sys.executable, str(EXAMPLES / "real_tables.py"), *words], check=True)
        made = {name: summaries(name, peers, Path(folder)) for name in TABLES}
    return {"linear models": linear(), "mean, components, clusters": made}


def linear() -> dict[str, dict[str, str]]:
    """Of the records: by table and epsilon, the best setting of a method in hindsight."""
    scores: dict[tuple[str, Any, str, str], list[float]] = {}
    for line in RECORDS.read_text().splitlines():
        each = json.loads(line)
        key = each["table"], each["epsilon"], each["method"], each["setting"]
        if each["score"] is not None:
            scores.setdefault(key, []).append(each["score"])
    found: dict[str, dict[str, str]] = {}
    for table in TABLES:
        for epsilon in EPSILONS:
            row = found.setdefault(f"{table}, {epsilon:g}", {})
            for method in METHODS:
                asked = (table, None if method == "not private" else epsilon, method)
                settings = [values for key, values in scores.items() if key[:3] == asked]
                if settings:
                    row[method] = shown(max(settings, key=lambda each: float(np.mean(each))))
    return found


def shown(values: list[float]) -> str:
    """Mean, standard error and how many."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ± {error:.3f} ({len(values)})"


def summaries(name: str, peers: Path, folder: Path) -> dict[str, dict[str, str]]:
    """By method at epsilon 1: three measures of what is learnt of a table."""
    rows = load((SOURCES | SMALL)[name])
    measured = {
        method: [measures(rows.X, *each) for each in released]
        for method, released in (
            ("shuffle", ours(rows.X, ShufflePCA, ShuffleKMeans, DELTA)),
            ("curator", ours(rows.X, PrivatePCA, PrivateKMeans, DELTA)),
            ("curator, delta 0", ours(rows.X, PrivatePCA, PrivateKMeans, 0.0)),
            ("diffprivlib, delta 0", theirs(rows.X, rows.limits, peers, folder)),
        )
    }
    return {
        method: {key: shown([each[key] for each in every]) for key in every[0]}
        for method, every in measured.items()
    }


def ours(X: Floats, pca: Any, kmeans: Any, delta: float) -> Iterator[tuple[Floats, Floats, Floats]]:
    """(mean, components, centres) by seed; each with the whole epsilon."""
    for seed in range(SPLITS):
        common = {"delta": delta, "random_state": seed}
        found = pca(COMPONENTS, **common).fit(X)
        yield found.mean_, found.components_, kmeans(CLUSTERS, **common).fit(X).cluster_centers_


def theirs(
    X: Floats, limits: Floats, peers: Path, folder: Path
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """The same of diffprivlib."""
    with Peer("diffprivlib", peers) as peer:  # makes the environment
        python = peer.python
    asked, answer = folder / "summaries.npz", folder / "released.npz"
    sizes: dict[str, Any] = {"components": COMPONENTS, "clusters": CLUSTERS, "seeds": SPLITS}
    np.savez(asked, X=X, limits=limits, epsilon=1.0, **sizes)
    subprocess.run([str(python), "-c", _SCRIPT, str(asked), str(answer)], check=True)
    with np.load(answer) as found:
        yield from zip(found["mean"], found["components"], found["centres"], strict=True)


def measures(X: Floats, mean: Floats, components: Floats, centres: Floats) -> dict[str, float]:
    """How good what was released is."""
    moved = X - X.mean(axis=0)
    values = np.linalg.eigvalsh(moved.T @ moved)
    plane = np.linalg.qr(components.T)[0]
    best = KMeans(CLUSTERS, n_init=5, random_state=0).fit(X).inertia_
    apart = ((X**2).sum(axis=1)[:, None] - 2 * X @ centres.T + (centres**2).sum(axis=1)).min(axis=1)
    return {
        "mean, distance": float(np.linalg.norm(mean - X.mean(axis=0))),
        "components, share of variance": float(
            ((moved @ plane) ** 2).sum() / values[-COMPONENTS:].sum()
        ),
        "clusters, inertia": float(apart.sum() / best),
    }
