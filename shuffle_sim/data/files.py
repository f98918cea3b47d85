"""The one door for bytes of files: limits on sizes, and errors that name the file.

Nothing is taken on trust: what a file says of its size is held against the size it has, before
memory is asked for. Tables, arrays and journals are read here and nowhere else; a test holds all
other modules to that.
"""

import errno
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import DataError, ParameterError

LARGEST_TABLE = 1 << 32
"""Bytes of a table in memory; larger data lie in files that shards read (`NpyFiles`)."""
LARGEST_COLUMNS = 1 << 14
"""Columns of a table."""
LARGEST_HEADER = 1 << 12
"""Bytes of the header of an .npy array."""
_MAGIC = {b"\x93NUMPY\1\0": 10, b"\x93NUMPY\2\0": 12}
"""How an .npy array of version 1 or 2 begins, and where its header's text does."""
_HEADER = re.compile(
    rb"\{\s*'descr':\s*'([<>|=]?[biufcSUMm]\d*(?:\[\w+\])?)',\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(([\d, ]*)\),?\s*\}\s*"
)
_LARGEST_STRING, _LARGEST_LIST = 1 << 24, 1 << 20  # in the description of a Parquet file
_CELL = re.compile(r"(got \d+|invalid value|Wrapping|string:).*")  # then comes a cell, or a row


def most_memory() -> int:
    """Bytes that one table may take: LARGEST_TABLE, or half of the machine's memory if less."""
    return min(LARGEST_TABLE, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


@contextmanager
def opened(
    path: Path, parameter: str = "file", most: int | None = None, *, follow: bool = True
) -> Iterator[BufferedReader]:
    """A plain file for reading: no folder, pipe or device, and no longer than `most` bytes.

    Unless `follow`, its name is no symbolic link.

    Raises:
        ParameterError: it is none, or cannot be read.
    """
    try:
        # A pipe would be waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        number = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        if not follow and getattr(error, "errno", None) == errno.ELOOP:
            reason = "it is a symbolic link"
        raise ParameterError(parameter, str(path), f"a file that can be read ({reason})") from error
    try:
        check_plain(number, path, parameter, most)
    except ParameterError:
        os.close(number)
        raise
    with os.fdopen(number, "rb") as stream:
        yield stream


def check_plain(number: int, path: Path, parameter: str, most: int | None = None) -> None:
    """Refuse an open file that is a folder, pipe or device, or longer than `most` bytes.

    Raises:
        ParameterError: it is one.
    """
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "pipe or device"
        raise ParameterError(parameter, str(path), f"a file, not a {kind}")
    if most is not None and status.st_size > most:
        allowed = f"a file of at most {most:,} bytes; it has {status.st_size:,}"
        raise ParameterError(parameter, str(path), allowed)


def read_whole(path: Path, parameter: str, most: int, *, follow: bool = True) -> bytes:
    """All bytes of a file.

    Raises:
        ParameterError: it is no plain file, longer than `most` bytes, or cannot be read.
    """
    with opened(path, parameter, most, follow=follow) as stream:
        return read_open(stream.fileno(), path, parameter, most)


def read_open(number: int, path: Path, parameter: str, most: int) -> bytes:
    """All bytes of a file that is open, such as one that is locked; its place is its beginning.

    Raises:
        ParameterError: as `read_whole`.
    """
    check_plain(number, path, parameter, most)
    try:
        with os.fdopen(number, "rb", closefd=False) as stream:
            # One byte more than allowed: the file may have grown since it was looked at.
            found = stream.read(most + 1)
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise ParameterError(parameter, str(path), allowed) from error
    if len(found) > most:
        raise ParameterError(parameter, str(path), f"a file of at most {most:,} bytes")
    return found


def check_name(parameter: str, path: str | Path) -> Path:
    """A path that may name a file or folder.

    Raises:
        ParameterError: it is empty, has a zero byte, or a name too long for a disk.
    """
    text = os.fspath(path)
    if not text or "\0" in text or any(len(os.fsencode(name)) > 255 for name in Path(text).parts):
        raise ParameterError(parameter, text, "a name of 1 to 255 bytes")
    return Path(text)


def read_csv(path: Path, *options: Any) -> Any:
    """A CSV file as an Arrow table.

    Args:
        path: the file.
        options: pyarrow's, of reading, parsing and converting.

    Raises:
        ParameterError: it cannot be read, or is larger than what is allowed.
        ValueError: it is no such table.
    """
    from pyarrow import csv

    with opened(path, most=most_memory()) as stream, arrow_errors():
        return csv.read_csv(stream, *options)


def read_parquet(path: Path) -> Any:
    """A Parquet file as an Arrow table.

    Raises:
        ParameterError: it cannot be read, or is larger than what is allowed.
        ValueError: it is no such table.
    """
    with parquet(path) as file, arrow_errors():
        described = file.metadata
        check_columns(described.num_columns)
        cells, most = described.num_rows * max(1, described.num_columns), most_memory()
        if described.num_rows < 0 or 8 * cells > most:
            raise ValueError(f"{cells:,} cells, at most {most // 8:,} fit")
        return file.read()


@contextmanager
def parquet(path: Path) -> Iterator[Any]:
    """A Parquet file whose description was read.

    Raises:
        ParameterError: it cannot be read.
        ValueError: it is none.
    """
    from pyarrow import parquet as format_

    with opened(path) as stream, arrow_errors():
        yield format_.ParquetFile(
            stream,
            thrift_string_size_limit=_LARGEST_STRING,
            thrift_container_size_limit=_LARGEST_LIST,
            page_checksum_verification=True,
        )


@contextmanager
def arrow_errors() -> Iterator[None]:
    """What pyarrow raises, as a ValueError of one line without the cells that it shows."""
    import pyarrow

    try:
        yield
    except ParameterError:
        raise
    except (pyarrow.ArrowException, OSError, KeyError, MemoryError, UnicodeError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(_CELL.sub(r"\1", line)) from None


def check_columns(columns: int) -> None:
    """Refuse more than LARGEST_COLUMNS.

    Raises:
        ValueError: there are more.
    """
    if columns > LARGEST_COLUMNS:
        raise ValueError(f"{columns:,} columns, at most {LARGEST_COLUMNS:,}")


@dataclass(frozen=True)
class ArrayHeader:
    """What an .npy array says of itself, held against the bytes that it has.

    Numpy evaluates such a header as a literal of Python, which may fail in many ways. A pattern
    takes what numpy writes of plain numbers and names, and nothing else.

    Attributes:
        dtype: of its elements; never of objects.
        shape: of it.
        order: of its elements, C or F.
        start: where they begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    start: int

    @classmethod
    def of(cls, head: bytes, size: int) -> Self:
        """That of an array of `size` bytes in all, which begins with `head`.

        Raises:
            ValueError: it is none, of objects, or not as long as it says.
        """
        first = _MAGIC.get(head[:8], len(head))
        # Two bytes of length in version 1, four in version 2: what stands up to `first`.
        start = first + int.from_bytes(head[8:first], "little")
        matched = _HEADER.fullmatch(head[first:start]) if start <= len(head) else None
        if matched is None:
            allowed = f"plain numbers or names in {LARGEST_HEADER:,} bytes at most"
            raise ValueError(f"it does not begin with the header of {allowed}")
        try:
            dtype = np.dtype(matched[1].decode())
            shape = tuple(int(each) for each in matched[3].split(b",") if each.strip())
        except (TypeError, ValueError) as error:
            raise ValueError("its header has no type or shape of an array") from error
        # Integers of Python: no shape is too large to be refused.
        if math.prod(shape) * dtype.itemsize != size - start or not dtype.itemsize:
            told = f"{math.prod(shape):,} elements of {dtype}"
            raise ValueError(f"{told} in {size - start:,} bytes")
        if len(shape) > 32:
            raise ValueError(f"{len(shape)} axes")
        return cls(dtype, shape, "F" if matched[2] == b"True" else "C", start)


class NpyRows:
    """The rows of an .npy file, which are read from it when they are asked for.

    It is not mapped into memory: where such a file is cut, the process would end.
    """

    def __init__(self, path: Path) -> None:
        """Read what the file says of itself.

        Raises:
            ParameterError: it is no whole .npy file.
        """
        self._path = path
        with opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            try:
                self._header = ArrayHeader.of(stream.read(LARGEST_HEADER), size)
            except ValueError as error:
                raise ParameterError("file", str(path), f"a whole .npy file ({error})") from error
        self.shape, self.dtype = self._header.shape, self._header.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows start, ..., stop - 1.

        Raises:
            DataError: they are not there any more.
        """
        (users, *rest), count = self.shape, stop - start
        width, order = math.prod(rest), self._header.order
        # Of an array in columns (F), each column has its own rows; else they lie side by side.
        pieces, size = (width, count) if order == "F" else (1, count * width)
        found = np.empty((pieces, size), self.dtype)
        try:
            with opened(self._path) as stream:
                for place, piece in enumerate(found):
                    first = place * users + start if order == "F" else start * width
                    stream.seek(self._header.start + first * self.dtype.itemsize)
                    # By reading, not by mapping: a cut file then gives fewer rows, not a signal.
                    read = np.fromfile(stream, self.dtype, size)
                    if len(read) < size:
                        raise DataError(f"{self._path} was cut: rows that it had are gone")
                    piece[...] = read
        except (ParameterError, OSError) as error:
            raise DataError(f"{self._path} cannot be read any more ({error})") from error
        return found.reshape(*rest[::-1], count).T if order == "F" else found.reshape(count, *rest)


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner reads, whole or not at all.

    Raises:
        OSError: the disk does not take it.
    """
    part = path.with_name(path.name + ".part")
    with suppress(FileNotFoundError):
        part.unlink()
    # O_EXCL: what somebody put there meanwhile, such as a link, is not written through.
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(number)
        # A rename is whole or nothing; who reads has the old file or the new one.
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
