"""What an .npy array says of itself."""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

LARGEST_HEADER = 1 << 12
"""Bytes of the header of an .npy array."""
_MAGIC = {b"\x93NUMPY\1\0": 10, b"\x93NUMPY\2\0": 12}
"""How an .npy array of version 1 or 2 begins, and where its header's text does."""
_HEADER = re.compile(
    rb"\{\s*'descr':\s*'([<>|=]?[biufcSUMm]\d*(?:\[\w+\])?)',\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(([\d, ]*)\),?\s*\}\s*"
)


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
