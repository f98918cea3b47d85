"""Audits of views of words: how often each word comes, by every way to draw it, and their order.

A few users hold the worst pair of data, one half each, in several blocks. Their tally of each word
is a sum of independent counts, so its law is known exactly: less or more noise, noise that users
share, a truth that is sent twice and a word without noise are all off it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.bench import OneRound
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.scores import summed
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.one_round import LocalRandomizer
from shuffle_sim.roles import Deployment, Shuffler, UserShard, read_reports
from shuffle_sim.roles.chunks import parted
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages, Tally
from shuffle_sim.wire.words import read_words

_USERS, _BLOCK = 6, 2
_WORDS = 64  # that are looked at one by one, from the first on
_PAIRED = 400  # outcomes of two rounds, at most
_SELDOM = 0.05  # of a law must be apart from its tail
_HONEST = 60
_EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
LAW = "worst_pair", "count_pmf"


class WordChecks:
    """The checks of one randomizer whose view is of words."""

    def __init__(
        self,
        spec: RoundSpec,
        entropy: int,
        repeats: int,
        alarm: float,
        shard: type[UserShard] = UserShard,
        shuffler: type[Shuffler] = Shuffler,
    ) -> None:
        """Take what is implemented, and where it says it, its law."""
        self.randomizer: Any = spec.randomizer
        self._spec, self._entropy, self._repeats = spec, entropy, repeats
        self._alarm, self._shard, self._shuffler = alarm, shard, shuffler
        self.known = all(hasattr(self.randomizer, name) for name in LAW)
        self._protocol: Protocol[Any] = OneRound(_USERS, spec, 1.0)
        if self.known:
            law: Any = spec.randomizer
            symbols = min(law.alphabet.symbols, _WORDS)
            self._pair = [np.atleast_1d(x) for x in law.worst_pair()]
            self._pmfs = [
                [np.asarray(law.count_pmf(x, word)) for word in range(symbols)]
                for x in (each if each.size > 1 else each[0] for each in self._pair)
            ]

    def checks(self) -> Iterator[tuple[str, Callable[[], None] | None]]:
        """Their names, and how they are made; None: the law is not known."""
        literal = self.randomizer.view == "messages"
        for fidelity in ("literal",) if literal else ("literal", "counts", "aggregate"):
            name = f"each word of all users has its exact law ({fidelity})"
            yield name, partial(self.law, fidelity) if self.known else None
        rounds = "two rounds over the same data draw independent noise"
        yield rounds, self.rounds if self.known else None
        event = "one word reveals no more than the event is charged for"
        yield event, partial(self.event, self._spec.event) if self.known else None
        local = isinstance(self.randomizer, LocalRandomizer)
        if local:
            name = "a message is as private as is stated of it"
            yield name, self.message if self.known else None
        yield "the shuffler keeps no order", self.order

    @property
    def missing(self) -> str:
        """Why the law is not known."""
        return f"its randomizer has not {', '.join(LAW)}: its law is not known"

    def law(self, fidelity: str) -> None:
        """Tallies of each word over all users, of independent rounds."""
        seen = self._tallies(fidelity, self._repeats)
        for word, law in enumerate(self._laws):
            self._held(seen[:, word], law, self._alarm / len(self._laws), f"word {word}")

    def rounds(self) -> None:
        """The tallies of a word in two rounds that follow: independent, of the same law."""
        seen, looked = self._tallies("counts" if self._counted else "literal", self._repeats), 0
        for word, law in enumerate(self._laws):
            size = min(len(law), math.isqrt(_PAIRED))
            lumped = np.append(law[: size - 1], law[size - 1 :].sum())  # the tail in one
            if lumped[-1] < 1 - _SELDOM:
                places = np.minimum(seen[:, word], size - 1)
                pairs = places[:-1:2] * size + places[1::2]
                alarm, both = self._alarm / len(self._laws), np.outer(lumped, lumped).ravel()
                self._held(pairs, both, alarm, f"word {word} in two rounds")
                looked += 1
        if not looked:
            raise LawError("no word comes so seldom that two rounds can be compared")

    def event(self, event: PrivacyEvent) -> None:
        """A word's tally is part of the view: its exact delta is at most the event's."""
        honest = min(_HONEST, getattr(event, "honest", _HONEST))
        charged, theorem = event.with_honest(honest), theorem_of(type(event))
        for word, (first, second) in enumerate(zip(*self._pmfs, strict=True)):
            size = max(len(first), len(second))
            of_pair = [np.pad(law, (0, size - len(law))) for law in (first, second)]
            for others in of_pair:
                p, q = (summed([(law, 1), (others, honest - 1)]) for law in of_pair)
                for epsilon in _EPSILONS:
                    least = max(_divergence(p, q, epsilon), _divergence(q, p, epsilon))
                    stated = theorem.delta(((charged, 1),), epsilon)
                    if least > stated * (1 + 1e-6) + 1e-12:
                        raise LawError(
                            f"word {word}: delta {least:.3g} at epsilon {epsilon:g} for {honest} "
                            f"users, charged for is {stated:.3g}"
                        )

    def message(self) -> None:
        """The probabilities of a message for the worst pair, by the stated law."""
        for word, laws in enumerate(zip(*self._pmfs, strict=True)):
            chances = [float(law[1:].sum()) for law in laws]
            most = math.exp(self.randomizer.epsilon0) * min(chances) * (1 + 1e-9)
            if max(chances) > most:
                ratio = f"{chances[0]:.4g} against {chances[1]:.4g}"
                raise LawError(f"word {word}: {ratio} is beyond epsilon0")

    def order(self) -> None:
        """Half of the users send the first word, half the last, in two blocks: how many of the
        first are in the first half of a view is hypergeometric.
        """
        half, ends = _USERS // 2, (0, self.randomizer.alphabet.symbols - 1)
        each = np.ones(half, np.int64)
        blocks = [self.randomizer.singly(np.full(half, end, np.uint64), each) for end in ends]
        law = scipy.stats.hypergeom.pmf(np.arange(half + 1), 2 * half, half, half)
        deployment = replace(self._deployment("literal"), block_size=half)
        found = []
        for index in range(self._repeats // 2):
            view = self._view(deployment, index, blocks)
            if len(view) != 2 * half or int((view == 0).sum()) != half:
                raise LawError("the view does not hold the messages that were sent")
            found.append(int((view[:half] == 0).sum()))
        self._held(np.array(found), law, self._alarm, "words of one half of the users")

    def _view(
        self, deployment: Deployment, index: int, blocks: list[Messages]
    ) -> NDArray[np.integer]:
        payload = self._spec_of(deployment).broadcast()
        context = Context.of_broadcast(deployment.task, index, payload)
        frames = [
            Frame(Kind.REPORTS, context, at, block.reports, block.tobytes()).tobytes()
            for at, block in enumerate(blocks)
        ]
        asked = Frame(Kind.ROUND, context, 0, 0, payload).tobytes()
        view, _ = self._shuffler(deployment).shuffle(asked, frames)
        words = []
        for data in split_frames(view):
            size, _, rest = parted(parse(data).payload, self.randomizer)
            assert isinstance(size, int)
            words.append(read_words(rest, self.randomizer.alphabet.symbols, size))
        return np.concatenate(words)

    @property
    def _counted(self) -> bool:
        return bool(self.randomizer.view == "counts")

    @property
    def _laws(self) -> list[Floats]:
        """Of the tally of each word over all users."""
        half = _USERS // 2
        return [summed([(p, half), (q, half)]) for p, q in zip(*self._pmfs, strict=True)]

    def _tallies(self, fidelity: str, rounds: int) -> NDArray[np.int64]:
        """(rounds, words), through the frames of the users' shard."""
        rows = np.array([self._pair[at % 2] for at in range(_USERS)])
        rows = rows[:, 0] if rows.shape[1] == 1 else rows
        deployment = self._deployment(fidelity)
        shard = self._shard(deployment, InMemory(rows), deployment.blocks())
        payload, words = self._spec_of(deployment).broadcast(), len(self._pmfs[0])
        seen = np.zeros((rounds, words), np.int64)
        for index in range(rounds):
            context = Context.of_broadcast(deployment.task, index, payload)
            sent, _ = shard.answer(Frame(Kind.ROUND, context, 0, 0, payload).tobytes())
            for data in split_frames(sent):
                try:
                    read = read_reports(parse(data), self.randomizer)
                except FrameError as error:
                    raise LawError(f"what users send is refused: {error}") from error
                tally = read if isinstance(read, Tally) else read.tally()
                seen[index] += tally.dense(words)
        return seen

    def _deployment(self, fidelity: str) -> Deployment:
        return Deployment(
            protocol=self._protocol,
            task=bytes(16),
            entropy=self._entropy,
            fidelity=fidelity,
            block_size=_BLOCK,
        )

    def _spec_of(self, deployment: Deployment) -> RoundSpec:
        planned = deployment.protocol.plan(0)
        assert planned is not None
        return planned

    def _held(self, seen: NDArray[np.int64], law: Floats, alarm: float, what: str) -> None:
        try:
            check_pmf(seen, np.where(law < 1e-15, 0.0, law), false_alarm=alarm)
        except LawError as error:
            raise LawError(f"{what}: {error}") from error


def _divergence(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
