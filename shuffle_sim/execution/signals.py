"""Ctrl-C and SIGTERM: both end a run in the same orderly way, and wait while something must not be
broken off.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPS = (signal.SIGINT, signal.SIGTERM)


class TerminatedError(KeyboardInterrupt):
    """SIGTERM has arrived."""


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """In the block SIGTERM is raised as `TerminatedError`, as Ctrl-C is as KeyboardInterrupt; for
    programs, not for libraries.

    Gives a list that is not empty once SIGTERM has arrived: libraries may make a plain
    KeyboardInterrupt of the error.
    """
    arrived: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def unbroken(*, second_wins: bool = False) -> Iterator[None]:
    """Ctrl-C and SIGTERM that arrive in the block take effect at its end; a second one at
    once, if it is to win.

    Handlers are put back as they were, unless there was none and the block has set one. Signals
    reach the main thread only: in others there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        if second_wins and len(arrived) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, wait) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler) or signal.getsignal(number) is wait:
                signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
