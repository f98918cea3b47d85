"""The shuffler: collects, checks, permutes, releases once. It may be split into shards.

A shard takes the reports of the blocks that are its own, sends every message to a uniformly random
shard, permutes what it then holds, and the view is what the shards release, one after the other.
That is the uniform permutation again: given how many messages each shard holds, which ones they are
is a uniformly random choice, and so is their order (docs/theory/shards.md, "Shards").
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.roles.channel import Keyed
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.roles.inbox import Inbox
from shuffle_sim.roles.onion import BoxPool
from shuffle_sim.roles.pools import MessagePool, pool_of
from shuffle_sim.roles.records import ShuffleRecord
from shuffle_sim.sampling.kernels import with_kernel
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.frames import Frame, Kind, check_context, parse, prefix
from shuffle_sim.wire.sealing import Purpose


class Shuffler(Keyed):
    """A shard of the shuffler; by default all of it.

    A round is collected in one or more parts, released once, then viewed.
    """

    def __init__(self, deployment: Deployment, shard: int = 0, last: bytes | None = None) -> None:
        """Start with no round released.

        `last` is the broadcast of the round that may have been before this role was put here.
        """
        self._deployment, self._shard = deployment, shard
        self._released = -1
        self._round = None if last is None else _Round(deployment, last, shard, self._read)

    def shuffle(self, broadcast: bytes, batches: Iterable[bytes]) -> tuple[bytes, ShuffleRecord]:
        """A whole round of a shuffler that is one shard: the permuted view, and the record.

        Raises:
            RoundAbortedError: if fewer than the agreed minimum of reports were accepted, or the
                round was released before.
        """
        *_, collected = self.collect(broadcast, batches)
        released = self.release(broadcast, [collected])
        view, sent = self.view(broadcast, 0, len(released.chunks))
        return view, collected + released + sent

    @with_kernel
    def collect(self, broadcast: bytes, batches: Iterable[bytes]) -> tuple[Any, ...]:
        """Take reports of users, and send every message to a uniformly random shard.

        Returns:
            A frame for each shard, empty for this one, which keeps its own; and last the
            simulator's record of this part.

        Raises:
            RoundAbortedError: if the round was released before.
        """
        taken = self.take(broadcast, batches)
        *frames, routed = self.route(broadcast)
        return *frames, taken + routed

    @with_kernel
    def take(self, broadcast: bytes, batches: Iterable[bytes]) -> ShuffleRecord:
        """Take reports of users: they stay here until they are routed.

        Raises:
            RoundAbortedError: if the round was released before.
        """
        now = self._at(broadcast)
        before = now.arrived.size
        record = now.inbox.take(batches, now.arrived)
        if now.arrived is now.pool:  # of one shard: nothing is routed
            return replace(record, shares=Counter({0: now.pool.size - before}))
        return record

    @with_kernel
    def route(self, broadcast: bytes) -> tuple[Any, ...]:
        """Send every message that was taken to a uniformly random shard; returns as `collect`.

        Raises:
            RoundAbortedError: if the round was released before.
        """
        now, shards = self._at(broadcast), self._deployment.shuffler_shards
        arrived = now.arrived
        if arrived is now.pool:
            return b"", ShuffleRecord()
        # For each part a name, and a stream: to be drawn again after a loss, never for another.
        place = self._shard << 16 | now.parts
        rng = self._deployment.stream(now.context.round, Role.ROUTER, self._shard << 32 | now.parts)
        sizes = arrived.shares(shards, rng)
        arrived.cut(sizes, rng)
        chunks = [arrived.routed(target, rng) for target in range(shards)]
        now.pool.take(chunks[self._shard])
        now.arrived = now.empty()
        frames = [
            self._closed(
                Frame(Kind.ROUTED, now.context, place, 0, chunk).tobytes(),
                Purpose.ROUTED,
                self._directory.shufflers[target : target + 1],
            )
            for target, chunk in enumerate(chunks)
        ]
        # Its own part is on its pool already: sent, it would count twice.
        frames[self._shard] = b""
        now.parts += 1
        routed = (*arrived.chunk_sizes[: self._shard], *arrived.chunk_sizes[self._shard + 1 :])
        shares, sent = Counter(dict(enumerate(sizes.sum(axis=1).tolist()))), sum(map(len, frames))
        return *frames, ShuffleRecord(shares=shares, routed=routed, bytes_routed=sent)

    @with_kernel
    def accept(self, broadcast: bytes, frames: Iterable[bytes]) -> None:
        """Take the messages that other shards sent here.

        Raises:
            FrameError: if a frame is not one of those, or came before.
        """
        now = self._at(broadcast)
        for frame in (parse(data) for data in frames if data):
            check_context(frame, now.context)
            shard, part = frame.index >> 16, frame.index & 0xFFFF
            inner = self._opened(frame, Purpose.ROUTED, self._directory.shufflers, shard)
            if inner.kind is not Kind.ROUTED:
                name = inner.kind.name
                raise FrameError("wrong-kind", f"{name} does not come from another shard")
            if frame.index in now.routed:
                raise FrameError("duplicate-block", f"part {part} of shard {shard}")
            now.pool.take(inner.payload)
            now.routed.add(frame.index)

    def release(self, broadcast: bytes, records: Iterable[ShuffleRecord]) -> ShuffleRecord:
        """End the round and permute: nothing is taken any more, and the view can be had.

        Args:
            broadcast: of the round.
            records: of all that was collected, by all shards.

        Raises:
            RoundAbortedError: if all shards together accepted fewer reports than agreed, messages
                on their way here are missing, or the round was released before.
        """
        now = self._at(broadcast)
        collected = ShuffleRecord.total(records)
        if collected.accepted < now.minimum:
            short = f"{collected.accepted} reports accepted, agreed are at least {now.minimum}"
            raise RoundAbortedError(f"round {now.context.round}: {short}; not released")
        # A view of fewer messages would be of another law than the one that is charged.
        if now.pool.size != collected.shares[self._shard]:
            held = f"{now.pool.size} of {collected.shares[self._shard]} messages"
            lost = f"shard {self._shard} holds {held}"
            raise RoundAbortedError(f"round {now.context.round}: {lost}; not released")
        now.accepted = collected.accepted
        now.pool.whole = collected.shares.total()
        sizes = now.pool.view()
        if not now.pool.whole and self._shard == 0:  # a view without words says how many reported
            sizes = np.zeros((1, now.pool.each.size), np.int64)
        # Index 0 cuts; 1, 2, ... are chunks: each can be made again without those before it.
        rng = self._deployment.stream(now.context.round, Role.SHUFFLER, self._shard << 32)
        now.pool.cut(sizes, rng)
        self._released = now.context.round
        return ShuffleRecord(chunks=tuple(now.pool.chunk_sizes))

    @with_kernel
    def view(self, broadcast: bytes, start: int, stop: int) -> tuple[bytes, ShuffleRecord]:
        """Frames start, ..., stop - 1 of this shard's part of the view.

        Asked again, it gives the same bytes again.

        Raises:
            RoundAbortedError: if the round is not released.
        """
        now = self._round
        if now is None or self._released != now.context.round or now.broadcast != broadcast:
            raise RoundAbortedError("no view of a round that is not released")
        frames = list[bytes]()
        for index in range(start, stop):
            place = self._shard << 32 | index + 1
            rng = self._deployment.stream(now.context.round, Role.SHUFFLER, place)
            chunk = now.pool.chunk(index, rng)
            name = self._shard << 16 | index
            kind, size = self._deployment.view_kind, len(chunk)
            frames += [prefix(kind, now.context, name, now.accepted, size), chunk]
        view = self._closed(b"".join(frames), Purpose.VIEW, self._directory.analyzer)
        return view, ShuffleRecord(bytes_out=len(view))

    def _read(self, frame: Frame) -> Frame:
        """What a users' frame holds, once it is out of its seals."""
        if self._deployment.security != "onion":
            senders = self._directory.users
            return self._opened(frame, Purpose.BATCH, senders, frame.index % max(1, len(senders)))
        if frame.kind is not Kind.BUNDLE:
            raise FrameError("not-sealed", f"{frame.kind.name} came in the clear")
        return replace(frame, payload=self._keys.open(frame.payload, Purpose.BUNDLE, frame.context))

    def _at(self, broadcast: bytes) -> "_Round":
        """The round under way, begun with the first call that names it; rounds only go forward."""
        if self._round is None or self._round.broadcast != broadcast:
            begun = _Round(self._deployment, broadcast, self._shard, self._read)
            last = -1 if self._round is None else self._round.context.round
            asked = begun.context.round
            # The same round of other parameters would release its users' reports in two batches.
            if self._released < asked <= last:
                other = f"round {last} is under way with other parameters"
                raise RoundAbortedError(f"round {asked} is asked for while {other}")
            if asked <= self._released:
                raise RoundAbortedError(f"round {asked} was released before")
            self._round = begun
        if self._round.context.round <= self._released:
            raise RoundAbortedError(f"round {self._released} was released before")
        return self._round


class _Round:
    """One round as a shard of the shuffler has it."""

    def __init__(
        self, deployment: Deployment, broadcast: bytes, shard: int, read: Callable[[Frame], Frame]
    ) -> None:
        opened = deployment.opened(broadcast)
        self._fidelity, self._onion = deployment.fidelity, deployment.security == "onion"
        self._randomizer = opened.randomizer
        self.broadcast, self.context, self.minimum = broadcast, opened.context, opened.minimum
        self.inbox = Inbox(deployment, opened, shard, read)
        self.pool = self.empty()
        self.arrived = self.pool if deployment.shuffler_shards == 1 else self.empty()
        self.routed: set[int] = set()
        self.parts = 0
        self.accepted = 0

    def empty(self) -> MessagePool:
        """A pool of what the round's messages are here."""
        if self._onion:
            return BoxPool(self._randomizer)
        return pool_of(self._randomizer, self._fidelity)
