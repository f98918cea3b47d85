"""A station: one worker that carries a shard of users and a shard of the shuffler.

The roles stay apart and exchange the bytes that they would exchange between processes; what does
not leave the worker is not sent. The first station carries the analyzer, too, and every station a
reader of the analyzer: the frames of its shard's part of the view are checked and counted where
they are. What a station sends to another are messages between shuffler shards, and readings.

Who owns the process sees what its users send before it is shuffled. So a station stands for no
deployment of its own: it is for speed, and protection between its roles would protect nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shuffle_sim.data.population import Population
from shuffle_sim.roles.analyzer import Analyzer, Reading, reader
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.roles.records import Conclusion, PlannedRound, ShardRecord, ShuffleRecord
from shuffle_sim.roles.shuffler import Shuffler
from shuffle_sim.roles.users import UserShard
from shuffle_sim.sampling.kernels import using
from shuffle_sim.wire.frames import split_frames
from shuffle_sim.wire.messages import Tally

# of what users send: what is routed together comes in pieces that stay in the processor's cache
_PIECE_BYTES = 1 << 20
Watch = Callable[[str, tuple[Any, ...], Any], None]
"""Is told a method of a role, its arguments, and what it gave."""


class Station:
    """Carries shard `shard` of users and shuffler, and if it is the first one the analyzer."""

    def __init__(
        self,
        deployment: Deployment,
        population: Population,
        shard: int,
        asked: Iterable[bytes] = (),
        contents: Mapping[int, bytes] | None = None,
        over: Iterable[Tally] = (),
    ) -> None:
        """Build the roles; the arguments are theirs."""
        self._deployment, self._shard = deployment, shard
        self.watch: Watch | None = None
        asked = tuple(asked)
        blocks = deployment.blocks()[shard :: deployment.shuffler_shards]
        self._users = UserShard(deployment, population, blocks, asked, contents)
        self.renew(asked[-1] if asked else None, over)

    def renew(self, last: bytes | None, over: Iterable[Tally]) -> None:
        """Build all but the users again, as after a loss: they may have seen some of the round."""
        self._shuffler = Shuffler(self._deployment.of_shuffler, self._shard, last)
        if self._shard == 0:
            self._analyzer = Analyzer(self._deployment.of_analyzer, over)

    def _done(self, role: Any, method: str, *arguments: Any) -> Any:
        """What a role here gives; whoever simulates the network sees it."""
        value = getattr(role, method)(*arguments)
        if self.watch is not None:
            self.watch(method, arguments, value)
        return value

    def contents(self) -> dict[int, bytes]:
        """Of the users' rows."""
        return self._users.contents()

    def answer(self, broadcast: bytes, blocks: range | None = None) -> tuple[bytes, ShardRecord]:
        """The users' frames."""
        answered: tuple[bytes, ShardRecord] = self._done(self._users, "answer", broadcast, blocks)
        return answered

    def plan(self) -> PlannedRound | None:
        """The analyzer's next round."""
        return self._analyzer.plan()

    def recall(self, tally: Tally) -> None:
        """The analyzer takes a tally again."""
        self._analyzer.recall(tally)

    def result(self) -> Any:
        """The protocol's output."""
        return self._analyzer.result()

    def gather(self, broadcast: bytes) -> tuple[Any, ...]:
        """All users here answer to the shuffler's shard here, by batches of blocks.

        Returns:
            For each shard the frames for it, empty for this one; last the records of both roles.
        """
        shards = self._deployment.shuffler_shards
        frames: list[list[bytes]] = [[] for _ in range(shards)]
        users, shuffled = ShardRecord(), ShuffleRecord()
        step = self._deployment.blocks_within(broadcast, _PIECE_BYTES)
        for blocks in self._deployment.block_batches(broadcast):
            own = blocks[(self._shard - blocks.start) % shards :: shards]
            for first in range(0, len(own), step):
                sent, noted = self.answer(broadcast, own[first : first + step])
                record = self._shuffler.take(broadcast, [sent])
                users, shuffled = users + noted, shuffled + record
            *chunks, record = self._shuffler.route(broadcast)
            for each, chunk in zip(frames, chunks, strict=True):
                each.append(chunk)
            shuffled += record
        return *map(b"".join, frames), (users, shuffled)

    def deliver(
        self, broadcast: bytes, stations: int, sent: Sequence[Any]
    ) -> tuple[Reading, ShuffleRecord]:
        """The shuffler's shard takes what others sent it, releases, and its view is read here.

        Args:
            broadcast: of the round.
            stations: how many there are.
            sent: the records of all of them, then their frames for this one.

        Raises:
            FrameError, RoundAbortedError: as the roles do.
        """
        records, batches = sent[:stations], sent[stations:]
        for batch in batches:
            self._shuffler.accept(broadcast, map(bytes, split_frames(batch)))
        released = self._shuffler.release(broadcast, [shuffled for _, shuffled in records])
        seen = reader(self._deployment, broadcast)
        # One at a time: fresh pages for several would cost as much as reading them.
        for index in range(len(released.chunks)):
            view, record = self._done(self._shuffler, "view", broadcast, index, index + 1)
            with using(self._deployment.kernel):
                self._done(seen, "receive", view)
            released += record
        return seen.reading, released

    def conclude(self, readings: Iterable[Reading]) -> Conclusion:
        """The analyzer takes the readings of all stations.

        Raises:
            FrameError: they are not all of the view.
        """
        conclusion: Conclusion = self._done(self._analyzer, "gather", readings)
        return conclusion

    def finish(
        self, broadcast: bytes, stations: int, sent: Sequence[Any]
    ) -> tuple[Conclusion, ShuffleRecord]:
        """Deliver and conclude, where all of the view is that of this station."""
        reading, released = self.deliver(broadcast, stations, sent)
        return self.conclude([reading]), released

    def whole(
        self, broadcast: bytes
    ) -> tuple[Conclusion, ShuffleRecord, tuple[ShardRecord, ShuffleRecord]]:
        """A whole round of a station that is alone."""
        *_, records = self.gather(broadcast)
        return *self.finish(broadcast, 1, [records]), records
