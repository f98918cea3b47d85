"""What a run tells aside: warnings, prints and logs, files that it writes, and texts of errors."""

import io
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.data.files import read_whole
from shuffle_sim.errors import ParameterError

Found = TypeVar("Found")
_SECRET = 0.7390851332151607  # of a row that is refused; its digits must not be told
_SHOWN = 6  # of those digits
_NUMBER = re.compile(r"(?<![A-Za-z_])\d")  # a digit that is not part of a name, such as log1p
_CACHED = "__pycache__", ".nbi", ".nbc"  # in names of what the interpreter and compilers write
_WRITTEN: list[list[str]] = []  # of each who listens: what was opened to be written
_HOOKED: list[bool] = []
_ROWS, _LOOKED_FOR = 16, 64  # rows, and numbers of them that are looked for
_FOUND = 8, 0.25  # of these numbers: so many, and such a part, are no chance
_DIGITS = 7  # of a number in a text
_HELD = 1e-30, 1e30  # what floats hold
_READ, _TEXT = 1 << 26, 1 << 20  # bytes of a file; of a text: in more, digits come by chance
_LOGGERS = "shuffle_sim", "protocols", "actors"


def _note(event: str, given: Any) -> None:
    if event == "os.putenv":  # other processes inherit it, and may show it
        for each in _WRITTEN:
            each.append(f"in the environment, {os.fsdecode(given[0])}")
    if not _WRITTEN or event != "open" or not isinstance(given[0], str):
        return
    path, mode, flags = given
    writes = set(mode or "") & {*"wax+"} or (flags or 0) & (os.O_WRONLY | os.O_RDWR)
    if writes and path != os.devnull and not any(each in path for each in _CACHED):
        for each in _WRITTEN:
            each.append(path)


@contextmanager
def _heard() -> Iterator[tuple[io.StringIO, list[Any], list[str]]]:
    """What is printed, warned of and written, from now on in this process."""
    if not _HOOKED:  # hooks stay for ever
        sys.addaudithook(_note)
        _HOOKED.append(True)
    said, written = io.StringIO(), list[str]()
    _WRITTEN.append(written)
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            redirect_stdout(said),
            redirect_stderr(said),
            logged(said),
        ):
            warnings.simplefilter("always")
            yield said, warned, written
    finally:
        _WRITTEN.remove(written)


@contextmanager
def logged(said: io.StringIO) -> Iterator[None]:
    """What this package logs is noted, at whatever level, from now on in this process."""
    handler = logging.StreamHandler(said)
    every = [logging.getLogger(name) for name in _LOGGERS]
    levels = [each.level for each in every]
    for each in every:
        each.addHandler(handler)
        each.setLevel(1)
    try:
        yield
    finally:
        for each, level in zip(every, levels, strict=True):
            each.removeHandler(handler)
            each.setLevel(level)


@contextmanager
def listened(told: list[str]) -> Iterator[None]:
    """Notes what is printed, and warned of, within.

    Raises:
        LawError: a file is written, or the environment.
    """
    with _heard() as (said, warned, written):
        yield
    if written:
        raise LawError(f"a run writes what nobody asked for: {written[0]}")
    told.append("\n".join([said.getvalue(), *(str(one.message) for one in warned if _tells(one))]))


def aside(run: Callable[[Any], Found], tables: Sequence[Any]) -> list[Found]:
    """Runs in this process on each table, that tell nothing of it aside.

    Raises:
        LawError: they print or warn of other things, or a file is written.
    """
    run(tables[0])  # what is imported and compiled once is
    found, told = list[Found](), list[str]()
    for each in tables:
        with listened(told):
            found.append(run(each))
    if len({*told}) > 1:
        raise LawError("what a run prints, or warns of, follows from rows")
    return found


def unkept(run: Callable[[Any], Found], tables: Sequence[Any]) -> list[Found]:
    """Runs in other processes on each table, that leave none of it in files where these lie.

    Raises:
        LawError: a new file has numbers of rows, as they are in memory or as texts.
    """
    before, found = set(_scattered()), [run(each) for each in tables]
    numbers = np.concatenate([np.ravel(row) for table in tables for row in table[:_ROWS]])
    known = np.unique(numbers.astype(np.float64))
    # Round numbers stand in other files, too, and so do those that no float holds.
    held_by = (np.abs(known) > _HELD[0]) & (np.abs(known) < _HELD[1])
    known = known[held_by & (known.astype(np.float32) != known)]
    known = known[[not f"{each:.9e}".split("e")[0].endswith("00") for each in known]]
    known = known[:_LOOKED_FOR]
    enough = max(_FOUND[0], _FOUND[1] * len(known))
    for path, _ in set(_scattered()) - before:
        with suppress(ParameterError):  # a file that is gone, or of others
            held = read_whole(path, "file", _READ)
            told = (any(one in held for one in _forms(each)) for each in known)
            if sum(told) >= enough or sum(_digits(each, held[:_TEXT]) for each in known) >= enough:
                raise LawError(f"a run leaves rows in a file: {path}")
    return found


def _forms(number: np.float64) -> tuple[bytes, bytes]:
    """How a number is in memory: as a double, and as a float."""
    return number.tobytes(), np.float32(number).tobytes()


def _digits(number: np.float64, text: bytes) -> bool:
    """Whether a text has the digits of a number."""
    digits = f"{abs(number):.16e}"[: _DIGITS + 1].encode()
    return digits in text or digits.replace(b".", b"") in text


def _scattered() -> Iterator[tuple[Path, int]]:
    """Files where processes that nobody looks after leave theirs, and when each was written."""
    for folder in {tempfile.gettempdir(), "/dev/shm", os.getcwd()}:
        for depth in ("*", "*/*"):
            for path in Path(folder).glob(depth):
                with suppress(OSError):  # others come and go
                    if path.is_file():
                        yield path, path.stat().st_mtime_ns


def _tells(warned: warnings.WarningMessage) -> bool:
    """Whether it is the run's own, or has numbers: those of libraries say only what went wrong."""
    return issubclass(warned.category, UserWarning) or bool(_NUMBER.search(str(warned.message)))


def check_errors(run: Callable[[Any], object], rows: Any) -> None:
    """Rows that are refused are not told: not what else one that is not finite holds, nor a label.

    Raises:
        LawError: an error shows their digits.
    """
    if rows.dtype.kind != "f" or rows.ndim < 2:
        return
    for bad in (0, -1):
        table = rows.copy()
        table[len(rows) // 3] = _SECRET if bad == 0 else table[len(rows) // 3]
        table[len(rows) // 3, ..., bad] = np.nan if bad == 0 else _SECRET
        try:
            run(table)
        except ParameterError as error:
            check_error(error, [_SECRET])


def check_error(error: Exception, numbers: Iterable[float]) -> None:
    """An error, with its notes and what it came from, shows none of these numbers' digits.

    Raises:
        LawError: it does.
    """
    told = [error, error.__cause__, error.__context__, getattr(error, "__notes__", "")]
    text = "".join(map(str, told))
    if any(digits in text for each in numbers if len(digits := f"{abs(each)}"[: _SHOWN + 2]) > 6):
        raise LawError("an error tells numbers of a row that is refused") from error
