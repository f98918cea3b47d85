"""All roles in this process; stations, if there are several, each in a thread of its own.

The same bytes pass between roles as anywhere. Kernels and numpy let go of Python's lock while they
work, so stations in threads use several cores, share the rows, and copy nothing between them. Where
blocks are small, or messages are copied, they would wait for the lock (docs/scaling.md).
"""

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from copy import copy
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from shuffle_sim.execution.runtime import Runtime
from shuffle_sim.roles import Station

_END_TIMEOUT = 5.0  # seconds for a thread to see that it is over
_LOOK = 0.5  # seconds of waiting after which signals are looked for
LEAST_BLOCK = 65_536
"""Users of a block from which on stations have threads."""


class InProcessRuntime(Runtime):
    """Hosts the roles in this process.

    Several stations have a thread each where blocks are large and messages are not simulated. With
    an adversary they have none: corrupted users of one process may share what they remember.
    """

    name = "inprocess"

    _threads: tuple["_Thread", ...] = ()

    def host(self, role: type, *arguments: Any) -> Any:
        """The role itself, or the thread that it lives in."""
        if role is not Station:
            return role(*arguments)
        deployment, population, *others = arguments
        small = deployment.block_size < LEAST_BLOCK or deployment.fidelity == "literal"
        if small or deployment.shuffler_shards == 1 or deployment.adversary is not None:
            return role(*arguments)
        # A copy, but not of the rows: populations keep what they read last.
        thread = _Thread(role, deployment, copy(population), *others)
        self._threads = *self._threads, thread  # before it starts: Ctrl-C may come at any time
        thread.start()
        return thread

    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        """The values themselves; of a thread, futures."""
        if isinstance(host, _Thread):
            return host.ask(method, arguments, many, returns)
        value = getattr(host, method)(*arguments, *([list(many)] if many else []))
        return [value] if returns == 1 else list(value)

    def get(self, handles: list[Any]) -> list[Any]:
        """The values; threads are waited for."""
        return [_value(handle) for handle in handles]

    def close(self) -> None:
        """End the threads; one that is at work ends with the step it is at."""
        threads, self._threads = self._threads, ()
        for thread in threads:
            thread.end()
        for thread in threads:
            if thread.ident is not None:
                thread.join(_END_TIMEOUT)


class _EndedError(BaseException):
    """A thread is to stop where it is."""


class _Thread(Thread):
    """Carries a role, and takes its calls in the order in which they were made."""

    def __init__(self, role: type, *arguments: Any) -> None:
        super().__init__(daemon=True, name=role.__name__)
        self._built, self._over, self._busy = Future[Any](), False, False
        self._steps = SimpleQueue[tuple[list[Future[Any]], Callable[[], Any]]]()
        self._steps.put(([self._built], partial(role, *arguments)))

    def ask(
        self, method: str, arguments: Sequence[Any], many: Sequence[Any], returns: int
    ) -> list[Future[Any]]:
        """What a method of the role will give, `returns` values, or what its building raised."""

        def step() -> Any:
            together = [[_value(each) for each in many]] if many else []
            return getattr(self._built.result(), method)(*map(_value, arguments), *together)

        given = [Future[Any]() for _ in range(returns)]
        self._steps.put((given, step))
        return given

    def run(self) -> None:
        """Take steps until it is over."""
        with suppress(_EndedError):
            while True:
                given, step = self._steps.get()
                if self._over:
                    return
                self._busy = True
                self._do(given, step)
                self._busy = False

    @staticmethod
    def _do(given: list[Future[Any]], step: Callable[[], Any]) -> None:
        try:
            value = step()
            for handle, each in zip(given, [value] if len(given) == 1 else value, strict=True):
                handle.set_result(each)
        except BaseException as error:
            for handle in given:
                if not handle.done():
                    handle.set_exception(error)

    def end(self) -> None:
        """No other step is taken; one under way is stopped at its next line of Python."""
        self._over = True
        self._steps.put(([], int))
        if self._busy and self.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.ident), ctypes.py_object(_EndedError)
            )


def _value(handle: Any) -> Any:
    """What a call has given; a future is waited for, piecewise: a Ctrl-C wakes no wait for a lock
    if another thread got the signal.
    """
    if not isinstance(handle, Future):
        return handle
    while not handle.done():
        wait((handle,), _LOOK)
    return handle.result()
