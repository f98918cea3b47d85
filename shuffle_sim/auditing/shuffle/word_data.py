"""Data on which words are sent: outside the domain, searched, as defined, and many of them at once.

Searched data are spread over the range, or are categories, and who has none. Beside the words that
are watched, the one that a datum sends most is looked at, which is found on other draws.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.laws.joint import JointLaw
from shuffle_sim.auditing.laws.scores import judge, scored, stacked, summed
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.company import Company
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Messages, Tally

_DRAWS, _FEWER, _FOUND = 1000, 300, 20  # reports on a datum, and to find its most frequent word
_TALLIES, _LONGEST = 100, 5000  # tallies of users who hold a datum; outcomes of one
_NEIGHBOURS = 5  # numbers that are judged together
_DATA, _SLOW, _WORDS = 300, 60, 5e6  # data; of reports that are drawn one by one; words of all
_ROUNDS, _EVERY = 200, 5e7  # in which each category is held once; their words
_DEFINED = 8000  # reports by the definition
_OUTSIDE = -1e18, -2.0, -0.5, 0.5, 1e9, 1e18  # numbers that are no category


class WordData(Company):
    """The checks of data of randomizers whose view is of words."""

    watched: NDArray[np.int64]

    @property
    def symbols(self) -> int:
        """Words, or labels of bits."""
        alphabet = self.randomizer.alphabet
        return int(alphabet.labels if self.randomizer.view == "sums" else alphabet.symbols)

    def said(self, x: Floats, word: int) -> Floats:
        """The law of how often a word is sent about a datum."""
        return np.asarray(self.randomizer.count_pmf(x if x.size > 1 else x[0], word), np.float64)

    @property
    def of_bins(self) -> bool:
        """Whether users hold a category each, or none; else numbers and vectors."""
        single = all(np.size(x) == 1 for x in self.randomizer.worst_pair())
        return single and hasattr(self.randomizer, "bins")

    @property
    def of_balls(self) -> bool:
        """Whether users hold numbers or vectors, as those of sums do."""
        return hasattr(self.randomizer, "norm_bound") and not hasattr(self.randomizer, "bins")

    def domain(self) -> None:
        """Whatever a row is, what is admitted is a category or none; or lies in the ball."""
        if self.of_balls:
            super().domain()
            return
        bins = self.randomizer.bins
        given = np.array([*_OUTSIDE, bins - 0.5, float(bins), bins + 7.0, 0.0, bins - 1.0])
        found = dense(self.randomizer.admit(given)[0])
        if not np.isin(found, self.randomizer.absent).all():
            inside = found[found != self.randomizer.absent]
            if (inside != np.floor(inside)).any() or inside.min() < 0 or inside.max() >= bins:
                raise LawError("what is no category is admitted as one")

    def counted(self, sent: Messages, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each user sends some words, (users, words)."""
        if self.randomizer.view == "sums":
            return self.by_label(sent)[:, words].astype(np.int64)
        assert sent.each is not None
        users, shown = np.repeat(np.arange(sent.reports), sent.each), sent.words
        counts = [np.bincount(users[shown == word], minlength=sent.reports) for word in words]
        return np.stack(counts, axis=1)

    def defined(self) -> None:
        """`randomize` itself, of every type: all else samples its law faster."""
        rng, rows = np.random.default_rng([self.entropy, 5]), self.shaped(self.inside)
        room = min(_DEFINED, _WORDS / 10 / self.randomizer.usual_messages)
        draws = max(20, int(room / len(rows)))
        seen = [
            [self.counted(self.randomizer.randomize(x, rng), self.watched)[0] for x in rows]
            for _ in range(draws)
        ]
        JointLaw(self.pmfs, np.arange(len(rows)), self.group).check_each(np.array(seen), self.alarm)

    def search(self) -> None:
        """Many data: words that are watched, and the one that is sent most."""
        rng = np.random.default_rng([self.entropy, 10])
        slow = type(self.randomizer).reports is Randomizer.reports
        draws = _FEWER if slow else _DRAWS
        room = _WORDS / draws / self.randomizer.usual_messages
        data = self._sought(rng, max(8, int(min(_SLOW if slow else _DATA, room))))
        tests = []
        for x in data:
            few, rows = (self.shaped(np.repeat(x[None], size, axis=0)) for size in (_FOUND, draws))
            sums = self._dense(self.randomizer.reports(few, rng).tally())
            # Found on other draws: chosen on these, its count would be too high.
            words = np.append(self.watched, int(np.argmax(sums)))
            laws = [self.said(x, word) for word in words.tolist()]
            for seen, users in self._sampled(rows, words, max(map(len, laws)), rng):
                each = (law if users == 1 else summed([(law, users)]) for law in laws)
                tests += [scored(*both) for both in zip(seen.T, each, strict=True)]
        found, means, variances = (
            each.reshape(len(data), -1, len(words), 2) for each in stacked(tests)
        )
        what = "datum that was searched, way to draw, word, score"
        judge(found, means, variances, self.alarm / 2, what)
        if self.of_bins and self.symbols == self.randomizer.bins:
            self._every(rng)
        if self.of_balls and data.shape[1] == 1:
            order = np.argsort(data[:, 0])
            sums, expected, spread = (
                # Without the word that each datum has chosen: those differ.
                sliding_window_view(each[order, 0, :-1], _NEIGHBOURS, axis=0).sum(axis=-1)
                for each in (found, means, variances)
            )
            what = "data next to each other, word, score"
            judge(sums, expected, spread, self.alarm / 4, what)

    def _every(self, rng: np.random.Generator) -> None:
        """Users of whom each holds another category: how often each sends its own."""
        made: Any = self.randomizer
        rounds = int(min(_ROUNDS, _EVERY / self.symbols / made.usual_messages))
        if rounds < 2:
            return
        held = np.arange(self.symbols)
        held = held[dense(made.admit(held.astype(float))[0]) == held]
        rows, users, seen = held.astype(float), np.arange(len(held)), [list[Any](), list[Any]()]
        for _ in range(rounds):
            sent = made.reports(rows, rng)
            if made.view == "sums":
                seen[0].append(self.by_label(sent)[users, held])
                seen[1].append(made.counts(rows, rng)[users, held].astype(np.int64))
            else:
                own = np.repeat(users, sent.each)
                mine = own[sent.words == held[own]]
                seen[0].append(np.bincount(mine, minlength=len(held)))
        laws = [self.said(np.array([each]), int(each)) for each in rows]
        tests = [
            scored(one, law)
            for way in seen
            if way
            for one, law in zip(np.array(way).T, laws, strict=True)
        ]
        judge(*stacked(tests), self.alarm / 4, "category, of which each user holds another, score")

    def _sampled(
        self, rows: Floats, words: NDArray[np.int64], outcomes: int, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.int64], int]]:
        """How often users send some words, in every way that it is drawn; and users of a number."""
        made: Any = self.randomizer
        yield self.counted(made.reports(rows, rng), words), 1
        if made.view == "sums":
            yield made.counts(rows, rng)[:, words].astype(np.int64), 1
        users = max(1, min(len(rows) // _TALLIES, _LONGEST // outcomes))
        parts = (rows[users * place :][:users] for place in range(_TALLIES))
        yield np.stack([self._dense(made.tallied(each, rng))[words] for each in parts]), users

    def _dense(self, tally: Tally) -> NDArray[np.int64]:
        return tally.sums if tally.words is None else tally.dense(self.symbols)

    def _sought(self, rng: np.random.Generator, many: int) -> Floats:
        """Data as they are admitted, (data, size)."""
        if self.of_balls:
            first, second = (np.atleast_1d(x) for x in self.randomizer.worst_pair())
            even = (np.arange(many // 2) + rng.random(many // 2))[:, None] / (many // 2)
            spread = first + even * (second - first)
            return np.concatenate([spread, self._searched(rng, many - len(spread))])
        if not self.of_bins:
            return self.inside
        bins = int(self.randomizer.bins)
        asked = np.arange(bins) if bins <= many else np.unique(rng.integers(0, bins, many))
        asked = np.append(asked, self.randomizer.absent)
        return np.asarray(dense(self.randomizer.admit(asked.astype(float))[0]), np.float64)[:, None]
