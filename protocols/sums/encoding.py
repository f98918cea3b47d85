"""How numbers become integers: shifted to [0, width], scaled to steps, rounded at random."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Scaled, Values, dense
from shuffle_sim.errors import ParameterError, real
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol.query import Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.sampling.kernels import shorten
from shuffle_sim.wire.messages import Tally

MAGNITUDES = (1e-100, 1e100)
"""Bounds of data between which squares neither vanish nor overflow."""


class SumRandomizer(Randomizer):
    """A randomizer whose messages the analyzer turns into a sum over the users.

    Attributes:
        norm_bound: l2 bound of the vectors, to which longer ones are scaled; None: numbers are
            clipped to a range.
    """

    norm_bound: float | None
    moves: ClassVar[tuple[str, ...]] = ("lower", "width", "norm_bound")

    @abstractmethod
    def estimate(self, tally: Tally) -> Floats:
        """The analyzer: the sum over the reports received, shape (labels,)."""

    @abstractmethod
    def variance(self, reports: int, xs: Floats | None = None) -> Floats:
        """Variance of each coordinate, shape (labels,): on the values `xs`, or at its largest."""

    @abstractmethod
    def manipulation(self, attackers: int, reports: int) -> float:
        """How far (l2) malicious users with the datum 0 can move a sum over `reports` users."""

    @abstractmethod
    def event(self, users: int, query: Query) -> PrivacyEvent:
        """The release of the view, with the noise of `users` honest users."""


def admitted(
    values: Values, labels: int, lower: float, width: float, norm_bound: float | None
) -> tuple[Values, int]:
    """Scale longer vectors to the bound, or clip numbers to the range; and how many were.

    Raises:
        ParameterError: if there are not `labels` numbers for each user.
    """
    rows = values.rows if isinstance(values, Scaled) else values
    if rows.size != len(rows) * labels:
        raise ParameterError("data.shape", rows.shape, f"{labels} number(s) for each user")
    if isinstance(values, Scaled) and norm_bound is not None:
        squares = values.norms_squared
        # 1e-12 is more than the rounding of a norm, and less than the margins of accountants.
        if squares.max(initial=0.0) <= norm_bound**2 * (1 + 1e-12):  # as most gradients are
            return values, 0
        # Rows stay where they are: the kernels multiply, round and add in one pass.
        factors = values.factors.copy()
        long = shorten(squares, norm_bound, factors)
        return Scaled(values.rows, factors, values.squared_norms), long
    values = dense(values)
    if norm_bound is None:
        inside = np.clip(values, lower, lower + width)
        return inside, int((inside != values).reshape(len(values), -1).any(axis=1).sum())
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", values, values))
    over = np.flatnonzero(~(norms <= norm_bound))  # an overflow to infinity is long, too
    # Its largest number comes first: squares of 1e200 would overflow, and of 1e-200 vanish.
    unit = values[over] / np.abs(values[over]).max(axis=1, keepdims=True)
    inside = values.copy()
    inside[over] = unit * (norm_bound / np.sqrt(np.einsum("ij,ij->i", unit, unit)))[:, None]
    # A norm above the bound by less than rounding shows is not worth a report; the accountant's
    # margin covers it.
    return inside, int((norms > norm_bound * (1 + 1e-12)).sum())


def check_domain(lower: float, width: float, norm_bound: float | None) -> None:
    """Refuse a range or ball that floats do not hold, and a ball outside the range.

    Kernels do not clip coordinates of a ball again: what a broadcast says of it must hold.

    Raises:
        ParameterError: naming what is out of range.
    """
    real("width", width, MAGNITUDES[0], 2 * MAGNITUDES[1], closed=(True, True))
    real("lower", lower, -MAGNITUDES[1], MAGNITUDES[1], closed=(True, True))
    if norm_bound is not None:
        real("norm_bound", norm_bound, *MAGNITUDES, closed=(True, True))
        room = min(-lower, lower + width)
        # 1e-9 is for ranges that were computed: their ends are rounded.
        if norm_bound > room + 1e-9 * width:
            allowed = f"at most {room:g}, inside the range: the ball whose event is charged"
            raise ParameterError("norm_bound", norm_bound, allowed)


def check_ball(labels: int, lower: float, width: float, norm_bound: float | None) -> None:
    """Refuse vectors whose l2 distance may be above the width of a coordinate: events state that.

    Raises:
        ParameterError: more than one coordinate, and no norm bound of at most half the width.
    """
    if labels > 1 and (norm_bound is None or 2 * norm_bound > width * (1 + 1e-12)):
        allowed = f"at most {width / 2:g}, half the width: the ball whose event is charged"
        raise ParameterError("norm_bound", norm_bound, allowed)


def round_at_random(scaled: Floats, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Values in steps, rounded down or up at random so that the mean is right; in [0, steps]."""
    scaled = np.clip(scaled, 0.0, steps)
    floor = np.floor(scaled)
    # Comparing with the fraction is exact; floor(w + u) is not: at w near the top it can give one
    # step too many.
    return (floor + (rng.random(scaled.shape) < scaled - floor)).astype(np.int64)


def opposite_ends(
    labels: int, lower: float, width: float, norm_bound: float | None
) -> tuple[Floats, Floats]:
    """Two data at opposite ends of coordinate 0, where both are multiples of a rounding step."""
    # A vector of the ball that reaches the end of one coordinate is 0 in all others: mid-range.
    first = np.full(labels, lower + width / 2) if norm_bound is not None else np.zeros(labels)
    second = first.copy()
    first[0], second[0] = lower, lower + width
    return first, second
