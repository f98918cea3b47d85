"""One literal round in process against numpy's permutation of as many uint8.

10,000 users x 10 coordinates x 58 bits: randomizing, packing, framing, parsing, checking,
arranging, framing, counting. And one of a million users who send one of 1,000 words each.
"""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.clock import best
from protocols.sums.carry_sum import CarryVectorSum
from protocols.sums.vector_sum import VectorSum
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.protocol import LocalRandomizer, OneRound
from shuffle_sim.sampling.shuffling import arrange, permute
from shuffle_sim.wire.messages import Messages


@dataclass(frozen=True)
class Response(LocalRandomizer):
    """k-ary randomised response, many users at once."""

    symbols: int
    epsilon0: float

    def admit(self, values: Values) -> tuple[Values, int]:
        return values, 0

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        return self.reports(np.atleast_1d(x), rng)

    def reports(self, xs: Values, rng: np.random.Generator) -> Messages:
        xs = dense(xs)
        lying = self.symbols / (math.exp(self.epsilon0) + self.symbols - 1)
        words = rng.integers(self.symbols, size=len(xs), dtype=np.uint16)
        np.copyto(words, xs, where=rng.random(len(xs)) >= lying, casting="unsafe")
        return self.singly(words, np.ones(len(xs), np.int64))


def measure() -> dict[str, object]:
    rng = np.random.default_rng(0)
    n, d = 10_000, 10
    rows = rng.normal(size=(n, d))
    rows /= 1.001 * np.linalg.norm(rows, axis=1, keepdims=True)
    protocol = VectorSum.calibrated(n=n, d=d, privacy=Privacy(1.0, 1e-6), noise_ratio=1.05)
    carries = CarryVectorSum.calibrated(n=n, d=d, privacy=Privacy(1.0, 1e-6), noise_ratio=1.05)
    messages = n * d * (protocol.g + protocol.b)
    bits = (rng.random(messages) < 0.5).astype(np.uint8)
    permutation = best(lambda: rng.permutation(bits))
    whole = best(lambda: run(protocol, rows, fidelity="literal", seed=1))
    whole_carries = best(lambda: run(carries, rows, fidelity="literal", seed=1))
    users = 1_000_000
    said, response = rng.integers(0, 1000, users).astype(float), Response(1000, 8.0)
    counts, fast = OneRound(users, response, 1e-7), Execution(kernel="compiled")
    words = best(lambda: run(counts, said, fidelity="literal", seed=1, execution=fast))
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
        "users_a_second_of_one_word": users / words,
        "target_users_a_second_of_one_word": 1e6,
        "permutation_over_arrange": permutation / arranged,
        "plain_permute_over_permutation": moved / permutation,
    }
