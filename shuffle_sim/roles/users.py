"""The users: a shard hosts some blocks of them and answers for them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Buffer, Floats, Scaled, Values, all_finite, dense
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.data.population import Population
from shuffle_sim.errors import FrameError, ParameterError, RoundAbortedError
from shuffle_sim.protocol.adversary import AttackContext
from shuffle_sim.protocol.query import Datum
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.task import Participation
from shuffle_sim.roles.block_rows import BlockRows, Chunk, Hosting
from shuffle_sim.roles.channel import Keyed
from shuffle_sim.roles.corrupted import Corrupted, corrupted
from shuffle_sim.roles.deployment import Broadcast, Deployment
from shuffle_sim.roles.onion import bundles
from shuffle_sim.roles.records import ShardRecord
from shuffle_sim.roles.reports import HONEST_KIND, count_bytes, count_type, read_messages
from shuffle_sim.sampling.kernels import expect, fortran, squared_norms, using
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, prefix, split_frames
from shuffle_sim.wire.messages import Messages, Tally, together
from shuffle_sim.wire.sealing import Purpose, Sealer


class UserShard(Hosting, Keyed):
    """Hosts some blocks of users: answers a broadcast with their frames."""

    def __init__(
        self,
        deployment: Deployment,
        population: Population,
        blocks: Iterable[int],
        asked: Iterable[bytes] = (),
        contents: Mapping[int, bytes] | None = None,
    ) -> None:
        """Take the rows of these blocks.

        `contents` are the hashes of their rows as they were first read; rows that are others are
        not answered for.

        `asked` are the broadcasts that were answered before this role was put here: no other is
        answered for their rounds. Users that misbehave answer them again, in silence: they may
        remember what they did.
        """
        users = deployment.protocol.users
        super().__init__(population, blocks, deployment.block_size, contents, users)
        self._deployment = deployment
        self._answered: Context | None = None
        self._participation = Participation()
        self._rows = BlockRows(population)
        for broadcast in asked:
            if deployment.adversary is None:
                self._take_part(deployment.opened(broadcast))
            else:
                for block in self._hosted:
                    self._answer(broadcast, range(block, block + 1))

    def answer(self, broadcast: bytes, blocks: range | None = None) -> tuple[bytes, ShardRecord]:
        """The frames of this shard's users for the round, and the simulator's record of them.

        Args:
            broadcast: the round's.
            blocks: only users of these blocks, or all.

        The same broadcast again gives the same bytes again, if in new boxes: they are drawn from
        the same streams.

        Raises:
            RoundAbortedError: for a round that was answered with other parameters, or an earlier
                one: that would be a second release.
        """
        batch, record = self._answer(broadcast, blocks)
        if self._deployment.security == "onion":
            randomizer = self._deployment.opened(broadcast).randomizer
            batch = b"".join(self._bundled(parse(data), randomizer) for data in split_frames(batch))
        return self._closed(batch, Purpose.BATCH, self._directory.shufflers), record

    def _answer(self, broadcast: bytes, blocks: range | None) -> tuple[bytes, ShardRecord]:
        """The frames before they are sealed."""
        asked = self._deployment.opened(broadcast)
        context = asked.context
        if (
            self._answered is not None
            and context.round <= self._answered.round
            and context != self._answered
        ):
            raise RoundAbortedError(
                f"round {context.round} comes after round {self._answered.round} was answered"
            )
        self._take_part(asked)
        frames: list[bytes] = []
        records: list[ShardRecord] = []
        with using(self._deployment.kernel):
            for block in self._hosted:
                inside = asked.cohort.within(*self._span(block))
                if (blocks is None or block in blocks) and any(inside):
                    made, noted = self._answer_block(asked, block)
                    frames += made
                    records.append(noted)
        return b"".join(frames), ShardRecord.total(records)

    def _take_part(self, asked: Broadcast) -> None:
        """Count the round, if it is a new one.

        Raises:
            FrameError: `not-agreed`, where users have answered as often as was agreed.
        """
        if asked.context == self._answered:
            return
        agreed = self._deployment.agreed
        if agreed is not None and self._participation.most(asked.cohort) >= agreed.participation:
            most = f"a user in more rounds than {agreed.participation:,}"
            raise FrameError("not-agreed", most)
        self._participation.add(asked.cohort)
        self._answered = asked.context

    def _bundled(self, frame: Frame, randomizer: Randomizer) -> bytes:
        """A frame's reports as each user sends them: bundles of messages, sealed to the shuffler.

        What a user that is not honest sends goes the same way if it is a report; else it is what
        the bundle holds.
        """
        if frame.kind is not Kind.PACKET:
            reports = read_messages(frame.payload, randomizer, frame.reports)
            sealer, bundle = self._sealers(frame.context, frame.index)
            sent = (
                replace(frame, kind=Kind.BUNDLE, reports=1, payload=bundle.seal(each))
                for each in bundles(reports, sealer)
            )
            return b"".join(each.tobytes() for each in sent)
        try:
            inner = parse(frame.payload)
        except FrameError:
            return frame.tobytes()  # no frame at all: the shuffler will see it
        sealer, bundle = self._sealers(inner.context, frame.index // self._deployment.block_size)
        try:
            reports = read_messages(inner.payload, randomizer, 1)
            (content,) = bundles(reports, sealer)
        except FrameError:
            content = inner.payload
        kind = Kind.BUNDLE if inner.kind is Kind.REPORT else inner.kind
        return replace(
            frame, payload=replace(inner, kind=kind, payload=bundle.seal(content)).tobytes()
        ).tobytes()

    def _sealers(self, context: Context, block: int) -> tuple[Sealer, Sealer]:
        """For messages to the analyzer, and for bundles to the shuffler of a block."""
        (analyzer,), shufflers = self._directory.analyzer, self._directory.shufflers
        shuffler = shufflers[block % len(shufflers)]
        return Sealer(analyzer, Purpose.MESSAGE, context), Sealer(shuffler, Purpose.BUNDLE, context)

    def _chunks(self, block: int) -> Iterable[Chunk]:
        return self._rows.chunks(*self._span(block))

    def _answer_block(self, broadcast: Broadcast, block: int) -> tuple[list[bytes], ShardRecord]:
        """The block's frames, in pieces that are to be joined.

        Raises:
            DataChangedError: its rows are others than were first read.
        """
        deployment, context, cohort = self._deployment, broadcast.context, broadcast.cohort
        randomizer = broadcast.randomizer
        rng = deployment.stream(context.round, Role.USERS, block)
        bad = self._corrupted(broadcast, block)
        honest: list[_Part] = []
        frames = bad.packets
        asked = clipped = nonfinite = 0
        for first, chunk, following, squares in self._chunks(block):
            expect(following)
            parts = [
                slice(low - first, high - first)
                for low, high in cohort.within(first, first + len(chunk))
            ]
            if not parts:
                continue
            whole = parts == [slice(0, len(chunk))]
            rows = chunk if whole else fortran(np.concatenate([chunk[part] for part in parts]))
            # Only of a query known to give the rows themselves are these the squares.
            known = squares if whole and type(broadcast.query) is Datum else None
            values, *outside = admitted(broadcast.query(rows), randomizer, known)
            asked, clipped, nonfinite = (
                asked + len(rows),
                clipped + outside[0],
                nonfinite + outside[1],
            )
            if bad.users.size:
                here = _users(cohort, first, first + len(chunk))
                values = dense(values)[~np.isin(here, bad.users)]
            if len(values):
                honest.append(_randomized(deployment.fidelity, values, randomizer, rng))
        # After the last row was read, and before anything leaves.
        self._demand_unchanged(block)
        if honest:
            frames = _honest_frame(deployment.fidelity, context, block, honest, randomizer) + frames
        return frames, ShardRecord(
            asked=asked,
            corrupted=bad.users.size,
            silent=bad.silent,
            extra=bad.extra,
            disclosed=bad.disclosed,
            clipped=clipped,
            nonfinite=nonfinite,
            sums=bad.sums,
            sent=_sent(honest, deployment.security == "onion"),
        )

    def _corrupted(self, broadcast: Broadcast, block: int) -> Corrupted:
        adversary = self._deployment.adversary
        if adversary is None:
            return Corrupted(np.empty(0, np.int64))
        everyone = np.arange(*self._span(block))
        asked = _users(broadcast.cohort, *self._span(block))

        def rows() -> Floats:
            every = np.concatenate([chunk.rows for chunk in self._chunks(block)])
            return np.asarray(every[asked - everyone[0]])

        attack_context = AttackContext(
            round=broadcast.context.round,
            block=block,
            users=asked,
            query=broadcast.query,
            randomizer=broadcast.randomizer,
            block_rows=rows,
        )
        return corrupted(
            adversary, attack_context, broadcast.context, self._deployment.stream, everyone
        )


def _users(cohort: Cohort, start: int, stop: int) -> NDArray[np.int64]:
    return np.concatenate(
        [np.arange(0), *(np.arange(low, high) for low, high in cohort.within(start, stop))]
    )


def admitted(
    values: Values, randomizer: Randomizer, squares: Floats | None = None
) -> tuple[Values, int, int]:
    """Values in the randomizer's domain, how many were clipped, and how many were not finite.

    Those are `absent` before randomizing: silence would leak. squares: the values' squared norms,
    if they are known.
    """
    nonfinite = 0
    if not isinstance(values, Scaled):
        values = np.asarray(values, np.float64)
        if randomizer.scales and values.ndim == 2:
            squares = squared_norms(values) if squares is None else squares
            if np.isfinite(squares.sum()):  # then so are all values
                values = Scaled(values, np.ones(len(values)), squares)
    if isinstance(values, Scaled):
        if not np.isfinite(values.norms_squared.sum()):
            finite = np.isfinite(values.norms_squared)
            nonfinite = int((~finite).sum())
            rows = np.where(finite[:, None], values.rows, randomizer.absent)
            values = Scaled(np.asfortranarray(rows), np.where(finite, values.factors, 0.0))
    elif not all_finite(values):
        finite = np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        nonfinite = int((~finite).sum())
        finite = finite.reshape(-1, *[1] * (values.ndim - 1))
        values = np.where(finite, values, randomizer.absent)
    return *randomizer.admit(values), nonfinite


_Part = tuple[int, NDArray[Any] | Messages | Tally]
"""Users of a chunk, and what they send: packed reports, counts or a tally; words or their tally."""


def _randomized(
    fidelity: str, values: Values, randomizer: Randomizer, rng: np.random.Generator
) -> _Part:
    if randomizer.view != "sums":
        sample = randomizer.tallied if fidelity == "aggregate" else randomizer.reports
        sent = sample(values, rng)
        if sent.reports != len(values):
            name = type(randomizer).__name__
            raise ParameterError(f"{name}.reports", sent.reports, f"of {len(values)} users")
        return len(values), sent
    if fidelity == "aggregate":
        return len(values), randomizer.tally(values, rng)
    return len(values), (
        randomizer.counts(values, rng)
        if fidelity == "counts"
        else randomizer.reports(values, rng).packed
    )


def _honest_frame(
    fidelity: str, context: Context, block: int, parts: list[_Part], randomizer: Randomizer
) -> list[bytes]:
    users = sum(count for count, _ in parts)
    sent = [each for _, each in parts if isinstance(each, np.ndarray)]
    pieces: list[Any]  # bytes, or buffers of them
    if not sent:
        pieces = _words([each for _, each in parts if not isinstance(each, np.ndarray)])
    elif fidelity == "aggregate":
        pieces = [np.asarray(sum(sent), "<i8").tobytes()]
    elif fidelity == "counts":
        kind = count_type(randomizer)
        pieces = [
            counts.astype(kind, "C", copy=False).reshape(-1).view("u1").data for counts in sent
        ]
    else:
        pieces = [packed.reshape(-1).data for packed in sent]
    return [prefix(HONEST_KIND[fidelity], context, block, users, sum(map(len, pieces))), *pieces]


def _sent(parts: list[_Part], onion: bool) -> Counter[tuple[int, int]]:
    """Users and words of the frame of these users, or of the frame of each."""
    each = [words.each for _, words in parts if isinstance(words, Messages)]
    if not each:  # sums: their number does not vary
        return Counter()
    numbers = np.concatenate([one for one in each if one is not None])
    if onion:
        return Counter({(1, many): users for many, users in Counter(numbers.tolist()).items()})
    return Counter({(numbers.size, int(numbers.sum())): 1})


def _words(sent: list[Messages | Tally]) -> list[Buffer]:
    """What users send, or all of them together: how many each, then all words."""
    if tallies := [each for each in sent if isinstance(each, Tally)]:
        return [count_bytes(together(tallies))]
    pieces = [each.pieces for each in sent if isinstance(each, Messages)]
    return [heads for heads, _ in pieces] + [rows for _, rows in pieces]
