"""One literal round in process against numpy's permutation of as many uint8.

10,000 users x 10 coordinates x 58 bits: randomizing, packing, framing, parsing, checking,
arranging, framing, counting.
"""

import numpy as np

from benchmarks.clock import best
from protocols.sums.carry_sum import CarryVectorSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim import Privacy, run
from shuffle_sim.sampling.shuffling import arrange, permute


def measure() -> dict[str, object]:
    rng = np.random.default_rng(0)
    n, d = 10_000, 10
    rows = rng.normal(size=(n, d))
    rows /= 1.001 * np.linalg.norm(rows, axis=1, keepdims=True)
    protocol = VectorSum.calibrate(n=n, d=d, privacy=Privacy(1.0, 1e-6), noise_ratio=1.05)
    carries = CarryVectorSum.calibrate(n=n, d=d, privacy=Privacy(1.0, 1e-6), noise_ratio=1.05)
    messages = n * d * (protocol.g + protocol.b)
    bits = (rng.random(messages) < 0.5).astype(np.uint8)
    permutation = best(lambda: rng.permutation(bits))
    whole = best(lambda: run(protocol, rows, fidelity="literal", seed=1))
    whole_carries = best(lambda: run(carries, rows, fidelity="literal", seed=1))
    ones, size = int(bits.sum()) // d, messages // d
    arranged = best(lambda: [arrange(ones, size, rng) for _ in range(d)])
    moved = best(lambda: permute(bits.reshape(n, d, -1), rng))
    return {
        "messages": messages,
        "permutation_seconds": permutation,
        "round_over_permutation": whole / permutation,
        "target_round_over_permutation": 3.0,
        "messages_with_carries": n * d * carries.bits,
        "round_over_round_with_carries": whole / whole_carries,
        "permutation_over_arrange": permutation / arranged,
        "plain_permute_over_permutation": moved / permutation,
    }
