"""The reference job at every fidelity, in one process and on Ray, against one without privacy."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.clock import best
from benchmarks.reference_job import D, LogisticSum, rows, without_privacy
from shuffle_sim import Execution, run
from shuffle_sim.arrays import Floats
from shuffle_sim.data.population import Generated, Population


def seconds_a_round(
    n: int,
    data: Population | Floats,
    rounds: int,
    *,
    encoding: str = "unary",
    planned: int | None = None,
    d: int = D,
    clock: Callable[[], float] = time.perf_counter,
    **how: Any,
) -> float:
    """Of a run with `rounds` more rounds than another: set-up cancels out."""
    stamps: list[float] = []
    execution = replace(Execution.taken(how), on_round=lambda *_: stamps.append(clock()))
    run(
        LogisticSum(n, rounds + 1, encoding, planned, d),
        data,
        seed=1,
        execution=execution,
        **how,
    )
    return float(np.median(np.diff(stamps)))


def measure() -> dict[str, object]:
    n = 2_000_000
    data = rows(np.random.default_rng(0), n)
    baseline = best(lambda: without_privacy(data, np.full(10, 0.05)))
    one = {
        "aggregate, numpy": seconds_a_round(n, data, 6, fidelity="aggregate", kernel="numpy"),
        "aggregate, compiled": seconds_a_round(n, data, 6, fidelity="aggregate", kernel="compiled"),
        "counts": seconds_a_round(n, data, 4, fidelity="counts", kernel="numpy"),
        "counts, compiled": seconds_a_round(n, data, 4, fidelity="counts", kernel="compiled"),
    }
    baseline = min(baseline, best(lambda: without_privacy(data, np.full(10, 0.05))))
    one_literal = seconds_a_round(100_000, data[:100_000], 3, fidelity="literal")
    wide = rows(np.random.default_rng(1), 24 * n)
    two: dict[str, float] = {}
    for fidelity, size in (
        ("aggregate", 4 * n),
        ("aggregate", 12 * n),
        ("aggregate", 24 * n),
        ("counts", 12 * n),
    ):
        for kernel in ("numpy", "compiled"):
            how: dict[str, Any] = {
                "fidelity": fidelity,
                "kernel": kernel,
            }  # and the same rounds: what is clipped depends on theta
            alone = seconds_a_round(size, wide[:size], 7, **how)
            two[f"{fidelity}, {kernel}, {size} users"] = alone / seconds_a_round(
                size, wide[:size], 7, **how, runtime="ray", workers=2
            )
    del wide
    for kernel, size, rounds in (
        ("numpy", 10**7, 3),
        ("compiled", 10**7, 3),
        ("compiled", 10**8, 1),
    ):
        made, how = Generated(size, rows), {"fidelity": "aggregate", "kernel": kernel}
        alone = seconds_a_round(size, made, rounds, **how)
        two[f"aggregate, {kernel}, {size} generated users"] = alone / seconds_a_round(
            size, made, rounds, **how, runtime="ray", workers=2
        )
    small = data[:10_000]
    inside = {
        f: seconds_a_round(10_000, small, 20, fidelity=f, kernel="numpy")
        for f in ("aggregate", "literal")
    }
    on_ray = {
        f: seconds_a_round(10_000, small, 30, fidelity=f, kernel="numpy", runtime="ray", workers=1)
        for f in ("aggregate", "literal")
    }
    users = 10_000_000
    start = time.perf_counter()
    run(
        LogisticSum(users, 1),
        Generated(users, rows),
        fidelity="aggregate",
        execution=Execution(kernel="compiled"),
        seed=1,
    )
    generated = time.perf_counter() - start
    return {
        "users": n,
        "baseline_user_rounds_per_second": n / baseline,
        "speed_over_baseline": {name: baseline / value for name, value in one.items()},
        "targets": {"aggregate, numpy": 0.5, "aggregate, compiled": 1.0, "counts": 0.25},
        "literal_user_rounds_per_second": 100_000 / one_literal,
        "two_actors_over_one_process": two,
        "two_actors_target": 1.7,
        "ray_overhead_milliseconds_a_round": {f: 1000 * (on_ray[f] - inside[f]) for f in inside},
        "ray_overhead_targets": {"aggregate": 5, "literal": 15},
        "generated_users": users,
        "generated_seconds": generated,
    }
