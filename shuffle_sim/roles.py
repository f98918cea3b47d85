"""The three roles as plain classes; a runtime hosts and connects them, in process or in actors.

What passes between them is bytes. What a `UserShard` reports beside them (`ShardRecord`) and what a `Shuffler` records
(`ShuffleRecord`) is the simulator's own view of the run; neither role sees the other's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.adversary import Adversary, Report
from shuffle_sim.codec import decode
from shuffle_sim.cohort import Cohort
from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.kernels import column_sums, using
from shuffle_sim.messages import Messages, Tally
from shuffle_sim.population import Population
from shuffle_sim.privacy.events import PrivacyEvent
from shuffle_sim.protocol import Protocol, Query, RoundSpec
from shuffle_sim.randomizer import Floats, Randomizer, Scaled, Values, dense
from shuffle_sim.randomness import Role, stream
from shuffle_sim.shuffling import arrange
from shuffle_sim.wire import Context, Frame, Kind, check_context, parse, prefix, split

FIDELITIES = ("literal", "counts", "aggregate")


@dataclass(frozen=True)
class Deployment:
    """What every role is set up with before the first round.

    Attributes:
        protocol: the protocol, public.
        task: 16 bytes that name the run; bound into every frame.
        entropy: of the run's random streams.
        fidelity: one of FIDELITIES.
        block_size: users per block; belongs to the run, never to the number of workers.
        adversary: what corrupted users do.
        kernel: one of `kernels.KERNELS`.
    """

    protocol: Protocol[Any]
    task: bytes
    entropy: int
    fidelity: str
    block_size: int
    adversary: Adversary | None = None
    kernel: str = "numpy"

    def blocks(self) -> range:
        """Indices of all user blocks."""
        return range(-(-self.protocol.users // self.block_size))

    def opened(self, broadcast: bytes) -> tuple[Frame, Cohort, Query, Randomizer, int]:
        """A broadcast as user shards and the shuffler read it: frame, cohort, query, randomizer, minimum.

        Raises:
            FrameError: if it is not a broadcast of this run, or its parameter hash is not that of its parameters.
        """
        frame = parse(broadcast)
        if frame.kind is not Kind.ROUND:
            raise FrameError("wrong-kind", f"{frame.kind.name} is not a broadcast")
        check_context(frame, self.answering(frame))
        cohort, query, randomizer, minimum = decode(frame.payload, (Cohort, *self.protocol.speaks))
        return frame, cohort, query, randomizer, minimum

    def answering(self, frame: Frame) -> Context:
        """The context of the frames that answer a broadcast."""
        return Context.of_broadcast(self.task, frame.context.round, frame.payload)


@dataclass(frozen=True)
class ShardRecord:
    """What one shard of users did in a round: users asked, corrupted, silent, values clipped, values not finite."""

    asked: int = 0
    corrupted: int = 0
    silent: int = 0
    clipped: int = 0
    nonfinite: int = 0

    def __add__(self, other: "ShardRecord") -> "ShardRecord":
        """Both shards together."""
        return ShardRecord(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class ShuffleRecord:
    """What the shuffler did in a round: reports accepted, dropped by reason, bytes received and sent."""

    accepted: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0


class UserShard:
    """Hosts some blocks of users: answers a broadcast with their frames."""

    def __init__(self, deployment: Deployment, population: Population, blocks: Iterable[int]) -> None:
        """Take the rows of these blocks."""
        self._deployment = deployment
        self._population = population
        self._hosted = tuple(blocks)
        self._answered: Context | None = None
        self._resident: dict[int, list[tuple[int, Floats]]] = {}
        if population.resident:
            self._resident = {block: list(self._chunks(block)) for block in self._hosted}

    def answer(self, broadcast: bytes) -> tuple[bytes, ShardRecord]:
        """The frames of this shard's users for the round, and the simulator's record of them.

        The same broadcast again gives the same bytes again: they are drawn from the same streams.

        Raises:
            RoundAbortedError: for a round that was answered with other parameters, or an earlier one: that would be a second
                release.
        """
        frame, cohort, query, randomizer, _ = self._deployment.opened(broadcast)
        context = self._deployment.answering(frame)
        if self._answered is not None and context.round <= self._answered.round and context != self._answered:
            raise RoundAbortedError(f"round {context.round} comes after round {self._answered.round} was answered")
        self._answered = context
        frames: list[bytes] = []
        record = ShardRecord()
        with using(self._deployment.kernel):
            for block in self._hosted:
                if any(cohort.within(*self._span(block))):
                    made, noted = self._answer_block(context, block, cohort, query, randomizer)
                    frames += made
                    record += noted
        return b"".join(frames), record

    def _span(self, block: int) -> tuple[int, int]:
        size = self._deployment.block_size
        return block * size, min((block + 1) * size, self._deployment.protocol.users)

    def _chunks(self, block: int) -> Iterator[tuple[int, Floats]]:
        """The block's rows in pieces that stay in the cache, columns contiguous, each with its first user."""
        start, stop = self._span(block)
        if block in self._resident:
            yield from self._resident[block]
            return
        step = chunk_rows(self._population.rows(start, start + 1))
        for first in range(start, stop, step):
            yield first, np.asfortranarray(self._population.rows(first, min(first + step, stop)), np.float64)

    def _answer_block(
        self, context: Context, block: int, cohort: Cohort, query: Query, randomizer: Randomizer
    ) -> tuple[list[bytes], ShardRecord]:
        """The block's frames, in pieces that only want joining."""
        deployment = self._deployment
        rng = stream(deployment.entropy, context.round, Role.USERS, block)
        corrupted = self._corrupted(context.round, block, cohort)
        honest: list[_Part] = []
        frames: list[bytes] = []
        record = ShardRecord()
        for first, chunk in self._chunks(block):
            parts = [slice(low - first, high - first) for low, high in cohort.within(first, first + len(chunk))]
            if not parts:
                continue
            whole = parts == [slice(0, len(chunk))]
            rows = chunk if whole else np.asfortranarray(np.concatenate([chunk[part] for part in parts]))
            values, clipped, nonfinite = _admitted(query(rows), randomizer)
            record += ShardRecord(asked=len(rows), clipped=clipped, nonfinite=nonfinite)
            if corrupted.size:
                users = _users(cohort, first, first + len(chunk))
                bad, xs = np.isin(users, corrupted), dense(values)
                sent = [self._report(context.round, int(u), x, randomizer) for u, x in zip(users[bad], xs[bad], strict=True)]
                frames += [Frame(Kind.REPORT, context, block, 1, _payload(r)).tobytes() for r in sent if r is not None]
                record += ShardRecord(corrupted=len(sent), silent=sum(report is None for report in sent))
                values = xs[~bad]
            if len(values):
                honest.append(_randomized(deployment.fidelity, values, randomizer, rng))
        if honest:
            frames = _honest_frame(deployment.fidelity, context, block, honest, randomizer) + frames
        return frames, record

    def _corrupted(self, round_index: int, block: int, cohort: Cohort) -> NDArray[np.int64]:
        adversary = self._deployment.adversary
        if adversary is None:
            return np.empty(0, np.int64)
        rng = stream(self._deployment.entropy, round_index, Role.ADVERSARY, block)
        return adversary.corrupt(round_index, _users(cohort, *self._span(block)), rng)

    def _report(self, round_index: int, user: int, x: Floats, randomizer: Randomizer) -> Report:
        assert self._deployment.adversary is not None
        rng = stream(self._deployment.entropy, round_index, Role.CORRUPTED, user)
        return self._deployment.adversary.report(user, x, lambda value: randomizer.randomize(value, rng), rng)


def _users(cohort: Cohort, start: int, stop: int) -> NDArray[np.int64]:
    return np.concatenate([np.arange(0), *(np.arange(low, high) for low, high in cohort.within(start, stop))])


def _payload(report: Messages | bytes) -> bytes:
    return report if isinstance(report, bytes) else report.tobytes()


_CHUNK_VALUES = 163_840  # doubles of a chunk: it stays in the cache from query to bits


def chunk_rows(rows: NDArray[Any]) -> int:
    """Rows that are asked, randomized and added at a time; depends on the width of a row only, so never on the workers."""
    return max(64, _CHUNK_VALUES // (rows.size // max(1, len(rows)) or 1))


def _admitted(values: Values, randomizer: Randomizer) -> tuple[Values, int, int]:
    """Values in the randomizer's domain, how many were clipped, and how many were not finite and became zero.

    Zero before randomizing: silence would leak.
    """
    nonfinite = 0
    if isinstance(values, Scaled):
        if not np.isfinite(values.norms_squared.sum()):
            finite = np.isfinite(values.norms_squared)
            nonfinite = int((~finite).sum())
            rows = np.where(finite[:, None], values.rows, 0.0)
            values = Scaled(np.asfortranarray(rows), np.where(finite, values.factors, 0.0))
    else:
        values = np.asarray(values, np.float64)
        finite = np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if not finite.all():
            nonfinite = int((~finite).sum())
            values = np.where(finite.reshape(-1, *[1] * (values.ndim - 1)), values, 0.0)
    return *randomizer.admit(values), nonfinite


_Part = tuple[int, NDArray[Any]]
"""Users of a chunk, and what they send: packed reports, counts or a tally."""


def _randomized(fidelity: str, values: Values, randomizer: Randomizer, rng: np.random.Generator) -> _Part:
    if fidelity == "aggregate":
        return len(values), randomizer.tally(values, rng)
    counts = randomizer.counts(values, rng)
    return len(values), counts if fidelity == "counts" else Messages.from_ones(counts, randomizer.per_label).packed


def _honest_frame(fidelity: str, context: Context, block: int, parts: list[_Part], randomizer: Randomizer) -> list[bytes]:
    users = sum(count for count, _ in parts)
    if fidelity == "aggregate":
        pieces = [np.sum([tally for _, tally in parts], axis=0, dtype=np.int64).astype("<i8").tobytes()]
    elif fidelity == "counts":
        pieces = [counts.astype(count_type(randomizer), copy=False).tobytes() for _, counts in parts]
    else:
        pieces = [packed.tobytes() for _, packed in parts]
    return [prefix(_HONEST_KIND[fidelity], context, block, users, sum(map(len, pieces))), *pieces]


def count_type(randomizer: Randomizer) -> str:
    """The little-endian integers in which counts travel."""
    return "<u2" if randomizer.per_label < 2**16 else "<u4"


class Shuffler:
    """Collects the frames of a round, drops what is not valid, permutes uniformly, releases the view once."""

    def __init__(self, deployment: Deployment) -> None:
        """Start with no round released."""
        self._deployment = deployment
        self._released = -1

    def shuffle(self, broadcast: bytes, batches: Iterable[bytes]) -> tuple[bytes, ShuffleRecord]:
        """The permuted view of the round, and the simulator's record.

        Raises:
            RoundAbortedError: if fewer than the agreed minimum of reports were accepted, or the round was released before.
        """
        frame, cohort, _, randomizer, minimum = self._deployment.opened(broadcast)
        if frame.context.round <= self._released:
            raise RoundAbortedError(f"round {frame.context.round} was released before")
        context = self._deployment.answering(frame)
        inbox = _Inbox(self._deployment, context, cohort, randomizer)
        for batch in batches:
            inbox.take(batch)
        accepted, dropped = inbox.tally.reports, inbox.dropped
        if accepted < minimum:
            raise RoundAbortedError(
                f"round {frame.context.round}: {accepted} reports accepted, agreed are at least {minimum}; not released"
            )
        view = self._view(context, inbox.tally, randomizer, self._deployment.fidelity == "literal")
        self._released = frame.context.round
        return view, ShuffleRecord(accepted, dict(dropped), inbox.received, len(view))

    def _view(self, context: Context, tally: Tally, randomizer: Randomizer, literal: bool) -> bytes:
        if not literal:
            return Frame(Kind.VIEW_TALLY, context, 0, tally.reports, tally.ones.astype("<i8").tobytes()).tobytes()
        rng = stream(self._deployment.entropy, context.round, Role.SHUFFLER, 0)
        size = tally.reports * randomizer.per_label
        payload = b"".join(arrange(int(ones), size, rng).tobytes() for ones in tally.ones)
        return Frame(Kind.VIEW, context, 0, tally.reports, payload).tobytes()


class _Inbox:
    """What the shuffler has received for a round: what is valid is tallied, everything else is dropped and counted."""

    def __init__(self, deployment: Deployment, context: Context, cohort: Cohort, randomizer: Randomizer) -> None:
        self._deployment, self._context, self._cohort, self._randomizer = deployment, context, cohort, randomizer
        self._whole = _HONEST_KIND[deployment.fidelity]
        self._seen: set[int] = set()
        self._taken: Counter[int] = Counter()
        self.received = 0
        self.dropped: Counter[str] = Counter()
        self.tally = Tally(np.zeros((randomizer.alphabet.labels, randomizer.alphabet.symbols), np.int64), 0)

    def take(self, batch: bytes) -> None:
        """Add the frames of one shard."""
        self.received += len(batch)
        try:
            for data in split(batch):
                self._take_frame(data)
        except FrameError as error:  # where a length is broken, the rest of the batch cannot be told apart any more
            self.dropped[error.reason] += 1

    def _take_frame(self, data: memoryview) -> None:
        counted = 1  # a frame too broken to say how many reports it carries counts for one
        try:
            frame = parse(data)
            asked = self._asked(frame.index)
            counted = max(1, min(frame.reports, asked))  # never more than were asked, whatever it claims
            check_context(frame, self._context)
            if frame.kind not in (self._whole, Kind.REPORT):
                raise FrameError("wrong-kind", f"{frame.kind.name} is not for the shuffler of this run")
            if frame.kind is Kind.REPORT and frame.reports != 1:
                raise FrameError("wrong-count", "a single report counts one user")
            if frame.kind is self._whole and frame.index in self._seen:
                raise FrameError("duplicate-block", f"block {frame.index}")
            room = asked - self._taken[frame.index]
            if frame.reports > room:
                raise FrameError("too-many-reports", f"{frame.reports} of block {frame.index}, {room} to come")
            tally = _tally(frame, self._randomizer)
        except FrameError as error:
            self.dropped[error.reason] += counted
            return
        if frame.kind is self._whole:
            self._seen.add(frame.index)
        self._taken[frame.index] += frame.reports
        self.tally += tally

    def _asked(self, block: int) -> int:
        size = self._deployment.block_size
        return sum(high - low for low, high in self._cohort.within(block * size, (block + 1) * size))


_HONEST_KIND = {"literal": Kind.REPORTS, "counts": Kind.COUNTS, "aggregate": Kind.TALLY}


def _tally(frame: Frame, randomizer: Randomizer) -> Tally:
    """What a users' frame adds to the view.

    Raises:
        FrameError: naming why the frame's reports are dropped.
    """
    labels, per_label = randomizer.alphabet.labels, randomizer.per_label
    if frame.kind in (Kind.REPORTS, Kind.REPORT):
        messages = Messages.from_bytes(randomizer.alphabet, per_label, frame.payload, frame.reports)
        return Tally.of_ones(messages.ones_per_label(), per_label, frame.reports)
    if frame.kind is Kind.COUNTS:
        counts = _integers(frame.payload, count_type(randomizer), frame.reports * labels).reshape(frame.reports, labels)
        if counts.size and counts.max() > per_label:
            raise FrameError("count-out-of-range", f"counts must be 0 to {per_label}")
        return Tally.of_ones(column_sums(counts), per_label, frame.reports)
    if frame.kind in (Kind.TALLY, Kind.VIEW_TALLY):
        ones = _integers(frame.payload, "<i8", labels)
        if ones.min() < 0 or ones.max() > per_label * frame.reports:
            raise FrameError("count-out-of-range", f"tallies must be 0 to {per_label * frame.reports}")
        return Tally.of_ones(ones, per_label, frame.reports)
    raise FrameError("wrong-kind", f"{frame.kind.name} carries no reports")


def _integers(payload: bytes, dtype: str, size: int) -> NDArray[np.integer]:
    if len(payload) != size * np.dtype(dtype).itemsize:
        raise FrameError("wrong-length", f"{len(payload)} bytes for {size} integers")
    return np.frombuffer(payload, dtype)


class Analyzer:
    """Owns the protocol's state: says what the next round asks, and turns each view into an estimate."""

    def __init__(self, deployment: Deployment) -> None:
        """Start from the protocol's initial state."""
        self._deployment = deployment
        self._state = deployment.protocol.init()
        self._round = 0
        self._spec: RoundSpec | None = None

    def plan(self) -> tuple[bytes, Cohort, PrivacyEvent] | None:
        """The next round's broadcast with the cohort and event the ledger is to charge; None when done."""
        self._spec = self._deployment.protocol.plan(self._state)
        if self._spec is None:
            return None
        payload = self._spec.broadcast()
        context = Context.of_broadcast(self._deployment.task, self._round, payload)
        return Frame(Kind.ROUND, context, 0, 0, payload).tobytes(), self._spec.cohort, self._spec.event

    def receive(self, view: bytes) -> None:
        """Take the view of the planned round and update the state.

        Raises:
            FrameError: if the view is not one of this round; the state is unchanged then.
        """
        if self._spec is None:
            raise RoundAbortedError("no round is planned")
        frame = parse(view)
        check_context(frame, Context.of_broadcast(self._deployment.task, self._round, self._spec.broadcast()))
        if not self._spec.minimum <= frame.reports <= self._spec.cohort.size:
            raise FrameError("wrong-count", f"{frame.reports} reports of {self._spec.cohort.size} users")
        tally = self._read(frame, self._spec.randomizer)
        if self._deployment.adversary is not None:
            self._deployment.adversary.observe(tally)
        self._state = self._deployment.protocol.update(self._state, self._spec.analyze(tally))
        self._round += 1
        self._spec = None

    @staticmethod
    def _read(frame: Frame, randomizer: Randomizer) -> Tally:
        if frame.kind is Kind.VIEW_TALLY:
            return _tally(frame, randomizer)
        if frame.kind is not Kind.VIEW:
            raise FrameError("wrong-kind", f"{frame.kind.name} is not for the analyzer")
        labels, size = randomizer.alphabet.labels, frame.reports * randomizer.per_label
        if len(frame.payload) != labels * ((size + 7) // 8):
            raise FrameError("wrong-length", f"{len(frame.payload)} bytes for {labels} labels of {size} bits")
        bits = np.frombuffer(frame.payload, np.uint8).reshape(labels, -1)
        if size % 8 and bool((bits[:, -1] & (0xFF >> size % 8)).any()):
            raise FrameError("nonzero-padding", "bits after the last message of a label")
        return Tally.of_ones(np.bitwise_count(bits).sum(axis=1, dtype=np.int64), randomizer.per_label, frame.reports)

    def result(self) -> Any:
        """The protocol's output."""
        return self._deployment.protocol.result(self._state)
