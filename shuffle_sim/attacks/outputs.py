"""Manipulated outputs: users that do not run the randomizer but send what they like.

A report that is well formed is accepted, and moves the sum by the alphabet's reach at most;
everything else is dropped by reason. Or they run it, and their noise protects nobody.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.errors import ParameterError, integer, one_of
from shuffle_sim.protocol.adversary import AttackContext, CallNext, Coalition, Report, payload_of
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.wire.frames import Kind, parse
from shuffle_sim.wire.messages import Alphabet, Messages


def _same(context: AttackContext, largest: Floats | bool) -> Messages:
    """The largest symbol under the labels where `largest` holds, zero under the others."""
    alphabet, per_label = context.randomizer.alphabet, context.randomizer.per_label
    if isinstance(largest, bool) or context.randomizer.view != "sums":
        return context.randomizer.extreme(highest=bool(np.any(largest)))
    by_label = np.asarray(largest, np.uint64).ravel()  # or by coordinate, of several labels each
    by_column = np.repeat(by_label, alphabet.labels // by_label.size)[alphabet.label_of]
    # Unsigned: the largest symbol may be 2^64 - 1.
    symbols = np.broadcast_to(by_column[:, None], (alphabet.width, per_label))
    return Messages.from_symbols(alphabet, (symbols * np.uint64(alphabet.symbols - 1))[None])


class Ones(Coalition):
    """Every message is the largest symbol: the highest estimate that a report can make."""

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return _same(call_next.context, True)


class Zeros(Coalition):
    """Every message is zero: the lowest estimate that a report can make."""

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return _same(call_next.context, False)


class Oppose(Coalition):
    """Under each label the extreme on the other side: the sign flip at a report's largest reach."""

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return _same(call_next.context, np.atleast_1d(x < call_next.context.center(x)))


class Promote(Coalition):
    """One word as often as a user may send it; in a view of sums the largest under one label.

    The most that users can do for a bin, or against it: see `gain` of `attacks.counts`.
    """

    def __init__(self, fraction: float, word: int = 0) -> None:
        super().__init__(fraction)
        self.word = integer("word", word, 0, 2**64 - 1)

    def check(self, spec: RoundSpec, row: Floats) -> None:
        alphabet = spec.randomizer.alphabet
        words = alphabet.labels if spec.randomizer.view == "sums" else alphabet.symbols
        integer("word", self.word, 0, words - 1)

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        randomizer = call_next.context.randomizer
        if randomizer.view == "sums":
            return _same(call_next.context, np.arange(randomizer.alphabet.labels) == self.word)
        return randomizer.singly(np.full(randomizer.per_label, self.word, np.uint64))


class ExtraBits(Coalition):
    """The report with `count` bytes more."""

    def __init__(self, fraction: float, count: int = 1) -> None:
        super().__init__(fraction)
        self.count = integer("count", count, 1, 2**28)

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return payload_of(call_next(x)) + b"\xff" * self.count


class MissingBits(Coalition):
    """The report without its last byte."""

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return payload_of(call_next(x))[:-1]


def step_to_next(alphabet: Alphabet) -> int:
    """By how many labels messages can move and stay well formed; by all labels is no move."""
    columns = np.diff(alphabet.edges)
    steps = range(1, alphabet.labels + 1)
    return next(each for each in steps if np.array_equal(np.roll(columns, each), columns))


class WrongLabels(Coalition):
    """Every message under the next label that takes as many: labels are places.

    A word becomes the next one.
    """

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        honest = call_next(x)
        if not isinstance(honest, Messages):
            return honest
        if honest.each is not None:
            following = honest.words.astype(np.uint64) + np.uint64(1)
            # At 2^64 symbols the sum wraps to 0 by itself.
            last = following > np.uint64(honest.alphabet.symbols - 1)
            return call_next.context.randomizer.singly(np.where(last, np.uint64(0), following))
        places = int(honest.alphabet.edges[step_to_next(honest.alphabet)])
        return Messages.from_symbols(honest.alphabet, np.roll(honest.symbols, places, 1))


class OutOfRange(Coalition):
    """Every bit of the report set, its padding, and symbols beyond the alphabet."""

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return b"\xff" * call_next.context.randomizer.report_bytes


class Garbage(Coalition):
    """Random bytes in place of the whole frame, up to twice as many."""

    def send(
        self, context: AttackContext, user: int, packet: bytes, rng: np.random.Generator
    ) -> tuple[bytes, ...]:
        return (rng.bytes(int(rng.integers(2 * len(packet) + 1))),)


class Oversized(Coalition):
    """A report of `size` bytes, whatever was asked."""

    def __init__(self, fraction: float, size: int = 1 << 20) -> None:
        super().__init__(fraction)
        self.size = integer("size", size, 1, 2**28)

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        return bytes(self.size)


class Twice(Coalition):
    """The same report `times` times."""

    def __init__(self, fraction: float, times: int = 2) -> None:
        super().__init__(fraction)
        self.times = integer("times", times, 2, 1000)

    def send(
        self, context: AttackContext, user: int, packet: bytes, rng: np.random.Generator
    ) -> tuple[bytes, ...]:
        return (packet,) * self.times


class Impostor(Coalition):
    """Frames that claim to be a whole block's, another user's, or those of many users."""

    CLAIMS = ("block", "user", "count")

    def __init__(self, fraction: float, claim: str = "block") -> None:
        super().__init__(fraction)
        one_of("claim", claim, self.CLAIMS)
        self.claim = claim

    def send(
        self, context: AttackContext, user: int, packet: bytes, rng: np.random.Generator
    ) -> tuple[bytes, ...]:
        frame = parse(packet)
        changed = {
            "block": replace(
                frame, kind=Kind.REPORTS, index=context.block, reports=context.users.size
            ),
            "user": replace(frame, index=user + 1),
            # The most that a header can say.
            "count": replace(frame, reports=2**32 - 1),
        }
        return (changed[self.claim].tobytes(),)


class Replay(Coalition):
    """The frame of the last round it answered, once more; the first one is honest."""

    def __init__(self, fraction: float) -> None:
        super().__init__(fraction)
        self._last: dict[int, tuple[int, bytes]] = {}

    def send(
        self, context: AttackContext, user: int, packet: bytes, rng: np.random.Generator
    ) -> tuple[bytes, ...]:
        kept, sent = self._last.setdefault(user, (context.round, packet))
        return (packet if kept == context.round else sent,)


class Collude(Coalition):
    """They follow the protocol, but the analyzer knows and subtracts their messages."""

    colludes = True


@runtime_checkable
class Noiseless(Protocol):
    """A randomizer that can be run without its noise."""

    def noiseless(self, x: Floats, rng: np.random.Generator) -> Messages:
        """A report on `x` whose noise is zero."""


class NoNoise(Coalition):
    """They encode their value and leave out the noise."""

    def check(self, spec: RoundSpec, row: Floats) -> None:
        if not isinstance(spec.randomizer, Noiseless):
            raise ParameterError(
                "attack", "no-noise", "used on a randomizer with a method noiseless(x, rng)"
            )

    def report(self, user: int, x: Floats, call_next: CallNext, rng: np.random.Generator) -> Report:
        randomizer = call_next.context.randomizer
        return randomizer.noiseless(x, rng) if isinstance(randomizer, Noiseless) else None
