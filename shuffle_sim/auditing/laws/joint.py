"""Tests of a joint law that look at every user and label."""

from collections.abc import Iterator

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.scores import (
    LEVELS,
    Ints,
    convolved,
    inside,
    judge,
    scored,
    scores,
    stacked,
    summed,
)
from shuffle_sim.auditing.laws.tails import judge_tails, tail_sums

_CELLS = 256  # of which an outcome is one, at most
_PAIRED = 600  # users of whom every two are compared
_LABELS, _PRODUCTS = 256, 4e8  # labels, likewise; products of their scores in all rounds


class JointLaw:
    """The exact law of counts per round, user and label, where users are independent.

    Args:
        pmfs: by type of user and label.
        types: of each user, shape (users,).
        group: so many labels in a row belong together; labels of different groups are independent.
    """

    def __init__(self, pmfs: list[list[Floats]], types: Ints, group: int = 1) -> None:
        """Keep the laws."""
        self.pmfs, self.types, self.labels = pmfs, types, len(pmfs[0])
        self.group = group

    def check(self, counts: Ints, rng: np.random.Generator, alarm: float) -> None:
        """Counts (rounds, users, labels) of independent rounds against the law.

        Cells, labels, totals, neighbours, coordinates of a user, projections with random signs,
        every two users, and every two labels of a user that are independent.

        Raises:
            LawError: naming what is off; by chance with probability `alarm`.
        """
        # Cells come first: they refuse outcomes beyond a law, which would index another.
        tests = [*self._cells(counts), *self._sums(counts, rng), self._all_pairs(counts)]
        if self.labels > self.group:
            tests.append(self._all_labels(counts, rng))
        for sums, means, variances, what in tests:
            judge(sums, means, variances, alarm / len(tests), what)

    def check_each(self, counts: Ints, alarm: float) -> None:
        """Counts (rounds, users, labels) against the law of each user and label alone.

        Beside the scores: how often every outcome was seen by type of user, and all tails.

        Raises:
            LawError: naming what is off; by chance with probability `alarm`.
        """
        tests = [*self._cells(counts), *self._outcomes(counts)]
        for sums, means, variances, what in tests:
            judge(sums, means, variances, alarm / 2 / len(tests), what)
        for label in range(self.labels):
            every = [
                tail_sums(counts[:, self.types == kind, label], self.pmfs[kind][label])
                for kind in np.unique(self.types)
            ]
            judge_tails(every, alarm / 2 / self.labels, f"label {label}: type, end, depth of tail")

    def _outcomes(self, counts: Ints) -> Iterator[tuple[Floats, Floats, Floats, str]]:
        for kind, label, pmf in self._each():
            seen = inside(counts[:, self.types == kind, label], pmf).ravel()
            cells = _pooled(pmf)
            many = np.bincount(cells, weights=pmf)
            chance = np.minimum(many / many.sum(), 1.0)
            # Binomial: outcomes of users of one type are independent, whatever else they are.
            found = np.bincount(cells[seen], minlength=len(chance))
            variance = LEVELS**2 * seen.size * chance * (1 - chance)
            what = f"type {kind}, label {label}, outcome"
            # An outcome is at most LEVELS times as often seen as a score is high: see `judge`.
            yield LEVELS * found.astype(float), LEVELS * seen.size * chance, variance, what

    def _each(self) -> Iterator[tuple[int, int, Floats]]:
        for kind in np.unique(self.types):
            for label in range(self.labels):
                yield int(kind), label, self.pmfs[kind][label]

    def _cells(self, counts: Ints) -> Iterator[tuple[Floats, Floats, Floats, str]]:
        rounds, users, labels = counts.shape
        found, means, variances = (np.empty((2, users, labels)) for _ in range(3))
        by_round = np.zeros((2, rounds))
        for kind, label, pmf in self._each():
            mine = self.types == kind
            seen = inside(counts[:, mine, label], pmf)
            for index, score in enumerate(scores(pmf)):
                drawn = score.of[seen]
                found[index, mine, label] = drawn.sum(axis=0)
                # One of each group: sums over dependent labels would spread more than is judged.
                if label % self.group == self.group - 1:
                    by_round[index] += drawn.sum(axis=1)
                means[index, mine, label] = rounds * score.mean
                variances[index, mine, label] = rounds * score.variance
        yield found, means, variances, "score, user, label"
        apart = np.s_[:, :, self.group - 1 :: self.group]
        expected, spread = (each[apart].sum(axis=(1, 2)) / rounds for each in (means, variances))
        mean, most = (np.repeat(each[:, None], rounds, axis=1) for each in (expected, spread))
        yield by_round, mean, most, "score, round"
        yield *(each.sum(axis=1) for each in (found, means, variances)), "score, label"
        if self.group == 1:
            yield *(each.sum(axis=2) for each in (found, means, variances)), "score, user"

    def _all_pairs(self, counts: Ints) -> tuple[Floats, Floats, Floats, str]:
        """Products of the scores of every two users, over rounds and one label of each group."""
        users = min(len(self.types), _PAIRED)
        labels = range(0, self.labels, self.group)
        centred, variances = np.empty((len(labels), len(counts), users)), np.zeros((users, users))
        for place, label in enumerate(labels):
            of_kind = {kind: scores(self.pmfs[kind][label])[0] for kind in np.unique(self.types)}
            mine = [of_kind[kind] for kind in self.types[:users]]
            for user, score in enumerate(mine):
                centred[place, :, user] = score.of[counts[:, user, label]] - score.mean
            spread = np.array([score.variance for score in mine])
            # Independent and centred: the variance of a product is that of both, multiplied.
            variances += len(counts) * np.outer(spread, spread)
        flat = centred.reshape(-1, users)
        products, upper = flat.T @ flat, np.triu_indices(users, 1)
        # A product is at most LEVELS times as large as a score, which is what `judge` expects.
        return (
            products[upper] / LEVELS,
            np.zeros(len(upper[0])),
            variances[upper] / LEVELS**2,
            "pair of users",
        )

    def _all_labels(
        self, counts: Ints, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats, str]:
        """Products of the scores of every two labels of a user, of different groups."""
        labels = np.sort(rng.permutation(self.labels)[:_LABELS])
        products, variances = np.zeros((2, len(labels), len(labels)))
        step = 1 + int(counts.size / counts.shape[2] * len(labels) ** 2 / _PRODUCTS)
        for kind in np.unique(self.types):
            seen = counts[::step, self.types == kind]
            known = [scores(self.pmfs[kind][label])[0] for label in labels]
            centred = np.stack(
                [
                    score.of[seen[:, :, label]].ravel() - score.mean
                    for label, score in zip(labels, known, strict=True)
                ]
            )
            spread = np.array([score.variance for score in known])
            products += centred @ centred.T
            variances += centred.shape[1] * np.outer(spread, spread)
        first, second = np.triu_indices(len(labels), 1)
        # Inside a group labels depend on each other by their definition.
        apart = labels[first] // self.group != labels[second] // self.group
        found = first[apart], second[apart]
        return (
            products[found] / LEVELS,
            np.zeros(int(apart.sum())),
            variances[found] / LEVELS**2,
            "two labels of a user",
        )

    def _sums(
        self, counts: Ints, rng: np.random.Generator
    ) -> Iterator[tuple[Floats, Floats, Floats, str]]:
        users = len(self.types)
        for label in range(self.labels):
            yield self._total(counts, np.ones((users, 1)), [label], f"sum of label {label}, score")
        one = rng.integers(0, self.group, self.labels // self.group)
        chosen = (np.arange(0, self.labels, self.group) + one).tolist()
        for index in range(4):
            # Noise that cancels in the total does not with random signs.
            signs = rng.choice([-1.0, 1.0], (users, len(chosen)))
            yield self._total(counts, signs, chosen, f"projection {index}, score")
        yield self._total(
            counts,
            np.where(np.arange(users) % 2, -1.0, 1.0)[:, None] * np.ones(len(chosen)),
            chosen,
            "alternating sum, score",
        )
        for step in (1, 2, users // 2):
            if users > step > 0:
                yield self._pairs(counts, step, chosen)
        if len(chosen) > 1:
            yield self._users(counts, chosen)

    def _total(
        self, counts: Ints, signs: Floats, labels: list[int], what: str
    ) -> tuple[Floats, Floats, Floats, str]:
        laws, total = [], np.zeros(len(counts), np.int64)
        for place, label in enumerate(labels):
            for kind in np.unique(self.types):
                pmf = self.pmfs[kind][label]
                for sign in (-1, 1):
                    mine = (self.types == kind) & (signs[:, place] == sign)
                    if mine.any():
                        laws.append((pmf[::sign], int(mine.sum())))
                        total += sign * counts[:, mine, label].sum(axis=1)
                        # A reversed law counts from the other end.
                        total += (sign < 0) * (len(pmf) - 1) * int(mine.sum())
        return *scored(total, summed(laws)), what

    def _pairs(
        self, counts: Ints, step: int, labels: list[int]
    ) -> tuple[Floats, Floats, Floats, str]:
        """Sums over two users, at a distance: of many pairs, each in one sum."""
        users = len(self.types)
        # No user is in two sums: they are independent, as `judge` expects.
        first = np.arange(users)[(np.arange(users) // step) % 2 == 0]
        first = first[first + step < users]
        kinds = np.stack([self.types[first], self.types[first + step]])
        found = []
        for label in labels:
            both = counts[:, first, label] + counts[:, first + step, label]
            for pair in np.unique(kinds, axis=1).T:
                law = convolved(self.pmfs[pair[0]][label], self.pmfs[pair[1]][label])
                mine = (kinds == pair[:, None]).all(axis=0)
                found.append(scored(both[:, mine].ravel(), law))
        return *stacked(found), f"users {step} apart, law and score"

    def _users(self, counts: Ints, labels: list[int]) -> tuple[Floats, Floats, Floats, str]:
        """Sums over the labels of one user."""
        found = []
        for kind in np.unique(self.types):
            law = summed([(self.pmfs[kind][label], 1) for label in labels])
            mine = counts[:, self.types == kind][:, :, labels].sum(axis=2)
            found.append(scored(mine.ravel(), law))
        return *stacked(found), "labels of one user, law and score"


def _pooled(pmf: Floats) -> Ints:
    """The cell of each outcome: its own, or of many outcomes one for each 1/256 of the law."""
    if len(pmf) <= _CELLS:
        return np.arange(len(pmf))
    before = (np.cumsum(pmf) - pmf / 2) / pmf.sum()
    return np.asarray(np.clip(np.floor(_CELLS * before), 0, _CELLS - 1), np.int64)
