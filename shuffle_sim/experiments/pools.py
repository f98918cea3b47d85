"""Where the points of a study are run: here, or in processes of this machine.

A third party registers a pool as we do (`shuffle_sim.pools`): a class that is made without
arguments, with `outcomes`.
"""

import multiprocessing
import os
import select
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.pipes import packed, receive, send, serve, unpacked
from shuffle_sim.experiments.points import Point
from shuffle_sim.experiments.trial import Make, Outcome, measured


class Pool(Protocol):
    """Runs points that do not depend on each other."""

    def outcomes(
        self, make: Make, points: Sequence[Point], workers: int | None
    ) -> Iterator[tuple[Point, Outcome]]:
        """Each point with what became of it, in the order in which they end.

        Nothing is left behind when the iterator is closed. A worker that dies is its point's
        outcome, and another takes its place.
        """
        ...


class InProcessPool:
    """One point after the other, in this process."""

    def outcomes(
        self, make: Make, points: Sequence[Point], workers: int | None
    ) -> Iterator[tuple[Point, Outcome]]:
        """Each point.

        Raises:
            ParameterError: more than one worker.
        """
        if workers not in (None, 1):
            raise ParameterError("workers", workers, "1 with runtime inprocess")
        bench = PointRunner(make)
        for point in points:
            yield point, bench.measure(point)


class PointRunner:
    """Measures points, each on one core: linear algebra of several threads would share it."""

    def __init__(self, make: Make) -> None:
        """With what makes a run of a point."""
        self._make = make

    def measure(self, point: Point) -> Outcome:
        """What becomes of the point."""
        # As many points run as there are cores.
        with threadpool_limits(1):
            return measured(self._make, point)


class ProcessPool:
    """In processes forked from this one, so that `make` may be any function."""

    def __init__(self) -> None:
        """Without a process so far."""
        self._idle: list[_Worker] = []
        self._busy: dict[int, tuple[_Worker, Point]] = {}

    def outcomes(
        self, make: Make, points: Sequence[Point], workers: int | None
    ) -> Iterator[tuple[Point, Outcome]]:
        """Each point; by default as many processes as there are cores.

        Raises:
            ParameterError: this system has no such processes, or this process may have none.
        """
        # A daemon may have no children: a study within a study runs in its own process.
        if not hasattr(os, "memfd_create") or multiprocessing.current_process().daemon:
            allowed = "inprocess or ray: processes need Linux, and a parent that is no worker"
            raise ParameterError("runtime", "processes", allowed)
        many = min(len(points), workers or len(os.sched_getaffinity(0)))
        waiting, poll = deque(points), select.poll()
        try:
            while waiting or self._busy:
                while waiting and len(self._busy) < many:
                    worker = self._idle.pop() if self._idle else self._started(make)
                    point = waiting.popleft()
                    number = worker.channel.fileno()
                    self._busy[number] = worker, point
                    poll.register(number, select.POLLIN)
                    with suppress(OSError):  # it is gone: found when it is read
                        send(worker.channel, [packed(("measure", 1, 1)), packed(point)])
                for number, _ in poll.poll():
                    worker, point = self._busy.pop(number)
                    poll.unregister(number)
                    outcome = worker.outcome()
                    # One that died was ended by `outcome`; the next point gets a new one.
                    if worker.process.is_alive():
                        self._idle.append(worker)
                    yield point, outcome
        finally:
            for worker in [*self._idle, *(each for each, _ in self._busy.values())]:
                worker.end()
            self._idle, self._busy = [], {}

    def _started(self, make: Make) -> "_Worker":
        # A child closes its copies of these: a channel ends only once all its copies are closed.
        others = [each.channel for each in self._idle] + [
            each.channel for each, _ in self._busy.values()
        ]
        return _Worker(make, others)


class _Worker:
    """A process that measures points, and its channel."""

    def __init__(self, make: Make, others: Sequence[socket.socket]) -> None:
        self.channel, there = socket.socketpair()
        given = there, [self.channel, *others], os.getpid(), PointRunner, (make,)
        context: Any = multiprocessing.get_context("fork")
        self.process = context.Process(target=serve, args=given, daemon=True)
        # The parent's copy of the other end: open, it would hide that the worker is gone.
        with there:
            self.process.start()

    def outcome(self) -> Outcome:
        """What it says of its point; if it died, that."""
        try:
            word, part = receive(self.channel)
        except (EOFError, OSError):
            self.end()
            return Outcome(None, f"its process ended (exit code {self.process.exitcode})")
        if word == b"given":
            outcome: Outcome = unpacked(part)
            return outcome
        return Outcome(None, " ".join(str(unpacked(part)).split()))

    def end(self) -> None:
        self.channel.close()
        self.process.join(0.2)
        self.process.kill()
        self.process.join()
