"""What output perturbation in phases plans: ridges, releases and noise of the smallest bound."""

import math
from typing import NamedTuple

import numpy as np

from protocols.central.person.extension_minimiser import ROOM
from protocols.central.person.parts import Parts
from protocols.optimisation.phases import halves
from protocols.problems.problem import Problem

GROWTH, THETA = 4.0, 0.005
"""By which factor the ridge grows; alpha as a share of the sensitivity."""
RIDGES = np.geomspace(1e-8, 1e3, 111)
"""lambda_1 that are tried, in units of G/R: the same for all n and m, so bounds do not rise."""
FAIL = 1e-3
"""Chance of noise longer than planned."""
_MAX_CONTRACTION = 0.5


class PhasedPlan(NamedTuple):
    """Of all phases.

    Attributes:
        bound: of the expected excess, without an envelope of kinks.
        ridges: lambda_i.
        releases: k, of each phase.
        sigma: noise multiplier of each release.
        tau: how near persons' slopes are to their mean nearly always.
        contraction: a.
        bowl: what the loss gives of its own strong convexity to the ridge.
    """

    bound: float
    ridges: tuple[float, ...]
    releases: int
    sigma: float
    tau: float
    contraction: float
    bowl: float


def planned(
    n: int, problem: Problem, parts: Parts, mu: float, count: int, k: int, disjoint: bool
) -> PhasedPlan | None:
    """The plan of `count` phases of k releases; None where it cannot work.

    Args:
        n: persons.
        problem: what is minimised,
        parts: and how its curvature is shared.
        mu: of the whole budget.
        count: phases.
        k: releases of a phase.
        disjoint: whether phases have persons of their own.
    """
    sizes = halves(n, count) if disjoint else [n] * count
    least = min(sizes)
    if least < 2:
        return None
    # Squares of mu add up over what a person answers; 1e-12 keeps their sum within the budget.
    sigma = math.sqrt(k if disjoint else k * count) / mu * (1 + 1e-12)
    d, G, m, R = problem.d, parts.slope, problem.records, problem.reach
    log = math.sqrt(2 * math.log(1 / FAIL))
    # Noise of a center over gamma: lambda times that of a release, of sensitivity 2
    # gamma/(lambda n).
    a = 2 * sigma / least * (math.sqrt(d) + log) * (1 + 2 * THETA)
    tau = min(G, parts.spread * (1 + math.sqrt(2 * math.log(n / FAIL))))
    if k > 1 and not (a < _MAX_CONTRACTION and tau < G):
        return None
    gamma = G
    for _ in range(k - 1):
        gamma = min(G, tau + a * gamma)
    best: tuple[float, tuple[float, ...]] = (math.inf, ())
    strong = problem.strong_convexity
    for base in G / R * RIDGES:
        ridges = tuple(float(base) * GROWTH**at for at in range(count))
        if parts.ridge > 0:  # Algorithms 5 and 6
            ridges = (0.0, *ridges[:-1])
        bound, before = 0.0, R**2
        for ridge, size in zip(ridges, sizes, strict=True):
            bound += ridge / 2 * before
            if disjoint:
                bound += 2 * G**2 / ((ridge + strong) * size * m)
            exact = 2 * gamma * ROOM / ((ridge + parts.ridge) * size)
            # Noise is for exact + 2 alpha, and what is computed is off by alpha itself.
            noise, missed = d * ((1 + 2 * THETA) * exact * sigma) ** 2, THETA * exact
            left = noise + missed**2
            # A sample's minimiser: 2 G/(mu sqrt(n m)) from the population's, root mean square.
            if ridge == 0 and disjoint:
                missed += 2 * G / (strong * math.sqrt(size * m))
            before = noise + missed**2
        bound += problem.objective_lipschitz * math.sqrt(left)
        best = min(best, (bound, ridges))
    return PhasedPlan(*best, k, sigma, tau, a, parts.bowl)
