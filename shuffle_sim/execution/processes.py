"""Each role, or station, in a process of its own on this machine, connected by sockets.

A process is forked from this one: it shares the rows, and a call takes a tenth of a millisecond.
Where other threads run a fork could copy a lock that one of them holds; then processes are started
anew, and get a copy of the rows. This process hands on what roles send each other, and does not
read it. It keeps the calls of a role until what they need is there, and sends one at a time.
"""

import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.execution.pipes import (
    MOST_BLOBS,
    STOPS,
    Part,
    packed,
    receive,
    send,
    serve,
    unpacked,
)
from shuffle_sim.execution.runtime import HostLostError, Overhead, Runtime
from shuffle_sim.execution.signals import unbroken
from shuffle_sim.roles import Deployment, PlannedRound

_GRACE = 0.5  # seconds for a process that ends by itself to say its code
_END_TIMEOUT = 5.0  # for a killed one to be gone
_LONGEST_WAIT = 1e6  # that the system can be asked to wait


class _Handle:
    """What a call will give: a part of a message, or an error."""

    __slots__ = ("error", "part")

    def __init__(self) -> None:
        self.part: Part | None = None
        self.error: Exception | None = None


class _Call:
    """A call that waits: for others, for its role, or for the answer."""

    def __init__(
        self, method: str, arguments: tuple[Any, ...], many: Sequence[Any], returns: int
    ) -> None:
        self.method = method
        self.head = packed((method, len(arguments), returns))
        given = (*arguments, *many)
        self.given = [each if isinstance(each, _Handle) else packed(each) for each in given]
        self.handles = [_Handle() for _ in range(returns)]

    def parts(self) -> list[Part] | None:
        """The message; None while something is missing.

        Raises:
            Exception: what it needs will not come.
        """
        found = [self.head]
        for each in self.given:
            if isinstance(each, _Handle) and each.error is not None:
                raise each.error
            part = each.part if isinstance(each, _Handle) else each
            if part is None:
                return None
            found.append(part)
        return found

    def fail(self, error: Exception) -> None:
        for handle in self.handles:
            handle.error = error


class _Host:
    """A process, its channel, and its calls in their order; the first may be under way."""

    def __init__(self, name: str, process: Any, channel: socket.socket) -> None:
        self.name, self.process, self.channel = name, process, channel
        self.calls: deque[_Call] = deque()
        self.busy = False
        self.error: Exception | None = None


class ProcessesRuntime(Runtime):
    """Hosts the roles in processes of this machine, which end with this one."""

    name = "processes"
    quick_together = True
    overhead = Overhead(start=0.01, worker=0.005, alone=0.0006, each_round=0.001)

    def __init__(self, method: str | None = None) -> None:
        """Start processes as asked; by default "fork", or "spawn" where other threads run.

        Raises:
            ParameterError: another method.
        """
        if method not in (None, "fork", "spawn"):
            raise ParameterError("method", method, "fork, spawn or left out")
        self._method = method
        self._hosts: dict[int, _Host] = {}
        self._poll = select.poll()
        self._started = 0

    def start(self) -> None:
        """Refuse where no process may be started.

        Raises:
            ParameterError: there, naming what to take.
        """
        if not hasattr(os, "memfd_create"):
            raise ParameterError("runtime", self.name, "inprocess or ray: processes need Linux")
        if multiprocessing.current_process().daemon:
            allowed = "inprocess in a worker of multiprocessing, which may have no children"
            raise ParameterError("runtime", self.name, allowed)

    def open(
        self, deployment: Deployment, population: Population, workers: int
    ) -> PlannedRound | None:
        """Set the roles up.

        Raises:
            ParameterError: more than a machine has.
        """
        asked = {"workers": workers, "shuffler_shards": deployment.shuffler_shards}
        for name, many in asked.items():
            if many > MOST_BLOBS:
                allowed = f"at most {MOST_BLOBS} in processes of one machine"
                raise ParameterError(name, many, allowed)
        return super().open(deployment, population, workers)

    def cores(self, deployment: Deployment) -> int:
        return min(MOST_BLOBS, len(os.sched_getaffinity(0)))

    def host(self, role: type, *arguments: Any) -> _Host:
        method = self._method or ("fork" if threading.active_count() == 1 else "spawn")
        here, there = socket.socketpair()
        here.settimeout(min(self.round_timeout, _LONGEST_WAIT))
        # A child closes its copies of these: a channel ends only once all its copies are closed.
        ends = [here, *(each.channel for each in self._hosts.values())] if method == "fork" else []
        context: Any = multiprocessing.get_context(method)
        given = there, ends, os.getpid(), role, arguments
        process = context.Process(target=serve, args=given, name=role.__name__, daemon=True)
        host = _Host(f"{role.__name__} {self._started}", process, here)
        self._started += 1
        try:
            with unbroken(), _masked():  # none is begun and not known
                process.start()
                self._hosts[here.fileno()] = host
                self._poll.register(here, select.POLLIN)
        except OSError as error:
            here.close()
            raise HostLostError(f"{host.name} cannot be begun: {error}") from error
        finally:
            there.close()
        return host

    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        call = _Call(method, arguments, many, returns)
        if host.error is not None:
            call.fail(host.error)
        else:
            host.calls.append(call)
            self._send()
        return list(call.handles)

    def get(self, handles: list[Any]) -> list[Any]:
        """Wait for the processes.

        Raises:
            HostLostError: one is gone, or did not answer in time and was ended.
        """
        # One deadline for all handles: roles work at the same time.
        deadline, values = time.monotonic() + min(self.round_timeout, _LONGEST_WAIT), []
        for handle in handles:
            while handle.part is None and handle.error is None:
                events = self._poll.poll(1000 * max(0.0, deadline - time.monotonic()))
                if not events:
                    raise self._late()
                for descriptor, _ in events:
                    self._take(self._hosts[descriptor])
                self._send()
            if handle.error is not None:
                raise handle.error
            values.append(unpacked(handle.part))
        return values

    def alive(self, host: Any) -> bool:
        if host.error is None and not host.process.is_alive():
            self._lose(host, f"{host.name} is gone")
        return host.error is None

    def close(self) -> None:
        with unbroken(second_wins=True):
            hosts = list(self._hosts.values())
            for host in hosts:
                host.process.kill()
            for host in hosts:
                self._lose(host, "closed")
        self._rows, self._shards, self._shufflers, self._analyzer = None, [], [], None

    def _station(self, shard: int) -> _Host:
        """A station that does not push its sender from a core.

        Linux wakes who is sent something on the sender's core, at once, and so would begin the
        second station late. A core of its own for each was no faster, and slower where others run.
        """
        host: _Host = super()._station(shard)
        with suppress(ProcessLookupError):  # it is gone, as will be seen
            os.sched_setscheduler(host.process.pid, os.SCHED_BATCH, os.sched_param(0))
        return host

    def _send(self) -> None:
        """Send all calls that can be sent; one that failed may be what others wait for."""
        while any(self._sent(host) for host in list(self._hosts.values())):
            pass

    def _sent(self, host: _Host) -> bool:
        """Whether the process's next call was sent, or cannot be; one is under way at a time."""
        if not host.calls or host.busy:
            return False
        try:
            parts = host.calls[0].parts()
        except Exception as error:
            host.calls.popleft().fail(error)
            return True
        if parts is None:
            return False
        try:
            send(host.channel, parts)
            host.busy = True
        except OSError:
            self._lose(host, f"{host.name} is gone")
        return True

    def _take(self, host: _Host) -> None:
        """What a process has answered, or that it is gone."""
        try:
            word, *parts = receive(host.channel)
        except (EOFError, OSError):
            self._lose(host, f"{host.name} is gone")
            return
        call, host.busy = host.calls.popleft(), False
        if word == b"given":
            for handle, part in zip(call.handles, parts, strict=True):
                handle.part = part
        else:
            call.fail(unpacked(parts[0]))

    def _lose(self, host: _Host, why: str) -> None:
        """End a process; nobody waits for it any more."""
        self._poll.unregister(host.channel)
        del self._hosts[host.channel.fileno()]
        host.channel.close()
        host.process.join(_GRACE)
        code = host.process.exitcode or 0
        host.process.kill()
        host.process.join(_END_TIMEOUT)
        if host.process.exitcode is not None:
            host.process.close()
        own = f"{host.name} ended with code {code}: its error is on stderr"
        # A positive code is an error of its own, which would come again; a signal is bad luck.
        host.error = ShuffleSimError(own) if code > 0 else HostLostError(why)
        while host.calls:
            host.calls.popleft().fail(host.error)

    def _late(self) -> HostLostError:
        """Name who is waited for, and end it."""
        late = [host for host in self._hosts.values() if host.busy]
        names = ", ".join(f"{host.calls[0].method} of {host.name}" for host in late)
        said = f"no answer for {self.round_timeout:g} s from {names}"
        for host in late:
            host.process.kill()
            self._lose(host, said)
        print(f"shuffle-sim: {said}: ended, and put back", file=sys.stderr)
        return HostLostError(said)


@contextmanager
def _masked() -> Iterator[None]:
    """A process that is begun in the block gets no Ctrl-C before it can ignore it.

    Python from 3.12 on warns of forks beside any thread, those of BLAS, too, which take care of it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
