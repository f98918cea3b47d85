"""Strong and weak scaling over two workers, a model of it, and rounds on a cluster of three nodes.

The model: a round of two workers takes a + t / (2 e), with t its time in one process, a fixed part
a and the efficiency e. Both are fitted to some points, for relative errors; others are held out.
`python -m benchmarks workers`.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import scipy

from benchmarks.placement import HOSTS, one_ray
from benchmarks.reference_job import rows
from benchmarks.scale import seconds_a_round

Point = tuple[int, int, int]
"""Users, coordinates, and for how many users the bits of a coordinate are planned."""
FITTED: dict[str, list[Point]] = {
    "aggregate": [(50_000, 10, 10_000), (200_000, 10, 10_000), (800_000, 10, 10_000)],
    "literal": [(50_000, 10, 10_000), (200_000, 10, 10_000), (100_000, 20, 10_000)],
}
HELD_OUT: dict[str, list[Point]] = {
    "aggregate": [(100_000, 10, 10_000), (400_000, 20, 10_000), (1_600_000, 10, 10_000)],
    "literal": [(100_000, 10, 10_000), (50_000, 10, 1_000), (400_000, 10, 10_000)],
}
REPEATS = 3
CORES = 64
NODES = 3


def measure() -> dict[str, object]:
    """For each fidelity and kind of worker."""
    data = rows(np.random.default_rng(0), 1_600_000 * 10, 1).reshape(-1)
    found: dict[str, object] = {
        f"{each}, processes": _scaling(each, HOSTS["processes"], data) for each in FITTED
    }
    with one_ray():
        found |= {f"{each}, ray": _scaling(each, HOSTS["ray"], data) for each in FITTED}
    return found | {"a_round_on_three_nodes_milliseconds": cluster()}


def _scaling(fidelity: str, how: dict[str, Any], data: Any) -> dict[str, object]:
    points = FITTED[fidelity] + HELD_OUT[fidelity]
    one, two = (
        {each: _seconds(fidelity, each, data, **host) for each in points} for host in ({}, how)
    )
    fitted = FITTED[fidelity]
    terms = np.array([[1.0, one[each] / 2] for each in fitted])
    seconds = np.array([two[each] for each in fitted])
    (fixed, slower), _ = scipy.optimize.nnls(terms / seconds[:, None], np.ones(len(seconds)))
    largest = max(points)  # by users
    each_user = one[largest] / largest[0]
    return {
        "strong": {str(each): one[each] / two[each] for each in points},
        "weak": {
            f"{users} users in one, {2 * users} in two": one[users, d, plan]
            / two[2 * users, d, plan]
            for users, d, plan in points
            if (2 * users, d, plan) in two
        },
        "fixed_milliseconds": 1000 * fixed,
        "efficiency": 1 / slower if slower else None,
        f"seconds_of_10^9_users_on_{CORES}_cores": fixed + slower * 1e9 * each_user / CORES,
        "relative_errors_held_out": {
            str(each): (fixed + slower * one[each] / 2) / two[each] - 1
            for each in HELD_OUT[fidelity]
        },
    }


def _seconds(fidelity: str, point: Point, data: Any, **host: Any) -> float:
    """The least of some medians."""
    users, d, planned = point
    many = data[: users * d].reshape(users, d)
    rounds = max(3, min(30, 2_000_000 // (users * d)))
    how: dict[str, Any] = {"fidelity": fidelity, "kernel": "compiled", "planned": planned, "d": d}
    return min(seconds_a_round(users, many, rounds, **how, **host) for _ in range(REPEATS))


def cluster() -> dict[str, float]:
    """Rounds of 10^4 users on three Ray nodes of this machine, in a process of its own."""
    code = "from benchmarks.workers import nodes; nodes()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def nodes() -> None:
    """Start a cluster, and print milliseconds a round with one to three workers together."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    from actors.runtime import RayRuntime

    ray_constants.ENABLE_RAY_CLUSTER = False  # loopback
    node: dict[str, Any] = {
        "num_cpus": 1,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
    }
    node["object_store_memory"] = 100_000_000
    cluster: Any = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(NODES - 1):
        cluster.add_node(**node)
    users, found = 10_000, {}
    data = rows(np.random.default_rng(1), users)
    for fidelity in ("aggregate", "literal"):
        how: dict[str, Any] = {"fidelity": fidelity, "kernel": "numpy", "placement": "together"}
        found[f"{fidelity}, in process"] = seconds_a_round(users, data, 30, **how)
        for workers in range(1, NODES + 1):
            seconds = seconds_a_round(
                users, data, 30, **how, workers=workers, runtime=RayRuntime(cluster.address)
            )
            found[f"{fidelity}, {workers} nodes"] = seconds
    cluster.shutdown()
    print(json.dumps({name: 1000 * value for name, value in found.items()}))
