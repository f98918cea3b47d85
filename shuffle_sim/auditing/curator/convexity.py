"""What the losses of a problem state of themselves, on rows that they take, at random parameters.

Proofs of stability rest on it: minimisers of rows that are steeper, or not convex, may be near each
other on the tables that are compared, and far apart on others.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.claims.neighbours import longest
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.errors import ShuffleSimError

_OF_LOSS, _OF_CLIP = ("lipschitz", "gradients", "columns"), ("loss", "clip", "each")
_ROWS, _POINTS = 96, 12  # random rows as long as they may be, and pairs of parameters
_RADII = 0.3, 3.0  # of the ball that holds these
_FAR = 1e3  # the longest rows that are tried
_PARAMETERS = 64  # at most, that a model of a table's columns is taken to have
_DEPTH = 6  # of attributes in which losses are sought
_ROOM, _ROUNDED = 1e-6, 1e-9  # of what is stated: its own roundings; of numbers about 1


def losses_of(algorithm: Any, release: Any) -> list[Any]:
    """Losses of an algorithm, and what clips their gradients where its first release is made."""
    clips = [each for each in _within(release) if hasattr(each, "clip")]
    return [each for each in _within(algorithm) if not hasattr(each, "clip")] + clips


def _within(sought: Any) -> list[Any]:
    """All of both kinds in the attributes of an object, and in theirs."""
    found, seen = list[Any](), set[int]()

    def look(at: Any, depth: int) -> None:
        if depth and id(at) not in seen:
            seen.add(id(at))
            if any(all(hasattr(at, name) for name in kind) for kind in (_OF_LOSS, _OF_CLIP)):
                found.append(at)
            within = at if isinstance(at, list | tuple) else getattr(at, "__dict__", {}).values()
            for each in within:
                look(each, depth - 1)

    look(sought, _DEPTH)
    return found


def check_loss(loss: Any, table: Floats) -> bool:
    """Gradients are as long and as smooth as stated, and those of a convex function.

    Args:
        loss: it; or a surrogate whose gradients are clipped, whatever the rows.
        table: rows of the problem, or persons with as many records each.

    Returns:
        Whether it takes such rows: else nothing was looked at.

    Raises:
        LawError: naming what is not.
    """
    rng, rows = np.random.default_rng(len(table)), table.reshape(-1, table.shape[-1])
    clipped = hasattr(loss, "clip")
    inner = loss.loss if clipped else loss
    d = next((d for d in range(1, _PARAMETERS) if inner.columns(d) == rows.shape[1]), None)
    taken = np.array([] if d is None else [*_taken(inner, rows, d, rng, free=clipped)])
    if d is None or not taken.size:
        return False
    for radius in _RADII:
        ends = rng.normal(size=(2, _POINTS, d))
        ends *= radius / np.linalg.norm(ends, axis=-1, keepdims=True)
        ends[1] = np.where(rng.random((_POINTS, 1)) < 0.5, ends[1], 0.99 * ends[0])
        for one, other in zip(*ends, strict=True):
            with naming(f"{type(loss).__name__}, parameters of norm {radius:g}"):
                if clipped:
                    _of_clipped(loss, taken, one, other)
                else:
                    _of_loss(loss, taken, one, other, radius)
    return True


def _of_clipped(loss: Any, rows: Floats, one: Floats, other: Floats) -> None:
    """Short and monotone, whatever the row."""
    first, second = (dense(loss.each(each, rows)) for each in (one, other))
    _short(first, loss.clip, "of the clip")
    turned, way = second - first, other - one
    _least(turned @ way, loss.clip * np.linalg.norm(way), "gradients fall")
    if loss.smoothing is not None:
        _short(turned, loss.smoothing * float(np.linalg.norm(way)), "of the stated smoothness")


def _of_loss(loss: Any, rows: Floats, one: Floats, other: Floats, radius: float) -> None:
    """All that is stated, of two parameters."""
    first, second = (dense(loss.gradients(each, rows)) for each in (one, other))
    values, others = loss.values(one, rows), loss.values(other, rows)
    way, turned = other - one, second - first
    far = float(np.linalg.norm(way))
    _short(first, loss.lipschitz(radius), "of the loss's bound")
    apart = first - first[np.argmax(np.linalg.norm(first, axis=1))]
    _short(apart, loss.gradient_diameter(radius), "of the bound between rows")
    _least(loss.swing(radius) - np.abs(values - others), values, "the loss moves farther")
    _least(loss.pull() + first @ one, first @ one, "the gradient pulls more")
    rising = others - values - first @ way - loss.strong_convexity() / 2 * far**2
    _least(rising, np.abs(values) + np.abs(others), "it is not convex, or no gradient")
    bend = loss.smoothness()
    _short(turned, math.inf if bend is None else bend * far, "of the stated smoothness")


def _short(vectors: Floats, bound: float, what: str) -> None:
    """None is longer."""
    longest = float(np.linalg.norm(vectors, axis=1).max())
    if longest > bound * (1 + _ROOM) + _ROUNDED:
        raise LawError(f"a gradient has {longest / bound if bound else math.inf:.4g} times {what}")


def _least(room: Floats, scale: Floats | float, what: str) -> None:
    """None is below 0, but for roundings."""
    if (room < -_ROUNDED - _ROOM * np.abs(scale)).any():
        raise LawError(f"{what}: by {-float(room.min()):.4g}")


def _taken(
    loss: Any, rows: Floats, d: int, rng: np.random.Generator, *, free: bool
) -> Iterator[Floats]:
    """Rows of any direction as long as they may be, and half of it; free: any length."""
    for place, way in enumerate(rng.normal(size=(_ROWS, rows.shape[1]))):
        row = rows[place % len(rows)]
        # What stays as it is: a label and what follows; or nothing, which the loss may refuse.
        split = len(row) - max(place % min(3, len(row)), free)
        way[: split // 2] *= place % 5 > 0  # not all ways are alike in all coordinates
        if place % 7 == 0:
            way[:split] = np.sign(way[:split])
        allowed = partial(_allows, loss, way, row, split, d)
        low = _FAR if free else longest(allowed, _FAR)
        for far in (_FAR, 1.0) if free else (low, low / 2):
            if free or allowed(far):
                yield _row(far, way, row, split)


def _allows(loss: Any, way: Floats, row: Floats, split: int, d: int, far: float) -> bool:
    with suppress(ShuffleSimError):
        loss.check(_row(far, way, row, split)[None], d)
        return True
    return False


def _row(far: float, way: Floats, row: Floats, split: int) -> Floats:
    return np.concatenate([far * way[:split] / np.linalg.norm(way), row[split:]])
