"""Proven bounds do not rise on fine grids: ratios 1.1 and 1.01, and from point to random point.

Grids of a planner are some percent apart, and so are the rises that they may leave. Lines are
walked as long as time allows; what is walked first is the same in each run.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from monotone import FEW_PERSONS, NO_BOUND, bound_of, of_persons, optimisers

import protocols
from protocols import Hinge, Logistic

Point = tuple[float, ...]
SLACK = 1 + 1e-9
"""Of doubles: a plan on more is a plan on less, term by term."""
QUICK, LONG = 0.4, 12.0
"""Seconds for each algorithm."""
POINTS = 9
FIRST = 10_000, 60, 1.0
PROBLEMS = (Logistic(), 0.0), (Logistic(), 0.1), (Hinge(), 0.0)
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "LinearTimePhasedSGD": ({"mean": "plain"}, {"mean": "chain"}, {"mean": "friendly"}, {}),
    "OneShotAverage": ({"protects": "person"}, {"protects": "record"}),
    "UserLevelACSA": ({"rounds": 5}, {"center": "carried"}, {"center": "fixed"}, {}),
    "UserLevelGD": ({"rounds": 5}, {"center": "carried"}, {"center": "fixed"}, {}),
    "ShuffleGD": ({"rounds": 20}, {"max_rounds_per_user": 10}, {}),
    "AcceleratedPhasedERM": ({}, {"center": "carried"}, {"batches": "once"}),
}
LIMITS = {"ExponentialMechanism": 1e6}
"""Of epsilon n: a draw of more takes too long and is refused, which says so."""
CASES = [
    pytest.param(kind, options, id=f"{name} {options or ''}".strip())
    for name, kind in optimisers().items()
    if name not in NO_BOUND and name != FEW_PERSONS
    for options in OPTIONS.get(name, ({},))
]


def stretch(base: Point, at: int, ratio: float) -> list[float]:
    """From the base on; whole numbers of users and records, all of them different."""
    values = [base[at] * ratio**power for power in range(POINTS)]
    return values if at == 2 else sorted({round(each) for each in values})


def lines(persons: bool, seed: int) -> Iterator[tuple[Point, int, list[float]]]:
    """(base, which argument, its values), for ever: first from `FIRST`, then from random points."""
    axes = (1, 0, 2) if persons else (0, 2)
    for ratio in (1.1, 1.01):
        for at in axes:
            yield FIRST, at, stretch(FIRST, at, ratio)
    rng = np.random.default_rng(seed)
    while True:
        low, high = np.log([200, 2, 0.1]), np.log([2e5, 2000, 6.0])
        n, m, epsilon = np.exp(rng.uniform(low, high)).tolist()
        base, at = (round(n), round(m), epsilon), axes[rng.integers(len(axes))]
        if rng.random() < 0.5:
            yield base, at, stretch(base, at, (1.1, 1.01)[rng.integers(2)])
        else:  # a user or a record more each time
            more = base[at] * 1e-3 if at == 2 else 1
            yield base, at, [base[at] + more * step for step in range(POINTS)]


def walked(
    bound: Callable[..., float | None],
    persons: bool,
    seconds: float,
    most: int | None = None,
    limit: float = math.inf,
) -> list[str]:
    """Where a bound rises along lines, until the time is over or so many are walked.

    At least two points are; what is refused where less was served rises, too. A line ends at the
    limit of epsilon n.
    """
    found, end = [], time.monotonic() + seconds
    for base, at, values in itertools.islice(lines(persons, seed=1), most):
        last = None
        for value in values:
            if last is not None and time.monotonic() > end:
                return found
            point = (*base[:at], value, *base[at + 1 :])
            if point[0] * point[2] > limit:
                break
            known = bound(*point)
            now = math.inf if known is None else known
            if last is not None and now > last * SLACK:
                found.append(f"to {point}: {last:.7g}, {now:.7g}")
            last = now
    return found


def of_all(kind: type[Any], options: dict[str, Any], seconds: float) -> list[str]:
    """Of all problems that it takes."""
    found = []
    for loss, ridge in PROBLEMS:

        def bound(
            n: float, m: float, epsilon: float, loss: Any = loss, ridge: float = ridge
        ) -> float | None:
            return bound_of(kind, int(n), int(m), epsilon, loss, ridge, options)

        if bound(*FIRST) is not None:
            limit = LIMITS.get(kind.__name__, math.inf)
            found += walked(bound, of_persons(kind), seconds / len(PROBLEMS), limit=limit)
    return found


@pytest.mark.parametrize(("kind", "options"), CASES)
@pytest.mark.long
def test_bounds_do_not_rise_on_a_fine_grid(kind: type[Any], options: dict[str, Any]) -> None:
    def bound(n: float, m: float, epsilon: float) -> float | None:
        return bound_of(kind, int(n), int(m), epsilon, options=options)

    assert bound(*FIRST) is not None
    limit = LIMITS.get(kind.__name__, math.inf)
    assert walked(bound, of_persons(kind), QUICK, limit=limit) == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_bounds_do_not_rise_on_fine_grids_of_all_problems(
    kind: type[Any], options: dict[str, Any]
) -> None:
    assert of_all(kind, options, LONG) == []


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_rise_of_a_thousandth_would_be_found(at: int) -> None:
    """In one step of a line a bound rises by 0.1 %; before and later it does not."""
    kind, options = protocols.LinearTimePhasedSGD, {"mean": "plain"}
    before = stretch(FIRST, at, 1.1)[3]

    def real(n: float, m: float, epsilon: float) -> float:
        return bound_of(kind, int(n), int(m), epsilon, options=options) or math.nan

    n, m, epsilon = (before if each == at else value for each, value in enumerate(FIRST))
    least = real(n, m, epsilon)

    def planted(n: float, m: float, epsilon: float) -> float:
        found = real(n, m, epsilon)
        return found if (n, m, epsilon)[at] <= before else max(found, 1.001 * least)

    assert walked(real, True, 60.0, most=3) == []
    assert len(walked(planted, True, 60.0, most=3)) == 1
