"""Ray's start and end, where they rest on parts of Ray that are its own.

A Ray of our own is lean: it has no dashboard server, no log monitor and no autoscaler, which
`ray.init` starts though nobody asks them anything. They would take 150 MiB.
"""

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import parameter, ray_constants, services

from actors.deadlines import kill, tree
from shuffle_sim.errors import ParameterError

_COMMON: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def join(address: str) -> None:
    """Join a running cluster.

    Raises:
        ParameterError: there is none at the address.
    """
    _quiet()
    _reach(address)
    try:
        ray.init(address=address, **_COMMON)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ParameterError(
            "address", address, f"that of a reachable Ray cluster ({error})"
        ) from error


def start(folder: str) -> None:
    """Start a Ray on the loopback interface; sockets, logs and objects are in the folder."""
    _quiet()
    ray_constants.ENABLE_RAY_CLUSTER = False  # keeps every port on the loopback interface
    # A token of this process alone: Ray would keep one where others may read it.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Beside `include_dashboard`: the server of the API is started all the same.
    with _lean():
        ray.init(
            address="local",
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            **_COMMON,
        )


def _quiet() -> None:
    """At a SIGTERM the C++ part would print its stack.

    This and `ENABLE_RAY_CLUSTER` are read at Ray's import, which may have come before ours.
    """
    ray_constants.RAY_DISABLE_FAILURE_SIGNAL_HANDLER = True


@contextmanager
def _lean() -> Iterator[None]:
    """Leave out what nobody asks."""
    private: Any = parameter
    made, server = private.RayParams, services.start_api_server

    def params(*given: Any, **named: Any) -> Any:
        all_of_them = made(*given, **named)
        all_of_them.include_log_monitor, all_of_them.no_monitor = False, True
        return all_of_them

    private.RayParams = params
    services.start_api_server = lambda *given, **named: (None, None)
    try:
        yield
    finally:
        private.RayParams, services.start_api_server = made, server


class _Ending:
    """In the place of Ray's core worker while Ray ends: a reference that is let go of reaches
    nobody.

    There is a moment at which the core worker has ended and Ray's Python part does not know. Who
    lets go of a reference then, ends this process: "the core worker has already been shutdown".
    Errors under way, and threads that still wait, hold references.
    """

    def __init__(self, core_worker: Any) -> None:
        self._core_worker = core_worker

    def shutdown_driver(self) -> None:
        """From now on there is no core worker."""
        ended, self._core_worker = self._core_worker, None
        ended.shutdown_driver()

    def __getattr__(self, name: str) -> Any:
        if name in ("remove_object_ref_reference", "remove_actor_handle_reference"):
            return lambda *arguments: None
        return getattr(self._core_worker, name)


def shut_down() -> None:
    """`ray.shutdown`, whatever references are held and let go of meanwhile."""
    worker: Any = ray._private.worker.global_worker
    if hasattr(worker, "core_worker"):
        # From here on a reference may be let go of by any thread, at any moment.
        worker.core_worker = _Ending(worker.core_worker)
    ray.shutdown()


def kill_new(before: set[int]) -> None:
    """End the processes of a Ray that was to be started, but for those that were there before."""
    ours = str(Path(ray.__file__).parent)
    for pid in tree([os.getpid()]) - before:
        with suppress(OSError):
            # By the path of this Ray: children that are none of it are not ours to end.
            if ours in Path(f"/proc/{pid}/cmdline").read_text():
                kill([pid])


@contextmanager
def without_handlers() -> Iterator[None]:
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
