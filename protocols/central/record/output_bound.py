"""Noise of one release, and the proven excess of a minimiser to which it is added."""

import math
from dataclasses import dataclass

from protocols.erm.risk import Risk
from shuffle_sim.errors import one_of
from shuffle_sim.privacy.discrete import GridLaplace
from shuffle_sim.privacy.grid_noise import GridBinomial
from shuffle_sim.privacy.guarantee import Privacy
from shuffle_sim.privacy.mechanisms import Gaussian, L2Laplace, Noise, RelaxedGamma

NOISES = ("gamma", "relaxed-gamma", "gaussian", "integer")
"""By name: pure l2-Laplace, its relaxation to (epsilon, delta), the analytic Gaussian; and integers
drawn exactly, for those who do not trust floating point: discrete Laplace, or binomial where delta
is above 0.
"""


def noise_of(name: str, privacy: Privacy, d: int) -> Noise:
    """The least noise of a kind for one release.

    Raises:
        ParameterError: an unknown name, or a Gaussian at delta 0.
    """
    one_of("noise", name, NOISES)
    if name == "gaussian":
        return Gaussian.calibrated(privacy)
    if name == "integer":
        if privacy.delta:
            return GridBinomial.calibrated(privacy, d)
        return GridLaplace(privacy.epsilon, d)
    if name == "gamma" or privacy.delta == 0:
        return L2Laplace(privacy.epsilon, d)
    # A little less, so that what the accountant rounds up stays below what was asked for.
    return RelaxedGamma.calibrated(Privacy(privacy.epsilon * (1 - 1e-12), privacy.delta), d)


@dataclass(frozen=True)
class Bound:
    """A proven bound of the expected excess, and what it takes.

    Attributes:
        excess: of the objective of the problem over its best point in the domain.
        projected: whether the output is projected onto the domain.
    """

    excess: float
    projected: bool


def best_bound(
    risk: Risk, n: int, noise: Noise, theta: float, ridge: float, population: bool
) -> Bound:
    """The least proven bound for a risk whose ridge is `ridge` and more, added for privacy.

    Docs: theory, Output perturbation, "Excess risk". With S = (1 + 2 theta) D, R the domain's
    radius and L, beta_0 of one row's loss: (risk.ridge - ridge) R^2/2 + the noise's part + alpha;
    the noise's part is (L + ridge R) E||z|| projected, or L E||z|| + ridge/2 E||z||^2, or (beta_0 +
    ridge)/2 E||z||^2 without a projection. In expectation over rows: L S more.
    """
    exact, _ = risk.sensitivity(n)
    radius, shift = theta * exact, (1 + 2 * theta) * exact
    mean, square = shift * noise.mean_norm(risk.d), noise.error(shift, risk.d) ** 2
    slope, size = risk.lipschitz, risk.domain.radius
    anywhere = risk.lipschitz_within(math.inf)
    more = risk.ridge - ridge
    # The added ridge at the border; for new rows stability, L S ("Excess risk").
    fixed = (more * size**2 / 2 if more > 0 else 0.0) + population * slope * shift
    near = size if math.isfinite(size) else risk.reach + radius
    # The radius costs the slope; where the minimiser is free its gradient is 0, and the square
    # counts.
    alpha = (slope + risk.ridge * near) * radius
    if not risk.domain.bounded:
        alpha = min(alpha, (risk.smoothness + risk.ridge) * radius**2 / 2)
    # A value that is rounded to a grid of a thousandth of the shift, or less, is not unbiased.
    bias = noise.exact * math.sqrt(risk.d) * shift / 2000
    curved = (risk.smoothness + ridge) * (square / 2 + radius * bias)
    found = [
        # E z = 0: the ridge has no linear term.
        Bound(fixed + anywhere * mean + ridge / 2 * square + alpha, False),
        Bound(fixed + curved + alpha, False),
    ]
    if risk.domain.bounded:
        found.append(Bound(fixed + (slope + ridge * size) * mean + alpha, True))
        # Of any point of the domain.
        found.append(Bound((slope + ridge * size) * risk.domain.diameter, True))
    return min(found, key=lambda each: each.excess)
