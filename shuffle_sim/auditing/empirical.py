"""Lower bounds of epsilon from samples."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.data.population import population_of
from shuffle_sim.errors import ParameterError, integer
from shuffle_sim.privacy.bounds.gaussian import epsilon_gdp
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol
from shuffle_sim.roles.users import admitted
from shuffle_sim.sampling.randomness import entropy_of
from shuffle_sim.wire.messages import Tally

CONFIDENCE = 1 - 1e-4
_RUNS = 400  # of a whole protocol; each gives a sample for every coordinate
_SAMPLES = 12_000


def clopper_pearson(
    likely: NDArray[Any], unlikely: NDArray[Any], threshold: float, delta: float
) -> float:
    """ln((P - delta) / Q) for the event sample >= threshold, P from below, Q from above."""
    hits, misses, alpha = (
        int((likely >= threshold).sum()),
        int((unlikely >= threshold).sum()),
        (1 - CONFIDENCE) / 2,
    )
    lower = stats.beta.ppf(alpha, hits, likely.size - hits + 1) if hits else 0.0
    upper = (
        stats.beta.ppf(1 - alpha, misses + 1, unlikely.size - misses)
        if misses < unlikely.size
        else 1.0
    )
    return math.log((lower - delta) / upper) if lower > delta else -math.inf


def best_threshold(low: NDArray[Any], high: NDArray[Any], delta: float) -> float:
    """Clopper-Pearson of the best threshold, which is chosen on the first half of the samples."""
    half = len(low) // 2
    if np.median(low[:half]) > np.median(high[:half]):
        low, high = high, low
    thresholds = np.unique(np.quantile(np.concatenate([low, high]), np.linspace(0.002, 0.998, 250)))
    tests = [(high, low, t) for t in thresholds] + [(-low, -high, -t) for t in thresholds]
    a, b, t = max(
        tests, key=lambda test: clopper_pearson(test[0][:half], test[1][:half], test[2], delta)
    )
    return max(0.0, clopper_pearson(a[half:], b[half:], t, delta))


def gaussian_estimate(low: NDArray[Any], high: NDArray[Any], delta: float) -> float:
    """epsilon of the Gaussian pair that the two samples show: means apart, over the spread.

    Both are taken from below at confidence 1 - 1e-4. What is assumed, not tested here, is that the
    pair is Gaussian; an audit tests the law by itself.
    """
    z = float(stats.norm.isf((1 - CONFIDENCE) / 2))
    apart = abs(float(high.mean() - low.mean()))
    spread = math.sqrt((float(high.var(ddof=1)) + float(low.var(ddof=1))) / 2)
    if spread == 0:
        return math.inf if apart else 0.0
    apart -= z * spread * math.sqrt(1 / low.size + 1 / high.size)
    mu = apart / (spread * (1 + z / math.sqrt(2 * (low.size + high.size))))
    return epsilon_gdp(delta, mu) if mu > 1e-6 else 0.0


def empirical_run(
    protocol: Protocol[Any],
    data: Any = None,
    *,
    runs: int | None = None,
    seed: int | None = None,
) -> float:
    """A lower bound of epsilon of a whole run, from canaries in every round.

    A canary holds one end of the worst pair in one coordinate, in all rounds in which it is asked:
    the guarantee covers every query, so it covers this one. The attacker knows all other values.
    It adds up what the views say beyond them. One run gives a sample for each coordinate (after
    Steinke, Nasr and Jagielski 2023). The samples give a Gaussian estimate (after Nasr et al. 2023)
    where the noise is nearly Gaussian, else a Clopper-Pearson bound.

    Args:
        protocol: any whose randomizers are a sum's.
        data: rows of its users; None: every value is 0 (for sums and protocols whose update takes
            it).
        runs: by default such that there are some 12,000 samples.
        seed: to reproduce it.

    Raises:
        ParameterError: its randomizer cannot say its worst pair.
    """
    spec = protocol.plan(protocol.init())
    if spec is None or not hasattr(spec.randomizer, "worst_pair"):
        raise ParameterError("protocol", type(protocol).__name__, "one whose randomizer has one")
    rng = np.random.default_rng(entropy_of(seed))
    columns = _coordinates(spec.randomizer)
    runs = max(_RUNS, -(-_SAMPLES // columns)) if runs is None else integer("runs", runs, 100)
    samples, signs = np.empty((runs, columns)), np.empty((runs, columns), bool)
    for index in range(runs):
        signs[index] = rng.random(columns) < 0.5
        samples[index] = _observed(protocol, data, signs[index], rng)
    low, high = samples[~signs], samples[signs]
    if theorem_of(type(spec.event)).near_gaussian:
        return gaussian_estimate(low, high, protocol.delta)
    even = min(len(low), len(high))
    return best_threshold(low[:even], high[:even], protocol.delta)


def _coordinates(randomizer: Any) -> int:
    return int(randomizer.variance(1).size)


def _observed(
    protocol: Protocol[Any], data: Any, signs: NDArray[np.bool_], rng: np.random.Generator
) -> Floats:
    """What the views of one run say of the canaries, per coordinate, beyond what is known."""
    state, seen = protocol.init(), np.zeros(len(signs))
    canaries: NDArray[np.int64] | None = None
    while (spec := protocol.plan(state)) is not None:
        randomizer: Any = spec.randomizer
        users = np.concatenate([np.arange(*span) for span in spec.cohort.ranges])
        if data is None:
            values = np.zeros((len(users), len(signs)))
        else:
            population = population_of(data)
            rows = np.concatenate([population.rows(*span) for span in spec.cohort.ranges])
            values = dense(spec.query(np.asfortranarray(rows, np.float64)))
        values = np.array(dense(admitted(values, randomizer)[0]), np.float64)
        flat = values.reshape(len(users), -1)
        if canaries is None:
            canaries = users[: len(signs)]
        first, second = (np.atleast_1d(x) for x in randomizer.worst_pair())
        known, asked = flat.sum(axis=0), np.zeros(len(signs), bool)
        placed = np.flatnonzero(np.isin(users, canaries))
        for place in placed:
            coordinate = int(np.argmax(canaries == users[place]))
            known -= flat[place]
            end = second if signs[coordinate] else first
            flat[place] = np.roll(end, coordinate)
            # Where a value is not moved it is in the middle, for both ends.
            known += np.roll((first + second) / 2, coordinate)
            asked[coordinate] = True
        tally = Tally(randomizer.tally(flat.reshape(values.shape), rng), len(users))
        seen += asked * (randomizer.estimate(tally) - known)
        state = protocol.update(state, spec.analyze(tally))
    return seen
