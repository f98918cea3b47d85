"""Roles together in two workers over one process: stations in processes, and on Ray.

Repeats take one process and two stations in turn, with the same rounds in both. Ray comes last:
processes are forked where it has not run. Every number is the least, the median and the largest.
`python -m benchmarks placement`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

from actors.runtime import RayRuntime
from benchmarks import training
from benchmarks.reference_job import D, LogisticSum, rows
from benchmarks.scale import seconds_a_round
from protocols import ShuffleGD
from protocols.problems.domains import L2Ball
from protocols.problems.losses import Logistic
from protocols.problems.problem import Problem
from shuffle_sim import Execution, Privacy, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import InMemory
from shuffle_sim.execution.setup import deployment_of
from shuffle_sim.roles import Station

REPEATS = 5
TWO: dict[str, Any] = {"workers": 2}
HOSTS: dict[str, dict[str, Any]] = {name: TWO | {"runtime": name} for name in ("processes", "ray")}
SIZES: dict[tuple[str, str], dict[int, int]] = {
    ("aggregate", "compiled"): {100_000: 60, 500_000: 24, 2_000_000: 8},
    ("counts", "compiled"): {100_000: 40, 500_000: 12, 2_000_000: 5},
    ("literal", "compiled"): {100_000: 12, 500_000: 4, 2_000_000: 3},
    ("aggregate", "numpy"): {100_000: 40, 500_000: 14, 2_000_000: 5},
    ("counts", "numpy"): {100_000: 24, 500_000: 6, 2_000_000: 3},
    ("literal", "numpy"): {100_000: 6, 500_000: 3, 2_000_000: 2},
}
"""Rounds for each number of users."""


def measure(sizes: dict[tuple[str, str], dict[int, int]] = SIZES) -> dict[str, object]:
    """Ratios; above 1 two workers are faster."""
    two = {"processes": _every(sizes, "processes")}
    down = {"processes": descent("processes")}
    with one_ray():
        two["ray"], down["ray"] = _every(sizes, "ray"), descent("ray")
    return {
        "two_workers_over_one_process": two,
        "gradient_descent_at_defaults": down,
        "targets_of_descent": {"processes": 1.7, "ray": 1.5},
        "targets": {"from 2 * 10^6 users": 1.7, "from 10^5 users": 1.0},
        "one_station_over_the_slowest_of_two": critical_path(),
    }


@contextmanager
def one_ray() -> Iterator[None]:
    """Ray is started once: runs find it running and leave it."""
    host = RayRuntime()
    host._connect()
    try:
        yield
    finally:
        host.close()


def _every(sizes: dict[tuple[str, str], dict[int, int]], host: str) -> dict[str, object]:
    return {
        f"{fidelity}, {kernel}, {users} users": two_workers(fidelity, kernel, users, rounds, host)
        for (fidelity, kernel), many in sizes.items()
        for users, rounds in many.items()
    }


def two_workers(
    fidelity: str, kernel: str, users: int, rounds: int, host: str, repeats: int = REPEATS
) -> dict[str, list[float]]:
    """One process over two workers; and its milliseconds a round."""
    data = rows(np.random.default_rng(0), users)
    how: dict[str, Any] = {"fidelity": fidelity, "kernel": kernel, "planned": 10_000}
    times, ratios = list[float](), list[float]()
    for _ in range(repeats):
        times.append(seconds_a_round(users, data, rounds, **how))
        ratios.append(times[-1] / seconds_a_round(users, data, rounds, **how, **HOSTS[host]))
    return {"ratio": spread(ratios), "milliseconds_in_one": spread([1000 * t for t in times])}


def descent(host: str, users: int = 2_000_000, repeats: int = REPEATS) -> dict[str, list[float]]:
    """Gradient descent over carries as people run it: one process over two workers, by pairs."""
    data = training.users(users)
    found: dict[str, list[float]] = {}
    for fidelity, rounds in {"aggregate": 12, "counts": 8, "literal": 3}.items():
        made = ShuffleGD.calibrated(  # by carries, as by default
            n=users,
            problem=Problem(Logistic(), L2Ball(D, 4.0)),
            privacy=Privacy(1.0, 1e-7),
            rounds=rounds + 2,
            eta=1.0,
        )
        ratios = []
        for _ in range(repeats):
            alone, two = (
                _round_of(made, data, fidelity=fidelity, **how) for how in ({}, HOSTS[host])
            )
            ratios.append(alone / two)
        found[fidelity] = spread(ratios)
    return found


def _round_of(made: ShuffleGD, data: Floats, **how: Any) -> float:
    """Seconds of a round; the first two, which copy rows and compile loops, are not counted."""
    stamps: list[float] = []
    told = Execution(on_round=lambda *_: stamps.append(perf_counter()))
    run(made, data, seed=1, execution=told, **how)
    return float(np.median(np.diff(stamps[1:])))


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


def spread(values: list[float]) -> list[float]:
    """The least, the median and the largest."""
    return [min(values), float(np.median(values)), max(values)]
