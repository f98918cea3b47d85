"""The inner loops of the aggregate fidelity, in numpy, and compiled with numba (extra `fast`) where it is installed.

Sums of stochastically rounded values: floor(s) plus a Bernoulli of its fraction, s >= 0. Only 16 random bits decide a value:
with q = floor(2^16 s), phi the rest and r a random 16-bit integer, the rounded value is floor((q + r + [phi > u]) / 2^16) for a
uniform u, and u matters only if the low bits of q + r are all ones, once in 65,536 values. That is exact, where floor(s + u) in
floats is not. Both implementations have one law; their random bits differ, so a run names the one it used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import ParameterError

KERNELS = ("numpy", "compiled")
_BITS = 16
_LOW = (1 << _BITS) - 1
MAX_STEPS = (1 << (31 - _BITS)) - 2
"""Largest value that may be rounded here: q + r must fit 32 bits."""

_compiled: ContextVar[bool] = ContextVar("compiled", default=False)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def available(kernel: str | None, work: float) -> str:
    """The kernel to use: the one asked for, or by default the compiled one where it is installed and worth starting.

    Args:
        kernel: "numpy", "compiled" or None.
        work: values to be rounded in a round.

    Raises:
        ParameterError: unknown, or compiled asked for without numba.
    """
    installed = find_spec("numba") is not None
    if kernel is None:
        return "compiled" if installed and work >= 3e6 else "numpy"
    if kernel not in KERNELS:
        raise ParameterError("kernel", kernel, f"one of {', '.join(KERNELS)}")
    if kernel == "compiled" and not installed:
        raise ParameterError("kernel", kernel, "numpy: numba is not installed (pip install 'shuffle-sim[fast]')")
    return kernel


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Run the body with this kernel."""
    token = _compiled.set(kernel == "compiled")
    try:
        yield
    finally:
        _compiled.reset(token)


def margins_and_norms(rows: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """<row, theta> and ||row||^2 of every row, in one pass; rows (users, d) in Fortran order."""
    if _compiled.get() and rows.flags.f_contiguous:
        from shuffle_sim.compiled import margins_and_norms as compiled

        margins, norms = np.empty(len(rows)), np.empty(len(rows))
        compiled(rows.T, theta, margins, norms)
        return margins, norms
    columns = rows.T
    return theta @ columns, np.einsum("ij,ij->j", columns, columns)


def rounded_sum(columns: Floats, factors: Floats | None, scale: float, offset: float, rng: np.random.Generator) -> Ints:
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
    d, users = columns.shape
    multipliers = np.full(users, scale * (_LOW + 1)) if factors is None else factors * (scale * (_LOW + 1))
    start = offset * (_LOW + 1)
    ties = rng.random(64 + columns.size // 16_384)
    if _compiled.get() and columns.flags.c_contiguous:
        from shuffle_sim.compiled import fill
        from shuffle_sim.compiled import rounded_sum as compiled

        state = rng.bit_generator.random_raw(64).reshape(4, 16)
        words = np.empty((columns.size // 64 + 1, 16), np.uint64)
        fill(state, words)
        bits = words.view(np.uint16).reshape(-1)[: columns.size].reshape(d, users)
        sums = np.empty(d, np.int64)
        compiled(columns, multipliers, start, bits, ties, sums)
        return sums
    scaled = columns * multipliers
    scaled += start
    whole = scaled.astype(np.int32)
    raw = rng.bit_generator.random_raw(columns.size // 4 + 1)
    moved = whole + raw.view(np.uint16)[: columns.size].reshape(d, users)
    low = moved.astype(np.uint16)
    sums = moved.sum(axis=1, dtype=np.int64) - low.sum(axis=1, dtype=np.int64) >> _BITS
    tied = np.flatnonzero(low == _LOW)
    rest = scaled.ravel()[tied] - whole.ravel()[tied]
    up = np.resize(ties, tied.size) < rest  # enough were drawn, but with probability below 1e-12
    return np.asarray(sums + np.bincount(tied[up] // users, minlength=d))
