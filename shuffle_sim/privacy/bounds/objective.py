"""Objective perturbation with a Gaussian linear term: its curve, by one integral in closed form.

The minimiser of sum_i l(w; z_i) + (Lam/2) ||w||^2 + <b, w> determines b, so densities compare with
a Jacobian of at most 1 + c B^2/Lam. With a = 2 L/sigma the privacy loss is at most c_0 + a chi, c_0
= ln(1 + c B^2/Lam) + a^2/2 and chi Rayleigh: the gradients' difference lies in a fixed plane. Docs:
theory, Output perturbation, "Objective perturbation".
"""

import math

import scipy

from shuffle_sim.errors import positive, real


def delta(epsilon_: float, multiplier: float, curvature: float) -> float:
    """E (1 - e^(epsilon - c_0 - a chi))_+, rounded up.

    Args:
        epsilon_: at least 0.
        multiplier: sigma/(2 L).
        curvature: c B^2/Lam, at least 0.

    Raises:
        ParameterError: naming the parameter, its value and the allowed range.
    """
    real("epsilon", epsilon_, 0.0, math.inf, closed=(True, False))
    a = 1 / positive("noise_multiplier", multiplier)
    fixed = math.log1p(real("curvature", curvature, 0.0, math.inf, closed=(True, False)))
    least = fixed + a * a / 2
    root = max(0.0, (epsilon_ - least) / a)
    log_tail = float(scipy.special.log_ndtr(-(root + a)))
    mass = math.exp(math.log(a * math.sqrt(2 * math.pi)) + a * root + a * a / 2 + log_tail)
    if epsilon_ < least:
        mass = 1 - math.exp(epsilon_ - least) * (1 - mass)
    return min(1.0, mass * (1 + 1e-12))


def epsilon(delta_: float, multiplier: float, curvature: float) -> float:
    """The least epsilon at `delta_`, in (0, 1); rounded up."""
    real("delta", delta_, 0.0, 1.0, closed=(False, False))
    if delta(0.0, multiplier, curvature) <= delta_:
        return 0.0
    high = 1.0
    while delta(high, multiplier, curvature) > delta_:
        high *= 2
    root: float = scipy.optimize.brentq(
        lambda each: delta(each, multiplier, curvature) - delta_, 0.0, high, xtol=1e-14, rtol=1e-14
    )
    more = 1e-13
    while delta(root, multiplier, curvature) > delta_:
        root, more = root * (1 + more), 2 * more
    return root


def multiplier_for(epsilon_: float, delta_: float, curvature: float) -> float:
    """The least multiplier that is (epsilon_, delta_)-private, rounded up; infinite where none is.

    None is where ln(1 + curvature) >= epsilon_ but for delta.
    """
    real("delta", delta_, 0.0, 1.0, closed=(False, False))
    positive("epsilon", epsilon_)
    high = 1.0
    while delta(epsilon_, high, curvature) > delta_:
        high *= 2
        if high > 1e12:
            return math.inf
    low = high
    while delta(epsilon_, low, curvature) <= delta_:
        low /= 2
    root: float = scipy.optimize.brentq(
        lambda log: math.log(delta(epsilon_, math.exp(log), curvature)) - math.log(delta_),
        math.log(low),
        math.log(high),
        xtol=1e-13,
    )
    found, more = math.exp(root), 1e-13
    while delta(epsilon_, found, curvature) > delta_:
        found, more = found * (1 + more), 2 * more
    return found
