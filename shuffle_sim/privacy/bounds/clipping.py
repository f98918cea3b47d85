"""What clipping takes from rotated vectors (docs/theory/carry.md, Spans and a public rotation)."""

import math

import scipy


def padded(d: int) -> int:
    """The least power of two that is at least d: the coordinates after a rotation."""
    return 1 << (d - 1).bit_length()


def clipping_loss(d: int, span: float) -> float:
    """Bound of what clipping takes from a user's vector: root mean square over the signs, in l2.

    For data chosen without the signs; in units of the norm bound. Whatever the data and the signs
    are, it is at most 1 - span.

    Args:
        d: coordinates before the rotation.
        span: bound of a rotated coordinate over the norm bound.
    """
    k = span * math.sqrt(padded(d))
    # The integral of t e^(-(t + k)^2/2) over t > 0; what rounding makes negative is 0.
    tail = math.exp(-(k**2) / 2) - k * math.sqrt(2 * math.pi) * float(scipy.special.ndtr(-k))
    return min(1.0 - span, 2 * math.sqrt(max(0.0, tail)))
