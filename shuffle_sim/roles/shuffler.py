"""The shuffler: collects, checks, permutes, releases once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shuffle_sim.cohort import Cohort
from shuffle_sim.errors import FrameError, RoundAbortedError
from shuffle_sim.messages import Tally
from shuffle_sim.randomizer import Randomizer
from shuffle_sim.randomness import Role, stream
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.roles.reports import HONEST_KIND, tally_of
from shuffle_sim.shuffling import arrange
from shuffle_sim.wire import Context, Frame, Kind, check_context, parse, split


@dataclass(frozen=True)
class ShuffleRecord:
    """What the shuffler did in a round: reports accepted, dropped by reason, bytes received and sent."""

    accepted: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0


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
        self._whole = HONEST_KIND[deployment.fidelity]
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
            tally = tally_of(frame, self._randomizer)
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
