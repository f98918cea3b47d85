"""What a shard of the shuffler receives: frames are checked, and each dropped one has a reason."""

from collections import Counter
from collections.abc import Callable, Iterable

from shuffle_sim.errors import FrameError
from shuffle_sim.roles.corrupted import PACKET_MARGIN
from shuffle_sim.roles.deployment import Broadcast, Deployment
from shuffle_sim.roles.onion import bundle_bytes, read_bundle
from shuffle_sim.roles.pools import MessagePool
from shuffle_sim.roles.records import ShuffleRecord
from shuffle_sim.roles.reports import HONEST_KIND, most_bytes, read_reports
from shuffle_sim.wire.frames import Frame, Kind, check_context, claimed_place, parse, split_frames
from shuffle_sim.wire.sealing import BOX_ID


class Inbox:
    """What the shard receives for a round: the valid goes on a pool, the rest is counted."""

    def __init__(
        self,
        deployment: Deployment,
        broadcast: Broadcast,
        shard: int,
        read: Callable[[Frame], Frame],
    ) -> None:
        """Of one round; `read` takes a frame out of its seals."""
        self._deployment, self._context = deployment, broadcast.context
        self._cohort, self._randomizer = broadcast.cohort, broadcast.randomizer
        self._shard, self._read = shard, read
        onion = deployment.security == "onion"
        fidelity, randomizer = deployment.fidelity, self._randomizer
        if onion:
            self._whole = self._single = Kind.BUNDLE
            honest = each = bundle_bytes(randomizer)
        else:
            self._whole, self._single = HONEST_KIND[fidelity], Kind.REPORT
            honest = most_bytes(fidelity, randomizer, deployment.block_size)
            each = randomizer.report_bytes
        self._longest = each + PACKET_MARGIN
        self._largest = honest + self._longest + 2 * PACKET_MARGIN  # a frame, in its seals
        self._boxes: set[bytes] = set()
        self._seen: set[int] = set()
        self._taken: Counter[int] = Counter()
        self._senders: set[int] = set()

    def take(self, batches: Iterable[bytes], pool: MessagePool) -> ShuffleRecord:
        """Put the reports of these batches on the pool."""
        before, singles, received = self._taken.total(), len(self._senders), 0
        dropped: Counter[str] = Counter()
        frames: list[memoryview] = []
        for batch in batches:
            received += len(batch)
            try:
                for data in split_frames(batch):
                    frames.append(data)
            # where a length is broken, the rest of the batch cannot be told apart any more
            except FrameError as error:
                dropped[error.reason] += 1
        # By block, whoever hosts it: a round that is taken again from other workers must give the
        # same view. The same messages in two orders would tell which of them belong together.
        for data in sorted(frames, key=self._block):
            self._take_frame(data, pool, dropped)
        return ShuffleRecord(
            accepted=self._taken.total() - before,
            singles=len(self._senders) - singles,
            dropped=dropped,
            bytes_in=received,
        )

    def _take_frame(self, data: memoryview, pool: MessagePool, dropped: Counter[str]) -> None:
        claimed = None  # a frame too broken to say how many reports it carries counts for one
        try:
            if len(data) > self._largest:  # before it is copied
                raise FrameError("oversized", f"{len(data):,} bytes, at most {self._largest:,}")
            frame = parse(data)
            # Before it claims anything: a user's frame that is dropped counts for one report.
            if frame.kind is Kind.PACKET and self._deployment.security != "transport":
                self._take_packet(frame, pool)
                return
            claimed = frame.index, frame.reports
            check_context(frame, self._context)
            frame = self._once(frame)
            if frame.kind is Kind.PACKET:
                self._take_packet(frame, pool)
                return
            if frame.kind is not self._whole:
                found = f"{frame.kind.name} is not for the shuffler of this run"
                raise FrameError("wrong-kind", found)
            # Else one user could bring a round to its minimum alone.
            if frame.kind is Kind.BUNDLE and frame.reports != 1:
                raise FrameError("wrong-count", "a bundle counts for one user")
            if frame.index in self._seen and frame.kind is not Kind.BUNDLE:
                raise FrameError("duplicate-block", f"block {frame.index}")
            self._add(frame, frame.index, pool)
            # Only what was taken: a frame that was dropped must not keep out the true one.
            self._seen.add(frame.index)
        except FrameError as error:
            # Never more than were asked, whatever it claims.
            asked = min(claimed[1], self._asked(claimed[0])) if claimed else 1
            dropped[error.reason] += max(1, asked)

    def _take_packet(self, packet: Frame, pool: MessagePool) -> None:
        """What one user sent on its own: counts for one report at most, whatever is inside."""
        check_context(packet, self._context)
        if len(packet.payload) > self._longest:
            long = f"{len(packet.payload):,} bytes, an honest report has at most {self._longest:,}"
            raise FrameError("oversized", long)
        sender, frame = packet.index, parse(packet.payload)
        check_context(frame, self._context)
        if frame.kind is not self._single:
            raise FrameError("wrong-kind", f"a user on its own sent {frame.kind.name}")
        if packet.reports != 1 or frame.reports != 1:
            raise FrameError("wrong-count", "a user on its own counts for one")
        if frame.index != sender or not any(self._cohort.within(sender, sender + 1)):
            raise FrameError("wrong-sender", f"{sender} sent as {frame.index}, or was not asked")
        if sender in self._senders:
            raise FrameError("too-many-reports", f"user {sender} was counted already")
        if frame.kind is Kind.BUNDLE:
            frame = self._once(frame)
        self._add(frame, sender // self._deployment.block_size, pool)
        # The same of users.
        self._senders.add(sender)

    def _add(self, frame: Frame, block: int, pool: MessagePool) -> None:
        if block % self._deployment.shuffler_shards != self._shard:
            raise FrameError("wrong-shard", f"block {block} is not of shard {self._shard}")
        # Frame and packets together: of a block no more count than were asked.
        room = self._asked(block) - self._taken[block]
        if frame.reports > room:
            many = f"{frame.reports} of block {block}, {room} to come"
            raise FrameError("too-many-reports", many)
        read = read_bundle if frame.kind is Kind.BUNDLE else read_reports
        pool.add(read(frame, self._randomizer))
        self._taken[block] += frame.reports

    def _block(self, data: memoryview) -> int:
        kind, index = claimed_place(data)
        return index // self._deployment.block_size if kind == Kind.PACKET else index

    def _once(self, frame: Frame) -> Frame:
        """A frame out of its seals, if the box did not come before."""
        box = frame.payload[:BOX_ID] if frame.kind in (Kind.SEALED, Kind.BUNDLE) else None
        if box in self._boxes:
            raise FrameError("replayed", "the same box came before")
        frame = self._read(frame)
        # After it opened: a box that was altered has the same first bytes as the true one.
        if box is not None:
            self._boxes.add(box)
        return frame

    def _asked(self, block: int) -> int:
        size = self._deployment.block_size
        within = self._cohort.within(block * size, (block + 1) * size)
        return sum(high - low for low, high in within)
