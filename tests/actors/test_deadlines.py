"""Nothing waits for ever: roles, the raylet or the GCS are stopped, and a run ends or recovers."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import TESTS, soon_none

from actors.deadlines import LateError, stopped, tree, within
from protocols import VectorSum
from shuffle_sim import ParameterError, run
from shuffle_sim.execution.signals import unbroken

PROTOCOL, ROWS = VectorSum(n=97, d=3, g=4, b=20), np.zeros((97, 3))
SCRIPT = """
import os, signal, sys, time, traceback
from pathlib import Path
import numpy as np
from actors.deadlines import tree
from actors.runtime import RayRuntime
from protocols import VectorSum
from shuffle_sim import run

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
    result = run(protocol, rows, seed=1, workers=2, runtime=host, round_timeout=4)
    found = result.value.tobytes().hex()
except Exception as error:
    traceback.print_exc()
    found = f"{type(error).__name__}: {error}"
print(host.done, time.monotonic() - begun, found)
"""


@pytest.mark.full
@pytest.mark.parametrize("who", ["UserShardHost", "ShufflerHost", "AnalyzerHost", "raylet", "gcs"])
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
