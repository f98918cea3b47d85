"""Roles in processes of one machine: the same bits, whatever becomes of a process."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import pytest
from processes import Forked, Watched, descendants, soon_none
from rounds import PROTOCOLS, Remembers, interactive, outcome, records, rows
from runs import run

from protocols import SingleMessageSum, VectorSum
from protocols.central.record.sums import CentralSum
from shuffle_sim import ParameterError
from shuffle_sim.auditing import check_runtime
from shuffle_sim.data.population import Population
from shuffle_sim.errors import RoundAbortedError, ShuffleSimError
from shuffle_sim.execution import pipes, sizing
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.processes import ProcessesRuntime
from shuffle_sim.execution.runtime import ATTEMPTS
from shuffle_sim.execution.sizing import Speed
from shuffle_sim.protocol.adversary import Adversary, Dropout

USERS = 300
PROTOCOL = VectorSum(n=USERS, d=3, g=4, b=20)
ROWS = np.random.default_rng(0).normal(size=(USERS, 3)) / 2
TOGETHER = {"workers": 2, "placement": "together"}
APART = {"workers": 2, "shuffler_shards": 2}
PLACES = pytest.mark.parametrize("place", [TOGETHER, APART], ids=["together", "apart"])
HOW = {"seed": 5, "fidelity": "literal", "block_size": 7}


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Neither processes nor descriptors."""
    before, descriptors = descendants(os.getpid()), len(os.listdir("/proc/self/fd"))
    yield
    assert soon_none(lambda: list(descendants(os.getpid()) - before), 5) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


# The same bits


def test_it_gives_the_bits_of_one_process():
    check_runtime(Forked, PROTOCOL, ROWS)


@PLACES
@pytest.mark.parametrize("large", [1, 1 << 16])
@pytest.mark.parametrize("symbols", [False, True], ids=["bits", "symbols"])
@pytest.mark.full
def test_placements_have_the_bits_of_one_process(place, large, symbols, monkeypatch):
    """Messages of many symbols really cross between shards."""
    protocol = SingleMessageSum(n=USERS, steps=3, gamma=0.5) if symbols else PROTOCOL
    data = np.linspace(0, 1, USERS) if symbols else ROWS
    monkeypatch.setattr(pipes, "LARGE", large)
    alone = run(protocol, data, **HOW, **place)
    there = run(protocol, data, runtime=Forked(), **HOW, **place)
    assert outcome(there) == outcome(alone)
    assert there.runtime == "processes"


@pytest.mark.parametrize("security", ["transport", "onion"])
@pytest.mark.full
def test_sealed_traffic_between_processes_gives_the_plain_bits(security):
    few, data = VectorSum(n=40, d=2, g=2, b=3), ROWS[:40, :2]
    how = {"seed": 5, "fidelity": "literal", "shuffler_shards": 2}
    plain = run(few, data, **how)
    sealed = run(few, data, runtime=Forked(), workers=2, security=security, **how)
    assert np.array_equal(sealed.value, plain.value)
    assert sealed.costs.sealing_bytes > 0
    assert sealed.reports.asked == sealed.reports.accepted == 40
    with pytest.raises(ParameterError, match="placement"):
        run(few, data, runtime=Forked(), security=security, **TOGETHER)


def test_a_curator_has_its_rows_there():
    sums = CentralSum.calibrated(n=USERS, d=3, privacy=interactive().privacy)
    alone = run(sums, ROWS, seed=5, block_size=60)
    there = run(sums, ROWS, seed=5, block_size=60, runtime=Forked(), workers=2)
    assert there.value.tobytes() == alone.value.tobytes()


def test_workers_auto_takes_processes_where_there_is_much_to_do(monkeypatch):
    plans, slow = [], Speed(each_round=0.0, each_user=1.0)
    monkeypatch.setattr(sizing, "rehearsed", lambda *_: slow)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    how = {"fidelity": "aggregate", "seed": 5}
    result = run(PROTOCOL, ROWS, runtime=Forked(), workers="auto", on_plan=plans.append, **how)
    assert (result.workers, result.placement, plans[0].cores) == (3, "together", 3)
    assert np.array_equal(result.value, run(PROTOCOL, ROWS, **how).value)
    slow = Speed(each_round=0.0, each_user=1e-9)
    assert run(PROTOCOL, ROWS, runtime=Forked(), workers="auto", **how).workers == 1


def test_stations_do_not_push_their_sender_from_its_core():
    class Where(Forked):
        def exchange(self, broadcast):
            pids = [each.process.pid for each in self._shards]
            found.extend((os.sched_getscheduler(each), os.sched_getaffinity(each)) for each in pids)
            return super().exchange(broadcast)

    found, mine = [], os.sched_getaffinity(0)
    run(PROTOCOL, ROWS, runtime=Where(), **HOW, **TOGETHER)
    assert found == [(os.SCHED_BATCH, mine)] * len(found) != []


@pytest.mark.full
def test_beside_other_threads_processes_are_started_anew():
    """A fork could copy a lock that another thread holds."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    tracker: Any = resource_tracker._resource_tracker
    running = tracker._fd is not None  # for another test
    other.start()
    try:
        begun = []

        class Seen(ProcessesRuntime):
            def exchange(self, broadcast):
                begun.extend(type(each.process).__name__ for each in self._hosts.values())
                return super().exchange(broadcast)

        there = run(PROTOCOL, ROWS, runtime=Seen(), **HOW, **TOGETHER)
        assert begun == ["SpawnProcess"] * 2
        assert outcome(there) == outcome(run(PROTOCOL, ROWS, **HOW, **TOGETHER))
    finally:
        over.set()
        other.join()
        if not running:
            tracker._stop()  # it would stay until this process ends


# Processes that are killed or stopped


class Struck(Forked):
    """A process gets a signal before a call, or right after it was asked."""

    def __init__(self, at, number, after=False, role=None):
        super().__init__()
        self.at, self.number, self.after, self.role = at, number, after, role
        self.calls = self.deaths = 0

    def call(self, host, method, *arguments, many=(), returns=1):
        self.calls += 1
        due = self.calls == self.at or (
            self.role is not None and not self.deaths and host.name.startswith(self.role)
        )
        if due and not self.after:
            self._strike(host)
        given = super().call(host, method, *arguments, many=many, returns=returns)
        if due and self.after:
            self._strike(host)
        return given

    def _strike(self, host):
        self.deaths += 1
        os.kill(host.process.pid, self.number)


@PLACES
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.full
def test_a_process_killed_at_any_call_changes_nothing(place, after):
    protocol, how = PROTOCOLS["interactive"](2), HOW | place
    alone = outcome(run(protocol, rows(), **how))
    whole = Struck(0, 0)
    run(protocol, rows(), runtime=whole, **how)
    for at in range(1, whole.calls + 1, 2 if place is TOGETHER else 7):
        host = Struck(at, signal.SIGKILL, after)
        assert outcome(run(protocol, rows(), runtime=host, **how)) == alone
        assert host.deaths == 1


def test_corrupted_users_of_a_killed_process_send_the_same():
    how = HOW | TOGETHER | {"adversary": Remembers()}
    alone = outcome(run(PROTOCOLS["interactive"](3), rows(), **HOW | {"adversary": Remembers()}))
    host = Struck(9, signal.SIGKILL)
    there = outcome(run(PROTOCOLS["interactive"](3), rows(), runtime=host, **how))
    assert (there[0], host.deaths) == (alone[0], 1)


LONG = (pytest.param(role, marks=pytest.mark.full) for role in ("UserShard", "Analyzer"))


@pytest.mark.parametrize("role", ["Station", "Shuffler", *LONG])
@pytest.mark.full
def test_a_stopped_process_is_named_and_put_back(role, capfd):
    place = TOGETHER if role == "Station" else APART
    host = Struck(0, signal.SIGSTOP, role=role)
    there = run(PROTOCOL, ROWS, runtime=host, round_timeout=1.0, **HOW, **place)
    assert outcome(there) == outcome(run(PROTOCOL, ROWS, **HOW, **place))
    assert "no answer for 1 s from" in (said := capfd.readouterr().err)
    assert role in said
    assert host.deaths == 1


def test_processes_lost_again_and_again_abort_the_round():
    class Cursed(Struck):
        def call(self, host, method, *arguments, many=(), returns=1):
            if method == "gather":
                os.kill(host.process.pid, signal.SIGKILL)
            return super().call(host, method, *arguments, many=many, returns=returns)

    with pytest.raises(RoundAbortedError, match=f"lost in each of {ATTEMPTS} attempts") as aborted:
        run(PROTOCOL, ROWS, runtime=Cursed(0, 0), **HOW, **TOGETHER)
    assert len(aborted.value.ledger.charges) == 1


# Errors


class Unreadable(Population):
    users = USERS

    def rows(self, start, stop):
        raise ParameterError("rows", start, "readable")


class Broken(Adversary):
    """What it raises is no error of ours; what it sends cannot be sent."""

    def __init__(self, error):
        self.error = error

    def corrupt(self, round_index, users, rng):
        raise self.error


class OddError(Exception):
    """It cannot be built from what it keeps."""

    def __init__(self, one, two):
        super().__init__(one)


def test_errors_arrive_as_themselves():
    with pytest.raises(ParameterError, match="readable") as caught:
        run(PROTOCOL, Unreadable(), runtime=Forked(), **HOW)
    assert caught.value.parameter == "rows"
    with pytest.raises(RoundAbortedError, match="0 reports accepted"):
        run(PROTOCOL, ROWS, runtime=Forked(), adversary=Dropout(1.0), **HOW)
    with pytest.raises(MemoryError) as ended:
        run(PROTOCOL, ROWS, runtime=Forked(), adversary=Broken(MemoryError("all")), **HOW)
    assert "in corrupt" in "".join(ended.value.__notes__)
    assert "1 round(s) charged" in "".join(ended.value.__notes__)
    with pytest.raises(RuntimeError, match="OddError: one"):
        run(PROTOCOL, ROWS, runtime=Forked(), adversary=Broken(OddError("one", 2)), **HOW)


class Quits(Population):
    users = USERS
    here = os.getpid()

    def rows(self, start, stop):
        if os.getpid() != self.here:
            os._exit(3)
        return ROWS[start:stop]


def test_a_process_that_ends_by_itself_is_not_tried_again():
    with pytest.raises(ShuffleSimError, match="Station 0 ended with code 3"):
        run(PROTOCOL, Quits(), runtime=Forked(), **HOW)


def test_where_no_process_can_be_begun_the_run_ends(monkeypatch):
    def none(self):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "start", none)
    with pytest.raises(ShuffleSimError, match="Station 0 cannot be begun: no more"):
        run(PROTOCOL, ROWS, runtime=Forked(), **HOW, **TOGETHER)


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(ParameterError, match="cannot be pickled"):
        pipes.packed(lambda: None)


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ({"workers": 251}, "workers"),
        ({"shuffler_shards": 251}, "shuffler_shards"),
        ({"workers": 301}, "workers"),
    ],
)
def test_more_than_a_machine_has_is_refused(how, name):
    with pytest.raises(ParameterError, match=f"^{name}"):
        run(PROTOCOL, ROWS, runtime=Forked(), **how)


def test_a_worker_of_multiprocessing_may_have_none(monkeypatch):
    class Daemon:
        daemon = True

    monkeypatch.setattr(multiprocessing, "current_process", Daemon)
    with pytest.raises(ParameterError, match="worker of multiprocessing"):
        run(PROTOCOL, ROWS, runtime=Forked(), **HOW)
    with pytest.raises(ParameterError, match="method"):
        ProcessesRuntime("thread")


# What is left


@pytest.mark.full
def test_a_driver_that_is_killed_takes_its_processes_along(tmp_path):
    watched, file = Watched(tmp_path / "run", "processes", 1000), tmp_path / "run" / FILE
    assert soon_none(lambda: [] if file.exists() and len(records(file)) > 12 else [1]) == []
    assert len(watched.alive()) == 1 + 4
    watched.process.kill()
    watched.process.communicate()
    assert soon_none(watched.alive, 5) == []


def test_large_bytes_are_copied_whole_and_given_back():
    data = os.urandom(3 * pipes.LARGE)
    blob = pipes.packed(data)
    assert isinstance(blob, pipes.Blob)
    assert pipes.unpacked(blob) == pipes.unpacked(blob) == data
    descriptor = blob.descriptor
    del blob
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
