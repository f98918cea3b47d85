"""Nothing waits for ever: roles, the raylet or the GCS are stopped, and a run ends or recovers."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from processes import TESTS, python, soon_none

from actors.deadlines import LateError, stopped, tree, within
from protocols import VectorSum
from shuffle_sim import Execution, ParameterError, run
from shuffle_sim.execution.signals import unbroken

PROTOCOL, ROWS = VectorSum(n=97, d=3, g=4, b=20), np.zeros((97, 3))
SCRIPT = """
import os, signal, sys, time, traceback
from pathlib import Path
import numpy as np
from actors.deadlines import tree
from actors.runtime import RayRuntime
from protocols import VectorSum
from shuffle_sim import Execution, run

def ours():
    for pid in tree([os.getpid()]) - {os.getpid()}:
        try:
            yield pid, Path(f"/proc/{pid}/cmdline").read_text().replace("\\0", " ")
        except OSError:
            pass

class Stopping(RayRuntime):
    done = False
    def exchange(self, broadcast):
        for pid, command in ours() if not self.done else ():
            if sys.argv[1] in command.split(" ")[0] and not self.done:
                os.kill(pid, signal.SIGSTOP)
                self.done = True
        return super().exchange(broadcast)

protocol, rows = VectorSum(n=97, d=3, g=4, b=20), np.zeros((97, 3))
host, begun = Stopping(), time.monotonic()
try:
    apart = Execution(placement="apart")
    result = run(
        protocol, rows, seed=1, workers=2, runtime=host, round_timeout=4, execution=apart
    )
    found = result.value.tobytes().hex()
except Exception as error:
    traceback.print_exc()
    found = f"{type(error).__name__}: {error}"
print(host.done, time.monotonic() - begun, found)
"""


@pytest.mark.slow_parameters("UserShardHost", "ShufflerHost", "AnalyzerHost")
@pytest.mark.full
@pytest.mark.parametrize("who", ["UserShardHost", "ShufflerHost", "AnalyzerHost", "raylet", "gcs"])
@pytest.mark.long
def test_a_run_ends_or_recovers_where_something_is_stopped(who):
    """Within the deadline and 10 seconds, to the same bits or with a named error, and nothing stays
    behind. The time is generous here: tests share their machine.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, who if who != "gcs" else "gcs_server"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=TESTS.parent,
    )
    seen: set[int] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            seen.update(tree([child.pid]))

    threading.Thread(target=watch, daemon=True).start()
    out, err = child.communicate(timeout=150)
    over.set()
    happened, _, found = out.strip().splitlines()[-1].split(" ", 2)
    assert happened == "True", err
    same = run(PROTOCOL, ROWS, seed=1).value.tobytes().hex()
    assert found == same or found.startswith("RoundAbortedError: no answer for 4 s: Ray's"), found
    if "Host" in who:
        assert found == same
        assert "no answer for 4 s from" in err
    assert soon_none(lambda: [pid for pid in seen if Path(f"/proc/{pid}").exists()]) == []


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "3", True])
def test_deadlines_that_are_none_are_refused(seconds):
    with pytest.raises(ParameterError, match="round_timeout"):
        run(PROTOCOL, ROWS, round_timeout=seconds)


def test_what_takes_too_long_is_left_alone():
    with pytest.raises(LateError):
        within(0.05, lambda: time.sleep(5))
    assert within(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_leaves_keeps_its_exit_code_and_prints(code):
    script = f"""
import atexit, ctypes, sys
from actors.deadlines import leave_at_exit
library = ctypes.CDLL(None)
library.on_exit(library.abort, None)  # as C++ destructors that crash
atexit.register(print, "Python's own are run")
{{}}
sys.exit({code})
"""
    ends = [python("-c", script.format(leaving)) for leaving in ("leave_at_exit()", "")]
    assert [each.stdout for each in ends] == ["Python's own are run\n"] * 2
    assert [each.returncode for each in ends] == [code, -signal.SIGABRT]


def test_a_stopped_process_is_seen():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        assert not stopped(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        assert soon_none(lambda: [] if stopped(child.pid) else [child.pid]) == []
    finally:
        child.kill()
        child.wait()
    assert stopped(child.pid)


def interrupted_twice() -> None:
    with unbroken(second_wins=True):
        signal.raise_signal(signal.SIGINT)  # the first waits
        signal.raise_signal(signal.SIGINT)
        time.sleep(60)


def test_a_second_interrupt_wins_at_once():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_twice()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 30


# A second Ctrl-C while Ray starts

STARTING = """
import subprocess, sys, time, ray
from actors.runtime import RayRuntime

class Hanging(RayRuntime):
    def _start(self):
        # Part of a Ray, by its command, and something else that was started meanwhile.
        sleeping = [sys.executable, "-c", "import time; time.sleep(999)"]
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        part = subprocess.Popen([*sleeping, ray.__file__], **quiet)
        other = subprocess.Popen(sleeping, **quiet)
        print(part.pid, other.pid, flush=True)
        while True:  # where no signal is seen, as in C++
            try:
                time.sleep(999)
            except BaseException:
                pass

Hanging()._connect()
"""


@pytest.mark.full
def test_a_second_interrupt_wins_while_ray_starts():
    child = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=TESTS.parent,
    )
    part, other = map(int, child.stdout.readline().split())
    try:
        child.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        assert "KeyboardInterrupt" in err
        assert soon_none(lambda: [part] if not stopped(part) else []) == []
        assert not stopped(other)
    finally:
        child.kill()
        for pid in (part, other):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# References that are let go of while Ray ends

ENDING = """
import os
from actors.runtime import RayRuntime, ray
from actors.session import _Ending

host = RayRuntime()
host._connect()
first, second = ray.put(1), ray.put(2)
worker = ray._private.worker.global_worker
alone, worker.core_worker = worker.core_worker, _Ending(worker.core_worker)
worker.core_worker.shutdown_driver()
del first
print("our stand-in", flush=True)
worker.core_worker = alone
del second
print("Ray alone", flush=True)
os._exit(0)
"""


@pytest.mark.full
def test_references_let_go_of_while_ray_ends_do_no_harm():
    """The cause of "core worker has already been shutdown", which Ray logs: shown, too."""
    done = python("-c", ENDING)
    assert (done.stdout, done.returncode != 0) == ("our stand-in\n", True), done.stderr


# A node that is cut off

CUT_OFF = """
import os, signal, time
import actors.runtime  # loopback, before Ray is imported
from ray._private import ray_constants
ray_constants.ENABLE_RAY_CLUSTER = False
from ray.cluster_utils import Cluster
import numpy as np
from actors.deadlines import kill, tree
from actors.runtime import RayRuntime, ray
from protocols import VectorSum
from shuffle_sim import Execution, run

node = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
node["object_store_memory"] = 100_000_000
cluster = Cluster(initialize_head=True, head_node_args=node)
both = [cluster.head_node, cluster.add_node(**node)]

class CutOff(RayRuntime):
    far = set()
    def exchange(self, broadcast):
        if not self.far:
            roles = [*self._shards, *self._shufflers, self._analyzer]
            where = ray.get([self._where[role] for role in roles])
            mine = ray.get_runtime_context().get_node_id()
            (far,) = [each for each in both if each.node_id != mine]
            roots = [each.process.pid for each in far.all_processes["raylet"]]
            self.roles = sum(name == far.node_id for _, name in where)
            self.far = tree(roots) | {pid for pid, name in where if name == far.node_id}
            for pid in self.far:
                os.kill(pid, signal.SIGSTOP)
            self.begun = time.monotonic()
        return super().exchange(broadcast)

protocol, rows = VectorSum(n=97, d=3, g=4, b=20), np.zeros((97, 3))
host = CutOff(cluster.address)
apart = Execution(block_size=10, placement="apart")
how = dict(seed=1, workers=2, execution=apart, round_timeout=12)
result = run(protocol, rows, runtime=host, **how)
print(host.roles, len(host._nodes), result.value.tobytes().hex(), flush=True)
kill(host.far)
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_node_cut_off_is_left_and_the_bytes_are_the_same():
    """Some of the roles live there; they are put back on the other node."""
    done = python("-c", CUT_OFF)
    value = run(PROTOCOL, ROWS, seed=1, execution=Execution(block_size=10)).value.tobytes().hex()
    ends = {f"{roles} 1 {value}" for roles in (1, 2, 3)}  # a slow node gets fewer
    assert ends & set(done.stdout.splitlines()), done.stderr[-3000:]
    assert "no answer for 12 s from" in done.stderr
