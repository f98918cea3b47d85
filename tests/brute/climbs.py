"""The search for the pair of neighbours that moves an algorithm most."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .walks import Answer, walk

NOTHING = Answer(-1, "nothing was asked", 0.0)


@dataclass(frozen=True)
class Found:
    """The worst answer that was seen, the pair that gave it, and how many runs were compared."""

    answer: Answer
    pair: Any
    runs: int


def worst(algorithm: Any, pair: Any, seed: int) -> Answer:
    """Of one run on a pair."""
    rng = np.random.default_rng(seed)
    return max(walk(algorithm, pair, rng), key=lambda each: each.ratio, default=NOTHING)


@dataclass(frozen=True)
class Effort:
    """How long a search is: pairs of extremes, starts, and steps from each."""

    extremes: int
    climbs: int
    steps: int

    def part(self, share: float) -> "Effort":
        """A share of it, for what takes long."""
        extremes, steps = (max(1, round(share * each)) for each in (self.extremes, self.steps))
        return Effort(extremes, self.climbs, steps)


def climb(algorithm: Any, space: Any, effort: Effort, seed: int = 1) -> Found:
    """Extremes first; then from several starts steps that only go up.

    A step turns a few of the numbers by an amount of any size, or sets them to an end.
    """
    rng, best, pairs, runs = np.random.default_rng(seed), NOTHING, None, 0

    def tried(pair: Any) -> Answer:
        nonlocal best, pairs, runs
        found = worst(algorithm, pair, int(rng.integers(2**31)))
        runs += found is not NOTHING
        if found.ratio > best.ratio or pairs is None:
            best, pairs = found, pair
        return found

    for pair in space.extremes(rng, effort.extremes):
        tried(pair)
    for _ in range(effort.climbs):
        at = rng.normal(size=space.size)
        height = tried(space.pair(at)).ratio
        for _ in range(effort.steps):
            after = at.copy()
            few = rng.random(space.size) < rng.choice([0.15, 0.4, 1.0])
            turned = after[few] + rng.normal(size=int(few.sum())) * 10 ** rng.uniform(-3, 0.5)
            after[few] = turned if rng.random() < 0.7 else rng.choice([-1.0, 0.0, 1.0], len(turned))
            found = tried(space.pair(after)).ratio
            if found >= height:
                at, height = after, found
    return Found(best, pairs, runs)
