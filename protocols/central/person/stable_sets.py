"""Deletion stability of a function of sets of persons: its score, and a certificate of it.

Ghazi et al. 2023, Algorithm 1 and Appendix C, as mended in docs/theory/user-level.md.
"""

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from shuffle_sim.arrays import Floats

SetFunction = Callable[[tuple[int, ...]], Floats]
"""Persons who remain -> the output without noise."""


def stable_score(n: int, largest: int, width: float, f: SetFunction) -> tuple[int, Floats]:
    """(k*, f without S*): the least set S whose removal leaves f stable under further removals.

    S is stable if all f(x without S and T) with |T| <= 2 K + 1 - |S| lie within `width` of each
    other. Where no S of at most K persons is, k* is K + 1, and the output is never released. k*
    changes by at most 1 between neighbours; where both are at most K the outputs are within
    2 width.

    Args:
        n: persons.
        largest: K.
        width: Lambda.
        f: of the persons who remain, in order.
    """
    known: dict[tuple[int, ...], Floats] = {}

    def of(removed: tuple[int, ...]) -> Floats:
        if removed not in known:
            gone = set(removed)
            known[removed] = f(tuple(i for i in range(n) if i not in gone))
        return known[removed]

    # The least size first, then by index: S* must be a function of the data, and any fixed order
    # is.
    for size in range(largest + 1):
        for removed in combinations(range(n), size):
            rest = [i for i in range(n) if i not in removed]
            # The lemma removes S*, the neighbour's S'* and the replaced person: 2 K + 1 persons at
            # most.
            more = 2 * largest + 1 - size
            family = (
                of(tuple(sorted(removed + others)))
                for count in range(more + 1)
                for others in combinations(rest, count)
            )
            if _within(family, width):
                return size, of(removed)
    return largest + 1, of(())


def certified_width(slopes: Floats, largest: int, strong: float) -> float:
    """The least Lambda for which these slopes prove k* = 0, without enumeration.

    Removing persons T moves the minimiser by at most sum over T of |u_i - mean u|/(mu (n - |T|)),
    on the border of the domain, too. So all sets of 2 K + 1 persons stay within twice that.

    Args:
        slopes: u_i, a slope of each person's objective at the minimiser, (n, d).
        largest: K.
        strong: mu of the objective.
    """
    n, removed = len(slopes), 2 * largest + 1
    if n <= removed:
        return math.inf
    gamma = float(np.linalg.norm(slopes - slopes.mean(axis=0), axis=1).max())
    return 2 * removed * gamma / (strong * (n - removed))


def _within(points: Iterator[Floats], width: float) -> bool:
    """Whether no two of them are farther apart."""
    seen: list[Floats] = []
    for point in points:
        # `not <=`: NaN is within no width.
        if any(not np.linalg.norm(point - other) <= width for other in seen):
            return False
        seen.append(point)
    return True
