"""The inner loops of rounding, in numpy or compiled with numba (extra `fast`).

Sums of stochastically rounded values: floor(s) plus a Bernoulli of its fraction, s >= 0. Only 16
random bits decide a value: with q = floor(2^16 s), phi the rest and r a random 16-bit integer, the
rounded value is floor((q + r + [phi > u]) / 2^16) for a uniform u, and u matters only if the low
bits of q + r are all ones, once in 65,536 values. That is exact, where floor(s + u) in floats is
not. Both implementations have one law; their random bits differ, so a run names the one it used.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError

KERNELS = ("numpy", "compiled")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_BITS = 16
_LOW = (1 << _BITS) - 1
MAX_STEPS = (1 << (31 - _BITS)) - 2
"""Largest value that may be rounded here: q + r must fit 32 bits."""

_compiled: ContextVar[bool] = ContextVar("compiled", default=False)
_expected: ContextVar[NDArray[np.float64] | None] = ContextVar("expected", default=None)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def available(kernel: str | None, work: float) -> str:
    """The kernel to use: the one asked for, or compiled where installed and worth starting.

    Args:
        kernel: "numpy", "compiled" or None.
        work: values to be read or rounded in a round, by public numbers alone.

    Raises:
        ParameterError: unknown, or compiled asked for without numba.
    """
    installed = find_spec("numba") is not None
    if kernel is None:
        return "compiled" if installed and work >= 3e6 else "numpy"
    if kernel not in KERNELS:
        raise ParameterError("kernel", kernel, f"one of {', '.join(KERNELS)}")
    if kernel == "compiled" and not installed:
        raise ParameterError(
            "kernel", kernel, "numpy: numba is not installed (pip install 'shuffle-sim[fast]')"
        )
    return kernel


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Run the body with this kernel."""
    token = _compiled.set(kernel == "compiled")
    try:
        yield
    finally:
        _compiled.reset(token)


def with_kernel(method: _Method) -> _Method:
    """A role's method, run with the kernel of its deployment."""

    @wraps(method)
    def run(role: Any, *given: Any) -> Any:
        with using(role._deployment.kernel):
            return method(role, *given)

    return cast(_Method, run)


def compiling() -> bool:
    """Whether the compiled kernel is in use."""
    return _compiled.get()


def expect(rows: Floats | None) -> None:
    """Say which rows, in Fortran order, are read next.

    The compiled kernel may fetch them from memory beforehand.
    """
    _expected.set(rows)


def ahead() -> Floats:
    """The rows that are read next, flat, for a compiled kernel to fetch; or nothing."""
    expected = _expected.get()
    return np.empty(0) if expected is None else expected.T.reshape(-1)


def margins_and_norms(rows: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """<row, theta> and ||row||^2 of every row, in one pass; rows (users, d) in Fortran order."""
    if compiling() and rows.flags.f_contiguous:
        from shuffle_sim.sampling.compiled import margins_and_norms as compiled

        margins, norms = np.empty(len(rows)), np.empty(len(rows))
        compiled(rows.T, theta, margins, norms)
        return margins, norms
    columns = rows.T
    return theta @ columns, np.einsum("ij,ij->j", columns, columns)


def fortran(rows: NDArray[Any]) -> Floats:
    """The rows as doubles in Fortran order: columns are contiguous. Ragged persons stay as is."""
    return arranged(rows)[0]


def arranged(rows: NDArray[Any], room: Floats | None = None) -> tuple[Floats, Floats | None]:
    """The rows in Fortran order, and their squared norms where they come with it.

    room: memory (as many values, at least) that a copy may take; fresh pages cost more than it.
    """
    if rows.dtype == object:
        return rows, None
    if compiling() and rows.ndim == 2 and rows.dtype == np.float64 and rows.flags.c_contiguous:
        from shuffle_sim.sampling.compiled_rows import columns_of

        out = (np.empty(rows.size) if room is None else room[: rows.size]).reshape(rows.shape[::-1])
        squares = np.empty(len(rows))
        columns_of(rows, out, squares)
        return out.T, squares
    return np.asfortranarray(rows, np.float64), None


def squared_norms(rows: Floats) -> Floats:
    """||row||^2 of every row (users, d); infinite where a square overflows."""
    if compiling() and rows.flags.f_contiguous:
        from shuffle_sim.sampling.compiled_rows import squared_norms as compiled

        squares = np.empty(len(rows))
        compiled(rows.T, squares)
        return squares
    with np.errstate(over="ignore"):
        return np.asarray(np.einsum("ij,ij->i", rows, rows))


def shorten(squares: Floats, bound: float, factors: Floats) -> int:
    """Multiply the factors of vectors outside the l2 ball, so that they are on it; how many.

    squares: the vectors' squared norms, finite. Longer by less than rounding shows is inside.
    """
    if compiling():
        from shuffle_sim.sampling.compiled_rows import shorten as compiled

        return int(compiled(squares, bound, factors))
    long = np.flatnonzero(squares > bound**2 * (1 + 1e-12))  # mostly few
    factors[long] *= bound / np.sqrt(squares[long])
    return long.size


def rounded_sum(
    columns: Floats, factors: Floats | None, scale: float, offset: float, rng: np.random.Generator
) -> Ints:
    """Sums over users of the stochastically rounded scale * factor * value + offset.

    Args:
        columns: values, (d, users), contiguous.
        factors: one per user, or None for ones.
        scale: steps per unit.
        offset: added to every scaled value; all must lie in [0, 2 offset or so], below MAX_STEPS.
        rng: the users' stream.

    Returns:
        int64 (d,).
    """
    if not (compiling() and columns.flags.c_contiguous):
        moved, ups = _moved(columns, factors, scale, offset, rng)
        moved >>= _BITS
        # Sums that fit the values' own type are the fastest.
        narrow = (MAX_STEPS + 2) * columns.shape[1] < 2**31
        sums = moved.sum(axis=1, dtype=np.int32 if narrow else np.int64)
        return np.asarray(sums + np.bincount(ups // columns.shape[1], minlength=len(columns)))
    from shuffle_sim.sampling.compiled import rounded_sum as compiled

    sums = np.empty(len(columns), np.int64)
    compiled(
        columns,
        multipliers(columns, factors, scale),
        offset * (_LOW + 1),
        ahead(),
        *_random(columns.size, rng),
        sums,
    )
    return sums


def _random(
    size: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Floats]:
    """What a compiled rounding needs: a generator's state, room for words, uniforms for ties."""
    # A tie is one in 65,536: four times as many uniforms and 64. More ties (chance below e^-149)
    # would take some again.
    return *lanes(rng), rng.random(64 + size // 16_384)


def lanes(rng: np.random.Generator) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """State of sixteen generators of a compiled kernel, and room for their words."""
    # All 256 bits of each state are random words, so no generator needs warming up.
    return rng.bit_generator.random_raw(64).reshape(4, 16), np.empty((64, 16), np.uint64)


class _Kept(threading.local):
    """Scratch memory of this thread: runs in other threads have their own."""

    def __init__(self) -> None:
        # np.empty itself, remembered: the same shape gets the same memory.
        self.array = lru_cache(maxsize=16)(np.empty)


_kept = _Kept()


def scratch(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Memory for intermediate values, kept: fresh pages would cost as much as filling them.

    Nothing of it is given out.
    """
    array: NDArray[Any] = _kept.array(shape, dtype)
    return array


def rounded_values(
    columns: Floats, factors: Floats | None, scale: float, offset: float, rng: np.random.Generator
) -> NDArray[np.uint16]:
    """The stochastically rounded values themselves, uint16 (d, users).

    The arguments are those of `rounded_sum`.
    """
    if compiling() and columns.flags.c_contiguous:
        from shuffle_sim.sampling.compiled import rounded_values as compiled

        values = np.empty(columns.shape, np.uint16)
        compiled(
            columns,
            multipliers(columns, factors, scale),
            offset * (_LOW + 1),
            *_random(columns.size, rng),
            values,
        )
        return values
    moved, ups = _moved(columns, factors, scale, offset, rng)
    moved >>= _BITS
    moved.reshape(-1)[ups] += 1
    return moved.astype(np.uint16)


def multipliers(columns: Floats, factors: Floats | None, scale: float) -> Floats:
    """Of each user's values, to steps of 2^-16."""
    step = scale * (_LOW + 1)
    return np.full(columns.shape[1], step) if factors is None else factors * step


def _moved(
    columns: Floats, factors: Floats | None, scale: float, offset: float, rng: np.random.Generator
) -> tuple[NDArray[np.int32], Ints]:
    """q + r, and the flat places of the tied values that go up all the same.

    The memory is used again.
    """
    shape = columns.shape
    scaled, moved, low = (
        scratch(shape, np.float64),
        scratch(shape, np.int32),
        scratch(shape, np.uint16),
    )
    np.multiply(columns, multipliers(columns, factors, scale), out=scaled)
    scaled += offset * (_LOW + 1)
    # Casting cuts off towards zero, which is the floor: nothing is below 0.
    np.copyto(moved, scaled, casting="unsafe")
    raw = (
        rng.bit_generator.random_raw(columns.size // 4 + 1)
        .view(np.uint16)[: columns.size]
        .reshape(shape)
    )
    moved += raw
    np.copyto(low, moved, casting="unsafe")
    tied = np.flatnonzero(np.equal(low, _LOW, out=scratch(shape, np.bool_)))
    # q again: only q + r was kept.
    whole = moved.reshape(-1)[tied] - raw.reshape(-1)[tied].astype(np.int32)
    up = rng.random(tied.size) < scaled.reshape(-1)[tied] - whole
    return moved, tied[up]


def half_binomial(b: int, size: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.integer]:
    """Independent draws of Bin(b, 1/2): the number of ones among b random bits."""
    total: NDArray[np.integer] = np.zeros(size, np.uint8 if b < 256 else np.int64)
    for used in [64] * (b // 64) + [b % 64] * (b % 64 > 0):
        width = next(bits for bits in (8, 16, 32, 64) if used <= bits)
        raw = rng.bit_generator.random_raw(total.size * width // 64 + 1).view(f"u{width // 8}")
        # The shift drops what is not used of a word of 8, 16, 32 or 64 bits.
        total += np.bitwise_count(raw[: total.size] >> (width - used)).reshape(size)
    return total


def column_sums(rows: NDArray[np.integer]) -> tuple[Ints, NDArray[np.integer]]:
    """Sums and largest values of the columns of narrow integers, none below 0.

    In numpy many rows are added as one long one.
    """
    if compiling() and rows.itemsize <= 2:
        from shuffle_sim.sampling.compiled import column_sums as compiled

        sums, most = np.zeros(rows.shape[1], np.int64), np.zeros(rows.shape[1], rows.dtype)
        compiled(rows, np.empty(rows.shape[1], np.uint32), sums, most)
        return sums, most
    together = 256
    whole = len(rows) // together * together
    long = rows[:whole].reshape(-1, together * rows.shape[1]).sum(axis=0, dtype=np.int64)
    sums = long.reshape(together, rows.shape[1]).sum(axis=0)
    sums += rows[whole:].sum(axis=0, dtype=np.int64)
    return sums, rows.max(axis=0, initial=0)
