"""Counts at size: what is measured beside what is stated.

    python -m benchmarks counts

Ratios: of measured to stated variance, of runs whose ranges hold, of runs that find every heavy
item and no other, of runs whose rank bands hold. Seconds: a literal round of 10^6 users with 1,000
categories, an aggregate one of 10^7, and the literal one on every runtime. With
COUNTS_PARTS=histograms,heavy those parts only.
"""

import os
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


def histograms(runs: int = 2000, n: int = 10_000, k: int = 100, seed: int = 1) -> dict[str, float]:
    """Variance and coverage of pollution."""
    histogram = Histogram.calibrated(n=n, categories=k, privacy=PRIVACY, objective="error")
    rows = (np.arange(n) % k).astype(np.float64)
    rng, true = np.random.default_rng(seed), n / k
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


def hosted(n: int = 10**6, k: int = 1000) -> dict[str, float]:
    """Seconds of a literal round on two workers of each runtime, which give the same bits."""
    histogram = Histogram.calibrated(n=n, categories=k, privacy=Privacy(1.0, 1e-8))
    rows, found, values = np.arange(n) % k, dict[str, float](), []
    for runtime, workers in (("inprocess", 1), ("processes", 2), ("ray", 2)):
        start = time.perf_counter()
        values.append(
            run(histogram, rows, fidelity="literal", seed=1, runtime=runtime, workers=workers).value
        )
        found[f"seconds, literal, {n:.0e} users, {runtime}"] = time.perf_counter() - start
    found["runtimes agree"] = float(all(np.array_equal(values[0], each) for each in values))
    found["variance, measured to stated"] = (
        float(((values[0] - n / k) ** 2).mean()) / histogram.variance()
    )
    return found


def single(n: int = 4 * 10**6, k: int = 1000) -> dict[str, float]:
    """Users a second of a literal round at one message each, in process: the roles, unsealed."""
    histogram = Histogram.calibrated(
        n=n, categories=k, privacy=Privacy(1.0, 1e-8), method="response"
    )
    rows, best = np.arange(n) % k, float("inf")
    for seed in range(3):
        start = time.process_time()
        run(histogram, rows, fidelity="literal", seed=seed)
        best = min(best, time.process_time() - start)
    return {"users a second, literal, one message": n / best}


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


def bands(
    runs: int = 1000, rows: Floats | None = None, low: float = 0.0, high: float = 100.0
) -> dict[str, float]:
    """Rank errors of quantiles, and runs whose bands hold; a gamma law where no column is given.

    A column is of whole numbers, one to a cell, and so are its quantiles. A value is as far from a
    quantile as its rank is from those of the users of its value.
    """
    whole = rows is not None
    if rows is None:
        rows = np.random.default_rng(3).gamma(2.0, 10.0, 100_000).clip(0, 99.999)
    n, ordered = len(rows), np.sort(rows)
    quantiles = Quantiles.calibrated(n=n, low=low, high=high, privacy=PRIVACY)
    true = np.searchsorted(ordered, np.linspace(low, high, 1025))
    rng, held, error = np.random.default_rng(4), 0, 0.0
    shares, worst = np.array([0.1, 0.25, 0.5, 0.75, 0.9]), np.empty(runs)
    for at in range(runs):
        found = drawn(quantiles, rows, rng)
        least, most = found.band()
        held += bool(((least <= true) & (true <= most)).all())
        error += float(((found.raw - true)[1:-1] ** 2).mean())
        values = np.array([found.quantile(share) for share in shares])
        values = np.floor(values) if whole else values
        below, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
        worst[at] = np.maximum(below - shares * n, shares * n - upto).max()
    stated = float((quantiles.standard_errors**2).mean())
    return {
        "bands that hold": held / runs,
        "rank variance, measured to stated": error / runs / stated,
        "ranks of the worst of five quantiles, half of the runs": float(np.median(worst)),
        "runs with all five within 60 ranks": float((worst <= 60).mean()),
        "ranks of the worst of all": float(worst.max()),
    }


def measure() -> dict[str, float]:
    """All of them, or those that COUNTS_PARTS names."""
    parts = histograms, rounds, hosted, single, heavy, bands
    names = os.environ.get("COUNTS_PARTS", ",".join(each.__name__ for each in parts)).split(",")
    return {key: value for each in parts if each.__name__ in names for key, value in each().items()}
