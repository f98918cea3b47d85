"""The analyzer: owns the protocol's state."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles.channel import Keyed
from shuffle_sim.roles.chunks import Size, parted, read_tally, read_view_chunk, room, under_each
from shuffle_sim.roles.deployment import Broadcast, Deployment
from shuffle_sim.roles.onion import Opener
from shuffle_sim.roles.records import Conclusion, PlannedRound, ViewRecord
from shuffle_sim.sampling.kernels import with_kernel
from shuffle_sim.wire.frames import Context, Frame, Kind, check_context, parse, split_frames
from shuffle_sim.wire.messages import Tally, together
from shuffle_sim.wire.sealing import Purpose

Reader = Callable[[bytes, Randomizer], tuple[Size, Tally]]
"""From a frame's payload and the randomizer to how many messages there are under each label, and
their tally, of no report yet.
"""


@dataclass(frozen=True)
class Reading:
    """What a reader has read of a view.

    Attributes:
        context: of the round.
        frames: SHA-256 of the payload of each frame, by its place.
        size: messages under each label.
        tallies: of them; `reports` are those of the whole round. Sums are added up under 0, words
            stand by the place of their frame: their order counts.
        whole: of words, how many the view has.
    """

    context: Context
    frames: dict[int, bytes]
    size: tuple[int, ...]
    tallies: dict[int, Tally]
    whole: int | None


class Analyzer(Keyed):
    """Owns the protocol's state: plans rounds and turns each view into an estimate."""

    def __init__(self, deployment: Deployment, over: Iterable[Tally] = ()) -> None:
        """Start from the protocol's initial state, and take the tallies of past rounds again."""
        self._deployment = deployment
        self._state = deployment.protocol.init()
        self._round = 0
        self._tally: Tally | None = None
        self._spec: RoundSpec | None = None
        for tally in over:
            self._spec = deployment.protocol.plan(self._state)
            self.recall(tally)
        self._found = ViewRecord()

    def plan(self) -> PlannedRound | None:
        """The next round, or None when done."""
        self._tally = None  # what was read before is not of this round
        self._spec = self._deployment.protocol.plan(self._state)
        if self._spec is None:
            return None
        payload = self._spec.broadcast(self._deployment.vocabulary)
        self._context = Context.of_broadcast(self._deployment.task, self._round, payload)
        onion = self._deployment.security == "onion"
        self._opener = Opener(self._keys, self._context) if onion else None
        read = self._opener.read if self._opener else None
        self._view = _View(self._deployment, self._spec, self._context, read)
        broadcast = Frame(Kind.ROUND, self._context, 0, 0, payload).tobytes()
        return PlannedRound(broadcast=broadcast, cohort=self._spec.cohort, event=self._spec.event)

    @with_kernel
    def receive(self, view: bytes) -> bool:
        """Take frames of the planned round's view; with the last of them, update the state.

        Returns:
            Whether the view is complete.

        Raises:
            FrameError: if a frame is not one of this round's view; the state is unchanged then.
            RoundAbortedError: if no round is planned.
        """
        if self._spec is None:
            raise RoundAbortedError("no round is planned")
        if not view:
            raise FrameError("truncated", "no view")
        shards = self._directory.shufflers
        # The shard that the index names must have signed it.
        self._view.receive(
            view, lambda frame: self._opened(frame, Purpose.VIEW, shards, frame.index >> 16)
        )
        return self._completed()

    def gather(self, readings: Iterable[Reading]) -> Conclusion:
        """Take what readers have read of the planned round's view, all of it.

        Raises:
            FrameError: if it is not all, or a frame was read twice.
            RoundAbortedError: if no round is planned.
        """
        if self._spec is None:
            raise RoundAbortedError("no round is planned")
        for reading in readings:
            if reading.context != self._context:
                raise FrameError("wrong-round", "a reading of another view")
            self._view.join(reading)
        if not self._completed():
            raise FrameError("truncated", "frames of the view are missing")
        return self.concluded()

    def _completed(self) -> bool:
        """Whether the view is complete; then the state is updated from it."""
        if not self._view.complete:
            return False
        self.recall(self._view.tally)
        if self._opener is not None:
            self._found = ViewRecord(opened=self._opener.opened, dropped=self._opener.dropped)
        return True

    def recall(self, tally: Tally) -> None:
        """Update the state from a view of the planned round that was read before."""
        if self._spec is None:
            raise RoundAbortedError("no round is planned")
        if self._deployment.adversary is not None:
            for member in self._deployment.adversary.members:
                member.observe(tally)
        self._state = self._deployment.protocol.update(self._state, self._spec.analyze(tally))
        self._round += 1
        self._spec, self._tally = None, tally

    def conclude(self, view: bytes) -> Conclusion:
        """Take a whole view at once.

        Raises:
            FrameError: if it is not the round's, or not all of it.
        """
        if not self.receive(view):
            raise FrameError("truncated", "frames of the view are missing")
        return self.concluded()

    def concluded(self) -> Conclusion:
        """What follows from the last view.

        Raises:
            RoundAbortedError: no view was read.
        """
        if self._tally is None:
            raise RoundAbortedError("no view was read")
        tally = self._tally
        return Conclusion(following=self.plan(), tally=tally, found=self._found)

    def result(self) -> Any:
        """The protocol's output."""
        return self._deployment.protocol.result(self._state)


def reader(deployment: Deployment, broadcast: bytes) -> "_View":
    """A part of the analyzer that reads frames of a round's view where they are; none is sealed."""
    opened = deployment.opened(broadcast)
    return _View(deployment, opened, opened.context)


class _View:
    """The frames of a round's view so far, in any order; each counts once."""

    def __init__(
        self,
        deployment: Deployment,
        spec: RoundSpec | Broadcast,
        context: Context,
        read: Reader | None = None,
    ) -> None:
        self._spec, self._kind, self._context = spec, deployment.view_kind, context
        plain = read_view_chunk if deployment.fidelity == "literal" else read_tally
        self._read: Reader = read or plain
        self._taken: dict[int, bytes] = {}
        self._size = np.zeros(spec.randomizer.alphabet.labels, np.int64)
        self._tallies: dict[int, Tally] = {}
        self._whole: int | None = None

    @property
    def complete(self) -> bool:
        """Whether all messages are there."""
        reports = self._reports
        # Without reports it would be complete before its first frame came.
        return reports > 0 and np.array_equal(self._size, self._all(reports, self._whole))

    @property
    def tally(self) -> Tally:
        """Of all that was taken."""
        # By place, however frames came: a view of messages is in the order of release.
        tallies = [self._tallies[place] for place in sorted(self._tallies)]
        if self._spec.randomizer.view == "messages":
            words = np.concatenate([each.words for each in tallies if each.words is not None])
            return Tally(np.ones(len(words), np.int64), self._reports, words)
        found = tallies[0] if len(tallies) == 1 else together(tallies)
        return replace(found, reports=self._reports)

    @property
    def _reports(self) -> int:
        return next(iter(self._tallies.values())).reports if self._tallies else 0

    def _all(self, reports: int, whole: int | None) -> NDArray[np.int64]:
        """Messages of so many reports under each label; of words, how many were said to come."""
        randomizer = self._spec.randomizer
        return under_each(reports * randomizer.per_label if whole is None else whole, randomizer)

    def _fits(self, size: Size, reports: int, whole: int | None) -> NDArray[np.int64]:
        """Messages so far under each label, with these.

        Raises:
            FrameError: `wrong-length` if there are more than those of so many reports, or than were
                said to come.
        """
        # One number for all frames: with a smaller one the view would be complete too early.
        if self._taken and (reports, whole) != (self._reports, self._whole):
            said = f"{self._reports} reports, {self._whole} words said before"
            raise FrameError("wrong-count", f"{reports} reports, {whole} words; {said}")
        found = self._size + room(size, self._spec.randomizer)
        most = self._spec.randomizer.per_label * reports
        if (whole or 0) > most or (found > self._all(reports, whole)).any():
            raise FrameError("wrong-length", f"more messages than those of {reports} reports")
        return found

    def _add(self, place: int, tally: Tally) -> None:
        """Sums are added up, so that there are never many; words wait for all of them."""
        at = 0 if tally.words is None else place
        before = self._tallies.get(at)
        self._tallies[at] = (
            tally if before is None else replace(tally, sums=before.sums + tally.sums)
        )

    def receive(self, view: bytes, opened: Callable[[Frame], Frame] = lambda frame: frame) -> None:
        """Add frames, each as it is once `opened`.

        Raises:
            FrameError: if one does not belong to the view.
        """
        for data in split_frames(view):
            frame = parse(data)
            check_context(frame, self._context)
            self.take(opened(frame))

    @property
    def reading(self) -> Reading:
        """What was read."""
        size = tuple(self._size.tolist())
        return Reading(self._context, self._taken, size, self._tallies, self._whole)

    def join(self, reading: Reading) -> None:
        """Add what another has read.

        Raises:
            FrameError: it does not belong to the rest of the view.
        """
        if not reading.frames:
            return
        if not reading.frames.keys().isdisjoint(self._taken):
            raise FrameError("duplicate-block", "a frame of the view was read twice")
        reports = next(iter(reading.tallies.values())).reports
        self._size = self._fits(reading.size, reports, reading.whole)
        self._taken |= reading.frames
        self._whole = reading.whole
        for place, tally in reading.tallies.items():
            self._add(place, tally)

    def take(self, frame: Frame) -> None:
        """Add a frame.

        Raises:
            FrameError: if it does not belong to the view.
        """
        if frame.kind is not self._kind:
            raise FrameError("wrong-kind", f"{frame.kind.name} is not for the analyzer of this run")
        digest = hashlib.sha256(frame.payload).digest()
        if frame.index in self._taken:
            # The same bytes again are free, others a second release (docs/design.md, rules 3, 5).
            if self._taken[frame.index] != digest:
                place = f"frame {frame.index & 0xFFFF} of shard {frame.index >> 16}"
                raise FrameError("duplicate-block", f"{place} came before with another content")
            return
        # The guarantee is for the minimum: held here, too, whoever shuffled.
        if not self._spec.minimum <= frame.reports <= self._spec.cohort.size:
            raise FrameError(
                "wrong-count", f"{frame.reports} reports of {self._spec.cohort.size} users"
            )
        size, whole, _ = parted(frame.payload, self._spec.randomizer)
        fitting = self._fits(size, frame.reports, whole)
        # Last: what is opened counts as seen.
        _, tally = self._read(frame.payload, self._spec.randomizer)
        self._taken[frame.index] = digest
        self._size, self._whole = fitting, whole
        self._add(frame.index, replace(tally, reports=frame.reports))
