"""What a shuffler shows: every order of the messages under every label is equally likely.

Messages are tagged, so an order can be read from a view: all symbols under a label differ. One-bit
messages have no tags. There the places of the ones are looked at, which is all that is shown.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.auditing.conformance import LawError, check_pmf
from shuffle_sim.auditing.scores import LEVELS, Ints, judge, scores
from shuffle_sim.auditing.sequences import check_lags, check_products, check_repeats
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Alphabet, Messages

BLOCKS = 4
"""Of users, so that blocks are mixed, too."""
_CELLS = 16  # of places and of tags
_LARGEST_LAW = 4000  # messages whose half is compared with its law
_FEW = 1 << 7  # messages below which only tables of places are looked at


@dataclass(frozen=True)
class Tags(Randomizer):
    """Messages whose symbols tell them apart, for audits of a shuffler; it hides nothing.

    Attributes:
        labels: how many.
        symbols: how many.
        each: messages of a user under each label.
    """

    labels: int
    symbols: int
    each: int

    @cached_property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.labels, self.symbols)

    @property
    def per_label(self) -> int:
        return self.each

    def admit(self, values: Values) -> tuple[Values, int]:
        return values, 0

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        symbols = np.broadcast_to(dense(x), (1, self.labels, self.each)).astype(np.int64)
        return Messages.from_symbols(self.alphabet, symbols)


def check_tags(views: NDArray[np.integer], sent: Ints, alarm: float) -> None:
    """Orders of tagged messages are uniform, and independent of each other.

    Args:
        views: the symbols in each view, (views, messages).
        sent: the symbols as they were sent; all differ.
        alarm: probability of a false alarm.

    Raises:
        LawError: naming what is off.
    """
    size = len(sent)
    places = np.argsort(sent)[np.searchsorted(np.sort(sent), views).clip(0, size - 1)]
    if views.shape[1] != size or (sent[places] != views).any():
        raise LawError("the view does not hold the messages that were sent")
    if (np.sort(places, axis=1) != np.arange(size)).any():
        raise LawError("a message is shown twice, and another is not")
    for what, key in {"place": np.arange(size), "symbol": sent}.items():
        _check_digits(
            key[places], key, alarm / 6, f"the {what} of a message, and where it is shown"
        )
    _check_table(places, alarm / 6, "the place in which a message is sent and shown")
    _check_half((places[:, : size // 2] < size // 2).sum(axis=1), size, size // 2, alarm / 6)
    _check_pairs(places, alarm / 6)
    if size > _FEW:
        _check_distances(places, alarm / 6)


def _check_table(places: NDArray[np.intp], alarm: float, what: str) -> None:
    """How often messages of each part come to each part; their sums are below Bernstein's."""
    views, size = places.shape
    cells = min(_CELLS, size)
    part = np.arange(size) * cells // size
    flat = (part[None] * cells + part[places]).ravel()
    found = np.bincount(flat, minlength=cells * cells).astype(float)
    many = np.bincount(part, minlength=cells)
    expected = views * np.outer(many, many).ravel() / size
    # Drawing without replacement spreads less than with it (Hoeffding 1963).
    judge(LEVELS * found, LEVELS * expected, LEVELS**2 * expected, alarm, what)


def _check_half(found: Ints, size: int, ones: int, alarm: float) -> None:
    """How many of so many messages come to the first half of a view, by view."""
    if len(found) < 40 or size > _LARGEST_LAW:
        return
    law = scipy.stats.hypergeom.pmf(np.arange(ones + 1), size, ones, size // 2)
    check_pmf(found, law, false_alarm=alarm)


def _check_digits(seen: Ints, sent: Ints, alarm: float, what: str) -> None:
    """How many of those with each binary digit one come to each part of the view."""
    views, size = seen.shape
    cells = min(_CELLS, size)
    starts = np.searchsorted(np.arange(size) * cells // size, range(cells))
    many = np.diff([*starts, size])
    found, expected, spread = [], [], []
    for digit in range(int(sent.max()).bit_length()):
        ones = seen >> digit & 1
        share = float((sent >> digit & 1).mean())
        found.append(np.add.reduceat(ones.sum(axis=0), starts))
        expected.append(views * many * share)
        spread.append(views * many * share * (1 - share))
    judged = [LEVELS * np.array(found, float), LEVELS * np.array(expected)]
    judge(judged[0], judged[1], LEVELS**2 * np.array(spread, float), alarm, f"{what} [digit, part]")


def _least_rare(bins: float, alarm: float) -> int:
    """So many agreements that any of the bins has as many with probability `alarm` at most.

    Of N places m given ones agree with probability (N - m)!/N!, so m agree in one bin with at most
    1/m!; a distance from one message to the next is one of N - 1, for a factor of 2 in all.
    """
    return next(m for m in range(2, 200) if math.log(2 * bins / alarm) < math.lgamma(m + 1))


def _check_distances(places: NDArray[np.intp], alarm: float) -> None:
    """No distance comes often: from a message's old to its new place, and between neighbours."""
    views, size = places.shape
    most = _least_rare(2.0 * views * size, alarm)
    for each in places:
        for moved, what in (
            (each - np.arange(size), "are moved by the same distance"),
            (np.diff(each), "follow each other as they did when they were sent"),
        ):
            distances = np.bincount(moved % size, minlength=size)
            if distances.max() >= most:
                raise LawError(f"{distances.max():,} of {size:,} messages {what}")


def _check_pairs(places: NDArray[np.intp], alarm: float) -> None:
    """Every two views agree in few places."""
    views, size = places.shape
    if size <= _FEW:
        same = Counter(row.tobytes() for row in places)
        chance = views**2 / 2 / math.exp(math.lgamma(size + 1))
        twice = sum(many * (many - 1) // 2 for many in same.values())
        # k pairs are equal with probability chance^k at most, for pairs of independent orders.
        if twice and chance < 0.5 and twice * math.log(chance) < math.log(alarm):
            raise LawError(f"{twice} pairs of {views} orders are the same")
        return
    most = _least_rare(2.0 * views**2, alarm)
    for place, first in enumerate(places):
        for turned in (places[place + 1 :], places[place + 1 :, ::-1]):
            agree = (turned == first).sum(axis=1)
            if agree.size and agree.max() >= most:
                raise LawError(f"two orders agree in {agree.max():,} of {size:,} places")


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
    if (views.sum(axis=1, dtype=np.int64) != ones).any():
        raise LawError("the view does not hold the ones that were sent")
    cells = min(_CELLS, size)
    part = np.arange(size) * cells // size
    found = np.add.reduceat(views.sum(axis=0, dtype=np.int64), np.searchsorted(part, range(cells)))
    many = np.bincount(part, minlength=cells)
    spread = np.asarray(many * float((share * (1 - share)).sum()), np.float64)
    judge(
        LEVELS * found.astype(float), LEVELS * many * share.sum(), LEVELS**2 * spread, alarm / 6,
        "ones by their place in the view",
    )  # fmt: skip
    for many in np.unique(ones).tolist():
        first = views[np.asarray(ones) == many, : size // 2].sum(axis=1, dtype=np.int64)
        _check_half(first, size, many, alarm / 4 / len(np.unique(ones)))
    mixed = (share > 0) & (share < 1)
    if size < 16 or not mixed.any():
        return
    # Given their number, independent bits are a uniform arrangement; it has that number with
    # probability 1/(4 sqrt(size)) or more. So bounds for independent bits hold, times 16 size for
    # two views.
    alarm, kept, share = alarm / (16 * size), views[mixed], share[mixed]
    centred = kept - share[:, None]
    variance = share * (1 - share)
    gram, upper = centred @ centred.T, np.triu_indices(len(kept), 1)
    if len(kept) > 1:
        seen = (centred**2).sum(axis=1)[upper[0]] * variance[upper[1]]
        check_products(gram[upper], seen, alarm / 6, "two views of bits")
    for row, spread in zip(centred, variance.tolist(), strict=True):
        check_lags(row[None], spread, alarm / 6 / len(kept), "bits of a view")
    agree = float((1 - 2 * variance).max())
    check_repeats([kept], agree, alarm / 6, "bits of views")


View = Callable[[int, Messages], list[NDArray[np.integer]]]
"""Round, and reports -> the symbols in the view, label by label."""


def check_symbols(
    view: View, randomizer: Randomizer, reports: int, rounds: int, alarm: float
) -> None:
    """A shuffler's orders of many symbols; labels and rounds are all views."""
    alphabet, each = randomizer.alphabet, randomizer.per_label
    size = reports * each
    if size > alphabet.symbols:
        reports, size = alphabet.symbols // each, alphabet.symbols // each * each
    if reports < 2:
        return
    tags = np.arange(size, dtype=np.int64) * (alphabet.symbols // size)
    sent = np.broadcast_to(tags.reshape(reports, 1, each), (reports, alphabet.labels, each))
    messages = Messages.from_symbols(alphabet, np.ascontiguousarray(sent))
    views = np.concatenate([np.stack(view(index, messages)) for index in range(rounds)])
    check_tags(views.astype(np.int64), tags, alarm)


def check_ones(view: View, randomizer: Randomizer, reports: int, rounds: int, alarm: float) -> None:
    """A shuffler's arrangements of one-bit messages: several shares of ones.

    They are sent by the first users, or by those of every other block; labels are compared.
    """
    alphabet, each = randomizer.alphabet, randomizer.per_label
    widths, block = np.diff(alphabet.edges), -(-reports // BLOCKS)
    users = np.arange(reports)
    orders = users, np.argsort(users // block % 2, kind="stable")
    found: dict[int, list[NDArray[np.integer]]] = {}
    shares = [_SHARES[index // 4 % 5] if index % 4 == 0 else 0.5 for index in range(rounds)]
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
    score = scores(law)[0]
    centred = score.of - score.mean
    scale = max(float(np.abs(centred).max()), 1e-300)
    return centred / scale, score.variance / scale**2


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
    seen = (scaled[:, one] ** 2 * variance[:, other]).sum(axis=0)
    check_products((scaled[:, one] * scaled[:, other]).sum(axis=0), seen, alarm, "two labels")


_SHARES = 0.5, 0.37, 0.25, 0.9, 0.04
