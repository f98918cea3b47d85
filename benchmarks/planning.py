"""One plan for any number of users takes less than a second and allocates nothing of size n."""

import tracemalloc

from benchmarks.clock import best
from shuffle_sim.privacy.binomial_planner import fewest_bits, least_noise
from shuffle_sim.privacy.bounds import carry
from shuffle_sim.privacy.bounds.domination import dominating_sigma
from shuffle_sim.privacy.carry_planner import choose_carries
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.planner import SumSpec

TASKS = [(10**3, 1), (10**4, 10), (10**6, 1), (10**6, 1000), (10**9, 1), (10**9, 10), (10**9, 1000)]


def measure() -> dict[str, object]:
    rows: list[dict[str, float]] = []
    for n, d in TASKS:
        task = SumSpec(n, d, Privacy(1.0, 1e-6))

        def cold(task: SumSpec = task) -> int:
            dominating_sigma.cache_clear()
            return fewest_bits(task, 1.05).bits

        bits = cold()

        def budget(task: SumSpec = task, bits: int = bits) -> None:
            dominating_sigma.cache_clear()
            least_noise(task, bits)

        def carries(task: SumSpec = task) -> int:
            for each in vars(carry).values():
                getattr(each, "cache_clear", lambda: None)()
            return choose_carries(task, 1.05).bits

        tracemalloc.start()
        cold()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "n": n,
                "d": d,
                "bits": bits,
                "carry_bits": carries(),
                "fewest_bits_seconds": best(cold, 3),
                "least_noise_seconds": best(budget, 3),
                "carries_seconds": best(carries, 3),
                "peak_bytes": peak,
            }
        )
    rounds = SumSpec(10**4, 10, Privacy(1.0, 1e-6), rounds=1000)
    thousand = best(lambda: fewest_bits(rounds, 1.03), 3)
    return {
        "plans": rows,
        "thousand_rounds_seconds": thousand,
        "slowest_seconds": max(
            thousand, *(value for row in rows for key, value in row.items() if "seconds" in key)
        ),
        "target_seconds": 1.0,
    }
