"""Random bits of a cryptographic generator, as a source for numpy's samplers.

Numpy draws from any source that gives it a table of C functions (`bitgen_t`, numpy's documented way
to extend it). Here they take 64 bits at a time from the key stream of ChaCha20 (RFC 8439, by the
library `cryptography`). Single draws cost a call from C to Python; `random_raw` is as fast as the
cipher.
"""

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

_PIECE = 1 << 16  # bytes of the key stream that are made at once for single draws
_NAME = b"BitGenerator"
_Word = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_Half = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_Double = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


class _Functions(ctypes.Structure):
    """numpy/random/bitgen.h."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _Word),
        ("next_uint32", _Half),
        ("next_double", _Double),
        ("next_raw", _Word),
    )


_capsule: Any = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class ChaCha20:
    """The key stream of ChaCha20 under one key, for `numpy.random.Generator`.

    Attributes:
        capsule: of the C functions, as numpy takes it.
        lock: held by numpy while it draws.
    """

    def __init__(self, key: bytes) -> None:
        """Begin the stream of a key, from block 0 of nonce 0: a key is for one stream.

        Args:
            key: 32 secret bytes.
        """
        # A key is for one stream, so counter and nonce may begin at 0.
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._words = self._pieces()
        self.lock = threading.RLock()
        # Kept here: numpy holds only their address.
        self._functions = _Functions(
            None, _Word(self._word), _Half(self._half), _Double(self._double), _Word(self._word)
        )
        self.capsule = _capsule(ctypes.addressof(self._functions), _NAME, None)

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        """So many words of 64 bits at once."""
        with self.lock:
            # A stream cipher adds its key stream; to zeros, that is the key stream itself.
            stream = self._cipher.update(bytes(8 * size))
        # A bytearray, so that the words may be written to: kernels advance their state in place.
        return np.frombuffer(bytearray(stream), "<u8").astype(np.uint64, copy=False)

    def _pieces(self) -> Iterator[int]:
        while True:
            # From the same cipher as `random_raw`: no byte of it is ever given twice.
            yield from memoryview(self._cipher.update(bytes(_PIECE))).cast("Q")

    def _word(self, _: int | None) -> int:
        return next(self._words)

    def _half(self, _: int | None) -> int:
        return next(self._words) >> 32

    def _double(self, _: int | None) -> float:
        # 53 bits: every multiple of 2^-53 in [0, 1), as numpy makes doubles.
        return (next(self._words) >> 11) * 2.0**-53

    def __reduce__(self) -> Any:
        """Refused: a stream in two places would be drawn twice."""
        raise TypeError("a ChaCha20 stream stays where it is")
