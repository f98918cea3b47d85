"""Objective perturbation with a Gaussian linear term: its curve, by one integral in closed form.

The minimiser of sum_i l(w; z_i) + (Lam/2) ||w||^2 + <b, w> determines b, so densities compare with
a Jacobian of at most 1 + c B^2/Lam. With a = 2 L/sigma the privacy loss is at most c_0 + a chi, c_0
= ln(1 + c B^2/Lam) + a^2/2 and chi Rayleigh: the gradients' difference lies in a fixed plane. Docs:
theory, Output perturbation, "Objective perturbation".

Where a row of slope s L bends by at most 4 s (1 - s) of the largest (logistic loss), the loss at
chi is at most the maximum over s of ln(1 + 4 s (1 - s) c B^2/Lam) + ((1 + s) a)^2/8 + (1 + s) a
chi/2: the row that bends most is not steep.
"""

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.errors import positive, real

_SLOPES = np.linspace(0.5, 1.0, 65)  # flatter rows bend less, and are less steep, than at 1/2
_CHI = np.linspace(0.0, 14.0, 1501)


def delta(epsilon_: float, multiplier: float, curvature: float, coupled: bool = False) -> float:
    """E (1 - e^(epsilon - loss))_+, rounded up.

    Args:
        epsilon_: at least 0.
        multiplier: sigma/(2 L).
        curvature: c B^2/Lam, at least 0.
        coupled: whether slopes and second derivatives are coupled as above.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    real("epsilon", epsilon_, 0.0, math.inf, closed=(True, False))
    a = 1 / positive("noise_multiplier", multiplier)
    fixed = math.log1p(real("curvature", curvature, 0.0, math.inf, closed=(True, False)))
    # By parts: a e^(a root + a^2/2) times the integral of e^(-y^2/2) beyond root + a, as
    # epsilon - c_0 = a root.
    least = fixed + a * a / 2
    root = max(0.0, (epsilon_ - least) / a)
    log_tail = float(scipy.special.log_ndtr(-(root + a)))
    mass = math.exp(math.log(a * math.sqrt(2 * math.pi)) + a * root + a * a / 2 + log_tail)
    # The loss is never below c_0: there delta = 1 - e^(epsilon - c_0) E e^(-a chi).
    if epsilon_ < least:
        mass = 1 - math.exp(epsilon_ - least) * (1 - mass)
    whole = min(1.0, mass * (1 + 1e-12))
    return min(whole, _coupled(epsilon_, a, curvature)) if coupled else whole


def pure(tilt: float, curvature: float, coupled: bool = False) -> float:
    """epsilon of a linear term of density ~ e^(-tilt ||b||/(2 L)), rounded up."""
    whole = tilt + math.log1p(curvature)
    if not coupled:
        return whole
    return min(whole, float((_bends(curvature) + tilt * (1 + _SLOPES[1:]) / 2).max()))


def _bends(curvature: float) -> NDArray[np.float64]:
    """ln(1 + 4 s (1 - s) curvature) at the flat end of each cell of s, where it is largest."""
    # 4 s (1 - s) falls from s = 1/2 on.
    low = _SLOPES[:-1]
    return np.asarray(np.log1p(4 * low * (1 - low) * curvature))


@lru_cache(maxsize=4096)
def _coupled(epsilon_: float, a: float, curvature: float) -> float:
    """An upper sum over cells of s and of chi: the loss rises with chi, the slopes with s."""
    steep = (1 + _SLOPES[1:]) / 2 * a
    fixed = _bends(curvature) + steep**2 / 2
    # Each cell of chi counts at its upper end, and what is beyond the last as revealed.
    losses = (fixed[:, None] + steep[:, None] * _CHI[1:]).max(axis=0)
    gains = -np.expm1(np.minimum(epsilon_ - losses, 0.0))
    tails = np.exp(-(_CHI**2) / 2)
    return min(1.0, float(gains @ -np.diff(tails)) * (1 + 1e-9) + float(tails[-1]))


def epsilon(delta_: float, multiplier: float, curvature: float, coupled: bool = False) -> float:
    """The least epsilon at `delta_`, in (0, 1); rounded up."""
    real("delta", delta_, 0.0, 1.0, closed=(False, False))
    if delta(0.0, multiplier, curvature, coupled) <= delta_:
        return 0.0
    high = 1.0
    while delta(high, multiplier, curvature, coupled) > delta_:
        high *= 2
    root: float = scipy.optimize.brentq(
        lambda each: delta(each, multiplier, curvature, coupled) - delta_,
        0.0,
        high,
        xtol=1e-14,
        rtol=1e-14,
    )
    more = 1e-13
    while delta(root, multiplier, curvature, coupled) > delta_:
        root, more = root * (1 + more), 2 * more
    return root


def multiplier_for(
    epsilon_: float, delta_: float, curvature: float, coupled: bool = False
) -> float:
    """The least multiplier that is (epsilon_, delta_)-private, rounded up; infinite where none is.

    None is where ln(1 + curvature) >= epsilon_ but for delta.
    """
    real("delta", delta_, 0.0, 1.0, closed=(False, False))
    positive("epsilon", epsilon_)
    high = 1.0
    while delta(epsilon_, high, curvature, coupled) > delta_:
        high *= 2
        if high > 1e12:
            return math.inf
    low = high
    while delta(epsilon_, low, curvature, coupled) <= delta_:
        low /= 2

    def excess(log: float) -> float:
        found = delta(epsilon_, math.exp(log), curvature, coupled)
        return math.log(max(found, 1e-300) / delta_)  # far above the root it vanishes

    root: float = scipy.optimize.brentq(excess, math.log(low), math.log(high), xtol=1e-13)
    found, more = math.exp(root), 1e-13
    while delta(epsilon_, found, curvature, coupled) > delta_:
        found, more = found * (1 + more), 2 * more
    return found
