"""Simulate a private sum of a million users on two cores: all runtimes give the same bits.

python examples/simulate_across_cores.py
"""

import time

import numpy as np

from protocols import VectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Generated

N, D = 1_000_000, 10


def make(rng: np.random.Generator, count: int) -> Floats:
    """The rows of some users; each user shard makes its own, so data need not fit in memory."""
    return rng.uniform(-0.3, 0.3, size=(count, D))


protocol = VectorSum.calibrated(n=N, d=D, privacy=Privacy(1.0, 1e-7), noise_ratio=1.05)
data = Generated(N, make, seed=5)
print(f"{N:,} users x {D} coordinates, {protocol.g + protocol.b} bits each")

values = []
for runtime, workers in (("inprocess", 1), ("processes", 2), ("ray", 2)):
    start = time.perf_counter()
    result = run(protocol, data, runtime=runtime, workers=workers, fidelity="aggregate", seed=7)
    values.append(result.value)
    print(
        f"{runtime:>9}, {workers} worker(s): epsilon {result.privacy.epsilon:.3f}, "
        f"{time.perf_counter() - start:.1f} s with start-up"
    )
print("same bits:", all(np.array_equal(values[0], each) for each in values))
