"""The frames that cross between the roles, byte by byte.

A frame is a 4-byte big-endian length and that many bytes of msgpack: an array

    [version, kind, header (44 bytes), payload (bytes)]

with the header task (16 bytes), parameter hash (16), then round, index and reports as 4-byte
big-endian integers. `kind` is one of `Kind`; `index` is the user block (from users; of a report or
packet the user), the shard << 16 plus the place of the frame (from the shuffler) or 0; `reports` is
how many users' reports the payload carries, and in a frame of a view how many are in the whole
view. The parameter hash is taken of the round's broadcast, so a frame made for other parameters is
refused. Every field but the payload has a fixed length, so frames of equally many reports have
equal lengths. Everything read here is untrusted: length first, then one-shot msgpack with limits,
exact types, re-encode and compare.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgpack

from shuffle_sim.errors import FrameError

VERSION = 1
MAX_FRAME = 1 << 30  # bytes; a user block is kept far below (engine.default_block_size)
_SMALL = 1024  # bytes: whatever they unpack to is small, too
_HEADER = struct.Struct(">16s16sIII")


class Kind(IntEnum):
    """What a frame carries."""

    ROUND = 0  # analyzer -> all: the round's public specification
    REPORTS = 1  # users -> shuffler: packed reports of one size (literal)
    COUNTS = 2  # users -> shuffler: sums of symbols per user and label (counts)
    TALLY = 3  # users -> shuffler: sums of symbols per label over the block (aggregate)
    REPORT = 4  # inside a PACKET: one user's report
    VIEW = 5  # shuffler -> analyzer: permuted messages, label by label
    # shuffler -> analyzer: the tally of the view, where the messages themselves were not simulated
    VIEW_TALLY = 6
    ROUTED = 7  # shuffler shard -> shuffler shard: messages that go to a uniformly random shard
    # users -> shuffler: what a user that is not honest put on the wire, with the sender as the
    # transport knows it
    PACKET = 8
    SEALED = 9  # transport: any of the frames that roles send each other, signed and sealed
    BUNDLE = 10  # onion, users -> shuffler: one user's sealed messages, sealed together
    BOXES = 11  # onion, shuffler -> analyzer: permuted sealed messages, label by label


@dataclass(frozen=True)
class Context:
    """What a frame is bound to: the run, the round and the hash of the round's parameters."""

    task: bytes
    round: int
    parameters: bytes

    @classmethod
    def of_broadcast(cls, task: bytes, round_index: int, broadcast: bytes) -> "Context":
        """The context of all frames that answer a broadcast."""
        # 16 bytes: another broadcast of this hash takes 2^128 tries to find, two of one hash 2^64.
        return cls(task, round_index, hashlib.sha256(broadcast).digest()[:16])


@dataclass(frozen=True)
class Frame:
    """One frame, decoded."""

    kind: Kind
    context: Context
    index: int
    reports: int
    payload: bytes

    def tobytes(self) -> bytes:
        """The frame with its length in front."""
        return (
            prefix(self.kind, self.context, self.index, self.reports, len(self.payload))
            + self.payload
        )


def prefix(kind: Kind, context: Context, index: int, reports: int, payload_bytes: int) -> bytes:
    """The frame up to its payload, which ends it.

    So a large payload need not be copied to be framed or compared.
    """
    header = _HEADER.pack(context.task, context.parameters, context.round, index, reports)
    # Without the empty payload, which takes two bytes.
    start: bytes = msgpack.packb([VERSION, int(kind), header, b""])[:-2]
    heads = (0xC4, ">BB", 0xFF), (0xC5, ">BH", 0xFFFF), (0xC6, ">BI", 0xFFFFFFFF)
    for code, form, largest in heads:
        if payload_bytes <= largest:
            start += struct.pack(form, code, payload_bytes)
            break
    return (len(start) + payload_bytes).to_bytes(4, "big") + start


def frame_bytes(payload_bytes: int) -> int:
    """Length of a frame by formula.

    4 (length) + 1 (array) + 1 (version) + 1 (kind) + 2 + 44 (header) + payload with its head.
    """
    head = 2 if payload_bytes <= 0xFF else 3 if payload_bytes <= 0xFFFF else 5
    return 53 + head + payload_bytes


def split_frames(batch: bytes, limit: int = MAX_FRAME) -> Iterator[memoryview]:
    """The frames of a batch, each with its length prefix.

    Nothing is allocated before the length is known to fit.

    Raises:
        FrameError: `truncated` or `oversized`; what follows a broken length cannot be told apart
            any more.
    """
    view, position = memoryview(batch), 0
    while position < len(view):
        if position + 4 > len(view):
            raise FrameError("truncated", "a length prefix is cut off")
        size = int.from_bytes(view[position : position + 4], "big")
        if size > limit:
            raise FrameError("oversized", f"a frame of {size} bytes, at most {limit}")
        if position + 4 + size > len(view):
            raise FrameError("truncated", f"a frame of {size} bytes has {len(view) - position - 4}")
        yield view[position : position + 4 + size]
        position += 4 + size


def parse(data: bytes | memoryview, limit: int = MAX_FRAME) -> Frame:
    """Decode one frame strictly.

    Raises:
        FrameError: with the reason under which the drop is counted.
    """
    if len(data) - 4 > limit:
        raise FrameError("oversized", f"{len(data) - 4} bytes, at most {limit}")
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(data) - 4:
        raise FrameError("truncated", "the length prefix does not fit the frame")
    # A small one may be unpacked: what comes of it is small, too.
    if len(data) > _SMALL and not _shaped(data):
        raise FrameError("malformed", "not two small integers, a header and bytes")
    try:
        fields = msgpack.unpackb(
            data[4:],
            max_array_len=4,
            max_map_len=0,
            max_str_len=0,
            max_ext_len=0,
            max_bin_len=limit,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError("malformed", "not a msgpack array of the limits") from error
    # Exact types: True is an int, and would pass for version 1.
    if type(fields) is not list or list(map(type, fields)) != [int, int, bytes, bytes]:
        raise FrameError("malformed", "wrong fields or types")
    version, kind, header, payload = fields
    if version != VERSION:
        raise FrameError("wrong-version", f"version {version}, this is {VERSION}")
    if kind not in Kind._value2member_map_ or len(header) != _HEADER.size:
        raise FrameError("malformed", "unknown kind, or a header of the wrong length")
    task, parameters, round_index, index, reports = _HEADER.unpack(header)
    frame = Frame(Kind(kind), Context(task, round_index, parameters), index, reports, payload)
    # msgpack has longer heads for the same length: a frame that is sent twice has one form.
    # The payload is the frame's end as it is.
    start = prefix(frame.kind, frame.context, index, reports, len(payload))
    if len(start) + len(payload) != len(data) or bytes(data[: len(start)]) != start:
        raise FrameError("non-canonical", "re-encoding gives other bytes")
    return frame


def _shaped(data: bytes | memoryview) -> bool:
    """Whether the bytes open as a frame does; then unpacking makes four objects, no more.

    Nested arrays, a byte each, would become seventy times as large.
    """
    return (
        # Four fields; two integers of a byte; a header of 44 bytes; then the payload.
        data[4] == 0x94
        and max(data[5], data[6]) < 0x80
        and data[7:9] == b"\xc4\x2c"
        and 0xC4 <= data[53] <= 0xC6
    )


def claimed_place(data: memoryview) -> tuple[int, int]:
    """The kind and the index that a frame claims, before it is parsed; anything where it is none.

    Its fields have fixed places.
    """
    # The header begins at byte 9; task and hash (16 each) and round (4) stand before the index.
    return int.from_bytes(data[6:7], "big"), int.from_bytes(data[45:49], "big")


def check_context(frame: Frame, expected: Context) -> None:
    """Refuse a frame made for another run, round or set of parameters.

    Raises:
        FrameError: `wrong-task`, `wrong-round` or `wrong-parameters`.
    """
    # One comparison for all that fit: nearly every frame does.
    for name in ("task", "round", "parameters") if frame.context != expected else ():
        if getattr(frame.context, name) != getattr(expected, name):
            raise FrameError(f"wrong-{name}")
