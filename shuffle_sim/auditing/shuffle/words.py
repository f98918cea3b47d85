"""Audits of views of words and of bits for categories: every word by every way to draw it, streams
and order.

Each user's words are counted, those that are watched, so their joint law over users is known. Then
a few users hold the worst pair of data, one half each, in several blocks. Their tally of each word
is a sum of independent counts: less or more noise, noise that users share, a truth that is sent
twice and a word without noise are all off it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, dense
from shuffle_sim.auditing.claims.empirical import weighed
from shuffle_sim.auditing.claims.plan import UncheckedError
from shuffle_sim.auditing.laws.losses import Losses, hockey
from shuffle_sim.auditing.laws.scores import judge, ranked, scored, stacked, summed
from shuffle_sim.auditing.laws.sequences import check_products
from shuffle_sim.auditing.laws.statistics import LawError, check_pmf, naming
from shuffle_sim.auditing.shuffle.bench import ROUNDS, BenchRound
from shuffle_sim.auditing.shuffle.canaries import pair_table
from shuffle_sim.auditing.shuffle.viewing import check_orders
from shuffle_sim.auditing.shuffle.word_data import WordData
from shuffle_sim.auditing.shuffle.word_plan import WORD_KINDS
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
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
_HONEST, _DATA = 60, 6  # users; data, of which any two are compared
_TOGETHER = 2_000  # rounds
_WEIGHED, _NUMBERS = 100_000, 3e6  # users, and values of them in all rounds
_DELTAS = 1e-6, 0.01, 0.2
_PAIRS = 16  # words at the beginning, and anywhere, that are compared two by two
_EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


class WordChecks(WordData):
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
        self._of_pair = [[self.said(x, word) for word in every] for x in self._pair]
        tried = np.array([*self._ends(_WATCHED, symbols), *rng.integers(0, symbols, _WATCHED)])
        held = [*self._pair]
        if not self.of_balls and all(x.size == 1 for x in self._pair):
            kept = dense(self.randomizer.admit(tried.astype(float))[0]) == tried
            held += [np.array([float(x)]) for x in np.unique(tried[kept])]
            absent = np.array([self.randomizer.absent])
            if self.of_bins and (dense(self.randomizer.admit(absent)[0]) == absent).all():
                held.append(absent)
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
        one, other = np.nonzero(np.triu(apart[:, None] != apart))
        if not one.size:
            raise UncheckedError("all words that are looked at are drawn together")
        fidelity = "aggregate" if self._counted else "literal"
        seen = self._tallies(fidelity, _TOGETHER, users, users)
        scaled, spread = np.zeros((len(seen), len(kept))), np.zeros(len(kept))
        for place, (word, law) in enumerate(self._laws_of(kept, users)):
            ranks, spread[place] = ranked(law)
            scaled[:, place] = ranks[np.minimum(seen[:, word], len(ranks) - 1)]
        products, squares = scaled.T @ scaled, (scaled**2).sum(axis=0)
        most = squares[one] * spread[other]
        check_products(products[one, other], most, self.alarm, "two words of a tally")

    def tally_law(self, fidelity: str) -> None:
        """Tallies of each word over all users, of independent rounds."""
        seen = self._tallies(fidelity, self.repeats)
        for word, law in enumerate(self._laws):
            self._agrees(seen[:, word], law, self.alarm / len(self._laws), f"word {word}")

    def tallies(self) -> None:
        """Tallies of many users of a block who are counted at once."""
        users = max(_USERS, min(_AT_ONCE, self.spec.cohort.size // 2 * 2))
        seen = self._tallies("aggregate", _FEW, users, users)
        kept = np.unique(np.linspace(0, len(self._words) - 1, _LOOKED).astype(np.int64))
        tests = [scored(seen[:, word], law) for word, law in self._laws_of(kept, users)]
        judge(*stacked(tests), self.alarm, f"word, score of {users:,} users")

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

    def event(self) -> None:
        """Tallies of words are part of the view: their exact delta is at most the event's.

        Each word by itself, for any two data and all others at a third; and all words together that
        are drawn apart, for the worst pair.
        """
        event = self.spec.event
        honest = min(_HONEST, getattr(event, "honest", _HONEST))
        charged = event.with_honest(honest)
        stated = {
            epsilon: theorem_of(type(charged)).delta(((charged, 1),), epsilon)
            for epsilon in _EPSILONS
        }
        for word, laws in enumerate(self._laws_of_data()):
            rest = [summed([(law, honest - 1)]) for law in laws]
            for (one, other), others in product(combinations(laws, 2), rest):
                p, q = (summed([(law, 1), (others, 1)]) for law in (one, other))
                self._within(partial(hockey, p, q), stated, f"word {word}", honest)
                self._within(partial(hockey, q, p), stated, f"word {word}", honest)
        pairs = list(self._drawn_apart(honest))
        for turned in (pairs, [pair[::-1] for pair in pairs]) if len(pairs) > 1 else ():
            what = f"{len(pairs)} words together"
            self._within(Losses.of(turned).delta, stated, what, honest)

    def _laws_of_data(self) -> Iterator[list[Floats]]:
        """By word, the laws that some data have of it, each once."""
        places = np.unique(np.linspace(0, len(self.rows) - 1, _DATA).astype(np.int64))
        data = [*self._pair, *self.rows[:1], *self.rows[-2:], *self.rows[places]]
        for word in self._words.tolist():
            laws = [self.said(x, word) for x in data]
            size = max(map(len, laws))
            padded = [np.pad(law, (0, size - len(law))) for law in laws]
            yield list({law.tobytes(): law for law in padded}.values())

    def _drawn_apart(self, honest: int) -> Iterator[tuple[Floats, Floats]]:
        """Laws of words that are drawn apart, of which the pair has two: of those and others."""
        if (drawn_with := getattr(self.randomizer, "drawn_with", None)) is None:
            return
        known = set[int]()
        for word, (first, second) in zip(
            self._words.tolist(), zip(*self._of_pair, strict=True), strict=True
        ):
            size = max(len(first), len(second))
            one, other = (np.pad(law, (0, size - len(law))) for law in (first, second))
            if not np.array_equal(one, other) and (kind := int(drawn_with(word))) not in known:
                known.add(kind)
                rest = summed([(one, honest - 1)])
                yield summed([(one, 1), (rest, 1)]), summed([(other, 1), (rest, 1)])

    def _within(
        self, delta: Callable[[float], float], stated: dict[float, float], what: str, honest: int
    ) -> None:
        """No delta of a pair is above the event's."""
        for epsilon, allowed in stated.items():
            if (least := delta(epsilon)) > allowed * (1 + 1e-6) + 1e-12:
                raise LawError(
                    f"{what}: delta {least:.3g} at epsilon {epsilon:g} for {honest} users, "
                    f"charged for is {allowed:.3g}"
                )

    def weighed(self) -> None:
        """The sum of a view's words that tells the worst pair best: no stated law is asked.

        All who are counted on hold the pair's first; or one of them its second.
        """
        slow = type(self.randomizer).reports is Randomizer.reports  # it draws user by user
        most = _HONEST if slow else _WEIGHED
        users = min(most, math.ceil(self.protocol.honest_fraction * self.spec.cohort.size))
        event = self.spec.event if users < most else self.spec.event.with_honest(users)
        rounds, rng = range(self.weighed_rounds), np.random.default_rng([self.entropy, 14])
        drawn = partial(self.randomizer.tallied, rng=rng)
        values = (pair_table(self.randomizer, users, high=high) for high in (False, True))
        low, high = (np.array([self._dense(drawn(x))[self._words] for _ in rounds]) for x in values)
        for delta in _DELTAS:
            shown = weighed(low, high, delta, self.alarm / len(_DELTAS))
            if shown > 0 and theorem_of(type(event)).delta(((event, 1),), shown) < delta:
                raise LawError(f"a sum of words shows epsilon {shown:.3g} at delta {delta:g}")

    @property
    def weighed_rounds(self) -> int:
        """Of each of two tables."""
        return int(np.clip(_NUMBERS / self.spec.cohort.size, _FEW, _TOGETHER))

    def message(self) -> None:
        """The probabilities of a message for any two data, by the stated law."""
        for word, laws in enumerate(self._laws_of_data()):
            chances = [float(law[1:].sum()) for law in laws]
            most = math.exp(self.randomizer.epsilon0) * min(chances) * (1 + 1e-9)
            if max(chances) > most:
                ratio = f"{max(chances):.4g} against {min(chances):.4g}"
                raise LawError(f"word {word}: {ratio} is beyond epsilon0")

    @property
    def _counted(self) -> bool:
        return bool(self.randomizer.view == "counts")

    @property
    def _laws(self) -> list[Floats]:
        """Of the tally of each word over all users."""
        return [law for _, law in self._laws_of(np.arange(len(self._words)), _USERS)]

    def _laws_of(self, words: NDArray[np.int64], users: int) -> Iterator[tuple[int, Floats]]:
        """Of some words over so many users, half of whom hold each end of the pair."""
        for word in words.tolist():
            yield word, summed([(laws[word], users // 2) for laws in self._of_pair])

    def _tallies(
        self, fidelity: str, rounds: int, users: int = _USERS, block: int = _BLOCK
    ) -> NDArray[np.int64]:
        """(rounds, words), through the frames of the users' shard."""
        rows = np.array([self._pair[at % 2] for at in range(users)])
        deployment = replace(
            self.deployment(fidelity, size=block),
            protocol=BenchRound(users, self.protocol.spec, 1.0),
        )
        shard = self.shard(deployment, InMemory(self.shaped(rows)), deployment.blocks())
        answered = self.answered(shard, self.round(Cohort.of(0, users)), range(rounds))
        seen = np.zeros((rounds, len(self._words)), np.int64)
        for index, frames in enumerate(answered):
            for frame in frames:
                read = self._read(frame)
                tally = read if isinstance(read, Tally) else read.tally()
                seen[index] += self._dense(tally)[self._words]
        return seen

    def _agrees(self, seen: NDArray[np.int64], law: Floats, alarm: float, what: str) -> None:
        with naming(what):
            check_pmf(seen, np.where(law < 1e-15, 0.0, law), false_alarm=alarm)
