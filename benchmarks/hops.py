"""Ray's own share of a round: its floor, its overhead, and where the time of two stations goes.

`python -m benchmarks hops`.
"""

import time
from typing import Any

import numpy as np
import ray

from actors import hosts
from actors.runtime import RayRuntime
from benchmarks.placement import TWO, one_ray, spread
from benchmarks.reference_job import LogisticSum, rows
from benchmarks.scale import seconds_a_round
from shuffle_sim import run
from shuffle_sim.roles import Station

RUNS = 10
USERS = 10_000
TARGETS = {"aggregate": 4.0, "literal": 8.0}
TIMED = ("gather", "deliver", "finish", "conclude")
ROUNDS = (
    ("aggregate", 100_000, 40),
    ("aggregate", 2_000_000, 12),
    ("counts", 2_000_000, 8),
    ("literal", 500_000, 6),
)


def measure() -> dict[str, object]:
    """Milliseconds."""
    with one_ray():
        return {
            "empty_calls": floor(),
            "overhead_a_round": {place: overhead(place) for place in ("apart", "together")},
            "targets_in_nine_of_ten_runs": TARGETS,
            "a_round_of_two_stations": {
                f"{fidelity}, {users} users": timeline(fidelity, users, rounds)
                for fidelity, users, rounds in ROUNDS
            },
        }


class Empty:
    """Answers."""

    def call(self, *_: Any) -> bytes:
        """Nothing."""
        return b""


def floor(repeats: int = 300) -> dict[str, list[float]]:
    """An empty call to each of two actors and back, and one more that needs both answers."""
    actor: Any = ray.remote(num_cpus=0)(Empty)
    two = [actor.remote() for _ in range(2)]
    found: dict[str, list[float]] = {"one call to each": [], "and one more to the first": []}
    for _ in range(repeats):
        for name, values in found.items():
            start = time.perf_counter()
            calls = [each.call.remote() for each in two]
            ray.get(calls if name == "one call to each" else two[0].call.remote(*calls))
            values.append(1000 * (time.perf_counter() - start))
    for each in two:
        ray.kill(each)
    return {name: spread(values[2:]) for name, values in found.items()}


def overhead(placement: str) -> dict[str, object]:
    """What a round of one worker takes more than in this process, in each of ten runs."""
    data, found = rows(np.random.default_rng(1), USERS), dict[str, object]()
    for fidelity, most in TARGETS.items():
        how: dict[str, Any] = {"fidelity": fidelity, "kernel": "numpy", "planned": USERS}
        more = []
        for _ in range(RUNS):
            alone = seconds_a_round(USERS, data, 30, **how)
            there = seconds_a_round(USERS, data, 30, **how, runtime="ray", placement=placement)
            more.append(1000 * (there - alone))
        found[fidelity] = {"below": sum(each < most for each in more), "spread": spread(more)}
    return found


class TimedStation(Station):
    """Writes down when its calls begin and end."""

    def __init__(self, *arguments: Any) -> None:
        """As a station."""
        super().__init__(*arguments)
        self.times: list[tuple[str, float, float]] = []

    def __getattribute__(self, name: str) -> Any:
        """Methods of a round note their times; the clock is that of all processes of a machine."""
        method = super().__getattribute__(name)
        if name not in TIMED:
            return method

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            value = method(*arguments)
            self.times.append((name, start, time.perf_counter()))
            return value

        return timed

    def noted(self) -> list[tuple[str, float, float]]:
        """Name, begin and end of each."""
        return self.times


class TimedHost(hosts._Host):
    """Hosts a timed station."""

    role = TimedStation


class Timed(RayRuntime):
    """Notes when rounds begin and end, and takes the stations' notes at the end."""

    def __init__(self) -> None:
        """As ever."""
        super().__init__()
        self.rounds: list[tuple[float, float]] = []

    def exchange(self, broadcast: bytes) -> Any:
        """As ever."""
        start = time.perf_counter()
        given = super().exchange(broadcast)
        self.rounds.append((start, time.perf_counter()))
        return given

    def result(self) -> Any:
        """As ever."""
        self.notes = [note for each in self._shards for note in self.get(self.call(each, "noted"))]
        return super().result()


def timeline(fidelity: str, users: int, rounds: int) -> dict[str, float]:
    """Medians of the parts of a round, in the order in which they come, and of all of it."""
    data, host, stamps = rows(np.random.default_rng(0), users), Timed(), list[float]()
    plain, hosts.ACTORS[Station] = hosts.ACTORS[Station], hosts._actor(TimedHost)
    try:
        run(
            LogisticSum(users, rounds, planned=10_000),
            data,
            runtime=host,
            fidelity=fidelity,
            kernel="compiled",
            seed=1,
            on_round=lambda *_: stamps.append(time.perf_counter()),
            **TWO,
        )
    finally:
        hosts.ACTORS[Station] = plain
    found = [_parts(host, index) for index in range(2, rounds)]
    parts = {name: float(np.median([each[name] for each in found])) for name in found[0]}
    return parts | {"all": 1000 * float(np.median(np.diff(stamps)[1:]))}


def _parts(host: Timed, index: int) -> dict[str, float]:
    """Of one round: each step from its first begin to its last end, and what lies between."""
    begin, end = host.rounds[index]
    steps: dict[str, list[tuple[float, float]]] = {name: [] for name in TIMED}
    for notes in host.notes:
        for name, start, stop in notes:
            if begin <= start <= end:
                steps[name].append((start, stop))
    if steps["finish"]:  # it is made of these
        steps["deliver"] = steps["conclude"] = []
    parts, last = dict[str, float](), begin
    for name, times in steps.items():
        if times:
            start, stop = min(each[0] for each in times), max(each[1] for each in times)
            parts |= {f"before {name}": 1000 * (start - last), name: 1000 * (stop - start)}
            last = stop
    return parts | {"to the driver": 1000 * (end - last)}
