"""One plan for any number of users takes less than a second and allocates nothing of size n."""

import tracemalloc

from benchmarks.clock import best
from shuffle_sim.privacy.bounds.domination import dominating_sigma
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec, fewest_bits, least_noise

TASKS = [(10**3, 1), (10**4, 10), (10**6, 1), (10**6, 1000), (10**9, 1), (10**9, 10), (10**9, 1000)]


def measure() -> dict[str, object]:
    rows = []
    for n, d in TASKS:
        task = SumSpec(n, d, Privacy(1.0, 1e-6))

        def cold(task: SumSpec = task) -> int:
            dominating_sigma.cache_clear()
            return fewest_bits(task, 1.05).bits

        bits = cold()

        def budget(task: SumSpec = task, bits: int = bits) -> None:
            dominating_sigma.cache_clear()
            least_noise(task, bits)

        tracemalloc.start()
        cold()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "n": n,
                "d": d,
                "bits": bits,
                "fewest_bits_seconds": best(cold, 3),
                "least_noise_seconds": best(budget, 3),
                "peak_bytes": peak,
            }
        )
    rounds = SumSpec(10**4, 10, Privacy(1.0, 1e-6), rounds=1000)
    thousand = best(lambda: fewest_bits(rounds, 1.03), 3)
    return {
        "plans": rows,
        "thousand_rounds_seconds": thousand,
        "slowest_seconds": max(
            thousand, *(max(row["fewest_bits_seconds"], row["least_noise_seconds"]) for row in rows)
        ),
        "target_seconds": 1.0,
    }
