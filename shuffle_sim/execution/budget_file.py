"""How a budget is written: whose it is, then its charges, each bound to all before it by SHA-256.

Beside the records the file says how long they are, after they are on the disk. So a record that a
death cut short lies beyond that length. Nothing was drawn on its strength, and it is taken off. A
file that somebody cut has fewer bytes than it says, and is refused.
"""

import errno
import fcntl
import os
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shuffle_sim.data.files import most_memory, read_open
from shuffle_sim.errors import CheckpointError, ParameterError
from shuffle_sim.execution.budget_book import FORMAT, Book, decoded
from shuffle_sim.execution.journal import Records, append, record
from shuffle_sim.wire.codec import encode

_MAGIC = b"sspbudg\n"
_LENGTH = struct.Struct(">8sQQ")  # magic, length of the file and its complement
_POLL = 0.05  # seconds between two attempts to lock


class BudgetFile:
    """The file; every look locks it, and opens it anew, as another may stand under its name."""

    def __init__(self, path: Path, wait: float) -> None:
        """Open nothing yet."""
        self.path, self._wait = path, wait

    def create(self, book: Book) -> None:
        """Write the beginning, whole or not at all, and never over another file.

        Raises:
            ParameterError: the file exists, or the disk does not take it.
        """
        written, _ = record(b"", encode(book.head))
        part = self.path.with_name(f".{secrets.token_hex(16)}.part")
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                append(number, _length(_LENGTH.size + len(written)) + written)
                # A link fails where a file has the name; a rename would put itself in its place.
                os.link(part, self.path)
            finally:
                os.close(number)
                part.unlink(missing_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(OSError):  # some file systems cannot
                os.fsync(folder)
            os.close(folder)
        except OSError as error:
            exists = isinstance(error, FileExistsError)
            raise self._bad(
                "a file that does not exist" if exists else f"written ({error.strerror})"
            ) from error

    @contextmanager
    def look(self) -> Iterator[Book]:
        """What it holds; nobody writes meanwhile.

        Raises:
            ParameterError: no budget, of another version, damaged, cut, or locked for too long.
        """
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as number:
            yield self._read(number)[0]

    @contextmanager
    def change(self) -> Iterator["Change"]:
        """What it holds, to be appended to; nobody else looks meanwhile.

        Raises:
            ParameterError: as `look`, or it cannot be written.
        """
        with self._locked(os.O_RDWR, fcntl.LOCK_EX) as number:
            yield Change(self.path, number, *self._read(number))

    @contextmanager
    def _locked(self, mode: int, kind: int) -> Iterator[int]:
        # O_NONBLOCK: a pipe under this name would be waited for.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        try:
            number = os.open(self.path, mode | flags)
        except OSError as error:
            why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            what = "read" if mode == os.O_RDONLY else "written"
            raise self._bad(f"a budget that can be {what} ({why})") from error
        try:
            end = time.monotonic() + self._wait
            while not self._taken(number, kind):
                if time.monotonic() > end:
                    raise self._bad(f"a budget that no other process holds for {self._wait:g} s")
                time.sleep(_POLL)
            # A file that was put in its place meanwhile would not know of this charge.
            if not self._is_here(number):
                raise self._bad("one file while it is locked: it was replaced; run it again")
            yield number
        finally:
            os.close(number)

    def _taken(self, number: int, kind: int) -> bool:
        """Whether the lock is ours now."""
        try:
            # Asked again and again: a wait in the kernel has no deadline.
            fcntl.flock(number, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._bad(f"a budget that can be locked ({error.strerror})") from error
        return True

    def _is_here(self, number: int) -> bool:
        """Whether the open file still has the budget's name."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(number), os.lstat(self.path))
        return False

    def _read(self, number: int) -> tuple[Book, bytes, int]:
        """What it holds, the hash of all records, and where the next one goes."""
        content = read_open(number, self.path, "budget", most_memory())
        magic, length, complement = (b"", 0, 0)
        if len(content) >= _LENGTH.size:
            magic, length, complement = _LENGTH.unpack_from(content)
        if magic != _MAGIC or length ^ complement != 2**64 - 1:
            raise self._bad("a file that Budget.create made, whole")
        # Only this side is damage: a longer file holds an append that a death cut off.
        if len(content) < length:
            left = f"{len(content):,} of {length:,} bytes are left"
            raise self._bad(f"whole: {left}; restore the file")
        bodies, records, known = list[bytes](), Records(content[_LENGTH.size :]), b""
        damage = ValueError("the last record")
        try:
            for body in records:
                bodies.append(body)
                known = records.hash
        except ValueError as error:  # beyond the length: a disk that lost its power in an append
            damage = error
        end = _LENGTH.size + records.position
        if end < length:
            raise self._damaged(damage) from damage
        return self._parsed(bodies), known, end

    def _parsed(self, bodies: list[bytes]) -> Book:
        try:
            head, *charges = [decoded(body) for body in bodies]
            if head[0] != FORMAT:
                raise self._bad(f"of format {FORMAT}; it is of format {head[0]!r:.20}")
            book = Book.of(head)
            for each in charges:
                book = book.after(each)
        except ParameterError:
            raise
        except (ValueError, TypeError, LookupError) as error:
            raise self._damaged(error) from error
        return book

    def _damaged(self, error: Exception) -> ParameterError:
        return self._bad(f"undamaged: {error} is not as it was written; restore the file")

    def _bad(self, allowed: str) -> ParameterError:
        return ParameterError("budget", str(self.path), allowed)


class Change:
    """A budget that is locked for writing.

    Attributes:
        book: what it holds.
    """

    def __init__(self, path: Path, number: int, book: Book, known: bytes, end: int) -> None:
        """Of an open file, whose records have this hash and end here."""
        self.book, self._path, self._number, self._hash, self._end = book, path, number, known, end

    def append(self, body: tuple[Any, ...]) -> None:
        """A record, then the length of the file; both are on the disk when this returns.

        Raises:
            CheckpointError: the disk does not take it.
        """
        written, self._hash = record(self._hash, encode(body))
        try:
            # What a death left beyond the length is no charge: nothing was drawn on it.
            os.ftruncate(self._number, self._end)
            append(self._number, written)
            self._end += len(written)
            # Last: until the length is on the disk the record is none.
            os.pwrite(self._number, _length(self._end), 0)
            os.fsync(self._number)
        except OSError as error:
            what = f"{self._path} does not take a charge: {error.strerror}"
            raise CheckpointError(f"{what}; what it holds stays charged") from error


def _length(length: int) -> bytes:
    return _LENGTH.pack(_MAGIC, length, length ^ (2**64 - 1))
