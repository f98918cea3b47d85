"""What a shuffler shows: every order of the messages under every label is equally likely."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.scores import LEVELS, judge, scores
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Deployment, Shuffler
from shuffle_sim.roles.chunks import by_label
from shuffle_sim.roles.records import ShuffleRecord
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages

_SHARDS = 1, 2


class Mixing:
    """Rounds of few users through a shuffler: one half sends largest symbols, the other half 0.

    The halves come as two blocks in two batches, so blocks must be mixed, too.
    """

    def __init__(
        self,
        shuffler: type[Shuffler],
        deployment: Deployment,
        randomizer: Randomizer,
        broadcast: bytes,
        half: int,
    ) -> None:
        """Make the two blocks.

        Args:
            shuffler: the implementation.
            deployment: of a round in which 2 `half` users are asked.
            randomizer: of that round.
            broadcast: its payload.
            half: users of a block.
        """
        self._shuffler, self._randomizer = shuffler, randomizer
        self._deployment = replace(deployment, block_size=half)
        self._broadcast, self._half = broadcast, half
        alphabet, per_label = randomizer.alphabet, randomizer.per_label
        symbols = np.zeros((half, alphabet.width, per_label), np.int64)
        self._blocks = [
            Messages.from_symbols(alphabet, symbols + each).tobytes()
            for each in (alphabet.symbols - 1, 0)
        ]

    def check(self, repeats: int, alarm: float) -> None:
        """The law of how many largest symbols are in the first half of a view.

        For every label, and for labels together. With one shard of the shuffler, and with an eighth
        of the rounds with two.

        Raises:
            LawError: naming what is off; by chance with probability `alarm`.
        """
        for shards in _SHARDS:
            rounds = max(250, repeats // shards**3)
            seen = np.array([self._round(index, shards) for index in range(rounds)])
            try:
                self._judged(seen, alarm / len(_SHARDS) / 2)
            except LawError as error:
                raise LawError(f"{shards} shard(s) of the shuffler, {error}") from error

    def _judged(self, seen: NDArray[np.int64], alarm: float) -> None:
        labels, apart = seen.shape[1], np.empty(seen.shape)
        variances = np.empty(labels)
        for label, half in enumerate((self._half * self._messages).tolist()):
            law = scipy.stats.hypergeom.pmf(np.arange(half + 1), 2 * half, half, half)
            try:
                check_pmf(seen[:, label], law, false_alarm=alarm / labels)
            except LawError as error:
                raise LawError(f"label {label}: {error}") from error
            score = scores(law)[0]
            apart[:, label] = score.of[seen[:, label]] - score.mean
            variances[label] = score.variance
        if labels > 1:
            # A product is at most LEVELS times as large as a score, which is what `judge` expects.
            upper = np.triu_indices(labels, 1)
            products = (apart.T @ apart)[upper] / LEVELS
            spread = len(seen) * np.outer(variances, variances)[upper] / LEVELS**2
            judge(products, np.zeros(len(products)), spread, alarm, "orders of two labels")

    @property
    def _messages(self) -> NDArray[np.int64]:
        """Of one user under each label."""
        return np.diff(self._randomizer.alphabet.edges) * self._randomizer.per_label

    def _round(self, index: int, shards: int) -> list[int]:
        """Largest symbols in the first half of the view, by label."""
        context = Context.of_broadcast(bytes(16), index, self._broadcast)
        round_ = Frame(Kind.ROUND, context, 0, 0, self._broadcast).tobytes()
        batches = [
            Frame(Kind.REPORTS, context, block, self._half, payload).tobytes()
            for block, payload in enumerate(self._blocks)
        ]
        deployment = replace(self._deployment, shuffler_shards=shards)
        roles = [self._shuffler(deployment, shard) for shard in range(shards)]
        if shards == 1:
            views = [roles[0].shuffle(round_, batches)[0]]
        else:
            views = self._sharded(roles, round_, batches)
        found: list[list[NDArray[Any]]] = [[] for _ in self._messages]
        for view in views:
            for data in split_frames(view):
                rows = by_label(parse(data).payload, self._randomizer)
                for parts, row in zip(found, rows, strict=True):
                    parts.append(row.symbols.ravel())
        return [self._first_half(label, parts) for label, parts in enumerate(found)]

    @staticmethod
    def _sharded(roles: list[Shuffler], round_: bytes, batches: list[bytes]) -> list[bytes]:
        """The views of several shards, each of which got its own blocks."""
        collected = [
            each.collect(round_, batches[at :: len(roles)]) for at, each in enumerate(roles)
        ]
        for target, each in enumerate(roles):
            each.accept(round_, [sent[target] for sent in collected])
        records: list[ShuffleRecord] = [sent[-1] for sent in collected]
        chunks = [len(each.release(round_, records).chunks) for each in roles]
        return [each.view(round_, 0, many)[0] for each, many in zip(roles, chunks, strict=True)]

    def _first_half(self, label: int, parts: list[NDArray[Any]]) -> int:
        symbols, half = np.concatenate(parts), int(self._half * self._messages[label])
        largest = symbols == self._randomizer.alphabet.symbols - 1
        if len(symbols) != 2 * half or largest.sum() != half or symbols[~largest].any():
            raise LawError(f"label {label}: the view does not hold the messages that were sent")
        return int(largest[:half].sum())
