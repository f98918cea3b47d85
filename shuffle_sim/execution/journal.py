"""How a journal is written: a list of records, each bound to all before it by SHA-256."""

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from shuffle_sim.data.files import most_memory, read_whole
from shuffle_sim.execution.closing import Closing
from shuffle_sim.execution.identity import RunIdentity
from shuffle_sim.wire.codec import decode
from shuffle_sim.wire.messages import Tally

FILE = "run.journal"
_SIZE = struct.Struct(
    ">II"
)  # length of the record and its complement: a damaged length is not taken for a cut record
_HASH = hashlib.sha256().digest_size

Charge = tuple[tuple[str, bytes], ...]
"""What is charged, by name: equal bytes are the same release."""
Outcome = tuple[Any, ...]
"""What came of a release, in values that `wire.codec` can write."""


class Journal(Closing):
    """The journal of a run that keeps nothing; a context manager.

    Attributes:
        task: of the run that was started.
        entropy: of the run that was started.
    """

    def __init__(self, identity: RunIdentity) -> None:
        """Take the run as it is."""
        self.task, self.entropy = identity.task, identity.entropy

    def charge(self, charge: Charge) -> Outcome | None:
        """From now on a release counts as spent; what came of it, if it is over already."""
        return None

    def settle(self, outcome: Outcome) -> None:
        """What came of the release that was charged last."""

    def close(self) -> None:
        """Let go of the files."""


def record(before: bytes, body: bytes) -> tuple[bytes, bytes]:
    """A record after those of a hash, and the hash of all."""
    digest = hashlib.sha256(before + body).digest()
    return _SIZE.pack(len(body), len(body) ^ 0xFFFFFFFF) + digest + body, digest


def append(number: int, written: bytes) -> None:
    """Bytes at the end of an open file, and on the disk; or none of them.

    Raises:
        OSError: the disk does not take them.
    """
    end = os.lseek(number, 0, os.SEEK_END)
    try:
        while written:
            written = written[os.write(number, written) :]
        os.fsync(number)
    except OSError:
        with suppress(OSError):
            # Half a record would make all that is appended after it unreadable.
            os.ftruncate(number, end)
        raise


class Records:
    """The records of a file, read and checked in turn.

    Attributes:
        hash: of the records so far.
        position: where the next begins; after the last, where what is whole ends.
    """

    def __init__(self, content: bytes) -> None:
        """Begin before the first."""
        self._data, self.hash, self.position = memoryview(content), b"", 0

    def __iter__(self) -> Iterator[bytes]:
        """The bodies; a record that was cut short at the end is none.

        Raises:
            ValueError: one that is not as it was written; it says which.
        """
        data = self._data
        while self.position < len(data):
            start = self.position + _SIZE.size + _HASH
            size, complement = (
                _SIZE.unpack_from(data, self.position)
                if self.position + _SIZE.size <= len(data)
                # A head that was cut: as a record of no bytes it ends beyond the file, and is none.
                else (0, 0xFFFFFFFF)
            )
            if size ^ complement != 0xFFFFFFFF:
                raise ValueError(f"the length of the record at byte {self.position}")
            if start + size > len(data):
                return
            body = bytes(data[start : start + size])
            self.hash = hashlib.sha256(self.hash + body).digest()
            if self.hash != data[self.position + _SIZE.size : start]:
                raise ValueError(f"the record at byte {self.position}")
            yield body
            self.position = start + size


def charged_broadcasts(folder: Path, size: int = 0) -> tuple[int, list[bytes]]:
    """What a journal says from outside: its size, and the SHA-256 of every broadcast charged.

    Args:
        folder: of the checkpoint.
        size: of the journal when it was looked at last; if it is the same, nothing is read.
    """
    path = folder / FILE
    if not path.exists() or path.stat().st_size == size:
        return size, []
    data = read_whole(path, "checkpoint", most_memory(), follow=False)
    # The beginning, then charge and outcome in turn.
    charges = list(Records(data))[1::2]
    return len(data), [dict(decode(body, (Tally,)))["broadcast"] for body in charges]
