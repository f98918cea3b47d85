"""The Ray runtime: the roles as actors, on this machine or in a cluster."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.deadlines import LateError, kill, leave_at_exit, stopped, tree, within
from actors.hosts import ACTORS
from actors.session import join, kill_new, shut_down, start, without_handlers
from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, RoundAbortedError, ShuffleSimError
from shuffle_sim.execution.runtime import HostLostError, Overhead, Runtime
from shuffle_sim.execution.signals import unbroken
from shuffle_sim.roles import Deployment

CLOSE_TIMEOUT = 8.0
"""Seconds that closing may take; then the processes that were started are killed."""
_PROBE = 3.0  # seconds for Ray to say how it is
_all_nodes: Any = ray.nodes
_ROOM = 40  # characters of a folder's name: sockets below it have names of 107 at most
_LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.ObjectStoreFullError,
)
"""What Ray raises where an actor is gone, or what it made."""


def cores() -> int:
    """Of all nodes that live."""
    alive = [node["Resources"] for node in _all_nodes() if node["Alive"]]
    return max(1, int(sum(each.get("CPU", 0) for each in alive)))


class RayRuntime(Runtime):
    """Hosts the roles in Ray actors.

    Unless a Ray is running, it starts one on the loopback interface only. It ends what it started.
    """

    name = "ray"
    quick_together = True
    overhead = Overhead(start=3.0, worker=0.5, alone=0.002, each_round=0.004)

    def __init__(self, address: str | None = None) -> None:
        """Join the cluster at `address`, or for None start or reuse a local Ray.

        The address "auto" is that of this machine's cluster.
        """
        self._address = address
        self._owns_ray = False
        self._counted = 0
        self._folder: str | None = None
        self._actors: list[Any] = []
        self._where: dict[Any, Any] = {}
        self._calls: list[_Call] = []
        self._gone: list[Any] = []
        self._silent = False
        self._ended = threading.Event()

    def start(self) -> None:
        self._connect()
        if self._counted and (found := cores()) < self._counted:
            shrunk = f"another number: the cluster shrank from {self._counted} to {found} cores"
            self.close()
            raise ParameterError("workers", "auto", shrunk)
        self._nodes = [node["NodeID"] for node in _all_nodes() if node["Alive"]]

    def cores(self, deployment: Deployment) -> int:
        if self._address is None and not ray.is_initialized():
            return len(os.sched_getaffinity(0))
        self._connect()
        self._counted = cores()
        return self._counted

    def host(self, role: type, *arguments: Any) -> Any:
        node = self._nodes[len(self._actors) % len(self._nodes)]
        actor = (
            ACTORS[role]
            # soft: on a node that is gone Ray may take another one, when roles are put back.
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))
            .remote(*arguments)
        )
        self._actors.append(actor)
        # Asked now: an actor that hangs later can no longer say where it is.
        self._where[actor] = actor.where.remote()
        return actor

    def shared(self, population: Population) -> Any:
        return ray.put(population)  # once, not in every actor's closure

    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        # Ray does not look into lists: references must be arguments of their own.
        handles = host.call.options(num_returns=returns, name=method).remote(
            method, len(many), *arguments, *many
        )
        given = [handles] if returns == 1 else handles
        needed = [each for each in (*arguments, *many) if isinstance(each, ray.ObjectRef)]
        self._calls.append(_Call(host, method, given, needed))
        return given

    def alive(self, host: Any) -> bool:
        if host in self._gone:
            return False
        try:
            within(self.round_timeout, lambda: ray.get(host.__ray_ready__.remote()))
        except (ray.exceptions.RayActorError, LateError):
            return False
        return True

    def close(self) -> None:
        # Before anything ends: afterwards nobody knows whose they were.
        started = self._started()
        # References that are let go of after Ray's end would end this process.
        self._calls, self._where, self._gone, self._rows = [], {}, [], None
        self._shards, self._shufflers, self._analyzer = [], [], None
        with unbroken(second_wins=True):
            try:
                # What is known to be stopped is not asked.
                if self._stopped():
                    raise LateError
                within(_PROBE if self._silent else CLOSE_TIMEOUT, self._end)
            except LateError:
                self._abandon(started)
            except KeyboardInterrupt:  # the second Ctrl-C
                self._abandon(started)
                raise
            self._actors = []
            self._owns_ray = False
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
            self._ended.set()

    def _end(self) -> None:
        actors, self._actors = self._actors, []
        while actors:
            ray.kill(actors.pop())
        if self._owns_ray:
            shut_down()

    def _stopped(self) -> list[str]:
        """Which kinds of processes are stopped, of the Ray that was started here."""
        node: Any = ray._private.worker._global_node if self._owns_ray else None
        return [
            kind
            for kind, many in (list(node.all_processes.items()) if node is not None else ())
            if any(stopped(each.process.pid) for each in many)
        ]

    def _started(self) -> set[int]:
        """The processes of the Ray that was started here, and theirs."""
        node = ray._private.worker._global_node if self._owns_ray else None
        if node is None:
            return set()
        roots = [each.process.pid for many in list(node.all_processes.values()) for each in many]
        return tree(roots)

    def _abandon(self, started: set[int]) -> None:
        """Kill what was started; Ray's own way of ending would wait for it."""
        kill(started | tree(started))
        node: Any = ray._private.worker._global_node
        for many in list(node.all_processes.values()) if node is not None else ():
            for each in many:
                with suppress(subprocess.TimeoutExpired):
                    each.process.wait(_PROBE)
        atexit.unregister(ray._private.worker.shutdown)
        leave_at_exit()

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        before, self._ended = tree([os.getpid()]), threading.Event()  # of this Ray: not the first's
        with unbroken(second_wins=True), without_handlers():  # half a Ray could not be ended
            try:
                within(None, self._start, until=self._ended)
            except BaseException as error:
                self._ended.set()
                if isinstance(error, KeyboardInterrupt):  # the second Ctrl-C: no Ray is to come
                    atexit.unregister(ray._private.worker.shutdown)
                    atexit.register(kill_new, before)
                    kill_new(before)
                    leave_at_exit()
                raise

    def _start(self) -> None:
        if self._address is not None:
            join(self._address)
        else:
            below = tempfile.gettempdir()
            short = below if len(below) < _ROOM else "/tmp"
            # 0700: sockets, logs and objects on disk.
            self._folder = tempfile.mkdtemp(prefix="shuffle-sim-", dir=short)
            start(os.path.join(self._folder, "ray"))  # Ray opens its own to everybody
        self._owns_ray = True

    def get(self, handles: list[Any]) -> list[Any]:
        """Wait for the actors.

        Raises:
            HostLostError: an actor is gone, or did not answer in time and was ended.
            RoundAbortedError: Ray itself does not answer.
        """
        try:
            # In a thread: ray.get of a stopped process never returns, and hears no Ctrl-C.
            values: list[Any] = within(self.round_timeout, lambda: ray.get(handles))
            self._calls = [call for call in self._calls if not set(call.gives) & set(handles)]
        except LateError:
            raise self._late() from None
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, ShuffleSimError):
                raise cause from None
            # An actor that could not be made would not be made a second time either.
            if isinstance(cause, _LOST) and not getattr(cause, "actor_init_failed", False):
                raise HostLostError(str(cause).partition("\n")[0]) from error
            raise
        return values

    def _late(self) -> ShuffleSimError:
        """Name who is waited for, and end it."""
        waited = f"no answer for {self.round_timeout:g} s"
        self._silent = True  # until it has answered
        for kind in self._stopped():
            return RoundAbortedError(f"{waited}: Ray's {kind} is stopped")
        try:
            within(_PROBE, ray.nodes)
        except (LateError, ray.exceptions.RayError, RuntimeError):
            return RoundAbortedError(f"{waited}: Ray's GCS does not answer")
        try:
            late = within(_PROBE, self._waited_for)
        except (LateError, ray.exceptions.RayError):
            return RoundAbortedError(f"{waited}: Ray's raylet does not answer")
        self._silent = False
        names = ", ".join(f"{call.method} of {call.host}" for call in late)
        for call in late:
            self._kill(call.host)
        self._calls = []
        print(f"shuffle-sim: {waited} from {names}: ended, and put back", file=sys.stderr)
        return HostLostError(f"{waited} from {names}")

    def _waited_for(self) -> list["_Call"]:
        """Calls that have all they need, and have not given what they should."""
        needed = {each for call in self._calls for each in (*call.gives, *call.needs)}
        ready = set(ray.wait(list(needed), num_returns=len(needed), timeout=0)[0]) if needed else {}
        return [
            call
            for call in self._calls
            if not set(call.gives) <= set(ready) and set(call.needs) <= set(ready)
        ]

    def _kill(self, host: Any) -> None:
        self._gone.append(host)
        with suppress(LateError, ray.exceptions.RayError):
            pid, node = within(_PROBE, lambda: ray.get(self._where[host]))
            if node == ray.get_runtime_context().get_node_id():
                kill([pid])  # a stopped process does not hear Ray
            elif node in self._nodes and len(self._nodes) > 1:
                self._leave(node)
        with suppress(LateError, ray.exceptions.RayError):
            within(_PROBE, lambda: ray.kill(host))

    def _leave(self, node: str) -> None:
        """A node that may be cut off: its roles count as gone, and none is put back there."""
        self._nodes.remove(node)
        places = list(self._where.values())
        known = set(ray.wait(places, num_returns=len(places), timeout=0)[0])
        for host, place in self._where.items():
            with suppress(ray.exceptions.RayError):
                if place in known and ray.get(place)[1] == node:
                    self._gone.append(host)


@dataclass(frozen=True, eq=False)
class _Call:
    """What was asked of an actor, what it gives, and which answers of others it needs."""

    host: Any
    method: str
    gives: list[Any]
    needs: list[Any]
