"""The least noise a trusted curator can add to a sum: l2 Laplace, staircase or Gaussian."""

import math
from functools import lru_cache

import scipy

from shuffle_sim.privacy.bounds import gamma, gaussian


@lru_cache(maxsize=256)
def staircase(epsilon: float) -> float:
    """Standard deviation of the best staircase noise at sensitivity 1 (Geng and Viswanath 2014).

    It is i + gamma U or i + gamma + (1 - gamma) U with a random sign, i geometric and U uniform.
    No noise whose guarantee is pure has less.
    """
    # Moments of i, geometric: E i, and E i^2. Below, those of i plus a uniform of either step.
    decay = math.exp(-epsilon)
    mean, square = decay / (1 - decay), decay * (1 + decay) / (1 - decay) ** 2

    def variance(step: float) -> float:
        rest = 1 - step
        near = square + mean * step + step**2 / 3
        far = square + mean * (1 + step) + step**2 + step * rest + rest**2 / 3
        # The step's inner part is e^epsilon times as high as its outer part.
        share = step / (step + rest * decay)
        return share * near + (1 - share) * far

    # A minimum by search: a gamma near the best costs a little noise, and no privacy.
    found = scipy.optimize.minimize_scalar(variance, bounds=(0.0, 1.0), method="bounded")
    return math.sqrt(float(found.fun))


def discrete_laplace(epsilon: float) -> float:
    """Standard error of discrete Laplace counts: one user moves two counts by one."""
    # Of decay rho = e^(-epsilon/2): sqrt(2 rho)/(1 - rho).
    return math.sqrt(2) * math.exp(-epsilon / 4) / -math.expm1(-epsilon / 2)


def best(epsilon: float, delta: float, d: int = 1, rounds: int = 1) -> tuple[float, str]:
    """The least standard deviation a coordinate of the central noises, and which has it.

    For l2 sensitivity 1 in d coordinates, and as many rounds. Discrete Laplace noise on a fine
    grid is Laplace noise. With several coordinates the l2 Laplace noise has less: a density of the
    l2 norm alone, with root mean square sqrt(d (d + 1))/rate. The rate is epsilon, and more where
    there is a delta and one round. Epsilons of rounds are added.

    Args:
        epsilon: of all rounds.
        delta: of all rounds; with 0 no Gaussian serves.
        d: coordinates.
        rounds: over the same users.
    """
    # Per coordinate: sqrt(d (d + 1))/rate over sqrt(d); sqrt(2)/rate at d = 1.
    single = rounds == 1 and d <= gamma.MOST
    rate = gamma.rate_for(epsilon, delta, d) if single else epsilon / rounds
    noises = {"Laplace" if d == 1 else "l2 Laplace": math.sqrt(d + 1) / rate}
    if d == rounds == 1:
        noises["staircase"] = staircase(epsilon)
    if delta > 0:
        noises["Gaussian"] = math.sqrt(rounds) / gaussian.mu_of(epsilon, delta)
    name = min(noises, key=noises.__getitem__)
    return noises[name], name
