"""Statistical checks of draws, and the error that all of them raise.

Every check states its false-alarm rate: the probability to fail although the claim is true. Whoever
uses one should also show that it catches a planted defect (a power control), or it may be a test
that cannot fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import ArrayLike, NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.evidence import against_each_other, against_law

FALSE_ALARM = 1e-6
_LEAST = 10.0  # draws that a cell expects


class LawError(AssertionError):
    """A statistical check failed."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """A `LawError` of the block says what it is of."""
    try:
        yield
    except LawError as error:
        raise LawError(f"{what}: {error}") from error


def check_pmf(draws: ArrayLike, pmf: Floats, *, false_alarm: float = FALSE_ALARM) -> None:
    """Draws of 0, 1, ... against a probability mass function, in cells that expect 10 or more.

    The bound holds for every number of draws (`evidence`).

    Raises:
        LawError: if the law differs; by chance with probability `false_alarm` at most.
    """
    values, law = np.asarray(draws, np.int64).ravel(), np.asarray(pmf, float)
    if values.size and (
        values.min() < 0 or values.max() >= len(law) or (law[np.unique(values)] == 0).any()
    ):
        raise LawError("a draw has probability 0")
    if abs(law.sum() - 1) > 1e-6:
        raise ValueError(f"probabilities add up to {law.sum():.9g}, not to 1")
    cells = _cells(law * values.size)
    observed, weights = _sums(np.bincount(values, minlength=len(law)), cells), _sums(law, cells)
    if against_law(observed.astype(np.int64), weights, false_alarm):
        raise LawError("the law differs from the pmf: " + _worst(observed, weights * values.size))


def check_same_law(
    first: ArrayLike, second: ArrayLike, *, false_alarm: float = FALSE_ALARM
) -> None:
    """Two samples of integers have one law, in cells that expect 10 or more of each.

    The bound holds for every number of draws (`evidence`).

    Raises:
        LawError: if they differ; by chance with probability `false_alarm` at most.
    """
    a, b = np.asarray(first, np.int64).ravel(), np.asarray(second, np.int64).ravel()
    low, top = min(a.min(), b.min()), max(a.max(), b.max())
    one, other = (np.bincount(x - low, minlength=top - low + 1) for x in (a, b))
    # Cells follow from both samples together: so the law of their split is known.
    together = (one + other) / (a.size + b.size)
    cells = _cells(together * min(a.size, b.size))
    mine, others = (_sums(x, cells).astype(np.int64) for x in (one, other))
    if against_each_other(mine, others, false_alarm):
        raise LawError("the two laws differ: " + _worst(mine, _sums(together, cells) * a.size))


def check_variance(
    errors: ArrayLike, variance: ArrayLike, *, false_alarm: float = FALSE_ALARM
) -> None:
    """Errors of mean 0 and near-Gaussian law have the predicted variance: chi-square of sum
    errors^2 / variance, two-sided.

    Raises:
        LawError: if not; by chance with probability `false_alarm`.
    """
    scaled = np.asarray(errors, float) ** 2 / np.asarray(variance, float)
    p = scipy.stats.chi2.cdf(scaled.sum(), scaled.size)
    if 2 * min(p, 1 - p) < false_alarm:
        raise LawError(
            f"mean of error^2 / predicted variance is {scaled.mean():.4f} over {scaled.size} errors"
        )


def _cells(expected: Floats) -> NDArray[np.intp]:
    """The cell of each outcome: neighbours that expect `_LEAST` together.

    Of what is all but a constant, that outcome and the others: how often it comes is all that so
    few draws can show.
    """
    cells, cell, wanted = np.zeros(len(expected), np.intp), 0, 0.0
    for place, each in enumerate(expected.tolist()):
        cells[place], wanted = cell, wanted + each
        if wanted >= _LEAST:
            cell, wanted = cell + 1, 0.0
    cells = np.minimum(cells, max(0, cell - 1))  # what is left over joins the last that is full
    if cell < 2 and len(expected) > 1:
        mode = int(np.argmax(expected))
        if expected[mode] <= expected.sum() / 2:
            raise ValueError("too few draws: every cell would be pooled into one")
        cells = (np.arange(len(expected)) != mode).astype(np.intp)
    return cells


def _sums(of: NDArray[Any], cells: NDArray[np.intp]) -> Floats:
    return np.asarray(np.bincount(cells, weights=of), np.float64)


def _worst(found: NDArray[Any], expected: Floats) -> str:
    """Words on the cell that is farthest off."""
    place = int(np.argmax((found - expected) ** 2 / np.maximum(expected, 1e-300)))
    many, mean = int(found[place]), float(expected[place])
    return f"{many:,} draws in cell {place} of {len(found)}, expected are {mean:,.1f}"
