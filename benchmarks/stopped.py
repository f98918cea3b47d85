"""Something of a run on Ray is stopped with SIGSTOP: python -m benchmarks.stopped --trials 20.

Each trial is a program of its own. The run must end or recover within its deadline and ten seconds
of the stop, leave no process, and give the bits of a run left alone, at once or resumed. The exit
code is 1 if a trial did not. The roles: user, shuffler, analyzer, raylet, gcs; "actor" is one of
the first three in turn. Where a machine is so busy that an actor takes longer than the deadline to
start, give a longer one.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from actors.deadlines import tree
from actors.runtime import RayRuntime
from protocols import VectorSum
from shuffle_sim import ShuffleSimError, run

DEADLINE, GRACE = 4.0, 10.0  # seconds
ROLES = {"user": "UserShardHost", "shuffler": "ShufflerHost", "analyzer": "AnalyzerHost"}
PROCESSES = ROLES | {"raylet": "raylet", "gcs": "gcs_server"}
PROTOCOL, ROWS = VectorSum(n=97, d=3, g=4, b=20), np.zeros((97, 3))


class Stopping(RayRuntime):
    """Stops a process as the first round is about to begin."""

    def __init__(self, who: str) -> None:
        """Stop the first process whose command begins with this."""
        super().__init__()
        self.who, self.stopped = who, 0.0

    def exchange(self, broadcast: bytes) -> object:  # type: ignore[override]
        """A round, with a process stopped before it."""
        for pid in sorted(tree([os.getpid()]) - {os.getpid()}):
            if not self.stopped and PROCESSES[self.who] in _command(pid):
                os.kill(pid, signal.SIGSTOP)
                self.stopped = time.monotonic()
        return super().exchange(broadcast)


def _command(pid: int) -> str:
    """The name of the program, without its arguments."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").split(" ")
        return words[0]
    return ""


def child(who: str, folder: str, deadline: float) -> None:
    """One run; prints what was stopped, the seconds from then to its end, and the value."""
    host, found = Stopping(who), ""
    try:
        how = {"seed": 1, "workers": 2, "round_timeout": deadline, "checkpoint": folder}
        found = run(PROTOCOL, ROWS, runtime=host, **how).value.tobytes().hex()  # type: ignore[arg-type]
        error = ""
    except ShuffleSimError as ended:
        error = f"{type(ended).__name__}: {ended}"
    seconds = time.monotonic() - host.stopped
    print(json.dumps([host.stopped > 0, seconds, found, error]), flush=True)


def trial(who: str, deadline: float = DEADLINE) -> dict[str, object]:
    """What one trial showed; `kept` if all of it is as it must be."""
    seen: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        program = f"from benchmarks.stopped import child; child({who!r}, {folder!r}, {deadline})"
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
            while other.poll() is None:
                seen |= tree([other.pid])
                time.sleep(0.2)
            assert other.stdout is not None
            lines = other.stdout.read().decode().splitlines()
        stopped, seconds, value, error = json.loads(lines[-1]) if lines else (False, 0.0, "", "")
        if error:
            how = {"seed": 1, "checkpoint": folder, "resume": True}
            value = run(PROTOCOL, ROWS, **how).value.tobytes().hex()  # type: ignore[arg-type]
    until = time.monotonic() + GRACE
    while (left := [pid for pid in seen if _alive(pid)]) and time.monotonic() < until:
        time.sleep(0.1)
    same = value == run(PROTOCOL, ROWS, seed=1).value.tobytes().hex()
    kept = stopped and same and not left and seconds <= deadline + GRACE and other.returncode == 0
    found = {"who": who, "kept": kept, "seconds": seconds, "same": same, "left": len(left)}
    return found | {"error": error, "code": other.returncode}


def _alive(pid: int) -> bool:
    """Whether a process is there, and no mere entry of a table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def measure(
    trials: int = 3,
    who: tuple[str, ...] = ("actor", "raylet", "gcs"),
    deadline: float = DEADLINE,
) -> dict[str, object]:
    """For each of those stopped, how many trials were kept, and the slowest."""
    results: dict[str, object] = {}
    for each in who:
        names = [list(ROLES)[index % 3] if each == "actor" else each for index in range(trials)]
        found = []
        for name in names:
            found.append(trial(name, deadline))
            print(found[-1], flush=True)
        results[each] = {
            "kept": sum(bool(one["kept"]) for one in found),
            "trials": trials,
            "deadline_seconds": deadline,
            "slowest_seconds": max(float(str(one["seconds"])) for one in found),
        }
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--who", nargs="+", default=["actor", "raylet", "gcs"])
    parser.add_argument("--deadline", type=float, default=DEADLINE)
    given = parser.parse_args()
    shown = measure(given.trials, tuple(given.who), given.deadline)
    print(json.dumps(shown))
    sys.exit(any(one["kept"] < given.trials for one in shown.values()))  # type: ignore[index]
