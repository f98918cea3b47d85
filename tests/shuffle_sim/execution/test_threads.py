"""Stations in threads of one process: the same bits, errors as themselves, and nothing left."""

import signal
import threading
import time
from _thread import interrupt_main

import numpy as np
import pytest
from rounds import outcome

from protocols import ScalarSum
from shuffle_sim import ParameterError, run
from shuffle_sim.data.population import Generated, Population
from shuffle_sim.execution import inprocess
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.protocol.adversary import Dropout

USERS = 400
PROTOCOL = ScalarSum(n=USERS, g=4, b=10, p=0.5)
DATA = np.linspace(0, 1, USERS)
TWO = {"workers": 2, "placement": "together", "seed": 3, "block_size": 16}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Threads for blocks of any size."""
    monkeypatch.setattr(inprocess, "LEAST_BLOCK", 1)


class Asked(Population):
    """Rows that say which thread asked for them; like a page, the last ones are kept."""

    users = USERS
    threads: set[str] = set()  # noqa: RUF012 - of all copies

    def rows(self, start, stop):
        self.kept = DATA[start:stop]
        if stop - start > 1:
            self.threads.add(threading.current_thread().name)
            time.sleep(0.001)  # another thread goes on
        return self.kept


def stations():
    return [thread for thread in threading.enumerate() if thread.name == "Station"]


def test_each_station_has_a_thread_and_a_population_of_its_own():
    Asked.threads.clear()
    rows = Asked()
    two = run(PROTOCOL, rows, fidelity="counts", **TWO)
    assert Asked.threads == {"Station"}
    assert stations() == []
    one = run(PROTOCOL, DATA, fidelity="counts", **TWO | {"workers": 1})
    assert two.value == one.value


@pytest.mark.parametrize("fidelity", ["counts", "aggregate"])
def test_a_station_begins_before_the_other_has_ended(fidelity):
    """Both wait for each other; one after the other they would wait for ever."""
    barrier = threading.Barrier(2, timeout=20)

    class Meeting(Asked):
        def __copy__(self):
            made = Meeting()
            made.met = False
            return made

        def rows(self, start, stop):
            if not getattr(self, "met", True):
                self.met = True
                barrier.wait()
            return DATA[start:stop]

    two = run(PROTOCOL, Meeting(), fidelity=fidelity, **TWO)
    how = TWO | {"placement": "apart", "shuffler_shards": 2}
    apart = run(PROTOCOL, DATA, fidelity=fidelity, **how)
    assert outcome(two) == outcome(apart)


def drawn(rng, count):
    return rng.random(count)


def test_pages_are_not_shared_between_threads():
    users = 3 * Generated.PAGE // 2
    protocol, rows = ScalarSum(n=users, g=4, b=10, p=0.5), Generated(users, drawn, seed=1)
    how = {"fidelity": "aggregate", "seed": 1, "block_size": 1 << 12}
    alone = run(protocol, rows, **how)
    two = run(protocol, rows, workers=2, placement="together", **how)
    assert two.value == alone.value


class Broken(Population):
    users = USERS

    def rows(self, start, stop):
        if start >= 200:
            raise ParameterError("rows", start, "below 200")
        return DATA[start:stop]


def test_an_error_in_a_thread_is_raised_as_itself():
    with pytest.raises(ParameterError, match="below 200"):
        run(PROTOCOL, Broken(), fidelity="aggregate", **TWO)
    assert stations() == []


def test_ctrl_c_ends_threads_at_work():
    class Endless(Asked):
        def rows(self, start, stop):
            if start == 16:
                interrupt_main()
                while True:
                    time.sleep(0.001)
            return DATA[start:stop]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            run(PROTOCOL, Endless(), fidelity="aggregate", **TWO)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stations() == []


def test_corrupted_users_messages_and_small_blocks_have_no_threads(monkeypatch):
    class Here(InProcessRuntime):
        def close(self):
            assert self._threads == ()

    run(PROTOCOL, DATA, runtime=Here(), fidelity="counts", adversary=Dropout(0.1), **TWO)
    run(PROTOCOL, DATA, runtime=Here(), fidelity="literal", **TWO)
    with pytest.raises(AssertionError):
        run(PROTOCOL, DATA, runtime=Here(), fidelity="counts", **TWO)
    monkeypatch.setattr(inprocess, "LEAST_BLOCK", 65_536)
    run(PROTOCOL, DATA, runtime=Here(), fidelity="counts", **TWO)
    assert run(PROTOCOL, DATA, workers="auto").workers == 1
