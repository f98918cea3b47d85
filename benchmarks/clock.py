"""How long a call takes: the best of several, so that other load on the machine counts least."""

import time
from collections.abc import Callable


def best(
    call: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)
