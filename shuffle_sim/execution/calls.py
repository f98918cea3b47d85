"""How a round goes, in calls of the roles' methods; the same on all runtimes."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from shuffle_sim.execution.closing import Closing
from shuffle_sim.execution.exchange import Exchange, exchange_of
from shuffle_sim.roles import Deployment, PlannedRound, ShardRecord, ShuffleRecord

_CHUNKS_TOGETHER = 2  # frames of a view that are asked for together


class RoundOfCalls(Closing):
    """A round of roles that live somewhere.

    What a call gives is a handle: it may be passed on to the next call, and only `get` waits for
    it.
    """

    _deployment: Deployment
    _shards: list[Any]
    _shufflers: list[Any]
    _analyzer: Any
    _together: bool

    @abstractmethod
    def call(
        self, host: Any, method: str, *arguments: Any, many: Sequence[Any] = (), returns: int = 1
    ) -> list[Any]:
        """Handles of what a role's method returns, `returns` values.

        `many`, if given, goes in as one list, last.
        """

    @abstractmethod
    def get(self, handles: list[Any]) -> list[Any]:
        """Wait, and give the values.

        Raises:
            ShuffleSimError: what a role raised.
        """

    def _round(self, broadcast: bytes) -> tuple[Exchange, PlannedRound | None]:
        if self._together:
            return self._gathered(broadcast)
        batches = self._deployment.block_batches(broadcast)
        if len(batches) > 1 or len(self._shufflers) > 1:
            return self._streamed(broadcast, batches)
        frames, noted = self._answers(broadcast, batches[0])
        view, shuffled = self.call(self._shufflers[0], "shuffle", broadcast, many=frames, returns=2)
        concluded = self.call(self._analyzer, "conclude", view)
        conclusion, record, *users = self.get([*concluded, shuffled, *noted])
        return exchange_of(users, [record], conclusion)

    def _gathered(self, broadcast: bytes) -> tuple[Exchange, PlannedRound | None]:
        """A round of stations.

        One call where it is alone. Else one to each and one more to the first, which gets all sums;
        messages take two to each.
        """
        stations, many = self._shards, len(self._shards)
        if many == 1:
            (whole,) = self.get(self.call(stations[0], "whole", broadcast))
            conclusion, released, (noted, shuffled) = whole
            return exchange_of([noted], [shuffled, released], conclusion)
        sent = [self.call(each, "gather", broadcast, returns=many + 1) for each in stations]
        records = [each[-1] for each in sent]
        # One list for each station: all records, then what every station has for it.
        coming = [[*records, *(each[target] for each in sent)] for target in range(many)]
        if self._deployment.fidelity == "literal":
            read = [
                self.call(station, "deliver", broadcast, many, many=given, returns=2)
                for station, given in zip(stations, coming, strict=True)
            ]
            concluded = self.call(stations[0], "conclude", many=[reading for reading, _ in read])
            ended = [*concluded, *(record for _, record in read)]
        else:
            ended = self.call(stations[0], "finish", broadcast, many, many=coming[0], returns=2)
        conclusion, *found = self.get([*ended, *records])
        pairs, released = found[-many:], found[:-many]
        shuffled = [*(record for _, record in pairs), *released]
        return exchange_of([noted for noted, _ in pairs], shuffled, conclusion)

    def _answers(self, broadcast: bytes, blocks: range) -> tuple[list[Any], list[Any]]:
        """Handles of the frames and of the records of all user shards for these blocks."""
        answers = [
            self.call(shard, "answer", broadcast, blocks, returns=2) for shard in self._shards
        ]
        return [frames for frames, _ in answers], [noted for _, noted in answers]

    def _streamed(
        self, broadcast: bytes, batches: list[range]
    ) -> tuple[Exchange, PlannedRound | None]:
        """A round too large for one place, or of several shuffler shards: by batches of blocks."""
        collected = self._windowed(self._collected(broadcast, blocks) for blocks in batches)
        users = [record for record in collected if isinstance(record, ShardRecord)]
        records = [record for record in collected if isinstance(record, ShuffleRecord)]
        asked = [
            self.call(shuffler, "release", broadcast, many=records) for shuffler in self._shufflers
        ]
        released = self.get([record for (record,) in asked])
        pieces = [
            (shuffler, start, min(start + _CHUNKS_TOGETHER, len(record.chunks)))
            for shuffler, record in zip(self._shufflers, released, strict=True)
            for start in range(0, len(record.chunks), _CHUNKS_TOGETHER)
        ]
        viewed = self._windowed(self._viewed(broadcast, *piece) for piece in pieces)
        sent = [record for record in viewed if isinstance(record, ShuffleRecord)]
        return exchange_of(users, [*records, *released, *sent], self._first("concluded"))

    def _collected(self, broadcast: bytes, blocks: range) -> list[Any]:
        """Users of these blocks answer to the shuffler's shards: handles of all records."""
        shards, sent, records = len(self._shufflers), [], []
        for home, shuffler in enumerate(self._shufflers):
            # Block b goes to the shard b mod shards, whichever batch it comes in.
            frames, noted = self._answers(
                broadcast, blocks[(home - blocks.start) % shards :: shards]
            )
            *chunks, record = self.call(
                shuffler, "collect", broadcast, many=frames, returns=shards + 1
            )
            sent.append(chunks)
            records += [record, *noted]
        for target, shuffler in enumerate(self._shufflers if shards > 1 else ()):
            records += self.call(
                shuffler, "accept", broadcast, many=[chunks[target] for chunks in sent]
            )
        return records

    def _viewed(self, broadcast: bytes, shuffler: Any, start: int, stop: int) -> list[Any]:
        """A piece of the view goes to the analyzer: handles of the record and of its answer."""
        view, record = self.call(shuffler, "view", broadcast, start, stop, returns=2)
        return [record, *self.call(self._analyzer, "receive", view)]

    def _windowed(self, steps: Iterable[list[Any]]) -> list[Any]:
        """The values of all steps' handles, with two steps under way at a time."""
        values: list[Any] = []
        under_way: deque[list[Any]] = deque()
        for handles in steps:
            under_way.append(handles)
            if len(under_way) > 1:
                values += self.get(under_way.popleft())
        return values + [value for handles in under_way for value in self.get(handles)]

    def _first(self, method: str) -> Any:
        """What a method of the analyzer gives."""
        return self.get(self.call(self._analyzer, method))[0]
