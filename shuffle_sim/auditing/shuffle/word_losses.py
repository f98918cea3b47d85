"""What tallies of words reveal, by their stated laws and by draws, against what is charged."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.empirical import weighed
from shuffle_sim.auditing.laws.losses import Losses, hockey
from shuffle_sim.auditing.laws.scores import summed
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.canaries import pair_table
from shuffle_sim.auditing.shuffle.word_data import WordData
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.randomizer import Randomizer

_HONEST, _DATA = 60, 6  # users; data, of which any two are compared
_WEIGHED, _NUMBERS = 100_000, 3e6  # users, and values of them in all rounds
_FEW, _TOGETHER = 150, 2_000  # rounds of each of two tables
_DELTAS = 1e-6, 0.01, 0.2
_EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


class WordLosses(WordData):
    """The checks of events of randomizers whose view is of words."""

    _words: NDArray[np.int64]
    _pair: list[Floats]
    _of_pair: list[list[Floats]]

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

    @property
    def _data(self) -> list[Floats]:
        """Of which any two are compared."""
        places = np.unique(np.linspace(0, len(self.rows) - 1, _DATA).astype(np.int64))
        return [*self._pair, *self.rows[:1], *self.rows[-2:], *self.rows[places]]

    def _laws_of_data(self) -> Iterator[list[Floats]]:
        """By word, the laws that some data have of it, each once."""
        for word in self._words.tolist():
            laws = [self.said(x, word) for x in self._data]
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
        """What a report tells of any two data, by its stated law, and what the event says of that.

        Bits of several words are drawn apart, so their losses add up. Of one message, words that
        are not watched count as one.
        """
        event, stated = self.spec.event, float(self.randomizer.epsilon0)
        if (charged := getattr(event, "epsilon0", stated)) < stated * (1 - 1e-9):
            raise LawError(f"epsilon0 {stated:.6g} is charged as {charged:.6g}")
        if self.randomizer.view == "sums":
            self._bits_within(stated)
            return
        most = math.exp(stated)
        chances = np.array(
            [[self.said(x, word)[1:].sum() for word in self._words] for x in self._data]
        )
        chances = np.append(chances, np.maximum(1 - chances.sum(1, keepdims=True), 0.0), axis=1)
        least = chances.min(0)
        if (beyond := chances.max(0) > most * least * (1 + 1e-9) + 1e-12).any():
            word = int(np.argmax(beyond))
            ratio = f"{chances[:, word].max():.4g} against {least[word]:.4g}"
            raise LawError(f"word {word}: {ratio} is beyond epsilon0")
        seen = least > 0
        # Of a mixture of corners at most so much lies at one that both of two data are far from.
        raised = (chances[:, seen] / least[seen] - 1) / (most - 1)
        for name, parts in (("both", raised), ("neither", 1 - raised)):
            largest = min(
                float(least[seen] @ np.minimum(one, other)) for one, other in combinations(parts, 2)
            )
            if getattr(event, name, 0.0) > largest * (1 + 1e-9) + 1e-12:
                raise LawError(
                    f"{name}: {getattr(event, name):.6g} is charged, it is {largest:.6g}"
                )

    def _bits_within(self, most: float) -> None:
        """The largest losses of words that are drawn apart, added up."""
        for one, other in permutations(self._data, 2):
            loss = 0.0
            for word in self._words.tolist():
                p, q = self.said(one, word), self.said(other, word)
                with np.errstate(divide="ignore"):
                    loss += float((np.log(p[p > 0]) - np.log(q[p > 0])).max())
            if loss > most * (1 + 1e-9) + 1e-12:
                raise LawError(f"a report loses {loss:.6g} between two data, beyond epsilon0")
