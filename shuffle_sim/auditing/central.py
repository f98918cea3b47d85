"""Audits of central releases: a lower bound of epsilon from draws on two neighbouring tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.empirical import clopper_pearson
from shuffle_sim.errors import ParameterError, integer, real
from shuffle_sim.protocol.release import CentralAlgorithm, Release, WholeStatistic
from shuffle_sim.sampling.randomness import entropy_of


@dataclass(frozen=True)
class CentralAudit:
    """What draws on two neighbouring tables say.

    Attributes:
        claimed: epsilon that is claimed.
        empirical: a lower bound of epsilon, true with probability 1 - 1e-4.
        delta: at which both hold.
        repeats: draws of each table.
    """

    claimed: float
    empirical: float
    delta: float
    repeats: int

    @property
    def passed(self) -> bool:
        """Whether the claim is not refuted; a false alarm has probability 1e-4 at most."""
        return self.empirical <= self.claimed


def audit_central(
    algorithm: CentralAlgorithm[Any],
    first: Floats,
    second: Floats,
    *,
    epsilon: float,
    delta: float,
    repeats: int = 4000,
    seed: int | None = None,
) -> CentralAudit:
    """Play the membership game on the first release of an algorithm.

    Half of the draws choose a direction and a threshold, the others bound the odds at it (Clopper
    and Pearson 1934).

    Args:
        algorithm: whose first release is audited.
        first: rows.
        second: rows that differ in one.
        epsilon: claimed.
        delta: of the claim.
        repeats: draws of each table, at least 1,000.
        seed: to reproduce it.

    Raises:
        ParameterError: tables that differ in more than one row, or a number out of range.
    """
    integer("repeats", repeats, 1000)
    real("delta", delta, 0.0, 1.0, closed=(True, False))
    first, second = np.asarray(first, float), np.asarray(second, float)
    if first.shape != second.shape or np.any(first != second, axis=1).sum() != 1:
        raise ParameterError("second", second.shape, "the first table with one row replaced")
    release = algorithm.plan(algorithm.init())
    if release is None:
        raise ParameterError("algorithm", type(algorithm).__name__, "one that releases something")
    rng = np.random.default_rng(entropy_of(seed))
    draws = [_draws(release, rows, repeats, rng) for rows in (first, second)]
    half = repeats // 2
    way = draws[1][:half].mean(axis=0) - draws[0][:half].mean(axis=0)
    low, high = (each @ way for each in draws)
    both = np.concatenate([low[:half], high[:half]])
    thresholds = np.quantile(both, np.linspace(0.01, 0.99, 99))
    tests = [(high, low, t) for t in thresholds] + [(-low, -high, -t) for t in thresholds]
    likely, unlikely, best = max(
        tests, key=lambda test: clopper_pearson(test[0][:half], test[1][:half], test[2], delta)
    )
    found = clopper_pearson(likely[half:], unlikely[half:], best, delta)
    return CentralAudit(epsilon, max(0.0, found), delta, repeats)


def _draws(release: Release, rows: Floats, repeats: int, rng: np.random.Generator) -> Floats:
    """So many released values, (repeats, numbers); the statistic is computed once."""
    statistic = release.statistic
    if isinstance(statistic, WholeStatistic):
        value = statistic.of(rows)
    else:
        value = statistic(lambda part: part(rows), len(rows))
    size = release.sensitivity.value
    found = [np.ravel(release.mechanism.sample(value, size, rng)) for _ in range(repeats)]
    return np.array(found, float)
