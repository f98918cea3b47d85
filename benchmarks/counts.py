"""Counts at size: what is measured beside what is stated.

    python -m benchmarks counts

Ratios: of measured to stated variance, of runs whose ranges hold, of runs that find every heavy
item and no other, of runs whose rank bands hold. Seconds: a literal round of 10^6 users with 1,000
categories, and an aggregate one of 10^7.
"""

import time
from typing import Any

import numpy as np

from protocols import HeavyHitters, Histogram, Quantiles
from protocols.counts.one_view import OneView
from shuffle_sim import Privacy, run
from shuffle_sim.arrays import Floats, dense

PRIVACY = Privacy(1.0, 1e-6)


def drawn(protocol: OneView[Any], rows: Floats, rng: np.random.Generator) -> Any:
    """One result, by the aggregate law of all users at once."""
    values = dense(protocol.query(rows))
    tally = protocol.randomizer.tallied(protocol.randomizer.admit(values)[0], rng)
    return protocol.answer(protocol.analyze(tally))


def histograms(runs: int = 2000, n: int = 10_000, k: int = 100) -> dict[str, float]:
    """Variance and coverage of pollution."""
    histogram = Histogram.calibrated(n=n, categories=k, privacy=PRIVACY, objective="error")
    rows = (np.arange(n) % k).astype(np.float64)
    rng, true = np.random.default_rng(1), n / k
    errors, one, together = 0.0, 0.0, 0
    for _ in range(runs):
        value = np.asarray(drawn(histogram, rows, rng))
        errors += float(((value - true) ** 2).mean())
        each, whole = (histogram.interval(value, together=every) for every in (False, True))
        one += float(((each.low <= true) & (true <= each.high)).mean())
        together += bool(((whole.low <= true) & (true <= whole.high)).all())
    return {
        "variance, measured to stated": errors / runs / histogram.variance(true),
        "ranges of one bin that hold": one / runs,
        "ranges of all bins that hold": together / runs,
    }


def rounds(literal: int = 10**6, aggregate: int = 10**7, k: int = 1000) -> dict[str, float]:
    """Seconds of a round."""
    found = {}
    for n, fidelity in ((literal, "literal"), (aggregate, "aggregate")):
        histogram = Histogram.calibrated(n=n, categories=k, privacy=Privacy(1.0, 1e-8))
        rows = np.arange(n) % k
        start = time.process_time()
        value = run(histogram, rows, fidelity=fidelity, seed=1).value
        found[f"seconds, {fidelity}, {n:.0e} users"] = time.process_time() - start
        ratio = float(((value - n / k) ** 2).mean()) / histogram.variance()
        found[f"variance, {fidelity}, measured to stated"] = ratio
    return found


def heavy(runs: int = 20, n: int = 10**6, planted: int = 50) -> dict[str, float]:
    """Runs that find all items of 100 users among 2^32, and none false."""
    search = HeavyHitters.calibrated(n=n, privacy=Privacy(1.0, 1e-6), levels=(16, 8, 8))
    rng, good = np.random.default_rng(2), 0
    for index in range(runs):
        items = rng.integers(0, 2**32, n)
        heavy_items = rng.integers(0, 2**32, planted)
        items[: 100 * planted] = np.repeat(heavy_items, 100)
        found = run(search, items.astype(float), fidelity="aggregate", seed=index).value
        good += sorted(found.items.tolist()) == sorted(heavy_items.tolist())
    return {"runs that find all and none false": good / runs, "least count": search.least_count}


def bands(runs: int = 1000, n: int = 100_000) -> dict[str, float]:
    """Rank errors of quantiles, and runs whose bands hold."""
    quantiles = Quantiles.calibrated(n=n, low=0.0, high=100.0, privacy=PRIVACY)
    rows = np.random.default_rng(3).gamma(2.0, 10.0, n).clip(0, 99.999)
    true = np.searchsorted(np.sort(rows), np.linspace(0, 100, 1025))
    rng, held, worst, error = np.random.default_rng(4), 0, 0.0, 0.0
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    ordered = np.sort(rows)
    for _ in range(runs):
        found = drawn(quantiles, rows, rng)
        low, high = found.band()
        held += bool(((low <= true) & (true <= high)).all())
        error += float(((found.raw - true)[1:-1] ** 2).mean())
        values = [found.quantile(share) for share in shares]
        ranks = np.searchsorted(ordered, values)
        worst = max(worst, float(np.abs(ranks - shares * n).max()))
    stated = float((quantiles.standard_errors**2).mean())
    return {
        "bands that hold": held / runs,
        "rank variance, measured to stated": error / runs / stated,
        "worst rank of five quantiles": worst,
    }


def measure() -> dict[str, float]:
    """All of them."""
    return histograms() | rounds() | heavy() | bands()
