"""The pass curve: the best differentially private test whether an integer score is 0.

The curve is that of Desfontaines, Voss, Gipson and Mandayam (2022) for partition selection. A
score k >= 0 changes by at most 1 between neighbours. The test passes with probability p(k):
always at 0, never above K, and K is the smallest that (epsilon, delta) allows. From p(K + 1) = 0
down to 0,

    p(k - 1) = min(e^epsilon p(k) + delta, 1 - e^{-epsilon} (1 - p(k) - delta), 1).

p falls in k, so these two bounds are all four inequalities: both outcomes, both directions.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import real

MIN_EPSILON, MIN_DELTA = 1e-4, 1e-12
"""Below, the curve is too long, or its first step too near the rounding of probabilities."""

_UNIT = 2.0**-53


@lru_cache(maxsize=64)
def pass_curve(epsilon: float, delta: float) -> NDArray[np.float64]:
    """p(0) = 1, p(1), ..., p(K + 1) = 0, an array of K + 2 floats that falls.

    All are multiples of 2^-53, rounded down at each step. So `rng.random() < p` has probability p
    exactly, and the four inequalities hold exactly for these numbers.

    Args:
        epsilon: at least 1e-4.
        delta: in [1e-12, 1).

    Raises:
        ParameterError: outside these ranges; at delta = 0 no such test exists.
    """
    real("epsilon", epsilon, MIN_EPSILON, math.inf, closed=(True, False))
    real("delta", delta, MIN_DELTA, 1.0, closed=(True, False))
    up, down = math.exp(min(epsilon, 700.0)), math.exp(-epsilon)
    # The 16 units below are few beside delta's 9,007 or more: the curve still rises.
    curve = [0.0, math.floor(delta / _UNIT) * _UNIT]
    while (p := curve[-1]) < 1:
        missing = 1 - p - delta  # 1 - p is exact, and 16 units cover the rounding of the rest
        bound = min(up * p + delta, 1 - down * missing)
        curve.append(1.0 if missing <= 0 else (math.floor(bound / _UNIT) - 16) * _UNIT)
    law = np.array(curve[::-1])
    law.flags.writeable = False
    return law


def cutoff(epsilon: float, delta: float) -> int:
    """K: the largest score that may pass."""
    return len(pass_curve(epsilon, delta)) - 2
