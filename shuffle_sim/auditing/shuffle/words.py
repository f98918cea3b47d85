"""Audits of views of words and of bits for categories: every word by every way to draw it, streams
and order.

Each user's words are counted, those that are watched, so their joint law over users is known. Then
a few users hold the worst pair of data, one half each, in several blocks. Their tally of each word
is a sum of independent counts: less or more noise, noise that users share, a truth that is sent
twice and a word without noise are all off it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.claims.plan import UncheckedError
from shuffle_sim.auditing.laws.evidence import against_spread
from shuffle_sim.auditing.laws.scores import judge, ranked, scored, stacked, summed
from shuffle_sim.auditing.laws.sequences import check_products
from shuffle_sim.auditing.laws.statistics import LawError, check_pmf, naming
from shuffle_sim.auditing.shuffle.bench import ROUNDS, BenchRound
from shuffle_sim.auditing.shuffle.viewing import check_orders
from shuffle_sim.auditing.shuffle.word_groups import check_halves, check_totals, single_groups
from shuffle_sim.auditing.shuffle.word_losses import WordLosses
from shuffle_sim.auditing.shuffle.word_plan import WORD_KINDS
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.roles import read_reports
from shuffle_sim.wire.frames import Frame
from shuffle_sim.wire.messages import Messages, Tally

_USERS, _BLOCK = 6, 2
_ENDS = 32  # words at each end that are looked at one by one, where there are more
_BETWEEN = 0.37, 0.71  # places of data between the worst pair, from the first to the second
_WATCHED = 4  # of them in each user's report, at each end and anywhere
_MANY = 120  # users whose reports are looked at
_MESSAGES = 5e7  # of them in all rounds
_OUTCOMES = 60_000  # of a word's tally over those users: their law is convolved term by term
_PAIRED = 400  # outcomes of two rounds, at most
_SELDOM = 0.05  # of a law must be apart from its likeliest range
_AT_ONCE, _FEW, _LOOKED = 1000, 150, 12  # users of a block, rounds, and words
_TOGETHER, _CONTRASTED = 2_000, 500  # rounds
_SYMBOLS = 4096  # of an alphabet whose words are all looked at
_PAIRS = 16  # words at the beginning, and anywhere, that are compared two by two


class WordChecks(WordLosses):
    """The checks of one randomizer of categories, or of others whose view is of words."""

    kinds = WORD_KINDS
    needs = "worst_pair", "count_pmf"
    scales = False
    looked = 12 * ROUNDS

    def _know(self, protocol: Protocol[Any], spec: RoundSpec) -> None:
        """Categories that users may hold, words that are watched, and their laws."""
        symbols, rng = self.symbols, np.random.default_rng([self.entropy, 3])
        self._pair = [np.atleast_1d(x) for x in self.randomizer.worst_pair()]
        every: Sequence[int] = range(symbols)
        if symbols > 4 * _ENDS:
            between = rng.integers(0, symbols, 2 * _ENDS).tolist()
            every = sorted({*self._ends(_ENDS, symbols), *between})
        self._words = np.array(every)
        self._absent: Floats | None = None
        self._of_pair = [[self.said(x, word) for word in every] for x in self._pair]
        tried = np.array([*self._ends(_WATCHED, symbols), *rng.integers(0, symbols, _WATCHED)])
        held = [*self._pair]
        if not self.of_balls and all(x.size == 1 for x in self._pair):
            kept = dense(self.randomizer.admit(tried.astype(float))[0]) == tried
            held += [np.array([float(x)]) for x in np.unique(tried[kept])]
            absent = np.array([self.randomizer.absent])
            if self.of_bins and (dense(self.randomizer.admit(absent)[0]) == absent).all():
                held.append(absent)
                self._absent = absent
        first, second = self._pair
        for part in _BETWEEN:  # of numbers and vectors; there are no such categories
            x = first + part * (second - first)
            if np.array_equal(dense(self.randomizer.admit(self.shaped(x[None]))[0]).ravel(), x):
                held.append(x)
        self.rows = self.inside = np.array(held)
        self.watched = np.unique(tried)
        self.labels = len(self.watched)
        self.pmfs = [[self.pmf(x, place) for place in range(self.labels)] for x in held]
        many = min(_MANY, int(_MESSAGES / self.looked / self.randomizer.usual_messages))
        many = min(many, _OUTCOMES // max(len(pmf) for laws in self.pmfs for pmf in laws))
        self.users = self.literal = max(2, min(spec.cohort.size, many))
        self.protocol = BenchRound(self.users, spec, protocol.honest_fraction)
        self.types = np.arange(self.users) % len(held)

    @staticmethod
    def _ends(many: int, symbols: int) -> list[int]:
        return sorted({*range(min(many, symbols)), *range(max(0, symbols - many), symbols)})

    @property
    def group(self) -> int:
        """Words of one user depend on each other; bits say it as those of sums do."""
        return super().group if self.randomizer.view == "sums" else self.labels

    @property
    def alike(self) -> Floats:
        return self._pair[0]

    @property
    def local(self) -> bool:
        """Whether a promise is made of each message."""
        return hasattr(self.randomizer, "epsilon0")

    def pmf(self, x: Floats, label: int) -> Floats:
        return self.said(x, int(self.watched[label]))

    def index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        return np.asarray(sums, np.int64)

    def sums(self, fidelity: str, frames: list[Frame]) -> list[NDArray[np.int64]]:
        """How often each user sends the words that are watched, by block, (users, words)."""
        found = []
        for frame in frames:
            if self.randomizer.view == "sums":
                labels, self.labels = self.labels, self.symbols
                (rows,) = super().sums(fidelity, [frame])
                self.labels = labels
                found.append(rows[:, self.watched].astype(np.int64))
                continue
            read = self._read(frame)
            assert isinstance(read, Messages)
            found.append(self.counted(read, self.watched))
        return found

    def _read(self, frame: Frame) -> Messages | Tally:
        try:
            return read_reports(frame, self.randomizer)
        except FrameError as error:
            raise LawError(f"what users send is refused: {error}") from error

    def users_law(self) -> None:
        """Every user and word that is watched, and sums of them."""
        for fidelity in self.fidelities:
            self.joint(fidelity, self.alarm / len(self.fidelities))

    def literal_law(self) -> None:
        """Tallies at literal fidelity."""
        self.tally_law("literal")

    def counts_law(self) -> None:
        """Tallies at counts fidelity."""
        self.tally_law("counts")

    def aggregate_law(self) -> None:
        """Tallies at aggregate fidelity."""
        self.tally_law("aggregate")

    def order(self) -> None:
        """Views of all pools."""
        check_orders(self, self.alarm)

    def apart(self) -> None:
        """Words that the randomizer draws apart tell nothing of each other in tallies.

        Each word may have its law, and the sum or difference of two no noise.
        """
        users = max(_USERS, min(_AT_ONCE, self.spec.cohort.size // 2 * 2))
        few = np.linspace(0, len(self._words) - 1, _PAIRS).astype(np.int64)
        kept = np.union1d(few, np.arange(min(_PAIRS, len(self._words))))
        apart = np.array([self.randomizer.drawn_with(int(self._words[word])) for word in kept])
        pairs = np.nonzero(np.triu(apart[:, None] != apart))
        self._groups(users)
        if not pairs[0].size:
            raise UncheckedError("all words that are looked at are drawn together")
        ways: dict[str, tuple[int, int, int]] = {"literal": (_TOGETHER, users, users)}
        if self._counted:  # one by one, and many at once: by other code
            messages = _USERS * self.randomizer.usual_messages
            rounds = int(np.clip(_MESSAGES / 5 / messages, _FEW, _TOGETHER))
            ways = {"literal": (rounds, _USERS, _BLOCK), "aggregate": ways["literal"]}
        for fidelity, drawn in ways.items():
            with naming(fidelity):
                seen, laws = self._tallies(fidelity, *drawn), self._laws_of(kept, drawn[1])
                given = seen[:, kept], [law for _, law in laws], pairs
                self._independent_words(*given, self.alarm / 2 / len(ways))

    def _groups(self, users: int) -> None:
        """Halves of groups of words: their laws, and two by two; all groups together."""
        if self.symbols > _SYMBOLS:
            return

        def law(word: int) -> tuple[Floats, Floats]:
            return self.said(self._pair[0], word), self.said(self._pair[1], word)

        drawn_with, alarm = self.randomizer.drawn_with, self.alarm / 8
        groups = single_groups(self.symbols, drawn_with, law)
        if not (groups or self._counted):
            return
        fidelity = "aggregate" if self._counted else "literal"
        seen = self._tallies(fidelity, _CONTRASTED, users, users, words=np.arange(self.symbols))
        if self._counted:
            check_totals(seen, users, drawn_with, law, alarm)
        # Others may send as many on average alone.
        if single := [each for each in groups if (seen[:, each].sum(axis=1) == users).all()]:
            given = check_halves(seen, users, single, law, alarm)
            self._independent_words(*given, alarm)

    @staticmethod
    def _independent_words(
        seen: NDArray[np.int64],
        laws: list[Floats],
        pairs: tuple[NDArray[np.intp], ...],
        alarm: float,
    ) -> None:
        """Tallies of words, (rounds, words), that are independent in pairs."""
        scaled, spread = np.zeros(seen.shape), np.zeros(len(laws))
        for place, law in enumerate(laws):
            ranks, spread[place] = ranked(law)
            scaled[:, place] = ranks[np.minimum(seen[:, place], len(ranks) - 1)]
        one, other = pairs
        most = (scaled**2).sum(axis=0)[one] * spread[other]
        check_products((scaled.T @ scaled)[one, other], most, alarm, "two words of a tally")

    def tally_law(self, fidelity: str) -> None:
        """Tallies of each word over all users, of independent rounds."""
        seen = self._tallies(fidelity, self.repeats)
        for word, law in enumerate(self._laws):
            self._agrees(seen[:, word], law, self.alarm / len(self._laws), f"word {word}")

    def tallies(self) -> None:
        """Tallies of many users of a block who are counted at once."""
        users = max(_USERS, min(_AT_ONCE, self.spec.cohort.size // 2 * 2))
        kept = np.unique(np.linspace(0, len(self._words) - 1, _LOOKED).astype(np.int64))
        pairs = [self._pair]
        if self._absent is not None:  # some are in no category, or all
            pairs += [[self._pair[0], self._absent], [self._absent] * 2]
        for pair in pairs:
            seen = self._tallies("aggregate", _FEW, users, users, pair)
            tests = [scored(seen[:, word], law) for word, law in self._laws_of(kept, users, pair)]
            judge(*stacked(tests), self.alarm / 6, f"word, score of {users:,} users")
        if hasattr(self.randomizer, "contrast"):
            for fidelity in ("literal", "aggregate"):
                with naming(fidelity):
                    self._contrasts(fidelity, users, self.alarm / 4)

    def _contrasts(self, fidelity: str, users: int, alarm: float) -> None:
        """Differences of two words in which noise that both have cancels."""
        words, seen = self._words.tolist(), self._tallies(fidelity, _CONTRASTED, users, users)
        draws = list[tuple[NDArray[np.int64], Floats]]()
        for place, word in enumerate(words):
            other, law = self.randomizer.contrast(word, users)
            if word < other and other in words:
                # Own messages come for sure: as many as a law has no less of.
                own = (users // 2 * int(np.argmax(laws[place] > 0)) for laws in self._of_pair)
                index = seen[:, place] - sum(own) - seen[:, words.index(other)] + len(law) // 2
                self._agrees(index, law, alarm / len(words), f"word {word} less word {other}")
                draws.append((index, law))
        if against_spread(draws, alarm / 2):
            raise LawError("differences of words have another spread than their noise")

    def rounds(self) -> None:
        """The tallies of a word in two rounds that follow: independent, of the same law."""
        seen, looked = self._tallies("counts" if self._counted else "literal", self.repeats), 0
        for word, law in enumerate(self._laws):
            size = min(len(law), math.isqrt(_PAIRED))
            cells = np.arange(size)
            if len(law) > size:  # ranges of about the same chance
                cells = np.minimum(size - 1, (np.cumsum(law) - law / 2) * size).astype(np.int64)
            lumped: Floats = np.bincount(cells, law, size).astype(np.float64)
            if lumped.max() < 1 - _SELDOM:
                places = cells[np.minimum(seen[:, word], len(law) - 1)]
                # Rounds 0 and 1, 2 and 3, ...: no round is in two pairs, so they are independent.
                pairs = places[:-1:2] * size + places[1::2]
                both: Floats = np.outer(lumped, lumped).ravel()
                alarm = self.alarm / len(self._laws)
                self._agrees(pairs, both, alarm, f"word {word} in two rounds")
                looked += 1
        if not looked:
            raise UncheckedError("the tallies of all words are nearly certain")

    @property
    def _counted(self) -> bool:
        return bool(self.randomizer.view == "counts")

    @property
    def _laws(self) -> list[Floats]:
        """Of the tally of each word over all users."""
        return [law for _, law in self._laws_of(np.arange(len(self._words)), _USERS)]

    def _laws_of(
        self, words: NDArray[np.int64], users: int, pair: list[Floats] | None = None
    ) -> Iterator[tuple[int, Floats]]:
        """Of some words over so many users; half hold each end of the pair, or of another."""
        for word in words.tolist():
            laws = [each[word] for each in self._of_pair]
            if pair is not None:
                laws = [self.said(x, int(self._words[word])) for x in pair]
            yield word, summed([(each, users // 2) for each in laws])

    def _tallies(
        self,
        fidelity: str,
        rounds: int,
        users: int = _USERS,
        block: int = _BLOCK,
        pair: list[Floats] | None = None,
        words: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """(rounds, words), through the frames of the users' shard; by default those watched."""
        words = self._words if words is None else words
        rows = np.array([(pair or self._pair)[at % 2] for at in range(users)])
        deployment = replace(
            self.deployment(fidelity, size=block),
            protocol=BenchRound(users, self.protocol.spec, 1.0),
        )
        shard = self.shard(deployment, InMemory(self.shaped(rows)), deployment.blocks())
        answered = self.answered(shard, self.round(Cohort.of(0, users)), range(rounds))
        seen = np.zeros((rounds, len(words)), np.int64)
        for index, frames in enumerate(answered):
            for frame in frames:
                read = self._read(frame)
                tally = read if isinstance(read, Tally) else read.tally()
                seen[index] += self._dense(tally)[words]
        return seen

    def _agrees(self, seen: NDArray[np.int64], law: Floats, alarm: float, what: str) -> None:
        with naming(what):
            check_pmf(seen, np.where(law < 1e-15, 0.0, law), false_alarm=alarm)
