"""Auditing what is implemented: users and shuffler run many times on a worst pair.

Sampling cannot reach delta = 1e-6, so the audit does two things. It compares the law of every
user's report, of the tally and of the order with the exact one (goodness of fit, false-alarm rate
1e-6 a check): that is what catches wrong noise. And it bounds epsilon from below by Clopper-Pearson
on the worst pair: theorem >= exact >= empirical must hold.
"""

import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.signal import fftconvolve

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import InMemory
from shuffle_sim.errors import FrameError, ParameterError, integer
from shuffle_sim.privacy.accountant import ShuffleAccountant
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Deployment, Shuffler, UserShard, count_type
from shuffle_sim.sampling.randomness import entropy_of
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Alphabet, Messages

_USERS = 8  # whose reports are looked at one by one
_LABELS = 2  # at most so many coordinates are looked at
_CONFIDENCE = 1 - 1e-4


@typing.runtime_checkable
class Auditable(typing.Protocol):
    """What a randomizer must say of itself to be audited."""

    def worst_pair(self) -> tuple[Floats, Floats]:
        """Two data that are hardest to tell apart; they differ in label 0 and are not rounded."""

    def count_pmf(self, x: Floats, label: int) -> Floats:
        """Exact law of `count_index` under `label` of one report on the admitted datum `x`."""

    def count_index(self, sums: NDArray[np.int64], reports: int) -> NDArray[np.int64]:
        """Sums of the symbols of so many reports, counted from the lowest that can be."""

    def total_law(self, sums: NDArray[np.int64], users: int) -> tuple[NDArray[np.int64], Floats]:
        """Sums under label 0 of users with the first datum: indices of their law, and the law."""


@dataclass(frozen=True)
class Check:
    """One comparison: what was looked at, whether it held, and what was seen if not."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        theorem: epsilon that the run would state.
        exact: epsilon of the worst pair by exact arithmetic.
        empirical: a lower bound of epsilon from samples, true with probability 1 - 1e-4 if the
            samples are what they seem.
        delta: at which the three hold.
        repeats: samples of every law; the empirical bound takes ten times as many a side.
        checks: all comparisons, the order of the three epsilons last.
    """

    theorem: float
    exact: float
    empirical: float
    delta: float
    repeats: int
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return all(check.passed for check in self.checks)


def audit(
    protocol: Protocol[Any],
    *,
    repeats: int = 4000,
    seed: int | None = None,
    shard: type[UserShard] = UserShard,
    shuffler: type[Shuffler] = Shuffler,
) -> AuditReport:
    """Audit a one-round protocol's implemented randomizer, users' shard and shuffler.

    Args:
        protocol: whose first round is audited.
        repeats: samples of every law; at least 1,000. The empirical bound takes ten times as many a
            side.
        seed: to reproduce the audit.
        shard: the implementation of the users.
        shuffler: the implementation of the shuffler.

    Raises:
        ParameterError: if the randomizer cannot say what its law should be.
    """
    integer("repeats", repeats, 1000)
    spec = protocol.plan(protocol.init())
    delta = protocol.delta
    exact = theorem_of(type(spec.event)).exact(spec.event, delta) if spec is not None else None
    if spec is None or exact is None or not isinstance(spec.randomizer, Auditable):
        raise ParameterError(
            "protocol",
            type(protocol).__name__,
            "one whose event has an exact epsilon of a worst pair, and whose randomizer has "
            "worst_pair, count_pmf and count_index",
        )
    event: Any = spec.event
    bench = _Bench(protocol, spec, entropy_of(seed), repeats, shard, shuffler)
    checks = [
        _held("every report has the same size, whatever the datum", bench.sizes),
        _held("each user's report has its exact law (literal)", lambda: bench.reports("literal")),
        _held("each user's report has its exact law (counts)", lambda: bench.reports("counts")),
        _held("the tally of the users has its exact law (aggregate)", bench.tallies),
        _held(
            "the noise of all honest users together has its exact law",
            lambda: bench.whole(event.honest),
        ),
        _held("two rounds over the same data draw independent noise", bench.rounds),
        _held("the shuffler keeps no order", bench.order),
    ]
    theorem = (
        protocol.claim.epsilon
        if protocol.claim
        else ShuffleAccountant().compose(event).get_epsilon(delta)
    )
    empirical = empirical_epsilon(
        spec.randomizer, event.honest, delta, repeats=repeats, seed=bench.entropy
    )
    ordered = theorem * (1 + 1e-9) >= exact >= empirical
    words = f"theorem {theorem:.4f}, exact {exact:.4f}, empirical {empirical:.4f}"
    checks.append(
        Check("theorem >= exact >= empirical lower bound", ordered, "" if ordered else words)
    )
    return AuditReport(theorem, exact, empirical, delta, repeats, tuple(checks))


def empirical_epsilon(
    randomizer: Randomizer,
    honest: int,
    delta: float,
    *,
    repeats: int = 4000,
    seed: int | None = None,
) -> float:
    """Clopper-Pearson lower bound of epsilon from tallies of the worst pair.

    The best threshold is chosen on other samples.

    Args:
        randomizer: as implemented; says its worst pair (`Auditable`).
        honest: users whose reports the analyzer does not know: the rest of the view tells it
            nothing.
        delta: at which the bound holds, with confidence 1 - 1e-4.
        repeats: a tenth of the samples a side, at least 100.
        seed: to reproduce it.
    """
    integer("repeats", repeats, 100)
    if not isinstance(randomizer, Auditable):
        raise ParameterError(
            "randomizer", type(randomizer).__name__, "one with worst_pair and count_pmf"
        )
    rng, pair = np.random.default_rng(entropy_of(seed)), randomizer.worst_pair()
    others = np.repeat(pair[0][None], honest - 1, axis=0)
    rows = [np.concatenate([x[None], others]) for x in pair]
    half = 5 * repeats
    low, high = (
        randomizer.count_index(np.array([randomizer.tally(r, rng)[0] for _ in range(2 * half)]), 1)
        for r in rows
    )
    if np.median(low) > np.median(high):
        low, high = high, low
    thresholds = np.unique(
        np.quantile(np.concatenate([low, high]), np.linspace(0.002, 0.998, 250)).round()
    )
    tests = [(high, low, t) for t in thresholds] + [(-low, -high, -t) for t in thresholds]
    a, b, t = max(
        tests, key=lambda test: clopper_pearson(test[0][:half], test[1][:half], test[2], delta)
    )
    return max(0.0, clopper_pearson(a[half:], b[half:], t, delta))


def _held(name: str, check: Callable[[], None]) -> Check:
    try:
        check()
    except (LawError, FrameError) as error:
        return Check(name, False, str(error))
    return Check(name, True)


class _Bench:
    """The implementation under audit, with everything needed to run it."""

    def __init__(
        self,
        protocol: Protocol[Any],
        spec: RoundSpec,
        entropy: int,
        repeats: int,
        shard: type[UserShard],
        shuffler: type[Shuffler],
    ) -> None:
        self.protocol, self.spec, self.entropy, self.repeats = protocol, spec, entropy, repeats
        self.randomizer, self.shard, self.shuffler = spec.randomizer, shard, shuffler
        assert isinstance(spec.randomizer, Auditable)
        self.law: Auditable = spec.randomizer
        self.pair = self.law.worst_pair()
        # Users 0 and 1 hold the worst pair, the others values that are rounded at random.
        shares = np.linspace(0.03, 0.97, _USERS - 2)
        between = [self.pair[0] + share * (self.pair[1] - self.pair[0]) for share in shares]
        self.values = np.array([*self.pair, *between])

    def answers(self, fidelity: str, rounds: int) -> list[list[Frame]]:
        """The frames of the shard's users for so many rounds."""
        population = InMemory(
            np.concatenate([self.values] * (-(-self.protocol.users // _USERS)))[
                : self.protocol.users
            ]
        )
        deployment = Deployment(
            protocol=self.protocol,
            task=bytes(16),
            entropy=self.entropy,
            fidelity=fidelity,
            block_size=_USERS,
        )
        shard = self.shard(deployment, population, [0])
        payload = RoundSpec(
            Cohort.of(0, self.users),
            self.spec.query,
            self.randomizer,
            self.spec.event,
            lambda _: None,
        ).broadcast()
        contexts = [Context.of_broadcast(bytes(16), index, payload) for index in range(rounds)]
        broadcasts = [Frame(Kind.ROUND, context, 0, 0, payload).tobytes() for context in contexts]
        return [
            [parse(data) for data in split_frames(shard.answer(broadcast)[0])]
            for broadcast in broadcasts
        ]

    @property
    def users(self) -> int:
        return min(_USERS, self.protocol.users)

    def messages(self, frames: list[Frame]) -> Messages:
        """The reports of one round, as the shuffler would read them."""
        payload, reports = b"".join(f.payload for f in frames), sum(f.reports for f in frames)
        return Messages.from_bytes(
            self.randomizer.alphabet, self.randomizer.per_label, payload, reports
        )

    def sizes(self) -> None:
        for frames in self.answers("literal", 20):
            if self.messages(frames).reports != self.users:
                raise LawError("not every user sent one report")
        rng = np.random.default_rng(self.entropy)
        sizes = {
            (r.packed.shape, r.per_label)
            for x in self.values
            for r in [self.randomizer.randomize(x, rng)]
        }
        if sizes != {((1, self.randomizer.report_bytes), self.randomizer.per_label)}:
            raise LawError(f"reports of sizes {sorted(sizes)}")

    def counts(self, fidelity: str, rounds: int) -> NDArray[np.int64]:
        """Sums per round, user and label, (rounds, users, labels), as indices of the exact law."""
        labels = self.randomizer.alphabet.labels
        if fidelity == "literal":
            seen = [
                np.add.reduceat(
                    self.messages(frames).symbols.sum(axis=-1, dtype=np.int64),
                    self.randomizer.alphabet.edges[:-1],
                    axis=1,
                )
                for frames in self.answers("literal", rounds)
            ]
        else:
            seen = [
                np.concatenate(
                    [
                        np.frombuffer(f.payload, count_type(self.randomizer))
                        .astype(np.int64)
                        .reshape(-1, labels)
                        for f in frames
                    ]
                )
                for frames in self.answers("counts", rounds)
            ]
        return self.law.count_index(np.array(seen), 1)

    def reports(self, fidelity: str) -> None:
        counts = self.counts(fidelity, self.repeats)
        for user in range(self.users):
            for label in range(min(_LABELS, counts.shape[2])):
                try:
                    check_pmf(counts[:, user, label], self.law.count_pmf(self.values[user], label))
                except LawError as error:
                    raise LawError(f"user {user}, label {label}: {error}") from error

    def tallies(self) -> None:
        frames = self.answers("aggregate", self.repeats)
        seen = np.array(
            [
                sum(int(np.frombuffer(f.payload, "<i8")[0]) for f in round_frames)
                for round_frames in frames
            ]
        )
        pmf = np.ones(1)
        for x in self.values[: self.users]:
            pmf = _convolved(pmf, self.law.count_pmf(x, 0))
        check_pmf(self.law.count_index(seen, self.users), pmf)

    def whole(self, honest: int) -> None:
        rng = np.random.default_rng([self.entropy, 1])
        rows = np.repeat(self.pair[0][None], honest, axis=0)
        check_pmf(
            *self.law.total_law(
                np.array([self.randomizer.tally(rows, rng)[0] for _ in range(self.repeats)]), honest
            )
        )

    def rounds(self) -> None:
        # Under independence the difference of two rounds has the law of the difference of
        # independent draws.
        counts = self.counts("counts", 2 * self.repeats)
        for user in range(self.users):
            pmf = self.law.count_pmf(self.values[user], 0)
            difference = counts[0::2, user, 0] - counts[1::2, user, 0] + len(pmf) - 1
            try:
                check_pmf(difference, _convolved(pmf, pmf[::-1]))
            except LawError as error:
                raise LawError(f"user {user}: {error}") from error

    def order(self) -> None:
        """Half of the users send the largest symbol, half 0: the view must mix them."""
        alphabet, per_label = self.randomizer.alphabet, self.randomizer.per_label
        half = self.users // 2
        if half == 0 or self.protocol.users < 2:
            return
        symbols = np.zeros((2 * half, alphabet.width, per_label), np.int64)
        symbols[:half] = alphabet.symbols - 1
        payload = Messages.from_symbols(alphabet, symbols).tobytes()
        public = RoundSpec(
            Cohort.of(0, 2 * half),
            self.spec.query,
            self.randomizer,
            self.spec.event,
            lambda _: None,
        ).broadcast()
        deployment = Deployment(
            protocol=self.protocol,
            task=bytes(16),
            entropy=self.entropy,
            fidelity="literal",
            block_size=_USERS,
        )
        shuffler = self.shuffler(deployment)
        each = int(alphabet.edges[1]) * per_label
        seen, size = [], 2 * half * each
        end = 8 + (size * alphabet.symbol_bits + 7) // 8
        for index in range(self.repeats):
            context = Context.of_broadcast(bytes(16), index, public)
            batch = Frame(Kind.REPORTS, context, 0, 2 * half, payload).tobytes()
            view, _ = shuffler.shuffle(Frame(Kind.ROUND, context, 0, 0, public).tobytes(), [batch])
            row = Messages.from_bytes(
                Alphabet(1, alphabet.symbols), size, parse(view).payload[8:end], 1
            ).symbols
            seen.append(int(np.count_nonzero(row[0, 0, : half * each])))
        places = np.arange(half * each + 1)
        check_pmf(seen, stats.hypergeom.pmf(places, size, half * each, half * each))


def _convolved(first: Floats, second: Floats) -> Floats:
    """The law of a sum; long ones by Fourier transforms, to 1e-16."""
    return (
        np.convolve(first, second)
        if min(len(first), len(second)) < 4096
        else np.maximum(fftconvolve(first, second), 0.0)
    )


def clopper_pearson(
    likely: NDArray[Any], unlikely: NDArray[Any], threshold: float, delta: float
) -> float:
    """ln((P - delta) / Q) for the event sample >= threshold, P from below, Q from above."""
    hits, misses, alpha = (
        int((likely >= threshold).sum()),
        int((unlikely >= threshold).sum()),
        (1 - _CONFIDENCE) / 2,
    )
    lower = stats.beta.ppf(alpha, hits, likely.size - hits + 1) if hits else 0.0
    upper = (
        stats.beta.ppf(1 - alpha, misses + 1, unlikely.size - misses)
        if misses < unlikely.size
        else 1.0
    )
    return math.log((lower - delta) / upper) if lower > delta else -math.inf
