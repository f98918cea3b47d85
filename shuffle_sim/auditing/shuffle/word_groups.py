"""Groups of words that are drawn together: halves of a group, and all groups.

A word of many comes so seldom that two of them tell little of each other. Halves of a group come
often, so a coin that groups or users share shows in them. What all groups have in common shows in
their total.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.evidence import against_spread
from shuffle_sim.auditing.laws.scores import in_the_middle, judge, scored, stacked, summed
from shuffle_sim.auditing.laws.statistics import LawError

Law = Callable[[int], tuple[Floats, Floats]]
"""Of a word: how often a user sends it, with the first datum of a pair, and with the second."""

_GROUPS = 12  # that are looked at
_SURE = 1e-9  # of floating point


def single_groups(
    symbols: int, drawn_with: Callable[[int], int], law: Law
) -> list[NDArray[np.intp]]:
    """Groups of words that are drawn together, of which each user sends one word on average.

    Args:
        symbols: of the alphabet.
        drawn_with: the group of a word.
        law: of each word.

    Returns:
        Of each group that is looked at, all words.
    """
    of = np.array([drawn_with(word) for word in range(symbols)])
    names = np.unique(of)
    rng = np.random.default_rng(symbols)
    found = list[NDArray[np.intp]]()
    for name in rng.permutation(names)[:_GROUPS]:
        words = np.flatnonzero(of == name)
        laws = [law(int(word)) for word in words]
        single = all(len(each) == 2 for pair in laws for each in pair)
        sent = np.array([[each[-1] for each in pair] for pair in laws]).sum(axis=0)
        if len(words) > 1 and single and (np.abs(sent - 1) < _SURE).all():
            found.append(words)
    return found


def check_halves(
    seen: NDArray[np.int64], users: int, groups: list[NDArray[np.intp]], law: Law, alarm: float
) -> tuple[NDArray[np.int64], list[Floats], tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """How many users send a word of each half has its law.

    Args:
        seen: tallies of all words, (rounds, symbols).
        users: of each round; half of them have each datum of the pair.
        groups: words of which each user sends one.
        law: of each word.
        alarm: probability of a false alarm.

    Returns:
        Counts, (rounds, halves), their laws, and the pairs of halves that are of two groups.

    Raises:
        LawError: it has another.
    """
    rng, some = np.random.default_rng(seen.shape[1]), list[NDArray[np.intp]]()
    for words in groups:  # the odd ones, and a half at random
        some += [words[1::2], rng.permutation(words)[: len(words) // 2]]
    counts = np.stack([seen[:, words].sum(axis=1) for words in some], axis=1)
    laws = list[Floats]()
    for words in some:
        sent = np.array([[each[-1] for each in law(int(word))] for word in words]).sum(axis=0)
        coins = [(np.array([1 - each, each]), users // 2) for each in sent.clip(0, 1).tolist()]
        laws.append(summed(coins))
    tests = [scored(counts[:, place], each) for place, each in enumerate(laws)]
    judge(*stacked(tests), alarm, "half of a group of words, score")
    apart = [(one, two) for one, two in combinations(range(len(some)), 2) if one // 2 != two // 2]
    one, two = np.array(apart, np.intp).reshape(-1, 2).T
    return counts, laws, (one, two)


def check_totals(
    seen: NDArray[np.int64], users: int, drawn_with: Callable[[int], int], law: Law, alarm: float
) -> None:
    """Messages of one word of each group together, which are independent, and of some groups.

    Args:
        seen: tallies of all words, (rounds, symbols).
        users: of each round; half of them have each datum of the pair.
        drawn_with: the group of a word.
        law: of each word.
        alarm: probability of a false alarm.

    Raises:
        LawError: they have another law: noise of all groups together has less.
    """
    first = np.unique([drawn_with(word) for word in range(seen.shape[1])], return_index=True)[1]
    rng = np.random.default_rng(seen.shape[1])
    for words in (first, rng.permutation(first)[: (len(first) + 1) // 2]):
        laws = [(each, users // 2) for word in words.tolist() for each in law(word)]
        whole, shift = in_the_middle(laws)
        index = (seen[:, words].sum(axis=1) + shift) % len(whole)
        judge(*stacked([scored(index, whole)]), alarm / 4, "messages of all groups, score")
        if against_spread([(index, whole)], alarm / 4):
            raise LawError("messages of all groups together have another spread than their noise")
