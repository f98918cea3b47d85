"""Archives of arrays, as numpy writes them: .npz files, through the door for bytes of files."""

import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.data.files import (
    LARGEST_COLUMNS,
    LARGEST_HEADER,
    LARGEST_TABLE,
    ArrayHeader,
    most_memory,
    opened,
)

_LARGEST_RATIO, _SMALL = 200, 1 << 28  # beyond both a packed array is a bomb
_LARGEST_DIRECTORY = 1 << 22  # bytes of an archive's list of members
_END = struct.Struct("<4s4H2LH")  # the end of a zip archive
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OverflowError,
    IndexError,
    UnicodeError,
    RuntimeError,
)
"""What zipfile raises of bytes that are no archive. A RuntimeError tells of encryption, or, as its
subclass for what is not implemented, of a compression that zipfile does not know.
"""


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name.

    Raises:
        ParameterError: it cannot be read.
        ValueError: it is no such file, holds anything else, or is larger than what is allowed.
    """
    most = most_memory()
    with opened(path, most=LARGEST_TABLE) as stream:
        _check_directory(stream)
        try:
            with zipfile.ZipFile(stream) as archive:
                return {
                    info.filename.removesuffix(".npy"): _member(archive, info)
                    for info in _members(archive, most)
                }
        except _BROKEN as error:
            raise ValueError(f"a broken archive ({error})") from error


def _check_directory(stream: IO[bytes]) -> None:
    """Refuse an archive whose list of members is long, before it is read."""
    size = stream.seek(0, os.SEEK_END)
    # 20 bytes before the end may stand the mark of a zip64 archive: larger than all allowed here.
    tail = min(size, _END.size + 20)
    stream.seek(size - tail)
    end = stream.read(tail)
    if len(end) < _END.size or end[-_END.size :][:4] != b"PK\5\6":
        raise ValueError("not an npz archive")  # numpy's have no comment
    *_, members, length, _, comment = _END.unpack(end[-_END.size :])
    if end[: -_END.size][:4] == b"PK\6\7" or members > LARGEST_COLUMNS or comment:
        raise ValueError(f"more than {LARGEST_COLUMNS:,} arrays")
    if length > _LARGEST_DIRECTORY:
        raise ValueError(f"a list of arrays of {length:,} bytes")
    stream.seek(0)


def _members(archive: zipfile.ZipFile, most: int) -> list[zipfile.ZipInfo]:
    """All members, none of which is anything but an array, and not too large together."""
    found = archive.infolist()
    if len(found) > LARGEST_COLUMNS:
        raise ValueError(f"more than {LARGEST_COLUMNS:,} arrays")
    for info in found:
        if not info.filename.endswith(".npy"):
            raise ValueError("holds files that are not arrays")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"array {info.filename!r:.80} is packed in a way that numpy has not")
    if len({info.filename for info in found}) != len(found):
        raise ValueError("two arrays of one name")
    # What the list says: `_member` reads no more than that of each.
    unpacked = sum(info.file_size for info in found)
    packed = sum(info.compress_size for info in found)
    if unpacked > most:
        raise ValueError(f"arrays of {unpacked:,} bytes, at most {most:,} fit")
    if unpacked > max(_SMALL, _LARGEST_RATIO * packed):
        raise ValueError(f"{unpacked:,} bytes packed into {packed:,}: a bomb")
    return found


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    try:
        if info.file_size > 1032 * info.compress_size + 1024:  # what deflate can do at most
            raise ValueError("larger than what it is packed in can hold")
        with archive.open(info) as stream:
            data = stream.read(info.file_size)
        header = ArrayHeader.of(data[:LARGEST_HEADER], len(data))
    except ValueError as error:
        name = info.filename.removesuffix(".npy")
        raise ValueError(f"array {name!r:.80} holds objects or is broken ({error})") from error
    found = np.frombuffer(data, header.dtype, offset=header.start)
    return found.reshape(header.shape, order=header.order)
