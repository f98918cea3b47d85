"""Ctrl-C and SIGTERM at any moment: one line says what was spent; no process, no torn file."""

import importlib
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import Watched, soon_none
from rounds import interactive, outcome, records, rows

from shuffle_sim import run
from shuffle_sim.cli import app
from shuffle_sim.execution.inprocess import InProcessRuntime
from shuffle_sim.execution.journal import FILE
from shuffle_sim.execution.signals import TerminatedError, stoppable, unbroken

MANY = 100


@pytest.fixture(autouse=True)
def pythons_own_handlers():
    """The handlers of a fresh Python, here and in every program that a test starts.

    Ray, once started in this process, leaves a SIGTERM handler. A shell starts its background jobs
    with SIGINT ignored, and their children inherit that.
    """
    own = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in own.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def stopped(folder, runtime, rounds, number, delay):
    """Stop the run after `delay` seconds of work; nothing may be left, and it can go on."""
    watched = Watched(folder, runtime, rounds)
    time.sleep(delay)
    message, code = watched.stop(number)
    assert soon_none(watched.alive) == []
    if code == 0:
        return False
    words = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
    assert (code, len(message.splitlines())) == (128 + number, 1), message
    found = re.match(
        rf"shuffle-sim: error: {words}(; spent until then, (\d+) round\(s\) charged: epsilon "
        r"\d.*)?(; the run is kept in .* --resume, .*)?$",
        message,
    )
    charged = len(records(folder / FILE)) // 2 if (folder / FILE).exists() else 0
    # What is on disk, and one that was about to be.
    assert charged <= int(found[2] or 0) <= charged + 1
    return True


NUMBERS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}
stops = pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)


@pytest.mark.slow_parameters("processes-Ctrl-C", "inprocess-SIGTERM")
@pytest.mark.full
@stops
@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_a_run_in_process_is_stopped_at_random_and_goes_on(runtime, number, tmp_path):
    alone, rng, hits = (
        outcome(run(interactive(MANY), rows(), seed=5)),
        np.random.default_rng(number),
        0,
    )
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        hits += stopped(folder, runtime, MANY, number, rng.uniform(0, 0.3))
        resume = (folder / FILE).exists()
        assert (
            outcome(run(interactive(MANY), rows(), seed=5, checkpoint=folder, resume=resume))
            == alone
        )
    assert hits >= 1


def stopped_on_ray(folder, number, delay):
    assert stopped(folder, "ray", 100_000, number, delay)


@pytest.mark.full
def test_a_run_on_ray_is_stopped_as_it_starts_and_under_way(tmp_path):
    with ThreadPoolExecutor() as pool:
        list(
            pool.map(stopped_on_ray, (tmp_path / "a", tmp_path / "b"), NUMBERS.values(), (7.0, 0.8))
        )


@pytest.mark.slow
@stops
@pytest.mark.parametrize("seed", range(10))
def test_a_run_on_ray_is_stopped_at_random_moments(number, seed, tmp_path):
    stopped_on_ray(tmp_path, number, np.random.default_rng(seed).uniform(0, 8))


# The handlers


def test_in_the_block_sigterm_is_an_exception_and_not_after():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TerminatedError), stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


@stops
def test_a_signal_waits_until_the_block_is_over(number):
    def work():
        with stoppable():
            with unbroken():
                signal.raise_signal(number)
                signal.raise_signal(number)
                done.append("block")
            done.append("after")

    done = []
    with pytest.raises(KeyboardInterrupt) as stopped:
        work()
    assert done == ["block"]
    assert isinstance(stopped.value, TerminatedError) == (number == signal.SIGTERM)


def test_a_signal_ignored_at_the_start_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with unbroken():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.slow
def test_these_tests_pass_where_sigint_is_ignored_at_the_start():
    pytest_here = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *pytest_here, "-k", "Ctrl-C"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_a_handler_set_in_the_block_stays_where_there_was_none():
    def ours(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with unbroken():
            signal.signal(signal.SIGTERM, ours)
        assert signal.getsignal(signal.SIGTERM) is ours
        with unbroken():
            signal.signal(signal.SIGTERM, lambda number, frame: None)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_have_nothing_to_wait_for():
    def in_thread():
        with unbroken():
            done.append(signal.getsignal(signal.SIGINT))

    done, before = [], signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert done == [before]


def test_an_interrupted_run_says_what_was_spent():
    class Interrupted(InProcessRuntime):
        def exchange(self, broadcast):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run(interactive(), rows(), runtime=Interrupted(), seed=5)
    (note,) = stopped.value.__notes__
    assert re.match(r"spent until then, 1 round\(s\) charged: epsilon \d", note)


def test_an_interrupted_run_with_a_checkpoint_says_how_it_goes_on(tmp_path):
    class Interrupted(InProcessRuntime):
        def exchange(self, broadcast):
            raise KeyboardInterrupt

    how = {"seed": 5, "checkpoint": tmp_path / "kept"}
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(interactive(), rows(), runtime=Interrupted(), **how)
    spent, kept = stopped.value.__notes__
    assert spent.startswith("spent until then, 1 round(s)")
    assert kept.startswith(f"the run is kept in {tmp_path / 'kept'}: the same with --resume")
    again = run(interactive(), rows(), **how, resume=True)
    assert outcome(again) == outcome(run(interactive(), rows(), seed=5))


def test_a_sigterm_that_a_library_turns_into_an_interrupt(monkeypatch, capsys):
    def stopped(*arguments, **options):
        try:
            signal.raise_signal(signal.SIGTERM)
        except TerminatedError:
            # as Ray does, if it finds the signal before Python does
            raise KeyboardInterrupt from None

    monkeypatch.setattr(app, "app", stopped)
    with pytest.raises(SystemExit) as left:
        app.main()
    assert (left.value.code, capsys.readouterr().err) == (143, "shuffle-sim: error: terminated\n")


@pytest.mark.parametrize(
    ("stop", "code", "word"),
    [(KeyboardInterrupt, 130, "interrupted"), (TerminatedError, 143, "terminated")],
)
def test_the_command_tells_what_was_spent_when_it_is_stopped(stop, code, word, monkeypatch, capsys):
    def stopped(*arguments, **options):
        error = stop()
        error.add_note("spent until then, 3 round(s) charged: epsilon 0.5")
        raise error

    monkeypatch.setattr(importlib.import_module("shuffle_sim.cli.running"), "run", stopped)
    monkeypatch.setattr(sys, "argv", ["shuffle-sim", "sum", "--table", "wine"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == code
    assert (
        capsys.readouterr().err
        == f"shuffle-sim: error: {word}; spent until then, 3 round(s) charged: epsilon 0.5\n"
    )
