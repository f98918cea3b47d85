"""Tails of a law: how often draws fall into its first and last 2^-k, and its seldom outcomes."""

from collections.abc import Iterable

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.scores import LEVELS, Ints, judge, stacked

_DEPTHS = np.exp2(-np.arange(3.0, 21.0))
Sums = tuple[Floats, Floats, Floats]
"""What was counted, its mean and its variance, (2 ends, depths)."""


def tail_sums(seen: Ints, pmf: Floats) -> Sums:
    """Draws in both tails of a law.

    Args:
        seen: independent outcomes, of any shape.
        pmf: of the outcomes 0, 1, ...
    """
    law, found = pmf / pmf.sum(), np.bincount(seen.ravel(), minlength=len(pmf))
    chances, counted = np.empty((2, 2, len(_DEPTHS)))
    for end, (each, many) in enumerate(((law, found), (law[::-1], found[::-1]))):
        below = np.cumsum(each)
        # No more than the depth: outcomes are in the tail or not, none in part.
        last = np.searchsorted(below, _DEPTHS, side="right")  # so many outcomes are in the tail
        chances[end] = np.append(0.0, below)[last]
        counted[end] = np.append(0, np.cumsum(many))[last]
    return counted, seen.size * chances, seen.size * chances * (1 - chances)


def judge_tails(tests: Iterable[Sums], alarm: float, what: str) -> None:
    """Each of them, and all of them together where they are of independent draws.

    Raises:
        LawError: naming the first that is off.
    """
    counted, means, variances = stacked(list(tests))
    # A hundredth less noise in each of many laws shows in their sum alone.
    every = (counted, means, variances), tuple(x.sum(axis=0) for x in (counted, means, variances))
    for found, mean, variance in every:
        # A count moves by LEVELS at most, which is what `judge` expects.
        judge(LEVELS * found, LEVELS * mean, LEVELS**2 * variance, alarm / 2, what)


def check_ends(numbers: Ints, modulus: int, alarm: float, what: str) -> None:
    """Numbers that are uniform below a modulus come as often to the ends of the range.

    Raises:
        LawError: they do not.
    """
    parts = np.array([int(modulus * depth) for depth in _DEPTHS.tolist()])
    row = np.sort(numbers.ravel())
    low = np.searchsorted(row, parts)
    high = row.size - np.searchsorted(row, modulus - parts)
    # The share that so many integers really have: q need be no power of two.
    chance = np.stack([parts, parts]) / modulus
    sums = np.stack([low, high]).astype(float), row.size * chance, row.size * chance * (1 - chance)
    judge_tails([sums], alarm, what)
