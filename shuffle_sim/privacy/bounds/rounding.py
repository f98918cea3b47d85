"""What stochastic rounding costs a vector sum: sensitivity, one round, many rounds.

A user's vector in the l2 ball of radius norm_bound is encoded coordinate by coordinate in g steps
over the ball's width, rounded at random. Couple the roundings of two neighbours by the same
uniforms (independent of the data, so releasing them is free): the encodings differ by k, k_j the
floor or ceiling of r_j, ||r||_2 <= g. S = ||k||_2^2 has mean at most g^2 + d/4, is sub-Gaussian
with variance proxy (g + sqrt(d)/2)^2 and never above (g + sqrt d)^2. Proofs:
docs/theory/vector-sum.md, "Rounding". For a round of few coins that is loose: see `renyi`.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffle_sim.privacy.bounds.gaussian import delta_gdp, epsilon_gdp


def delta_one_round(epsilon: float, sigma: float, g: float, d: int, nu: float) -> float:
    """delta of one round of a d-dimensional sum at `epsilon`, never below the truth.

    By joint convexity of the hockey-stick divergence, with h(s) = delta_GDP(epsilon; sqrt(s)/sigma)
    and any kappa > 0, delta <= d nu + e^{kappa^2 v / 2} sup_s h(s) e^{-kappa (s - g^2 - d/4)}.

    Args:
        epsilon: at least 0.
        sigma: of the dominating Gaussian, in units of one count (`domination.dominating_sigma`).
        g: rounding steps over the range, or in the distance of neighbours that are nearer.
        d: coordinates; for d = 1 the shift is at most g exactly.
        nu: for which sigma dominates.
    """
    revealed = d * nu
    if sigma <= 0:
        return 1.0
    if d == 1:
        return min(1.0, delta_gdp(epsilon, g / sigma) + revealed)
    mean, proxy, top = g * g + d / 4, (g + math.sqrt(d) / 2) ** 2, (g + math.sqrt(d)) ** 2
    s, h = _grid(epsilon, sigma, mean, top)

    def log_bound(kappa: float) -> float:
        # h grows in s: on a cell of the grid, h at its upper end times the tilt at its lower end
        # bounds the product.
        return kappa * kappa * proxy / 2 + float(np.max(h[1:] - kappa * (s[:-1] - mean)))

    # Every kappa is valid, so a minimum that the search misses is a looser bound, no wrong one.
    steepest = 4 * (1 + epsilon + math.log(1 / nu)) / mean
    best = scipy.optimize.minimize_scalar(
        lambda x: log_bound(math.exp(x)),
        bounds=(math.log(steepest) - 16, math.log(steepest)),
        method="bounded",
    )
    return min(1.0, math.exp(min(float(best.fun), 0.0)) + revealed)


def _grid(
    epsilon: float, sigma: float, mean: float, top: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cells of [0, top], fine around the mean where the supremum is, and log h at their ends."""
    reach = min(max(0.25 * mean, 2 * (top - mean)), top)
    fine = np.linspace(max(mean - reach / 4, 0.0), min(mean + reach, top), 6000)
    s = np.unique(
        np.concatenate([np.linspace(0.0, fine[0], 500), fine, np.linspace(fine[-1], top, 500)])
    )
    with np.errstate(divide="ignore"):
        return s, np.log(delta_gdp(epsilon, np.sqrt(s) / sigma))


Rounds = Sequence[tuple[float, float, int, int]]
"""(sigma, g, d, count) of each kind of round over one user; d = 0 where nothing is rounded."""


def mu_of_rounds(rounds: Rounds, tail: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """mu of a Gaussian pair that dominates many rounds on one user, except with `tail`.

    Queries may be chosen adaptively: each round's rounding uniforms are drawn after its query is
    fixed, so the sum of S_t / sigma_t^2 exceeds its mean bound by the Azuma-Hoeffding margin with
    probability at most `tail`; below that, fully adaptive Gaussian composition holds (Smith and
    Thakurta 2022; Koskela et al. 2023). The d nu of each round are not in it.

    Args:
        rounds: of one user.
        tail: in (0, 1), one or many.
    """
    mean = proxy = top = 0.0
    for sigma, g, d, count in rounds:
        if sigma <= 0:
            return np.full_like(np.asarray(tail, float), math.inf)
        rounded = d > 1
        # Of a scalar both encodings are in 0 .. g: rounding adds nothing.
        mean += count * (g * g + d / 4 * rounded) / sigma**2
        proxy += count * (g + math.sqrt(d) / 2) ** 2 * rounded / sigma**4
        top += count * (g + math.sqrt(d) * rounded) ** 2 / sigma**2
    return np.asarray(
        np.sqrt(np.minimum(top, mean + np.sqrt(2 * proxy * np.log(1 / np.asarray(tail)))))
    )


def coordinates(rounds: Rounds) -> int:
    """Of all rounds; in each nu is revealed."""
    return sum(d * count for _, _, d, count in rounds)


def delta_many_rounds(epsilon: float, rounds: Rounds, nu: float) -> float:
    """delta of adaptively composed rounds over one user, least over the share of the tail."""
    # Every tail bounds one and the same delta: so the least of them does.
    tails = np.geomspace(1e-60, 0.5, 760)
    deltas = delta_gdp(epsilon, mu_of_rounds(rounds, tails)) + tails
    return min(1.0, float(deltas.min()) + nu * coordinates(rounds))


def epsilon_many_rounds(delta: float, rounds: Rounds, nu: float) -> float:
    """epsilon of adaptively composed rounds; infinite where `delta` is below what is revealed."""
    left = delta - nu * coordinates(rounds)
    if left <= 0:
        return math.inf
    tails = left * np.geomspace(1e-4, 0.5, 40)
    pairs = zip(tails.tolist(), mu_of_rounds(rounds, tails).tolist(), strict=True)
    return min(epsilon_gdp(left - tail, mu) for tail, mu in pairs)
