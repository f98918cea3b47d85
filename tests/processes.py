"""Processes as the system sees them: children, listening sockets, and what a stop leaves."""

import ipaddress
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from shuffle_sim.execution.processes import ProcessesRuntime

TESTS = Path(__file__).parent


def python(*words: object, check: bool = False, **how: Any) -> "subprocess.CompletedProcess[str]":
    """This Python with these words, when it has ended; in the root of the repository."""
    command, how = [sys.executable, *map(str, words)], {"cwd": TESTS.parent, "timeout": 300, **how}
    return subprocess.run(command, capture_output=True, text=True, check=check, **how)


class Forked(ProcessesRuntime):
    """Forks, though the tests' own threads run: they hold no lock that a role needs."""

    def __init__(self):
        super().__init__("fork")


def descendants(root: int) -> set[int]:
    """Processes started by `root` and theirs, without itself."""
    parents = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                parents[int(process.name)] = int(
                    (process / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:  # it has ended meanwhile
                continue
    found = {root}
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    return found - {root}


def soon_none(left, seconds: float = 60.0) -> list:
    """Waits until nothing is left; what there is after a grace, long for a machine under load."""
    deadline = time.monotonic() + seconds
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def inodes(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:  # closed or ended meanwhile
        pass
    return found


def address(hexadecimal: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as /proc/net/tcp writes it: little-endian words."""
    words = bytes.fromhex(hexadecimal)
    found = ipaddress.ip_address(b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4)))
    return getattr(found, "ipv4_mapped", None) or found


def listening(processes: set[int]) -> dict[str, str]:
    """Where these processes listen: {address:port: command}."""
    owners = {inode: pid for pid in processes for inode in inodes(pid)}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[i] for i in (1, 3, 9))
            if state == "0A" and inode in owners:
                host, port = local.split(":")
                found[f"{address(host)} {int(port, 16)}"] = command(owners[inode])
    return found


def exposed(sockets: dict[str, str]) -> dict[str, str]:
    return {
        place: who
        for place, who in sockets.items()
        if not ipaddress.ip_address(place.split()[0]).is_loopback
    }


SCRIPT = """
import sys
from rounds import *
from shuffle_sim import run
from shuffle_sim.cli import app
def work(standalone_mode):
    print("begun", flush=True)
    how = dict(seed=5, runtime={runtime!r}, workers=2, checkpoint={folder!r})
    run(interactive({rounds}), rows(), **how)
app.app = work
app.main()
"""


class Watched:
    """A program in a session of its own; a mark in the environment finds all its processes."""

    def __init__(self, folder, runtime, rounds):
        self.mark = f"SHUFFLE_SIM_TEST={os.getpid()}-{folder.name}"
        environment = {**os.environ, "PYTHONPATH": str(TESTS), **dict([self.mark.split("=")])}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SCRIPT.format(runtime=runtime, folder=str(folder), rounds=rounds),
            ],
            env={name: value for name, value in environment.items() if not name.startswith("RAY_")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.process.stdout.readline()

    def stop(self, number):
        """Ctrl-C goes to all processes of the terminal, SIGTERM to the one that is named."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        _, message = self.process.communicate(timeout=60)
        return message, self.process.returncode

    def alive(self):
        """The commands of its processes."""
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and self.mark.encode() in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    found.append(command(int(process.name)))
            except OSError:  # it has ended meanwhile
                continue
        return found
