"""A runtime's own share of a round: its floor, its overhead, and where two stations' time goes.

`python -m benchmarks hops`.
"""

import time
from typing import Any

import numpy as np

from actors import hosts
from actors.runtime import RayRuntime
from benchmarks.placement import TWO, one_ray, spread
from benchmarks.reference_job import LogisticSum, rows
from benchmarks.scale import seconds_a_round
from shuffle_sim import Execution, run
from shuffle_sim.execution.processes import ProcessesRuntime
from shuffle_sim.execution.runtime import Runtime
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
    """Milliseconds; Ray comes last, since processes are forked where it has not run."""
    processes = _measured("processes", TimedProcesses)
    with one_ray():
        return {
            "processes": processes,
            "ray": _measured("ray", TimedRay),
            "targets_on_ray_in_nine_of_ten_runs": TARGETS,
        }


def _measured(runtime: str, timed: "type[Timed]") -> dict[str, object]:
    return {
        "empty_calls": floor(timed),
        "overhead_a_round": {place: overhead(place, runtime) for place in ("apart", "together")},
        "a_round_of_two_stations": {
            f"{fidelity}, {users} users": timeline(timed, fidelity, users, rounds)
            for fidelity, users, rounds in ROUNDS
        },
    }


class Empty:
    """Answers."""

    def nothing(self, *_: Any) -> bytes:
        """Nothing."""
        return b""


class EmptyHost(hosts._Host):
    """Hosts it."""

    role = Empty


def floor(timed: "type[Timed]", repeats: int = 300) -> dict[str, list[float]]:
    """An empty call to each of two roles and back, and one more that needs both answers."""
    found: dict[str, list[float]] = {"one call to each": [], "and one more to the first": []}
    hosts.ACTORS[Empty] = hosts._actor(EmptyHost)
    with timed() as host:
        host.start()
        two = [host.host(Empty) for _ in range(2)]
        for _ in range(repeats):
            for name, values in found.items():
                start = time.perf_counter()
                calls = [handle for each in two for handle in host.call(each, "nothing")]
                more = name == "and one more to the first"
                host.get(host.call(two[0], "nothing", many=calls) if more else calls)
                values.append(1000 * (time.perf_counter() - start))
    return {name: spread(values[2:]) for name, values in found.items()}


def overhead(placement: str, runtime: str) -> dict[str, object]:
    """What a round of one worker takes more than in this process, in each of ten runs."""
    data, found = rows(np.random.default_rng(1), USERS), dict[str, object]()
    for fidelity, most in TARGETS.items():
        how: dict[str, Any] = {"fidelity": fidelity, "kernel": "numpy", "planned": USERS}
        more = []
        for _ in range(RUNS):
            alone = seconds_a_round(USERS, data, 30, **how)
            there = seconds_a_round(USERS, data, 30, **how, runtime=runtime, placement=placement)
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


class Timed(Runtime):
    """Notes when rounds begin and end, and takes the stations' notes at the end."""

    def open(self, *given: Any) -> Any:
        """As ever."""
        self.rounds: list[tuple[float, float]] = []
        return super().open(*given)

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

    def host(self, role: type, *arguments: Any) -> Any:
        """With stations that are timed."""
        made = TimedStation if role is Station else role
        return super().host(made, *arguments)  # type: ignore[safe-super]


class TimedProcesses(Timed, ProcessesRuntime):
    """In processes."""


class TimedRay(Timed, RayRuntime):
    """On Ray."""


hosts.ACTORS[TimedStation] = hosts._actor(TimedHost)


def timeline(timed: type[Timed], fidelity: str, users: int, rounds: int) -> dict[str, float]:
    """Medians of the parts of a round, in the order in which they come, and of all of it."""
    data, host, stamps = rows(np.random.default_rng(0), users), timed(), list[float]()
    run(
        LogisticSum(users, rounds, planned=10_000),
        data,
        runtime=host,
        fidelity=fidelity,
        execution=Execution(
            kernel="compiled", on_round=lambda *_: stamps.append(time.perf_counter())
        ),
        seed=1,
        **TWO,
    )
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
