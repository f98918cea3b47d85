"""Views of every pool of a shuffler, on both sides of each size at which the code path changes."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.auditing.laws.arrangements import BLOCKS, View, check_ones
from shuffle_sim.auditing.laws.orders import Tags, WordTags, check_symbols
from shuffle_sim.auditing.laws.scores import LEVELS, judge
from shuffle_sim.auditing.laws.sequences import check_lags
from shuffle_sim.auditing.laws.statistics import LawError, naming
from shuffle_sim.auditing.shuffle.bench import BenchRound
from shuffle_sim.auditing.shuffle.pooling import LONG, check_pools, check_seeds
from shuffle_sim.auditing.shuffle.sources import Noted
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Deployment, Shuffler
from shuffle_sim.roles.channel import Directory
from shuffle_sim.roles.chunks import by_label, largest_chunk, parted
from shuffle_sim.roles.onion import bundles, read_boxes
from shuffle_sim.roles.records import ShuffleRecord
from shuffle_sim.sampling.kernels import KERNELS, using
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages
from shuffle_sim.wire.sealing import KeyPair, Purpose, Sealer
from shuffle_sim.wire.words import read_words

if TYPE_CHECKING:
    from shuffle_sim.auditing.shuffle.bench import Bench

_EACH = 8  # words of a user
_FEWEST, _SHOWN = 40, 12_000  # rounds of few users; their labels in all rounds, beyond these
_PARTS, _LAGGED = 4096, 1 << 20  # of a view of several chunks; its bits that are compared
_RANDOMIZERS: tuple[tuple[Randomizer, int, int], ...] = (
    (Tags(1, 1 << 10, 1), 12, 1600),
    (WordTags(1, 1 << 10, 1), 12, 300),
    (WordTags(1, 1 << 20, 3), 700, 4),
    (WordTags(1, 1 << 20, 8), LONG // 8 + 9, 2),
    (Tags(1, 1 << 8, 4), 600, 4),
    (Tags(2, 1 << 16, 4), 500, 8),
    (Tags(1, 1 << 20, 3), LONG // 3 + 9, 3),
    (Tags(3, 2, 3), 8, 60),
    (Tags(2, 2, 8), 2001, 12),
    (Tags(1, 2, 64), LONG // 16 + 3, 4),
)
"""Randomizers of each pool, reports, and rounds: few and many, around the limits of compiling."""

_MANY = 48  # blocks, each of which is a part of a pool


class Viewer:
    """Rounds of reports through a shuffler's roles, as the engine leads them."""

    def __init__(
        self, bench: "Bench", randomizer: Randomizer, reports: int, shards: int, kernel: str
    ) -> None:
        """Of so many reports, in a few blocks, or in many where there are more."""
        spec = RoundSpec(
            Cohort.of(0, reports), Datum(), randomizer, bench.spec.event, lambda _: None
        )
        blocks = BLOCKS if reports < _MANY else _MANY
        self._size, self._shuffler = -(-reports // blocks), bench.shuffler
        deployment = replace(
            bench.deployment("literal"),
            protocol=BenchRound(reports, spec, 1.0),
            block_size=self._size,
            kernel=kernel,
            shuffler_shards=shards,
        )
        # Another run by the last bit of its entropy alone: a stream that ignores it repeats.
        turned = replace(deployment, entropy=deployment.entropy ^ 1 << 127)
        self._deployment, self._randomizer = deployment.of_shuffler, randomizer
        # Roles stay over all rounds of a run, as in one: what they keep may show.
        self._deployments = [Noted.of(each.of_shuffler) for each in (deployment, turned)]
        self._runs: dict[int, tuple[int, list[Shuffler]]] = {}
        self._broadcast = spec.broadcast()

    def _run(self, index: int) -> list[Shuffler]:
        """The roles of its run; other ones where it goes back to an earlier round."""
        last, roles = self._runs.get(index % 2, (index, []))
        if index <= last:
            self._deployments[index % 2].asked.clear()
            roles = self._roles(self._deployments[index % 2])
        self._runs[index % 2] = index, roles
        return roles

    def _roles(self, deployment: Deployment) -> list[Shuffler]:
        return [self._shuffler(deployment, each) for each in range(deployment.shuffler_shards)]

    def __call__(self, index: int, messages: Messages) -> list[NDArray[np.integer]]:
        """The symbols in a view, label by label: of even and odd indices in two runs."""
        context = Context.of_broadcast(bytes(16), index // 2, self._broadcast)
        round_ = Frame(Kind.ROUND, context, 0, 0, self._broadcast).tobytes()
        batches = [
            Frame(Kind.REPORTS, context, place, part.reports, part.tobytes()).tobytes()
            for place, part in enumerate(self._blocks(messages))
        ]
        return self._read(self._once(index, self._views(index, self._run(index), round_, batches)))

    def _once(self, index: int, views: list[bytes]) -> list[bytes]:
        """Views for which no stream was asked for twice: not in another round or role either."""
        if again := self._deployments[index % 2].again:
            number, role, place = again[0]
            what = f"stream {place} of {role.name.lower()} in round {number}"
            raise LawError(f"{what} is asked for twice")
        return views

    def _blocks(self, messages: Messages) -> Iterator[Messages]:
        """The reports of each block."""
        for start in range(0, messages.reports, self._size):
            part = slice(start, start + self._size)
            if messages.each is None:
                yield Messages(messages.alphabet, messages.per_label, messages.packed[part])
            else:
                ends = np.concatenate([[0], np.cumsum(messages.each)])
                rows = slice(ends[start], ends[min(part.stop, messages.reports)])
                each = messages.each[part]
                yield Messages(messages.alphabet, messages.per_label, messages.packed[rows], each)

    def _views(
        self, index: int, roles: list[Shuffler], round_: bytes, batches: list[bytes]
    ) -> list[bytes]:
        if len(roles) == 1:
            return [roles[0].shuffle(round_, batches)[0]]
        collected = []
        for at, each in enumerate(roles):
            mine = batches[at :: len(roles)]
            step = 1 + index // 2 % 2  # reports come at once, or in two parts
            for first in range(step):
                collected.append(each.collect(round_, mine[first::step]))
        for target, each in enumerate(roles):
            each.accept(round_, [sent[target] for sent in collected])
        records: list[ShuffleRecord] = [sent[-1] for sent in collected]
        chunks = [len(each.release(round_, records).chunks) for each in roles]
        return [each.view(round_, 0, many)[0] for each, many in zip(roles, chunks, strict=True)]

    def _read(self, views: list[bytes]) -> list[NDArray[np.integer]]:
        found: list[list[NDArray[Any]]] = [[] for _ in range(self._randomizer.alphabet.labels)]
        for view in views:
            for data in split_frames(view):
                if self._randomizer.view != "sums":
                    size, _, rest = parted(parse(data).payload, self._randomizer)
                    assert isinstance(size, int)
                    found[0].append(read_words(rest, self._randomizer.alphabet.symbols, size))
                    continue
                rows = by_label(parse(data).payload, self._randomizer)
                for parts, row in zip(found, rows, strict=True):
                    parts.append(row.symbols.ravel())
        return [np.concatenate(parts) for parts in found]


class OnionViewer(Viewer):
    """The same with sealed messages: bundles go in, boxes come out, and are opened here."""

    def __init__(self, bench: "Bench", randomizer: Randomizer, reports: int, shards: int) -> None:
        self._keys = KeyPair()
        super().__init__(bench, randomizer, reports, shards, KERNELS[0])

    def _roles(self, deployment: Deployment) -> list[Shuffler]:
        roles = super()._roles(replace(deployment, security="onion"))
        keys = tuple(each.introduce() for each in roles)
        for each in roles:
            each.meet(Directory((), keys, (self._keys.public,)))
        return roles

    def __call__(self, index: int, messages: Messages) -> list[NDArray[np.integer]]:
        context = Context.of_broadcast(bytes(16), index, self._broadcast)
        round_ = Frame(Kind.ROUND, context, 0, 0, self._broadcast).tobytes()
        roles = self._run(index)
        sealer = Sealer(self._keys.public, Purpose.MESSAGE, context)
        sealed = [Sealer(each.introduce(), Purpose.BUNDLE, context) for each in roles]
        batches: list[list[bytes]] = [[] for _ in range(-(-messages.reports // self._size))]
        for user, each in enumerate(bundles(messages, sealer)):
            block = user // self._size
            bundle = sealed[block % len(roles)].seal(each)
            batches[block].append(Frame(Kind.BUNDLE, context, block, 1, bundle).tobytes())
        views = self._views(index, roles, round_, [b"".join(each) for each in batches])
        view = b"".join(self._once(index, views))
        found: list[list[int]] = [[] for _ in range(self._randomizer.alphabet.labels)]
        bits = self._randomizer.alphabet.symbol_bits
        for data in split_frames(view):
            for label, row in enumerate(read_boxes(parse(data).payload, self._randomizer)[1]):
                for box in row:
                    plain = self._keys.open(box.tobytes(), Purpose.MESSAGE, context)
                    found[label].append(int.from_bytes(plain, "big") & ((1 << bits) - 1))
        return [np.array(each) for each in found]


def check_orders(bench: "Bench", alarm: float) -> None:
    """All views of all pools.

    Raises:
        LawError: naming the pool and what is off; by chance with probability `alarm`.
    """
    found = list(_views(bench))
    for name, view, randomizer, reports, rounds in found:
        bits = randomizer.alphabet.symbols == 2 and randomizer.view == "sums"
        check = check_ones if bits else check_symbols
        with naming(name):
            check(view, randomizer, reports, rounds, alarm / 2 / len(found))
    _check_chunks(bench, alarm / 4)
    for kernel in _kernels(bench):
        with using(kernel):
            check_pools(bench, alarm / 4 / len(_kernels(bench)))
    check_seeds(bench)


def _kernels(bench: "Bench") -> list[str]:
    return list(dict.fromkeys(way[0] for way in bench.ways()))


def _views(bench: "Bench") -> Iterator[tuple[str, View, Randomizer, int, int]]:
    """By name: a view of rounds, the randomizer, reports and rounds."""
    own: Randomizer = bench.randomizer
    if own.view != "sums":
        own = WordTags(1, 1 << 20, max(1, min(_EACH, own.per_label)))
    few = max(4, min(16, bench.spec.cohort.size))
    many = int(min(max(few, bench.spec.cohort.size), max(few, 2e5 // own.report_messages)))
    asked, room = max(bench.shards, 1), max(_FEWEST, _SHOWN // own.alphabet.labels)
    for shards in sorted({1, 2, asked}):
        yield (
            f"the run's, {shards} shard(s)",
            Viewer(bench, own, few, shards, KERNELS[0]),
            own,
            few,
            min(room, 400 if shards > 1 else 150),
        )
        yield (
            f"the run's, {shards} shard(s), all users",
            Viewer(bench, own, many, shards, _kernels(bench)[-1]),
            own,
            many,
            4,
        )
    for randomizer, reports, rounds in _RANDOMIZERS:
        for kernel in _kernels(bench) if reports > 100 else KERNELS[:1]:
            name = f"{reports:,} reports of {randomizer.alphabet.symbols:,} symbols, {kernel}"
            yield name, Viewer(bench, randomizer, reports, 1, kernel), randomizer, reports, rounds
    tags = Tags(1, 1 << 16, 3)
    yield "three shards", Viewer(bench, tags, 3000, 3, KERNELS[0]), tags, 3000, 4
    small = Tags(2, 1 << 12, 2)
    if bench.shuffler is Shuffler:
        yield "onion", OnionViewer(bench, small, 9, 1), small, 9, 8
        yield "onion, more", OnionViewer(bench, small, 80, 1), small, 80, 3
        # 32: a binary digit of a place says which shard its user sends to.
        yield "onion, two shards", OnionViewer(bench, small, 32, 2), small, 32, 20


def _check_chunks(bench: "Bench", alarm: float) -> None:
    """The chunks of a long view of bits do not repeat each other."""
    bits = Tags(1, 2, 1 << 16)
    largest = largest_chunk(bits)
    reports = largest // bits.per_label + 8
    view = Viewer(bench, bits, reports, 1, KERNELS[0])
    symbols = np.zeros((reports, 1, bits.per_label), np.uint8)
    symbols[::2] = 1
    (row,) = view(0, Messages.from_symbols(bits.alphabet, symbols))
    # As far apart as chunks are long: a chunk drawn twice agrees with itself.
    first, second = row[: len(row) - largest], row[largest:]
    agree = np.abs(2.0 * np.count_nonzero(first == second) - len(second))
    # Agreements of a uniform arrangement spread less than those of coins (Hoeffding 1963).
    if agree > math.sqrt(2 * len(second) * math.log(4 * len(row) / alarm)):
        raise LawError(f"chunks of a view agree in all but {len(second) - agree:,.0f} bits")
    ones, part = float(row.sum()), len(row) // _PARTS
    found = row[: part * _PARTS].reshape(_PARTS, part).sum(axis=1, dtype=np.float64)
    spread = np.full(_PARTS, LEVELS**2 * part / 4)
    means = np.full(_PARTS, LEVELS * part * ones / len(row))
    judge(LEVELS * found, means, spread, alarm / 2, "ones in a part of a view of several chunks")
    # A sixteenth of a view given its ones: hardly likelier, by sqrt(n/(n - 2^20)) at most,
    # than under independent coins.
    check_lags(
        np.asarray(row[None, :_LAGGED] - 0.5, np.float64), 0.25, alarm / 2, "bits of a long chunk"
    )
