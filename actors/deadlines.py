"""Waiting with a deadline for what may never come, and ending what does not end by itself.

Ray's own calls do not help where a process is stopped. `ray.get` and `ray.wait` ask the raylet,
and `ray.shutdown` waits for it, for ever and in C++, where Ctrl-C is not seen. So they run in
threads of their own. The main thread waits in Python, with a deadline, and signals reach it.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class LateError(Exception):
    """The deadline has passed."""


def within(
    seconds: float | None, step: Callable[[], _Value], until: threading.Event | None = None
) -> _Value:
    """What the step gives, or raises; it is left alone once it is late.

    Without a limit it is waited for as long as it takes, and signals are seen meanwhile. The thread
    stays until the event: Linux ends processes that are to die with their parent when the *thread*
    ends that started them.

    Raises:
        LateError: it took longer.
    """
    found: list[Any] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            found.append(step())
        except BaseException as error:
            errors.append(error)
        done.set()
        # After `done`: the step is over, only its thread stays.
        if until is not None:
            until.wait()

    threading.Thread(target=work, daemon=True, name="deadline").start()
    if not done.wait(seconds):
        raise LateError
    if errors:
        raise errors[0]
    value: _Value = found[0]
    return value


def leave_at_exit() -> None:
    """At its exit this process leaves at once, with its exit code: no C++ destructors are run.

    The threads of a Ray that could not be shut down are still at work then, and would crash in what
    is destructed. The last that is registered with glibc's `on_exit` is called first, with the
    code; Python is over by then.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):
        library.on_exit(library._exit, None)


def tree(roots: Iterable[int]) -> set[int]:
    """These processes and all that they started."""
    parents: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # After the last bracket: the name of a process may hold brackets and blanks itself.
                status = (process / "stat").read_text().rpartition(")")[2].split()
                parents[int(process.name)] = int(status[1])
    found = set(roots)
    # Children of children, until nobody is new; processes may come and go meanwhile.
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    return found


def stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped, or gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True


def kill(pids: Iterable[int]) -> None:
    """End processes; those that are gone already do not matter."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
