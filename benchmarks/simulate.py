"""Runs in a simulated, faulty network, by the million: python -m benchmarks.simulate --seeds N.

Seeds go round the scenarios. A seed that breaks a promise is printed, and the exit code is 1;
--first SEED --seeds 1 repeats it. Without options: 2,000 seeds.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from protocols import (
    CarryVectorSum,
    L2Ball,
    Logistic,
    Problem,
    ScalarSum,
    ShuffleGD,
    ShuffleSGD,
    SingleMessageSum,
    VectorSum,
)
from protocols.shuffle.noisy_mean import NoisyMean
from shuffle_sim import Privacy
from shuffle_sim.auditing import SimulationReport, simulate
from shuffle_sim.protocol.adversary import Dropout

USERS, CHUNK = 6, 5000  # seeds; a chunk remembers what runs give that are left alone
PRIVACY = Privacy(50.0, 1e-3)
PROBLEM = Problem(Logistic(), L2Ball(2, 1.0))
ROWS = np.c_[np.linspace(-0.6, 0.6, USERS), np.full(USERS, 0.3), np.tile([1.0, -1.0], 3)]
VALUES = np.linspace(0, 1, USERS)


def scenarios() -> list[tuple[Any, Any, dict[str, Any]]]:
    """Protocol, data and options of run; cheap ones come more often."""
    bits = ScalarSum(n=USERS, g=3, b=2, p=0.5), VALUES
    moved = SingleMessageSum(n=USERS, steps=3, gamma=0.5), VALUES
    mean = NoisyMean(VectorSum(n=3, d=2, g=4, b=12, norm_bound=PROBLEM.lipschitz))
    steps: dict[str, Any] = {"problem": PROBLEM, "n": USERS, "rounds": 2, "privacy": PRIVACY}
    once = ShuffleSGD(eta=0.5, mean=mean, **steps), ROWS
    carries = CarryVectorSum(n=USERS, d=2, g=2.5, r=3, b=60, norm_bound=PROBLEM.lipschitz)
    again = ShuffleGD(eta=0.5, mean=NoisyMean(carries), **steps), ROWS
    return [
        *[(*bits, {})] * 4,
        *[(*moved, {"fidelity": "literal"})] * 4,
        (*moved, {"fidelity": "literal", "shuffler_shards": 3}),
        (*moved, {"fidelity": "literal", "security": "transport"}),
        (*moved, {"fidelity": "literal", "security": "onion"}),
        (*once, {}),
        (*once, {"placement": "together"}),
        (*moved, {"fidelity": "literal", "placement": "together"}),
        (*once, {"adversary": Dropout(0.3)}),
        (*again, {}),
    ]


def part(first: int, last: int) -> SimulationReport:
    """The seeds from first to last, each in its scenario."""
    cases, reports = scenarios(), list[SimulationReport]()
    for place, (protocol, rows, options) in enumerate(cases):
        mine = (seed for seed in range(first, last) if seed % len(cases) == place)
        reports.append(simulate(protocol, rows, seeds=mine, most_failures=100, **options))
    return SimulationReport(
        runs=sum(each.runs for each in reports),
        failures=tuple(failure for each in reports for failure in each.failures),
        faults=sum((each.faults for each in reports), Counter()),
    )


def measure(seeds: int = 2000, first: int = 0, processes: int = 2) -> dict[str, object]:
    """How many seeds break a promise, and how many are tried a second."""
    begun, runs, faults, failed = time.perf_counter(), 0, Counter[str](), list[str]()
    starts = range(first, first + seeds, CHUNK)
    stops = [min(start + CHUNK, first + seeds) for start in starts]
    with ProcessPoolExecutor(processes) as pool:
        for report in pool.map(part, starts, stops):
            runs, faults = runs + report.runs, faults + report.faults
            failed += map(str, report.failures)
            for each in report.failures:
                print(each, flush=True)
            if sys.stderr.isatty():
                print(f"\r{runs:,} of {seeds:,}", end="", file=sys.stderr, flush=True)
    return {
        "seeds": runs,
        "failures": failed,
        "faults": dict(faults),
        "seeds_per_second": runs / (time.perf_counter() - begun),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    found = measure(**vars(parser.parse_args()))
    print(found)
    sys.exit(bool(found["failures"]))
