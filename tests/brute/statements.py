"""How far two neighbours' answers are apart, over what is stated: above 1 a promise is broken.

Every kind of mechanism believes something of its own about its value; the distances stand here a
second time, so that a wrong norm in the package does not hide itself.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np

from protocols.central.person.chained_mean import ChainedMean
from protocols.central.record.objective_perturbation import Rows
from protocols.counts.randomizer import Counting, Noisy
from protocols.counts.single import Obliged
from protocols.erm.cells import RowsMean
from protocols.erm.objective import Objective
from protocols.erm.risk import erm
from protocols.sums.buckets import BucketRandomizer
from protocols.sums.carry import CarryRandomizer
from protocols.sums.floods import FloodRandomizer
from shuffle_sim.arrays import dense
from shuffle_sim.privacy.grid_noise import BinomialShiftEvent
from shuffle_sim.privacy.sparse_vector import AboveThreshold
from shuffle_sim.privacy.tested_release import TestedGaussian

FAR = (0.0, 0.1, 1.0, 10.0, 1000.0)
"""Lengths of the points at which functions are compared."""


def distance(norm: str, first: Any, second: Any) -> float:
    """In the norm that a mechanism names."""
    if isinstance(first, Objective | RowsMean | Rows):
        return (_steepest if norm == "gradient" else _widest)(first, second)
    apart = np.ravel(np.asarray(second, float)) - np.ravel(np.asarray(first, float))
    if not apart.size:
        return 0.0
    found = {
        "l2": lambda: np.hypot.reduce(apart),
        "l1": lambda: np.abs(apart).sum(),
        "range": lambda: apart.max() - apart.min(),
        "count": lambda: np.abs(apart).max(),
    }[norm]()
    return float(found) if np.isfinite(found) else np.inf


def _slope(function: Any, w: Any) -> Any:
    """Of what was released as a function: of a mean of losses, or of their sum."""
    if isinstance(function, Objective | RowsMean):
        return function.gradient(w)
    assert isinstance(function, Rows)
    risk = function.risk
    mean = erm(risk.loss, function.rows, risk.ridge, risk.domain)
    return len(function.rows) * mean.gradient(w)


def _steepest(first: Any, second: Any) -> float:
    """The largest change of the slope that a few hundred points show."""
    points = _points(first, second)
    return max(distance("l2", _slope(first, w), _slope(second, w)) for w in points)


def _widest(first: Any, second: Any) -> float:
    """The range of the change of values at these points."""
    return distance(
        "range", *([each.value(w) for w in _points(first, second)] for each in (first, second))
    )


def _points(first: Any, second: Any) -> Iterator[Any]:
    """Along coordinates, rows and random directions."""
    domain = first.domain
    rng, ways = np.random.default_rng(0), [*np.eye(domain.d)]
    for rows in (first.rows, second.rows) if hasattr(first, "rows") else ():
        ways += [each[: domain.d] for each in rows if len(each) >= domain.d]
    ways += [*rng.normal(size=(4, domain.d))]
    for way in ways:
        length = float(np.linalg.norm(way))
        for far in FAR if length > 0 else ():
            for sign in (1.0, -1.0):
                yield domain.project(domain.center + sign * far * way / length)


@singledispatch
def moved(mechanism: Any, first: Any, second: Any, stated: float) -> float:
    """Distance over what is stated."""
    return distance(mechanism.norm, first, second) / stated


@moved.register
def _(mechanism: TestedGaussian, first: Any, second: Any, stated: float) -> float:
    """A score moves by 1; vectors as stated where both scores may pass."""
    scores = abs(float(first[0]) - float(second[0]))
    if max(first[0], second[0]) > mechanism.largest:
        return scores
    return max(scores, distance("l2", first[1:], second[1:]) / stated)


@moved.register
def _(mechanism: ChainedMean, first: Any, second: Any, stated: float) -> float:
    """One row differs, and none is longer than half of what is stated."""
    rows = int((np.asarray(first) != np.asarray(second)).any(axis=1).sum())
    longest = max(float(np.hypot.reduce(each, axis=1).max()) for each in (first, second))
    return max(float(rows > 1) * rows, 2 * longest / stated)


@moved.register
def _(mechanism: AboveThreshold, first: Any, second: Any, stated: float) -> float:
    """Its own sensitivity is what it pays for."""
    return distance("l2", first, second) / min(stated, mechanism.sensitivity)


def coupled(loss: Any) -> float:
    """Bends over what the event of a loss allows them: 4 s (1 - s) beta at the slope s L."""
    margins, ones = np.linspace(-9.0, 9.0, 181), np.ones(181)
    slopes, bends = abs(loss.derivative(margins, ones)), loss.second(margins, ones)
    allowed = 4 * slopes * (1 - slopes) * loss.curvature()
    return float((bends / np.maximum(allowed, 1e-12)).max())


def strays(domain: Any) -> float:
    """How far projections lie outside the set, or expand, over a slack of 1e-9 of their size."""
    rng, most = np.random.default_rng(0), 0.0
    for scale in (1e-3, 1.0, 1e3):
        first = domain.center + scale * rng.normal(size=domain.d)
        second = first + scale * rng.normal(size=domain.d)
        near, far = domain.project(first), domain.project(second)
        slack = 1e-9 * (1 + np.abs(near).max())
        beyond = np.linalg.norm(near - far) - np.linalg.norm(first - second)
        outside = [
            np.linalg.norm(each.project(near) - near)
            for each in getattr(domain, "_sets", (domain,))
        ]
        most = max(most, beyond / slack, *(each / slack for each in outside))
    return float(most)


def encoded(event: Any, randomizer: Any, first: Any, second: Any) -> Iterator[tuple[str, float]]:
    """Admitted values of a round's users, against what the event of the round believes of them.

    Args:
        event: that is charged.
        randomizer: of the round.
        first: admitted values of the users.
        second: of the neighbours.
    """
    if isinstance(randomizer, Counting):
        yield "users' words", worded(randomizer, first, second)
        return
    values = [dense(each).reshape(len(each), -1) for each in (first, second)]
    if isinstance(randomizer, CarryRandomizer):
        values = [randomizer._clipped(each) for each in (first, second)]
    length = np.maximum if isinstance(randomizer, FloodRandomizer) else np.hypot
    apart = float(length.reduce(abs(values[1] - values[0]), axis=1).sum())
    width, lower = getattr(randomizer, "width", None), getattr(randomizer, "lower", 0.0)
    if isinstance(randomizer, BucketRandomizer):
        width, lower = 2 * randomizer.norm_bound, -randomizer.norm_bound
    stated = width
    if isinstance(event, BinomialShiftEvent):
        stated = event.shift * width / randomizer.g
    yield "users' values", apart / stated if np.isfinite(apart) else np.inf
    low, high = lower, lower + width
    if isinstance(randomizer, CarryRandomizer):
        low, high = randomizer.lowest, randomizer.lowest + randomizer.span * width
    outside = max(max(low - each.min(), each.max() - high) for each in values)
    yield "range", 1 + float(outside) / width if outside > 0 else 0.0


def worded(randomizer: Counting, first: Any, second: Any) -> float:
    """Users whose own words differ; infinite where one has two of a set, or one of no bin."""
    edges, found = getattr(randomizer, "edges", [0, randomizer.alphabet.symbols]), []
    for values in map(dense, (first, second)):
        if isinstance(randomizer, Noisy):
            owners, words = randomizer.sent(values, np.random.default_rng(0))
        else:  # a value is a word, or none where silence tells nothing
            always = isinstance(randomizer, Obliged)
            edges, owners = [0, randomizer.bins], np.flatnonzero((values >= 0) | always)
            words = values[owners].astype(np.int64)
        sets = np.searchsorted(edges, words, side="right") - 1
        pairs = np.unique(np.stack([owners, sets]), axis=1)
        if not ((sets >= 0) & (sets < len(edges) - 1)).all() or pairs.shape[1] < words.size:
            return float("inf")
        own = np.zeros((len(values), len(edges) - 1), np.int64)
        own[owners, sets] = words + 1
        found.append(own)
    return float((found[0] != found[1]).any(axis=1).sum())
