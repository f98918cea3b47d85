"""Pools of a shuffler alone: as shards cut them, of few and many messages, in many orders."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.entropy import taken
from shuffle_sim.auditing.laws.evidence import against_spread
from shuffle_sim.auditing.laws.orders import Tags, WordTags, check_tags
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.sources import WORDS
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.roles import FIDELITIES, Deployment
from shuffle_sim.roles.chunks import by_label, front
from shuffle_sim.roles.onion import BoxPool, box_bytes, read_boxes
from shuffle_sim.roles.pools import BitPool, MessagePool, SymbolPool, pool_of
from shuffle_sim.sampling.randomness import Role
from shuffle_sim.wire.messages import Messages

if TYPE_CHECKING:
    from shuffle_sim.auditing.shuffle.bench import Bench

_HUGE, _PIECES = (10**9 - 7, 12 * 10**8), 60  # places of a pool, on both sides of numpy's limit
_ORDERS = 1 << 11  # of small pools, two by two
_PARTS = 4  # in which reports come
LONG = 1 << 17
"""Messages above which a permutation is compiled."""


def check_pools(bench: "Bench", alarm: float) -> None:
    """Pools alone, as shards cut them: into chunks of uneven sizes, and of many boxes."""
    own = min(bench.spec.cohort.size * bench.randomizer.report_messages, LONG - 7)
    for size, rounds in ((2000, 8), (max(own, 200), 4), (20_000, 3), (LONG + 7, 3)):
        for pool, randomizer in ((SymbolPool, Tags(1, 1 << 20, 1)), (BoxPool, Tags(1, 1 << 20, 1))):
            views = [_cut(bench, pool, randomizer, size, index) for index in range(rounds)]
            check_tags(np.stack(views), np.arange(size), alarm / 10)
    _check_large(bench, alarm / 10)
    bits = Tags(1, 2, 1)
    views = [_cut(bench, BitPool, bits, 4000, index) for index in range(16)]
    if any(each.sum() != 2000 for each in views):
        raise LawError("a pool of bits does not hold what was sent")
    _check_totals()


def _check_totals() -> None:
    """Where messages are not simulated, parts that came apart leave as one total."""
    for randomizer in (Tags(2, 256, 1), WordTags(1, 256, 1)):
        for fidelity in FIDELITIES:
            pool = pool_of(randomizer, fidelity)
            for first in range(0, _PARTS):
                symbols = np.full((9, randomizer.alphabet.labels, 1), first)
                words = randomizer.singly(symbols[:, 0, 0], np.ones(9, np.int64))
                bits = Messages.from_symbols(randomizer.alphabet, symbols)
                sent = bits if randomizer.view == "sums" else words
                pool.add(sent if fidelity == "literal" else sent.tally())
            if len(pool.view()) > 1:
                raise LawError(f"at fidelity {fidelity} a view is not one total")


def check_seeds(bench: "Bench") -> None:
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
    found, words = [], 0
    for place in range(3):
        chunk = pool.chunk(place, drawn := deployment.stream(index, Role.SHUFFLER, place + 1))
        words += taken(drawn)
        if kind is BoxPool:
            row = read_boxes(chunk, randomizer)[1][0]
            found.append(np.ascontiguousarray(row[:, -4:]).view(">u4").ravel().astype(np.int64))
        else:
            found.append(by_label(chunk, randomizer)[0].symbols.ravel().astype(np.int64))
    if words + taken(rng) < 2 * WORDS:  # some of them say how large each part is
        raise LawError(f"orders of {size:,} messages take {words} words")
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
