"""How long a call takes: the best of several, so that other load on the machine counts least."""

import time
from collections.abc import Callable


def best(call: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
