"""What another user of the machine can reach of a run on Ray: nothing."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.runtime import RayRuntime

NOBODY = 65534
ASKS = """
import sys
from ray._raylet import GcsClient
print(len(GcsClient(address=sys.argv[1]).internal_kv_keys(b"", b"session", timeout=10)))
"""


def as_nobody(step: Callable[[], object]) -> str:
    """What a step gives to another user of the machine: "ok", or the name of the error."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            step()
            os.write(writes, b"ok")
        except BaseException as error:
            os.write(writes, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads, "rb") as answer:
        return answer.read().decode()


def connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)


def asked(address: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """The GCS is asked for what it keeps."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    command = [sys.executable, "-W", "ignore", "-c", ASKS, address]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment | changed, check=False
    )


@pytest.mark.full
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_reaches_neither_files_nor_sockets_nor_ray():
    runtime = RayRuntime()
    runtime.start()
    try:
        node: Any = ray._private.worker._global_node
        session, store = Path(node.get_session_dir_path()), node.plasma_store_socket_name
        folder = session.parents[1]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert Path(store).is_relative_to(folder)
        # Power: without the outer folder another user sees what Ray keeps.
        folder.chmod(0o755)
        assert as_nobody(lambda: os.listdir(session / "logs")) == "ok"
        folder.chmod(0o700)
        for step in (
            lambda: os.listdir(folder),
            lambda: os.listdir(session / "logs"),
            lambda: connect(store),
        ):
            assert as_nobody(step) == "PermissionError"
        known = asked(node.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=_token())
        assert known.returncode == 0, known.stderr[-300:]
        for changed in (
            {"RAY_AUTH_MODE": "disabled"},
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
        ):
            assert asked(node.address, **changed).returncode != 0
    finally:
        runtime.close()
    assert not folder.exists()


def _token() -> str:
    return os.environ["RAY_AUTH_TOKEN"]
