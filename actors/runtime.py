"""The Ray runtime: the roles as actors, on this machine or in a cluster."""

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import ray_constants
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.hosts import ACTORS
from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError, ShuffleSimError
from shuffle_sim.execution.runtime import HostLostError, Runtime
from shuffle_sim.execution.signals import unbroken

_all_nodes: Any = ray.nodes
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


class RayRuntime(Runtime):
    """Hosts the roles in Ray actors.

    Unless a Ray is running, it starts one on the loopback interface only. It ends what it started.
    """

    name = "ray"

    def __init__(self, address: str | None = None) -> None:
        """Join the cluster at `address`, or for None start or reuse a local Ray.

        The address "auto" is that of this machine's cluster.
        """
        self._address = address
        self._owns_ray = False
        self._actors: list[Any] = []

    def start(self) -> None:
        """Start Ray if needed, and find its nodes."""
        self._connect()
        self._nodes = [node["NodeID"] for node in _all_nodes() if node["Alive"]]

    def host(self, role: type, *arguments: Any) -> Any:
        """An actor of its own, on the nodes of the cluster in turn."""
        node = self._nodes[len(self._actors) % len(self._nodes)]
        actor = (
            ACTORS[role]
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))
            .remote(*arguments)
        )
        self._actors.append(actor)
        return actor

    def shared(self, population: Population) -> Any:
        """A reference: the population is put into Ray's store once."""
        return ray.put(population)  # once, not in every actor's closure

    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        """References; what they stand for passes from actor to actor."""
        handles = host.call.options(num_returns=returns, name=method).remote(
            method, len(many), *arguments, *many
        )
        return [handles] if returns == 1 else handles

    def alive(self, host: Any) -> bool:
        """Whether the actor answers."""
        try:
            ray.get(host.__ray_ready__.remote())
        except ray.exceptions.RayActorError:
            return False
        return True

    def close(self) -> None:
        """End the actors, and Ray if it was started here."""
        with unbroken():
            for actor in self._actors:
                ray.kill(actor)
            self._actors = []
            if self._owns_ray:
                ray.shutdown()
                self._owns_ray = False

    def _connect(self) -> None:
        if not ray.is_initialized():
            with unbroken(), _without_handlers():  # half a Ray could not be ended
                self._start()

    def _start(self) -> None:
        # Both are read at Ray's import, which may have come before ours. At a SIGTERM the C++ part
        # would print its stack.
        ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is not None:
            _reach(self._address)
            try:
                ray.init(address=self._address, **common)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ParameterError(
                    "address", self._address, f"that of a reachable Ray cluster ({error})"
                ) from error
        else:
            ray_constants.ENABLE_RAY_CLUSTER = False  # keeps every port on the loopback interface
            ray.init(
                address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **common
            )
        self._owns_ray = True

    def get(self, handles: list[Any]) -> list[Any]:
        """Wait for the actors."""
        try:
            values: list[Any] = ray.get(handles)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, ShuffleSimError):
                raise cause from None
            if isinstance(cause, _LOST) and not getattr(cause, "actor_init_failed", False):
                raise HostLostError(str(cause).partition("\n")[0]) from error
            raise
        return values


@contextmanager
def _without_handlers() -> Iterator[None]:
    """Set Ray's handler of SIGTERM after its start, not before.

    Set before, it would end the process in the middle of the start.
    """
    utils: Any = ray._private.utils
    setter = utils.set_sigterm_handler
    handlers: list[Any] = []
    utils.set_sigterm_handler = handlers.append
    try:
        yield
    finally:
        utils.set_sigterm_handler = setter
        for handler in handlers:
            setter(handler)


def _reach(address: str) -> None:
    """Ray tries an unreachable address for two minutes, then ends the process: find out first.

    Raises:
        ParameterError: nobody listens there.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ParameterError("address", address, "host:port of a reachable Ray cluster, or auto")
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ParameterError(
            "address", address, f"host:port of a reachable Ray cluster, or auto ({error})"
        ) from error
