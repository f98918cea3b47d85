"""Bounds of a row's gradients from the row alone, whatever it holds."""

import math

import numpy as np
from numpy.typing import NDArray

from protocols.problems.loss import Loss
from protocols.problems.multiclass import OneVsRestHinge, Softmax
from shuffle_sim.arrays import Floats, dense

LARGEST = 1e100
"""Longer rows are shortened to it, so that no square overflows."""
PROVEN = (Softmax, OneVsRestHinge)
"""Losses whose own bounds of rows are proven; of all others values decide."""
_FAR = 1024.0
_ROUNDING = 1e-9


def bounded(rows: Floats) -> Floats:
    """The rows; those that are not finite become 0, and long ones are shortened to LARGEST.

    Each row is changed by itself, so neighbours stay neighbours.
    """
    rows = np.asarray(rows, np.float64)
    if np.abs(rows).max(initial=0.0) <= LARGEST / math.sqrt(rows.shape[1]):  # False for NaN
        return rows
    kept = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    # The length of several numbers of 10^308 is no double.
    kept = np.clip(kept, -1e300, 1e300)
    norms = np.hypot.reduce(kept, axis=1, keepdims=True)
    return np.asarray(kept * (LARGEST / np.maximum(norms, LARGEST)))


def row_slopes(loss: Loss, d: int, rows: Floats, radius: float) -> Floats:
    """No gradient of a row is longer where ||theta|| <= radius, (users,).

    Those of `PROVEN` are stated. Of another loss f it is sqrt(sum_j a_j^2), by convexity alone:
    with M the largest value at the points +-2 sqrt(d) r e_j, and m = f(0) - r ||grad f(0)||,

        a_j = max over signs of (M + f(+-L e_j) - 2 m)/L   for any L > 0.

    Infinite where values refute convexity, or are no numbers. It takes 4 d + 1 values of a row.
    """
    if type(loss) in PROVEN:
        return loss.reach_norms(rows, radius)
    # ||2 w||_1 <= 2 sqrt(d) r: the cross-polytope with these corners holds 2 w.
    near, origin = 2 * math.sqrt(d) * radius, np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = dense(loss.gradients(origin, rows))
        middle = np.asarray(loss.values(origin, rows), np.float64)
        # The tangent at 0 is below f on the ball, and this is its least value there.
        low = middle - radius * np.hypot.reduce(slopes, axis=1)

        def at(length: float) -> Floats:  # (2, d, users)
            points = [[s * length * e for e in np.eye(d)] for s in (1, -1)]
            return np.array([[loss.values(point, rows) for point in line] for line in points])

        def convex(length: float, values: Floats) -> NDArray[np.bool_]:  # (users,): not refuted
            rises = length * np.stack([slopes.T, -slopes.T])
            sizes = np.abs(values) + np.abs(middle) + np.abs(rises)
            held: NDArray[np.bool_] = values - middle - rises >= -_ROUNDING * sizes
            return np.asarray(held.all(axis=(0, 1)))

        # Any L > 0 bounds; the far one leaves 1/1024 of M - 2 m in a loss that grows linearly.
        inner, outer = at(near), at(_FAR * near)
        top = inner.max(axis=(0, 1))
        held = convex(near, inner) & convex(_FAR * near, outer)
        steep = [
            (np.abs(top + values - 2 * low)
             + _ROUNDING * (np.abs(top) + np.abs(values) + 2 * np.abs(low))).max(axis=0) / length
            for length, values in ((near, inner), (_FAR * near, outer))
        ]  # fmt: skip
        norms = np.hypot.reduce(np.minimum(*steep), axis=0)
    return np.where(held & np.isfinite(norms), norms, math.inf)
