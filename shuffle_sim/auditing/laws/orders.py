"""What a shuffler shows: every order of the messages under every label is equally likely.

Messages are tagged, so an order can be read from a view: all symbols under a label differ. One-bit
messages have no tags: see `arrangements`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats, Values, dense
from shuffle_sim.auditing.laws.arrangements import View, check_bits, check_half
from shuffle_sim.auditing.laws.evidence import against_laws
from shuffle_sim.auditing.laws.scores import LEVELS, Ints, judge
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.wire.messages import Alphabet, Messages

_CELLS = 16  # of places and of tags
_OFTEN = 20  # how often a message comes to a place, for its rank to be looked at
_FEWEST = 8  # messages of which moments up to that order are those of a bound
_MANY, _VIEWS = 500, 6  # messages that are more than the symbols, and views of them
_PART = 128  # pairs of messages in the least part that is looked at
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


@dataclass(frozen=True)
class WordTags(Tags):
    """The same as words."""

    view: ClassVar[str] = "counts"

    def randomize(self, x: Floats, rng: np.random.Generator) -> Messages:
        return self.singly(np.broadcast_to(dense(x), self.each).astype(np.int64))


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
    # Where each message stood as it was sent, by its tag.
    places = np.argsort(sent)[np.searchsorted(np.sort(sent), views).clip(0, size - 1)]
    if views.shape[1] != size or (sent[places] != views).any():
        raise LawError("the view does not hold the messages that were sent")
    if (np.sort(places, axis=1) != np.arange(size)).any():
        raise LawError("a message is shown twice, and another is not")
    for what, key in {"place": np.arange(size), "symbol": sent}.items():
        _check_digits(
            key[places], key, alarm / 8, f"the {what} of a message, and where it is shown"
        )
    _check_table(places, alarm / 8, "the place in which a message is sent and shown")
    check_half((places[:, : size // 2] < size // 2).sum(axis=1), size, size // 2, alarm / 8)
    _check_pairs(places, alarm / 8)
    _check_ends(places, alarm / 16)
    orders = places, places.argsort(axis=1)
    _check_falls(orders, alarm / 16)
    _check_parts(orders, alarm / 16)
    if size > _FEW:
        _check_distances(places, alarm / 8)
    else:
        _check_moves(places, alarm / 8)


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
    judge(LEVELS * found, LEVELS * expected, LEVELS**2 * expected, alarm / 2, what)
    if cells == size and views >= _OFTEN * size:
        shown = np.argsort(places, axis=1)
        for each in (places, places[:, ::-1], shown, shown[:, ::-1]):
            if against_laws(_ranks(each), alarm / 8):
                raise LawError(f"{what}: some orders are likelier than others")


def _ranks(orders: NDArray[np.intp]) -> list[tuple[Ints, Floats]]:
    """How often each number of an order has each rank among those that are left.

    The ranks of a uniform order are independent and uniform (Lehmer's code).
    """
    later = orders[:, :, None] > orders[:, None, :]
    ranks = np.triu(later).sum(axis=2)
    size = orders.shape[1]
    return [
        (np.bincount(rank, minlength=size - place), np.ones(size - place))
        for place, rank in enumerate(ranks.T)
    ]


def _check_digits(seen: Ints, sent: Ints, alarm: float, what: str) -> None:
    """How many of those with each binary digit one come to each part of the view."""
    views, size = seen.shape
    cells = min(_CELLS, size)
    starts = np.searchsorted(np.arange(size) * cells // size, range(cells))
    many = np.diff([*starts, size])
    found, expected, spread = [], [], []
    for digit in range(int(sent.max()).bit_length()):
        ones = seen >> digit & 1
        # Those with a digit are a part of all: hypergeometric in each part of the view.
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
            # Around the end, as a rotation moves them.
            distances = np.bincount(moved % size, minlength=size)
            if distances.max() >= most:
                raise LawError(f"{distances.max():,} of {size:,} messages {what}")


def _check_ends(places: NDArray[np.intp], alarm: float) -> None:
    """The first and the last message are not shown first or last more often than any other."""
    views, size = places.shape
    for sent, shown in product((0, size - 1), (0, -1)):
        stays = int((places[:, shown] == sent).sum())
        if stays and scipy.stats.binom.sf(stays - 1, views, 1 / size) < alarm / 4:
            raise LawError(f"in {stays} of {views} views message {sent:,} is shown at {shown}")


def _check_falls(orders: tuple[NDArray[np.intp], ...], alarm: float) -> None:
    """How often an order and its inverse fall: seldomer where messages were merged a few times.

    The falls of a uniform order are a sum of independent coins (Harper 1967), of variance
    (n + 1)/12.
    """
    views, size = orders[0].shape
    falls = np.array([(each[:, 1:] < each[:, :-1]).sum(axis=1) for each in orders])
    for found, many in ((falls, 1), (falls.sum(axis=1), views)):
        means = np.full(found.shape, LEVELS * many * (size - 1) / 2)
        spread = np.full(found.shape, LEVELS**2 * many * (size + 1) / 12)
        judge(LEVELS * found.astype(float), means, spread, alarm / 2, "falls of an order")


def _check_parts(orders: tuple[NDArray[np.intp], ...], alarm: float) -> None:
    """Parts of an order, of all lengths, rise as often as they fall: also those that seldom move.

    Of a uniform order every other step rises or falls by a coin of its own: Hoeffding's bound.
    """
    pairs = orders[0].shape[1] // 2
    lengths = [_PART << power for power in range((pairs // _PART).bit_length())]
    for each in orders if lengths else ():
        rises = each[:, 1 : 2 * pairs : 2] > each[:, : 2 * pairs : 2]
        found = np.add.reduceat(rises, np.arange(0, pairs, _PART), axis=1, dtype=np.int64)
        for length in lengths:
            whole = found[:, : pairs // length]
            off = float(np.abs(whole - length / 2).max())
            if off > math.sqrt(length * math.log(4 * len(lengths) * whole.size / alarm) / 2):
                raise LawError(
                    f"a part of {2 * length:,} messages rises or falls, off by {off:,.0f}"
                )
            found = whole[:, : whole.shape[1] // 2 * 2].reshape(len(each), -1, 2).sum(axis=2)


def _check_moves(places: NDArray[np.intp], alarm: float) -> None:
    """Of all views: how many messages are moved by each distance, and the order's sign.

    How many messages of a uniform order are moved by one distance has the factorial moments of
    Poisson's law of mean 1, up to the size; so Chernoff's bounds of that law hold.
    """
    views, size = places.shape
    if size < _FEWEST:
        return
    moved = (places - np.arange(size)) % size
    found = np.bincount(moved.ravel(), minlength=size).astype(float)
    exponent = scipy.special.xlogy(found, found / views) - found + views
    if (exponent > math.log(4 * size / alarm)).any():
        distance = int(np.argmax(exponent))
        raise LawError(f"{found[distance]:,.0f} messages of {views} views move by {distance}")
    first, second = np.triu_indices(size, 1)
    # Inversions: their parity is the order's sign, even and odd alike.
    odd = int((np.sum(places[:, first] > places[:, second], axis=1) % 2).sum())
    if 2 * scipy.stats.binom.cdf(min(odd, views - odd), views, 0.5) < alarm / 2:
        raise LawError(f"{odd} of {views} orders are odd")


def _check_pairs(places: NDArray[np.intp], alarm: float) -> None:
    """Every two views agree in few places."""
    views, size = places.shape
    if size <= _FEW:
        chance = views**2 / 2 / math.exp(math.lgamma(size + 1))
        twice = views - len({row.tobytes() for row in places})
        # k orders come again with probability chance^k at most: k pairs without a circle. Three
        # alike are two such pairs, not three: the third follows.
        if twice and chance < 0.5 and twice * math.log(chance) < math.log(alarm):
            raise LawError(f"{twice} of {views} orders came before")
        return
    # views^2 pairs, turned ones among them; that function doubles once more for neighbours.
    most = _least_rare(2.0 * views**2, alarm)
    for place, first in enumerate(places):
        # An order that comes again reversed is no new one.
        for turned in (places[place + 1 :], places[place + 1 :, ::-1]):
            agree = (turned == first).sum(axis=1)
            if agree.size and agree.max() >= most:
                raise LawError(f"two orders agree in {agree.max():,} of {size:,} places")


def _check_alike(
    view: View, randomizer: Randomizer, reports: int, rounds: int, alarm: float
) -> None:
    """Orders of more messages than there are symbols: each binary digit of them is arranged."""
    alphabet, each = randomizer.alphabet, randomizer.per_label
    size, many = reports * each, 1 << (alphabet.symbols.bit_length() - 1)
    sent = np.arange(size, dtype=np.int64) * many // size
    symbols = np.broadcast_to(sent.reshape(reports, 1, each), (reports, alphabet.labels, each))
    messages = Messages.from_symbols(alphabet, np.ascontiguousarray(symbols))
    views = np.concatenate([np.stack(view(index, messages)) for index in range(rounds)])
    digits = many.bit_length() - 1
    for digit in range(digits):
        ones = int((sent >> digit & 1).sum())
        rows = (views >> digit & 1).astype(np.uint8)
        check_bits(rows, [ones] * len(rows), alarm / digits)


def check_symbols(
    view: View, randomizer: Randomizer, reports: int, rounds: int, alarm: float
) -> None:
    """A shuffler's orders of many symbols; labels and rounds are all views."""
    alphabet, each = randomizer.alphabet, randomizer.per_label
    size = reports * each
    if size > alphabet.symbols:
        if randomizer.view == "sums" and size >= _MANY:
            alarm /= 2
            _check_alike(view, randomizer, reports, min(rounds, _VIEWS), alarm)
        reports, size = alphabet.symbols // each, alphabet.symbols // each * each
    if reports < 2:
        return
    tags = np.arange(size, dtype=np.int64) * (alphabet.symbols // size)
    sent = np.broadcast_to(tags.reshape(reports, 1, each), (reports, alphabet.labels, each))
    if randomizer.view == "sums":
        messages = Messages.from_symbols(alphabet, np.ascontiguousarray(sent))
    else:
        messages = randomizer.singly(sent.ravel(), np.full(reports, each))
    views = np.concatenate([np.stack(view(index, messages)) for index in range(rounds)])
    check_tags(views.astype(np.int64), tags, alarm)
