"""Peak memory of all processes: a literal round of 10^9 messages, and 10^8 generated users."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from shuffle_sim import Execution

MESSAGES = 1_000_000_000
RUNS = {
    "literal, in process": "literal(1_000_000, 50, 50)",
    "literal, a tenth of the messages": "literal(100_000, 50, 50)",
    "literal, two processes together": "literal(1_000_000, 50, 50, runtime='processes', "
    "workers=2, execution=Execution(placement='together'))",
    "literal, processes, two workers apart": "literal(1_000_000, 50, 50, runtime='processes', "
    "workers=2, execution=Execution(placement='apart'))",
    "literal, processes, two workers and two shuffler shards apart": "literal(1_000_000, 50, 50, "
    "runtime='processes', workers=2, shuffler_shards=2)",
    "literal, Ray, two actors together": "literal(1_000_000, 50, 50, runtime='ray', workers=2, "
    "execution=Execution(placement='together'))",
    "literal, Ray, two actors apart": "literal(1_000_000, 50, 50, runtime='ray', workers=2, "
    "execution=Execution(placement='apart'))",
    "literal, Ray, two actors, two shuffler shards": "literal(1_000_000, 50, 50, runtime='ray', "
    "workers=2, shuffler_shards=2)",
    "aggregate, 10^7 users": "aggregate(10_000_000)",
    "aggregate, 10^8 users": "aggregate(100_000_000)",
    "aggregate, 10^6 users, 1,000 categories": "counted(1_000_000)",
    "aggregate, 10^7 users, 1,000 categories": "counted(10_000_000)",
    "aggregate, 10^8 users, 1,000 categories": "counted(100_000_000)",
    "aggregate, two processes, 10^8 users": "aggregate(100_000_000, runtime='processes', "
    "workers=2)",
    "aggregate, Ray, two actors, 10^8 users": "aggregate(100_000_000, runtime='ray', workers=2)",
}


def literal(users: int, g: int, b: int, **how: Any) -> None:
    """One round over 10 coordinates."""
    from benchmarks.reference_job import rows
    from protocols import VectorSum
    from shuffle_sim import run
    from shuffle_sim.data.population import Generated

    run(
        VectorSum(n=users, d=10, g=g, b=b),
        Generated(users, rows),
        fidelity="literal",
        seed=1,
        **how,
    )


def aggregate(users: int, **how: Any) -> None:
    """One round of the reference job."""
    from benchmarks.reference_job import LogisticSum, rows
    from shuffle_sim import run
    from shuffle_sim.data.population import Generated

    run(
        LogisticSum(users, 1),
        Generated(users, rows),
        fidelity="aggregate",
        execution=Execution(kernel="numpy"),
        seed=1,
        **how,
    )


def counted(users: int) -> None:
    """A histogram of 1,000 categories."""
    from protocols import Histogram
    from shuffle_sim import Privacy, run
    from shuffle_sim.data.population import Generated

    made = Histogram.calibrated(n=users, categories=1000, privacy=Privacy(1.0, 1e-9))
    rows = Generated(users, lambda rng, count: rng.integers(0, 1000, count).astype(float))
    run(made, rows, fidelity="aggregate", seed=1)


def proportional_bytes(root: int) -> int:
    """Proportional set size of a process and all below it: shared pages count once.

    Memory without a name, in which processes send each other frames, is mapped by none of them: it
    is counted by its descriptors.
    """
    parents = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                parents[int(process.name)] = int(
                    (process / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    found = {root}
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    total, sent = 0, dict[int, int]()
    for pid in found:
        try:
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):  # closed meanwhile
                    if "memfd:shuffle-sim" in str(each.readlink()):
                        sent[each.stat().st_ino] = each.stat().st_blocks // 2
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 1024 * (total + sum(sent.values()))


def peak(call: str) -> dict[str, float]:
    """Of a run in processes of its own."""
    start, most = time.perf_counter(), 0
    process = subprocess.Popen([sys.executable, "-c", f"from benchmarks.memory import *; {call}"])
    while process.poll() is None:
        most = max(most, proportional_bytes(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"{call} failed")
    return {"peak_mebibytes": most / 2**20, "seconds": time.perf_counter() - start}


def measure() -> dict[str, object]:
    return {
        "messages": MESSAGES,
        "target_mebibytes_literal": 1024,
        "runs": {name: peak(call) for name, call in RUNS.items()},
    }
