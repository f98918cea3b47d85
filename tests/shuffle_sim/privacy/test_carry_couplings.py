"""The couplings of Theorem 2 (docs/theory/carry.md) exist: by linear programming, case by case.

A coupling of two laws on vectors of one sum, which differ by so many *transfers* of a unit at most,
is a point of a polytope. The solver finds one or proves that there is none.
"""

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

from shuffle_sim.privacy.bounds import carry

Law = dict[tuple[int, ...], float]
"""Of the numbers of all users."""


def given_sum(parts: list[dict[int, float]], total: int) -> Law:
    """Independent numbers, given their sum."""
    law: Law = {}
    for choice in product(*(part.items() for part in parts)):
        numbers = tuple(number for number, _ in choice)
        if sum(numbers) == total:
            law[numbers] = math.prod(mass for _, mass in choice)
    whole = sum(law.values())
    return {numbers: mass / whole for numbers, mass in law.items() if mass > 0}


def transfers(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Units that must move from one user to another."""
    return int(np.abs(np.subtract(one, other)).sum()) // 2


def can_be_coupled(p: Law, q: Law, most: int) -> bool:
    """Whether the two laws have a coupling of at most so many transfers."""
    pairs = [
        (i, len(p) + j)
        for (i, one), (j, other) in product(enumerate(p), enumerate(q))
        if transfers(one, other) <= most
    ]
    if not pairs:
        return False
    rows, columns = np.array(pairs).T.ravel(), np.tile(np.arange(len(pairs)), 2)
    shape = len(p) + len(q), len(pairs)
    marginals = csr_array((np.ones(2 * len(pairs)), (rows, columns)), shape=shape)
    masses = np.array([*p.values(), *q.values()])
    # The least mass that no pair carries: 0 but for the tolerance of the solver.
    found = linprog(-np.ones(len(pairs)), A_ub=marginals, b_ub=masses)
    assert found.status == 0
    return bool(-found.fun > 1 - 1e-6)


def rounding(w: float, r: int, b: int = 0) -> dict[int, float]:
    """Law of one user's number."""
    masses = carry.law(w, r, b).tolist()
    return {math.floor(w) + j: mass for j, mass in enumerate(masses) if mass > 1e-12}


def carried(number: int) -> dict[int, float]:
    """Law of the number at the next level."""
    half = number // 2
    return {half: 0.5, half + 1: 0.5} if number % 2 else {half: 1.0}


def possible(parts: list[dict[int, float]]) -> range:
    """Sums of independent numbers."""
    return range(sum(map(min, parts)), sum(map(max, parts)) + 1)


def level_0(rng: np.random.Generator, laws, users: int, most: float = 3.0):
    """A random pair of laws given one total, of a user at w or w' among others; K."""
    while True:
        low, high = np.sort(rng.random(2) * most)
        others = [laws(rng.random() * 3) for _ in range(users - 1)]
        worlds = [[laws(w), *others] for w in (low, high)]
        both = set(possible(worlds[0])) & set(possible(worlds[1]))
        if both:
            total = int(rng.choice(sorted(both)))
            return (*(given_sum(parts, total) for parts in worlds), math.ceil(high - low))


@pytest.mark.full
def test_level_0_moves_at_most_ceil_transfers():
    """For adversarial others, r = 2, 3 and 4, and a fair bit; every possible total may come."""
    rng = np.random.default_rng(1)
    for case in range(60):
        r, b = [(2, 0), (2, 1), (3, 0), (4, 0)][case % 4]
        p, q, most = level_0(rng, lambda w, r=r, b=b: rounding(w, r, b), 3 if r > 2 else 4)
        assert can_be_coupled(p, q, most)


@pytest.mark.full
def test_one_transfer_fewer_is_not_enough():
    """Control: a move by 2 steps takes both transfers, and one by part of a step takes one."""
    rng = np.random.default_rng(2)
    fewer = []
    for _ in range(60):
        p, q, most = level_0(rng, lambda w: rounding(w, 2), 4)
        fewer.append(can_be_coupled(p, q, most - 1))
    assert fewer.count(False) > 20


@pytest.mark.full
def test_numbers_that_are_not_log_concave_have_no_such_coupling():
    """Control: Efron's theorem needs its hypothesis."""

    def split(w):
        low, part = math.floor(w), w - math.floor(w)
        return {low: 0.5 * (1 - part), low + 1: 0.5 * part, low + 3: 0.5}

    rng = np.random.default_rng(3)
    found = []
    for _ in range(60):
        p, q, most = level_0(rng, split, 3)
        if p and q:
            found.append(can_be_coupled(p, q, most))
    assert len(found) > 30
    assert found.count(False) > 5


@pytest.mark.full
def test_from_level_to_level_no_transfer_is_added():
    """Vectors 1 to 3 transfers apart, every digit sum that both can have; fewer are not enough."""
    rng = np.random.default_rng(4)
    fewer = 0
    for case in range(150):
        users, most = int(rng.integers(3, 7)), 1 + case % 3
        one = rng.integers(0, 5, users)
        other = one.copy()
        for _ in range(most):
            giver, taker = rng.choice(users, 2, replace=False)
            other[giver] -= 1
            other[taker] += 1
        apart = transfers(tuple(one), tuple(other))
        worlds = [[carried(int(number)) for number in vector] for vector in (one, other)]
        both = sorted(set(possible(worlds[0])) & set(possible(worlds[1])))
        # In between, a vector must be able to have the sum, too: the theorem asks for N - K.
        odd = min(int((vector % 2).sum()) for vector in (one, other)) - apart
        rest = int(one.sum())
        for total in (t for t in both if abs(rest - 2 * t) <= odd):
            p, q = (given_sum(parts, total) for parts in worlds)
            assert can_be_coupled(p, q, apart)
            fewer += not can_be_coupled(p, q, apart - 1)
    assert fewer > 20
