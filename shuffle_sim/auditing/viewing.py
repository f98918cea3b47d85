"""Views of every pool of a shuffler, on both sides of each size at which the code path changes."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.arrangements import BLOCKS, View, check_ones
from shuffle_sim.auditing.bench import BenchRound
from shuffle_sim.auditing.conformance import LawError, naming
from shuffle_sim.auditing.evidence import against_spread
from shuffle_sim.auditing.orders import Tags, WordTags, check_symbols, check_tags
from shuffle_sim.auditing.scores import LEVELS, judge
from shuffle_sim.auditing.sequences import check_lags
from shuffle_sim.data.cohort import Cohort
from shuffle_sim.protocol.base import Datum, RoundSpec
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import Deployment, Shuffler
from shuffle_sim.roles.chunks import by_label, front, largest_chunk, parted
from shuffle_sim.roles.onion import BoxPool, box_bytes, bundles, read_boxes
from shuffle_sim.roles.pools import BitPool, MessagePool, SymbolPool
from shuffle_sim.roles.records import ShuffleRecord
from shuffle_sim.sampling.kernels import KERNELS, using
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.frames import Context, Frame, Kind, parse, split_frames
from shuffle_sim.wire.messages import Messages
from shuffle_sim.wire.sealing import KeyPair, Purpose, Sealer
from shuffle_sim.wire.words import read_words

if TYPE_CHECKING:
    from shuffle_sim.auditing.bench import Bench

_HUGE, _PIECES = (10**9 - 7, 12 * 10**8), 60  # places of a pool, on both sides of numpy's limit
_EACH = 8  # words of a user
_FEWEST, _SHOWN = 40, 12_000  # rounds of few users; their labels in all rounds, beyond these
_ORDERS = 1 << 11  # of small pools, two by two
_PARTS, _LAGGED = 4096, 1 << 20  # of a view of several chunks; its bits that are compared
_LONG = 1 << 17  # messages above which a permutation is compiled
_RANDOMIZERS: tuple[tuple[Randomizer, int, int], ...] = (
    (Tags(1, 1 << 10, 1), 12, 1600),
    (WordTags(1, 1 << 10, 1), 12, 300),
    (WordTags(1, 1 << 20, 3), 700, 4),
    (WordTags(1, 1 << 20, 8), _LONG // 8 + 9, 2),
    (Tags(1, 1 << 8, 4), 600, 4),
    (Tags(2, 1 << 16, 4), 500, 8),
    (Tags(1, 1 << 20, 3), _LONG // 3 + 9, 3),
    (Tags(3, 2, 3), 8, 60),
    (Tags(2, 2, 8), 2001, 12),
    (Tags(1, 2, 64), _LONG // 16 + 3, 6),
)
"""Randomizers of each pool, reports, and rounds: few and many, around the limits of compiling."""


class Viewer:
    """Rounds of reports through a shuffler's roles, as the engine leads them."""

    def __init__(
        self, bench: "Bench", randomizer: Randomizer, reports: int, shards: int, kernel: str
    ) -> None:
        """Of so many reports, in blocks of a few."""
        spec = RoundSpec(
            Cohort.of(0, reports), Datum(), randomizer, bench.spec.event, lambda _: None
        )
        self._size, self._shuffler = -(-reports // BLOCKS), bench.shuffler
        deployment = replace(
            bench.deployment("literal"),
            protocol=BenchRound(reports, spec, 1.0),
            block_size=self._size,
            kernel=kernel,
            shuffler_shards=shards,
        )
        # Another run by the last bit of its entropy alone: a stream that ignores it repeats.
        turned = replace(deployment, entropy=deployment.entropy ^ 1 << 127)
        self._runs = [each.of_shuffler for each in (deployment, turned)]
        self._deployment, self._randomizer = self._runs[0], randomizer
        self._broadcast = spec.broadcast()

    def __call__(self, index: int, messages: Messages) -> list[NDArray[np.integer]]:
        """The symbols in a view, label by label: of even and odd indices in two runs."""
        self._deployment = self._runs[index % 2]
        context = Context.of_broadcast(bytes(16), index // 2, self._broadcast)
        round_ = Frame(Kind.ROUND, context, 0, 0, self._broadcast).tobytes()
        batches = [
            Frame(Kind.REPORTS, context, place, part.reports, part.tobytes()).tobytes()
            for place, part in enumerate(self._blocks(messages))
        ]
        return self._read(self._views(round_, batches))

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

    def _views(self, round_: bytes, batches: list[bytes]) -> list[bytes]:
        shards = self._deployment.shuffler_shards
        roles = [self._shuffler(self._deployment, shard) for shard in range(shards)]
        if shards == 1:
            return [roles[0].shuffle(round_, batches)[0]]
        collected = [each.collect(round_, batches[at::shards]) for at, each in enumerate(roles)]
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
        super().__init__(bench, randomizer, reports, shards, KERNELS[0])
        self._deployment = replace(self._deployment, security="onion")
        self._keys = KeyPair()

    def __call__(self, index: int, messages: Messages) -> list[NDArray[np.integer]]:
        context = Context.of_broadcast(bytes(16), index, self._broadcast)
        round_ = Frame(Kind.ROUND, context, 0, 0, self._broadcast).tobytes()
        shuffler = self._shuffler(self._deployment, 0)
        sealer = Sealer(self._keys.public, Purpose.MESSAGE, context)
        bundle = Sealer(shuffler.introduce(), Purpose.BUNDLE, context)
        batches = [
            Frame(Kind.BUNDLE, context, user // self._size, 1, bundle.seal(each)).tobytes()
            for user, each in enumerate(bundles(messages, sealer))
        ]
        view = shuffler.shuffle(round_, batches)[0]
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
            _check_pools(bench, alarm / 4 / len(_kernels(bench)))
    _check_seeds(bench)


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


def _check_pools(bench: "Bench", alarm: float) -> None:
    """Pools alone, as shards cut them: into chunks of uneven sizes, and of many boxes."""
    for size, rounds in ((2000, 8), (_LONG + 7, 3)):
        for pool, randomizer in ((SymbolPool, Tags(1, 1 << 20, 1)), (BoxPool, Tags(1, 1 << 20, 1))):
            views = [_cut(bench, pool, randomizer, size, index) for index in range(rounds)]
            check_tags(np.stack(views), np.arange(size), alarm / 6)
    _check_large(bench, alarm / 6)
    bits = Tags(1, 2, 1)
    views = [_cut(bench, BitPool, bits, 4000, index) for index in range(16)]
    if any(each.sum() != 2000 for each in views):
        raise LawError("a pool of bits does not hold what was sent")


def _check_seeds(bench: "Bench") -> None:
    """Orders of one pool after the other never come again: they are not drawn from few seeds."""
    deployment = bench.deployment("literal").of_shuffler
    for kind, symbols, size in ((SymbolPool, 256, 40), (BoxPool, 256, 40), (BitPool, 2, 200)):
        chunks, whole = set[bytes](), np.array([[size]])
        for index in range(_ORDERS):
            pool = _filled(kind, Tags(1, symbols, 1), size)
            pool.cut(whole, deployment.stream(index, Role.SHUFFLER, 0))
            chunks.add(pool.chunk(0, deployment.stream(index, Role.SHUFFLER, 1)))
        # One of 40! or C(200, 100), above 2^159: no two agree but with chance 2^-135.
        if len(chunks) < _ORDERS:
            raise LawError(f"{kind.__name__}: of {_ORDERS:,} orders two are the same")


def _check_large(bench: "Bench", alarm: float) -> None:
    """Pools of bits beyond what is drawn at once: chunks of a view, and pieces of 10^9 places."""
    bits, deployment = Tags(1, 2, 1), bench.deployment("literal").of_shuffler
    for place, size in enumerate(_HUGE):
        sizes = np.array([[size // 4], [size // 4], [size - 2 * (size // 4)]], np.int64)
        found = np.empty((_PIECES, len(sizes)), np.int64)
        for index in range(_PIECES):
            pool = BitPool(bits)
            pool.take(front(size, bits) + (size // 2).to_bytes(8, "little"))
            pool.cut(sizes, deployment.stream(index, Role.ROUTER, place))
            routed = (pool.routed(each, np.random.default_rng(0)) for each in range(len(sizes)))
            found[index] = [int.from_bytes(each[-8:], "little") for each in routed]
        first, law = _hypergeometric(size, size // 2, size // 4)
        seen = np.clip(found[:, 1] - first, 0, len(law) - 1)
        if against_spread([(seen, law)], alarm / 4):
            raise LawError(f"ones in pieces of a pool of {size:,} bits: another spread")


def _hypergeometric(size: int, ones: int, drawn: int) -> tuple[int, Floats]:
    """The law of the ones that are drawn, 12 standard deviations to both sides, and its first.

    Beyond that there is less than e^-71 of it (Hoeffding 1963), which is nothing to a float.
    """
    share = drawn / size
    far = int(12 * math.sqrt(ones * share * (1 - share)))
    k = np.arange(int(ones * share) - far, int(ones * share) + far)
    # Ratios of neighbours: factorials of 10^9 would leave no digits.
    steps = np.log((ones - k) / (k + 1.0) * ((drawn - k) / (size - ones - drawn + k + 1.0)))
    law = np.exp(np.cumsum(steps) - np.cumsum(steps).max())
    return int(k[0]) + 1, law / law.sum()


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


def _cut(
    bench: "Bench",
    kind: type[MessagePool],
    randomizer: Randomizer,
    size: int,
    index: int,
) -> NDArray[np.int64]:
    """The symbols of a pool, chunk by chunk."""
    deployment: Deployment = bench.deployment("literal").of_shuffler
    pool, rng = _filled(kind, randomizer, size), deployment.stream(index, Role.SHUFFLER, 0)
    # Of two sizes: chunks of one size could hide a place that is counted wrongly.
    sizes = np.array([[size // 3], [size - 2 * (size // 3)], [size // 3]], np.int64)
    pool.cut(sizes, rng)
    found = []
    for place in range(3):
        chunk = pool.chunk(place, deployment.stream(index, Role.SHUFFLER, place + 1))
        if kind is BoxPool:
            row = read_boxes(chunk, randomizer)[1][0]
            found.append(np.ascontiguousarray(row[:, -4:]).view(">u4").ravel().astype(np.int64))
        else:
            found.append(by_label(chunk, randomizer)[0].symbols.ravel().astype(np.int64))
    return np.concatenate(found)


def _filled(kind: type[MessagePool], randomizer: Randomizer, size: int) -> MessagePool:
    """A pool of 0, 1, 2, ..., or of as many zeros as ones."""
    pool, tags = kind(randomizer), np.arange(size)
    if kind is BoxPool:
        boxes = np.zeros((1, size, box_bytes(randomizer.alphabet)), np.uint8)
        boxes[0, :, -4:] = tags.astype(">u4").view(np.uint8).reshape(-1, 4)
        pool.add(boxes)
    else:
        symbols = tags % 2 if randomizer.alphabet.symbols == 2 else tags
        pool.add(Messages.from_symbols(randomizer.alphabet, symbols.reshape(-1, 1, 1)))
    return pool
