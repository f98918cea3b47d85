"""Roles together in two Ray workers over one process, and Ray's overhead a round.

Repeats take one process and two workers in turn, with the same rounds in both; every number is the
least, the median and the largest of the ratios. `python -m benchmarks placement`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from benchmarks.reference_job import LogisticSum, rows
from benchmarks.scale import seconds_a_round
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution.setup import deployment_of
from shuffle_sim.roles import Station

REPEATS = 5
SIZES: dict[str, tuple[int, ...]] = {
    "aggregate": (100_000, 2_000_000),
    "counts": (100_000, 2_000_000),
    "literal": (100_000, 500_000),
}
"""Users; a literal round of more takes seconds."""


def measure(sizes: dict[str, tuple[int, ...]] = SIZES) -> dict[str, object]:
    """Ratios; above 1 two workers are faster."""
    most = max(size for each in sizes.values() for size in each)
    data = rows(np.random.default_rng(0), most)
    two: dict[str, list[float]] = {}
    for fidelity, many in sizes.items():
        for users in many:
            how: dict[str, Any] = {"fidelity": fidelity, "kernel": "compiled", "planned": 10_000}
            found = []
            for _ in range(REPEATS):
                alone = seconds_a_round(users, data[:users], 8, **how)
                together = seconds_a_round(
                    users,
                    data[:users],
                    8,
                    **how,
                    runtime="ray",
                    workers=2,
                    placement="together",
                )
                found.append(alone / together)
            two[f"{fidelity}, {users} users"] = spread(found)
    return {
        "two_workers_together_over_one_process": two,
        "target": 1.7,
        "one_station_over_the_slowest_of_two": critical_path(),
        "ray_overhead_milliseconds_a_round": overhead(),
        "overhead_targets": {"aggregate": 4.0, "literal": 8.0},
    }


def critical_path() -> dict[str, list[float]]:
    """A round's processor time in one station over that of the slowest of two at each step.

    Both stations take their steps in this process, one after the other. So it is what two cores
    would gain if nothing came between them: no hops, and memory for both. Two rounds are not
    counted; in them rows are copied, and loops compiled.
    """
    users, found = {"aggregate": 1_000_000, "counts": 400_000, "literal": 200_000}, {}
    data = rows(np.random.default_rng(0), max(users.values()))
    for fidelity, n in users.items():
        ratios = []
        for _ in range(REPEATS):
            alone, two = (seconds_of_steps(n, data[:n], fidelity, many) for many in (1, 2))
            ratios.append(alone / two)
        found[fidelity] = spread(ratios)
    return found


def seconds_of_steps(n: int, data: Floats, fidelity: str, many: int, rounds: int = 5) -> float:
    """Processor seconds a round: of each step that of the slowest station; the least of some."""
    protocol = LogisticSum(n, rounds + 2, planned=10_000)
    made, _ = deployment_of(protocol, fidelity, 1, None, None, "compiled", many, "none")
    stations = [Station(made, InMemory(data), shard) for shard in range(many)]
    planned, times = stations[0].plan(), list[float]()
    assert planned is not None
    broadcast = planned.broadcast
    for _ in range(rounds + 2):
        gathered, first = timed([partial(each.gather, broadcast) for each in stations])
        records = [each[-1] for each in gathered]
        coming = [[*records, *(each[place] for each in gathered)] for place in range(many)]
        steps = [
            partial(station.deliver, broadcast, many, sent)
            for station, sent in zip(stations, coming, strict=True)
        ]
        delivered, second = timed(steps)
        readings = [reading for reading, _ in delivered]
        (conclusion,), third = timed([partial(stations[0].conclude, readings)])
        times.append(first + second + third)
        if conclusion.following is None:
            break
        broadcast = conclusion.following.broadcast
    return min(times[2:])


def timed(steps: Sequence[Callable[[], Any]]) -> tuple[list[Any], float]:
    """What the steps give, and the processor time of the slowest."""
    given, times = [], []
    for step in steps:
        start = process_time()
        given.append(step())
        times.append(process_time() - start)
    return given, max(times)


def overhead(users: int = 10_000) -> dict[str, list[float]]:
    """Milliseconds a round that one Ray worker takes more than this process."""
    data = rows(np.random.default_rng(1), users)
    found: dict[str, list[float]] = {"aggregate": [], "literal": []}
    for _ in range(REPEATS):
        for fidelity, values in found.items():
            how: dict[str, Any] = {"fidelity": fidelity, "kernel": "numpy", "planned": users}
            alone = seconds_a_round(users, data, 30, **how)
            hosted = seconds_a_round(
                users, data, 30, **how, runtime="ray", workers=1, placement="together"
            )
            values.append(1000 * (hosted - alone))
    return {fidelity: spread(values) for fidelity, values in found.items()}


def spread(values: list[float]) -> list[float]:
    """The least, the median and the largest."""
    return [min(values), float(np.median(values)), max(values)]
