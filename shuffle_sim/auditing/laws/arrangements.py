"""What a shuffler shows of one-bit messages: every arrangement of the ones is equally likely."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.scores import LEVELS, Ints, judge, ranked
from shuffle_sim.auditing.laws.sequences import check_lags, check_products, check_repeats
from shuffle_sim.auditing.laws.statistics import LawError, check_pmf
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Messages

BLOCKS = 4
"""Of users, so that blocks are mixed, too."""
_CELLS = 16  # of places
_EDGE = 16  # bits at each end of a view, looked at one by one
_VIEWS = 2_000  # that are compared two by two
_LARGEST_LAW = 4000  # messages whose half is compared with its law
View = Callable[[int, Messages], list[NDArray[np.integer]]]
"""Round, and reports -> the symbols in the view, label by label."""


def check_half(found: Ints, size: int, ones: int, alarm: float) -> None:
    """How many of so many messages come to the first half of a view, by view."""
    if len(found) < 40 or size > _LARGEST_LAW:
        return
    law = scipy.stats.hypergeom.pmf(np.arange(ones + 1), size, ones, size // 2)
    check_pmf(found, law, false_alarm=alarm)


def check_bits(views: NDArray[np.uint8], ones: Sequence[int], alarm: float) -> None:
    """The places of ones are uniform, and independent of each other.

    Args:
        views: of so many bits each, (views, bits).
        ones: of each view.
        alarm: probability of a false alarm.

    Raises:
        LawError: naming what is off.
    """
    size, share = views.shape[1], np.asarray(ones) / views.shape[1]
    # Exact, so first: all that follows is given the number of ones.
    if (views.sum(axis=1, dtype=np.int64) != ones).any():
        raise LawError("the view does not hold the ones that were sent")
    cells = min(_CELLS, size)
    part = np.arange(size) * cells // size
    found = np.add.reduceat(views.sum(axis=0, dtype=np.int64), np.searchsorted(part, range(cells)))
    many = np.bincount(part, minlength=cells)
    spread = np.asarray(many * float((share * (1 - share)).sum()), np.float64)
    judge(
        LEVELS * found.astype(float), LEVELS * many * share.sum(), LEVELS**2 * spread, alarm / 8,
        "ones by their place in the view",
    )  # fmt: skip
    _check_last(views, share, alarm / 8)
    for many in np.unique(ones).tolist():
        first = views[np.asarray(ones) == many, : size // 2].sum(axis=1, dtype=np.int64)
        check_half(first, size, many, alarm / 5 / len(np.unique(ones)))
    mixed = np.flatnonzero((share > 0) & (share < 1))
    if size < 16 or not mixed.size:
        return
    # Two by two a protocol of many labels has too many: the first ones, and some of all rounds.
    if mixed.size > _VIEWS:
        few = np.linspace(0, mixed.size - 1, _VIEWS // 2).astype(int)
        mixed = np.union1d(mixed[: _VIEWS // 2], mixed[few])
    # Given their number, independent bits are a uniform arrangement; it has that number with
    # probability 1/(4 sqrt(size)) or more. So bounds for independent bits hold, times 16 size for
    # two views.
    alarm, kept, share = alarm / (16 * size), views[mixed], share[mixed]
    centred = kept - share[:, None]
    variance = share * (1 - share)
    gram, upper = centred @ centred.T, np.triu_indices(len(kept), 1)
    if len(kept) > 1:
        seen = (centred**2).sum(axis=1)[upper[0]] * variance[upper[1]]
        check_products(gram[upper], seen, alarm / 8, "two views of bits")
    for row, spread in zip(centred, variance.tolist(), strict=True):
        check_lags(row[None], spread, alarm / 8 / len(kept), "bits of a view")
    # p^2 + (1 - p)^2, of the most lopsided view.
    agree = float((1 - 2 * variance).max())
    check_repeats([kept], agree, alarm / 8, "bits of views")


def _check_last(views: NDArray[np.uint8], share: Floats, alarm: float) -> None:
    """The bits in the first and in the last places of views, place by place."""
    edge = min(_EDGE, views.shape[1] // 2)
    ends = np.concatenate([views[:, :edge], views[:, views.shape[1] - edge :]], axis=1)
    found, spread = ends.sum(axis=0, dtype=np.float64), float((share * (1 - share)).sum())
    means = np.full(len(found), share.sum())
    for size in (1, 8):  # bits, and bytes of them: those of a view are negatively dependent
        whole = len(found) // size * size
        sums, mean = (x[:whole].reshape(-1, size).sum(axis=1) for x in (found, means))
        variance = np.full(len(sums), LEVELS**2 * size * spread)
        judge(LEVELS * sums, LEVELS * mean, variance, alarm / 2, "ones at an end of the view")


def check_ones(view: View, randomizer: Randomizer, reports: int, rounds: int, alarm: float) -> None:
    """A shuffler's arrangements of one-bit messages: several shares of ones.

    They are sent by the first users, or by those of every other block; labels are compared.
    """
    alphabet, each = randomizer.alphabet, randomizer.per_label
    widths, block = np.diff(alphabet.edges), -(-reports // BLOCKS)
    users = np.arange(reports)
    # By the first users and by every other block: a shuffle of blocks alone keeps one of them.
    orders = users, np.argsort(users // block % 2, kind="stable")
    found: dict[int, list[NDArray[np.integer]]] = {}
    # Mostly a half, where an order tells most; lopsided ones come from other dyadic coins.
    shares = [
        _SHARES[index // 4 % len(_SHARES)] if index % 4 == 0 else 0.5 for index in range(rounds)
    ]
    sent = [max(1, round(reports * share)) for share in shares]
    halves = np.empty((rounds, alphabet.labels))
    for index, many in enumerate(sent):
        symbols = np.zeros((reports, alphabet.width, each), np.uint8)
        symbols[orders[int(index % 4 > 0)][:many]] = 1
        shown = view(index, Messages.from_symbols(alphabet, symbols))
        for label, (width, seen) in enumerate(zip(widths.tolist(), shown, strict=True)):
            if len(seen) != reports * width * each:
                raise LawError("the view does not hold the messages that were sent")
            found.setdefault(width, []).append(seen)
            halves[index, label] = seen[: len(seen) // 2].sum()
    _check_labels(halves, reports * widths * each, np.outer(sent, widths * each), alarm / 2)
    for width, views in found.items():
        labels = int((widths == width).sum())
        ones = np.repeat(np.array(sent) * width * each, labels).tolist()
        check_bits(np.stack(views).astype(np.uint8), ones, alarm / 2 / len(found))


@lru_cache(maxsize=256)
def _ranks(size: int, ones: int) -> tuple[Floats, float]:
    """Of the ones in the first half of a view: their rank in [-1, 1], of mean 0; its variance."""
    law = scipy.stats.hypergeom.pmf(np.arange(ones + 1), size, ones, size // 2)
    return ranked(law)


def _check_labels(halves: Floats, size: Ints, ones: Ints, alarm: float) -> None:
    """Orders under two labels are independent: ones in the first halves, (rounds, labels)."""
    labels = halves.shape[1]
    if labels < 2 or size.max() > _LARGEST_LAW:
        return
    scaled, variance = np.zeros(halves.shape), np.zeros(halves.shape)
    for index, label in np.ndindex(*halves.shape):
        ranks, spread = _ranks(int(size[label]), int(ones[index, label]))
        scaled[index, label] = ranks[min(int(halves[index, label]), len(ranks) - 1)]
        variance[index, label] = spread
    one, other = np.triu_indices(labels, 1)
    seen = ((scaled**2).T @ variance)[one, other]
    check_products((scaled.T @ scaled)[one, other], seen, alarm, "two labels")


_SHARES = 0.01, 0.37, 0.96, 0.25, 0.9, 0.04, 0.5
