"""Measure communication: formulas before a run, bytes counted on the wire in it, and encryption.

python examples/measure_communication.py
"""

import numpy as np

from protocols import VectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.execution.forecast import forecast

N, D = 200, 3
rows = np.random.default_rng(0).uniform(-0.5, 0.5, size=(N, D))

print("bits against noise (times the central Gaussian's), before anything runs")
for ratio in (1.5, 1.1, 1.02):
    plan = VectorSum.calibrated(n=N, d=D, privacy=Privacy(1.0, 1e-5), noise_ratio=ratio)
    print(f"  noise {ratio:4}: {forecast(plan).payload_bits} payload bits a user")

protocol = VectorSum(n=N, d=D, g=4, b=20)
print(f"one round of {N} users, {D} x {protocol.g + protocol.b} bits, counted on the wire")
for security in ("none", "transport", "onion"):
    costs = run(protocol, rows, fidelity="literal", seed=1, security=security).costs
    to_shuffler, to_analyzer, _ = (hop.wire for hop in forecast(protocol, security=security).hops)
    print(
        f"  {security:>9}: {costs.wire_bytes:,} bytes to the shuffler (formula {to_shuffler:,}), "
        f"{costs.view_bytes:,} to the analyzer (formula {to_analyzer:,})"
    )
