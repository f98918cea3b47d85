"""The search for the pair of neighbours that moves an algorithm most."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.central.person.grouped_descent import PlainDescent
from shuffle_sim.arrays import dense

from .neighbours import row
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

    for pair in (*space.extremes(rng, effort.extremes), *parting(algorithm, rng)):
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


def parting(algorithm: Any, rng: np.random.Generator) -> Iterator[Any]:
    """Persons under whose records two descents part most, chosen record by record.

    The first person's records differ. Every other record is the best of many: with a small slope
    along the way between both points, and its margins on both sides of 0.
    """
    release = algorithm.plan(algorithm.init()) if hasattr(algorithm, "plan") else None
    asked = getattr(release, "statistic", None)
    if not isinstance(asked, PlainDescent):
        return
    loss, d, tries = asked.slopes.loss, asked.start.size, 60
    columns = loss.columns(d)

    def stepped(thetas: Any, rows: Any) -> Any:
        slopes = dense(asked.slopes.each(thetas, rows)) + asked.ridge * thetas
        return thetas - asked.eta * slopes

    ends = np.zeros((2, columns))
    ends[:, 0], ends[:, -1] = 1.0, (1.0, -1.0)
    ends = np.array([row(loss, d, each) for each in ends])
    points, chosen = np.tile(asked.start, (2, 1)), []
    for _ in range(asked.records):
        points = stepped(points, ends)
    for _ in range((asked.users - 1) * asked.records):
        numbers = rng.normal(size=(tries, columns)) * rng.random((tries, columns)) ** 4
        x, apart, middle = numbers[:, :d], points[0] - points[1], points.mean(axis=0)
        ways = ((apart, rng.random((tries, 1))), (middle, 1.0))
        for way, share in ways if columns >= d else ():  # features have the parameters' dimension
            x -= np.outer(x @ way / max(1e-9, way @ way), way) * share
        tried = np.array([row(loss, d, each) for each in numbers])
        after = [stepped(np.tile(each, (tries, 1)), tried) for each in points]
        best = int(np.argmax(np.linalg.norm(after[0] - after[1], axis=1)))
        chosen.append(tried[best])
        points = np.array([each[best] for each in after])
    others = np.array(chosen).reshape(asked.users - 1, asked.records, columns)
    rest = [ends[:1]] * (algorithm.users - asked.users)
    pairs = ([np.tile(end, (asked.records, 1)), *others, *rest] for end in ends)
    yield tuple(pairs)
