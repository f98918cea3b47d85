"""Whether a loss is what it states, at a few public points: that refutes, and proves nothing.

Privacy rests on a loss's constants where noise covers a minimiser or a density. Linear losses are
held to theirs on a grid of margins, too (`LinearLoss.verify`), of three labels.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from protocols.problems.linear_loss import LinearLoss
from protocols.problems.loss import ROUNDING, Loss
from shuffle_sim.arrays import Floats, dense
from shuffle_sim.errors import ParameterError

_PAIRS, _FAR = 8, 1e3
SLACK = 1e-6
"""Of what quotients of doubles lose, which must not refute a true loss."""
Known = tuple[Floats, Floats]
"""Values (n,) and slopes (n, d) of rows at one point."""


def pairs(
    rng: np.random.Generator, d: int, radius: float
) -> Iterator[tuple[Floats, Floats, float]]:
    """Two points of norm at most `radius`, and how far a partner's pair shall be apart.

    Far pairs show slopes, near ones curvature.
    """
    most = min(radius, _FAR)
    for pair in range(_PAIRS):
        share = (1.0, 1e-2)[pair % 2]
        w, step = (of_length(rng, d, most) for _ in range(2))
        yield w, w + share * (step - w), share


def of_length(rng: np.random.Generator, d: int, most: float) -> Floats:
    """A random direction; half of them as long as they may be."""
    drawn = rng.normal(size=d)
    length = most if rng.random() < 0.5 else most * rng.random()
    return np.asarray(drawn * (length / np.linalg.norm(drawn)))


def at_most(loss: Loss, found: Floats, stated: float, words: str) -> None:
    """Refuse numbers above what is stated, or not finite.

    Raises:
        ParameterError: `loss`, and what it must be.
    """
    if not np.all(found <= stated * ROUNDING):
        raise ParameterError("loss", loss, f"{words} than it states, {stated:g}")


def chord(
    loss: Loss, moved: Floats, start: Known, end: Known, constants: tuple[float, float], words: str
) -> None:
    """Hold a convex function to its slopes, curvature and strong convexity between two points.

    Raises:
        ParameterError: `loss`, and what it must be.
    """
    far, (curved, strong) = float(np.linalg.norm(moved)), constants
    if not far:
        return
    (values, first), (later, last) = start, end
    size = 1 + float(max(np.abs(first).max(), np.abs(last).max()))
    turned = np.linalg.norm(last - first, axis=1) / far - SLACK * size
    at_most(loss, turned, curved, f"{words}, and no more curved")
    slack = SLACK * (size * far + np.abs(values) + np.abs(later))
    # Convex: no chord's slope is below that at its start, or above that at its end.
    rise, gain = later - values, strong / 2 * far**2
    low, high = first @ moved + gain, last @ moved - gain
    if not np.all((rise >= low - slack) & (rise <= high + slack)):
        raise ParameterError("loss", loss, f"{words}, with slopes that are those of its values")


def hold_to_constants(loss: Loss, rows: NDArray[np.float64], d: int, radius: float) -> None:
    """Hold what privacy takes from the author of a loss against rows, as `hold_between`."""
    if loss.believed() and len(rows):
        hold_between(loss, rows, d, radius)


def hold_between(loss: Loss, rows: NDArray[np.float64], d: int, radius: float) -> None:
    """Hold all that a loss states against rows, where ||theta|| <= radius.

    Raises:
        ParameterError: `loss`, and what it must be.
    """
    steepest, beta = loss.lipschitz(radius), loss.smoothness()
    constants = math.inf if beta is None else beta, loss.strong_convexity()
    for here, there, _ in pairs(np.random.default_rng(0), d, radius):
        start, end = ((loss.values(w, rows), dense(loss.gradients(w, rows))) for w in (here, there))
        for values, slopes in (start, end):
            if values.shape != (len(rows),) or slopes.shape != (len(rows), d):
                shapes = f"of values (n,) and gradients (n, {d})"
                raise ParameterError("loss", loss, f"{shapes}, not {values.shape}, {slopes.shape}")
            at_most(loss, np.linalg.norm(slopes, axis=1), steepest, "no steeper")
        chord(loss, there - here, start, end, constants, "convex")


def envelope_known(loss: Loss) -> bool:
    """Whether gradients with smoothing are those of an envelope: where this package computes them.

    Few points refute no envelope that is false: kinks lie between them.
    """
    if not loss.believed():
        return True
    names = "gradients", "prox"
    return isinstance(loss, LinearLoss) and all(
        getattr(type(loss), each) is getattr(LinearLoss, each) for each in names
    )
