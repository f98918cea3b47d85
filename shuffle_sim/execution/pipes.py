"""What processes of one machine send each other: calls and what they give, over a pair of sockets.

A message is a list of parts, each a value by itself, so that whoever only hands one on never reads
it. Small values are pickled into the message. Large bytes are in memory without a name (`memfd`),
and only its descriptor is sent: the last process that closes it gives the memory back.
"""

import ctypes
import gc
import os
import pickle
import signal
import socket
import struct
import traceback
from collections.abc import Sequence
from typing import Any

from shuffle_sim.errors import ParameterError, ShuffleSimError

LARGE = 1 << 16
"""Bytes from which on they are not copied through whoever hands them on."""
MOST_BLOBS = 250
"""Descriptors that one message may carry; Linux takes 253."""
_COUNT, _LENGTH = struct.Struct("<I"), struct.Struct("<q")
_DEATH = 1  # PR_SET_PDEATHSIG
STOPS = (signal.SIGINT, signal.SIGTERM)


class Blob:
    """Bytes in memory without a name."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        """Own the descriptor."""
        self.descriptor = descriptor

    @classmethod
    def of(cls, data: bytes) -> "Blob":
        """A copy of the bytes."""
        blob = cls(os.memfd_create("shuffle-sim"))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(blob.descriptor, rest) :]
        return blob

    def read(self) -> bytes:
        """All of them; readers share no place in it."""
        size, found = os.fstat(self.descriptor).st_size, list[bytes]()
        while (start := sum(map(len, found))) < size:
            found.append(os.pread(self.descriptor, size - start, start))
        return found[0] if len(found) == 1 else b"".join(found)

    def __del__(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)


Part = bytes | Blob


def packed(value: Any) -> Part:
    """A value as it is sent.

    Raises:
        ParameterError: it cannot be pickled.
    """
    if type(value) is bytes and len(value) >= LARGE:
        return Blob.of(value)
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        allowed = f"another where what roles exchange cannot be pickled ({error})"
        raise ParameterError("runtime", "processes", allowed) from error


def unpacked(part: Part) -> Any:
    """The value of a part."""
    return part.read() if isinstance(part, Blob) else pickle.loads(part)


def send(channel: socket.socket, parts: Sequence[Part]) -> None:
    """Send a message; the other end reads."""
    blobs = [each.descriptor for each in parts if isinstance(each, Blob)]
    lengths = [_LENGTH.pack(-1 if isinstance(each, Blob) else len(each)) for each in parts]
    inline = [each for each in parts if isinstance(each, bytes)]
    message = memoryview(b"".join([_COUNT.pack(len(parts)), *lengths, *inline]))
    if blobs:
        # Descriptors go with the first bytes; what the call did not take follows.
        message = message[socket.send_fds(channel, [message], blobs) :]
    channel.sendall(message)


def receive(channel: socket.socket) -> list[Part]:
    """A message, which is the only one on its way.

    Raises:
        EOFError: the other end is closed.
        OSError: it is gone in another way, or late.
    """
    data, descriptors, *_ = socket.recv_fds(
        channel, LARGE, MOST_BLOBS, flags=socket.MSG_CMSG_CLOEXEC
    )
    blobs = iter([Blob(each) for each in descriptors])
    read = bytearray(data)
    _fill(channel, read, _COUNT.size)
    (count,) = _COUNT.unpack_from(read)
    start = _COUNT.size + count * _LENGTH.size
    _fill(channel, read, start)
    lengths = [_LENGTH.unpack_from(read, at)[0] for at in range(_COUNT.size, start, _LENGTH.size)]
    _fill(channel, read, start + sum(max(0, each) for each in lengths))
    parts: list[Part] = []
    for length in lengths:
        parts.append(next(blobs) if length < 0 else bytes(read[start : start + length]))
        start += max(0, length)
    return parts


def _fill(channel: socket.socket, read: bytearray, size: int) -> None:
    while len(read) < size:
        data = channel.recv(size - len(read))
        if not data:
            raise EOFError
        read += data


def serve(
    channel: socket.socket,
    inherited: Sequence[socket.socket],
    parent: int,
    role: type,
    arguments: tuple[Any, ...],
) -> None:
    """Host a role in this process, until the other end of the channel is closed.

    Args:
        channel: on which calls come.
        inherited: ends of other channels, which a fork has copied.
        parent: with which this process ends.
        role: to be built here; an error is kept for the calls.
        arguments: of the role.
    """
    # Ctrl-C goes to all processes of a terminal; the parent says when it is over.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    ctypes.CDLL(None).prctl(_DEATH, signal.SIGKILL)
    # It may have died before `prctl`: then no signal comes, and nobody would end this process.
    if os.getppid() != parent:
        return
    for each in inherited:
        each.close()
    gc.freeze()  # what was inherited is not looked at again, so its pages stay shared
    hosted = _Hosted(role, arguments)
    # The role has what it needs of them: rows that it lets go of are gone.
    del arguments
    while True:
        try:
            send(channel, hosted.answer(receive(channel)))
        except (EOFError, OSError):
            return


class _Hosted:
    """A role, or the error that its building raised."""

    def __init__(self, role: type, arguments: tuple[Any, ...]) -> None:
        self._error: ShuffleSimError | None = None
        try:
            self._role = role(*arguments)
        except ShuffleSimError as error:
            self._error = error

    def answer(self, parts: list[Part]) -> list[Part]:
        """What a call gives: a word, and the values or the error."""
        try:
            if self._error is not None:
                raise self._error
            method, alone, returns = unpacked(parts[0])
            given = [unpacked(each) for each in parts[1:]]
            together = [given[alone:]] if len(given) > alone else []
            value = getattr(self._role, method)(*given[:alone], *together)
            return [b"given", *map(packed, [value] if returns == 1 else value)]
        except Exception as error:
            if not isinstance(error, ShuffleSimError):
                error.add_note(traceback.format_exc())
            return [b"raised", _kept(error)]


def _kept(error: Exception) -> bytes:
    """An error as it is sent; one that does not survive that, in words."""
    try:
        sent = pickle.dumps(error)
        pickle.loads(sent)
    except Exception:
        return pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))
    return sent
