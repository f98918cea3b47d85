"""One of 4,000 persons with 200,000 records in place of 3: seconds over those of the run without.

Processor times in process, the best of three in turn. Memory is that of all processes together.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.clock import best
from benchmarks.memory import peak
from protocols import (
    AcceleratedPhasedERM,
    L2Ball,
    LinearTimePhasedSGD,
    Logistic,
    PhasedERM,
    PhasedSCO,
    Problem,
    UserLevelACSA,
    UserLevelGD,
    UserLevelOneShot,
)
from shuffle_sim import Privacy, run
from shuffle_sim.data.persons import Persons

N, M, MANY, D = 4000, 3, 200_000, 3
PROBLEM = Problem(Logistic(), L2Ball(D, 1.0), records=M)
STRONG = replace(PROBLEM, ridge=0.2)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "PhasedERM": (PhasedERM, {}),
    "PhasedSCO": (PhasedSCO, {}),
    "AcceleratedPhasedERM": (AcceleratedPhasedERM, {}),
    "LinearTimePhasedSGD friendly": (LinearTimePhasedSGD, {"mean": "friendly"}),
    "LinearTimePhasedSGD chain": (LinearTimePhasedSGD, {"mean": "chain"}),
    "LinearTimePhasedSGD plain": (LinearTimePhasedSGD, {"mean": "plain"}),
    "UserLevelGD": (UserLevelGD, {}),
    "UserLevelACSA": (UserLevelACSA, {}),
    "UserLevelOneShot": (UserLevelOneShot, {"rounds": 2, "steps": 5}),
}


def persons(first: int) -> Persons:
    """The first person has so many records, the others M each."""
    rng, count = np.random.default_rng(0), first + (N - 1) * M
    features, labels = rng.uniform(-0.5, 0.5, (count, D)), rng.choice([-1.0, 1.0], count)
    rows = np.column_stack([features, labels])
    return Persons.in_memory([rows[:first], *rows[first:].reshape(N - 1, M, D + 1)])


def made(name: str) -> Any:
    """The algorithm of a case."""
    kind, own = CASES[name]
    problem = STRONG if kind is UserLevelOneShot else PROBLEM
    return kind.calibrated(n=N, problem=problem, privacy=Privacy(4.0, 1e-5), **own)


def trained(name: str, data: Persons) -> None:
    """One run."""
    run(made(name), data, seed=1)


def measure() -> dict[str, Any]:
    """Ratios of time, and mebibytes."""
    sizes = {"200,000 records": MANY, "one record": 1}
    data = {"even": persons(M)} | {name: persons(first) for name, first in sizes.items()}
    found: dict[str, Any] = {}
    for name in CASES:
        algorithm = made(name)
        seconds = dict.fromkeys(data, np.inf)
        for _ in range(3):
            for each, rows in data.items():
                asked = partial(run, algorithm, rows, seed=1)
                seconds[each] = min(seconds[each], best(asked, 1, time.process_time))
        code = f"from benchmarks.uneven_persons import *; trained({name!r}, persons(MANY))"
        found[name] = {each: seconds[each] / seconds["even"] for each in sizes}
        found[name]["peak_mebibytes"] = peak(code)["peak_mebibytes"]
    return found
