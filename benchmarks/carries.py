"""The reference job of 10^6 users with P_vec and with carries, over the job without privacy.

Every number is a ratio of processor times within one repeat: the least, the median and the largest
of some repeats. A round's time is the median of several.
"""

from functools import partial
from time import process_time

import numpy as np

from benchmarks.clock import best
from benchmarks.reference_job import LogisticSum, rows, without_privacy
from benchmarks.scale import seconds_a_round

N, LITERAL, REPEATS = 1_000_000, 50_000, 5
ENCODINGS = ("unary", "carry")


def measure() -> dict[str, object]:
    data, theta = rows(np.random.default_rng(0), N), np.full(10, 0.05)
    sizes = {"aggregate": (N, 8), "counts": (N, 4), "literal": (LITERAL, 4)}
    ratios: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for kernel in ("compiled", "numpy"):
            for fidelity, (users, rounds) in sizes.items():
                baseline = best(partial(without_privacy, data, theta), 3, process_time) / N
                each = {
                    encoding: users
                    / seconds_a_round(
                        users,
                        data[:users],
                        rounds,
                        encoding=encoding,
                        planned=N,
                        clock=process_time,
                        fidelity=fidelity,
                        kernel=kernel,
                    )
                    for encoding in ENCODINGS
                }
                for encoding, speed in each.items():
                    name = f"{fidelity}, {kernel}, {encoding}"
                    ratios.setdefault(name, []).append(speed * baseline)
                name = f"{fidelity}, {kernel}, carry over unary"
                ratios.setdefault(name, []).append(each["carry"] / each["unary"])
    return {
        "users": N,
        "bits": {
            encoding: LogisticSum(N, 1, encoding).randomizer.report_bits for encoding in ENCODINGS
        },
        "speed_over_baseline": {
            name: [min(values), float(np.median(values)), max(values)]
            for name, values in ratios.items()
        },
        "targets": {
            "aggregate, compiled, carry": 0.7,
            "literal, compiled, carry over unary": 4.0,
        },
    }
