"""Newton's method over a ball for many convex functions at once, each with a step of its own."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from protocols.erm.objective import UNIT
from shuffle_sim.arrays import Floats

Ask = Callable[[NDArray[np.intp], Floats], tuple[Floats, Floats, Floats]]
Values = Callable[[NDArray[np.intp], Floats], Floats]
_SECULAR, _HALVINGS, _FLOOR = 40, 30, 1e-13
_DECREASE, _FLAT, _PATIENCE = 1e-4, 1e-11, 8
"""Of what a step promises; a promise, as a share of the value, that values do not show; how often
such a step is taken."""


def newton_over_ball(
    ask: Ask,
    values: Values,
    points: Floats,
    size: float,
    steps: int,
    finished: Callable[[NDArray[np.intp], Floats, Floats], NDArray[np.bool_]],
) -> None:
    """Brings each of `points` towards the minimiser of its function over ||point|| <= size.

    Each step minimises the second-order model over the ball, and is halved while it does not pay.

    Args:
        ask: (which, their points) -> (values, slopes, second derivatives (count, d, d)).
        values: the same, for the values alone.
        points: (count, d), in the ball; changed in place.
        size: of the ball around 0.
        steps: at most.
        finished: (which, their points, their slopes) -> who needs no further step.
    """
    left, unseen_yet = np.arange(len(points)), np.zeros(len(points), int)
    for _ in range(steps):
        now = points[left]
        value, slope, bend = ask(left, now)
        going = ~finished(left, now, slope) & (unseen_yet[left] < _PATIENCE)
        left, now, value, slope = left[going], now[going], value[going], slope[going]
        if not left.size:
            break
        step = model_step(now, slope, bend[going], size)
        promise = -dots(slope, step)
        share = np.ones(len(left))
        unseen = promise <= _FLAT * (1 + np.abs(value))
        unseen_yet[left] += unseen
        for _ in range(_HALVINGS):
            tried = now + share[:, None] * step
            gained = value - values(left, tried)
            worse = ~unseen & ~(gained >= _DECREASE * share * promise)
            if not worse.any():
                break
            share[worse] /= 2
        points[left] = tried


def model_step(points: Floats, slopes: Floats, bends: Floats, size: float) -> Floats:
    """For each point the step s to the minimum of <slope, s> + s'Bs/2 over ||point + s|| <= size.

    Where it ends on the border, its end has length `size` to a rounding.
    """
    # A model that is flat in a direction is still solved; 1e-99 for one that is flat in all.
    floor = np.trace(bends, axis1=1, axis2=2) + lengths(slopes) / size + 1e-99
    bends = bends + (_FLOOR * floor)[:, None, None] * np.eye(points.shape[1])
    steps = -_solved(bends, slopes)
    out = np.flatnonzero(lengths(points + steps) > size)
    if out.size:
        bends, points = bends[out], points[out]
        # The end e on the border solves (B + t) e = B p - slope, for the t >= 0 that gives it the
        # length.
        pull = np.einsum("ijk,ik->ij", bends, points) - slopes[out]
        more = np.zeros(out.size)
        for _ in range(_SECULAR):  # Newton's method on 1/length, which rises to its root
            moved = bends + more[:, None, None] * np.eye(points.shape[1])
            ends = _solved(moved, pull)
            far = lengths(ends)
            if np.all(far <= size * (1 + 4 * UNIT)):
                break
            rise = dots(ends, _solved(moved, ends))
            # More and Sorensen (1983): 1/length is nearly linear in t, so few steps do.
            more += np.maximum(0.0, (far / size - 1) * far * far / rise)
        steps[out] = ends * (size / far)[:, None] - points
    return np.asarray(steps)


def _solved(bends: Floats, slopes: Floats) -> Floats:
    return np.asarray(np.linalg.solve(bends, slopes[:, :, None])[:, :, 0])


def lengths(vectors: Floats) -> Floats:
    """Of each row, (rows,)."""
    return np.asarray(np.sqrt(dots(vectors, vectors)))


def dots(one: Floats, other: Floats) -> Floats:
    """Of each row with its own, (rows,)."""
    return np.asarray(np.einsum("ij,ij->i", one, other))
