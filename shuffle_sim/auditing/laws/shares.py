"""Messages that hide a number together: all of a report but one are uniform, and independent.

So are all messages of several users but one each. Sums of subsets are looked at, modulo q and
modulo small numbers, and multiples of one message in another at every lag. So are linear relations
by their rank over Z_q, and windows that repeat.
"""

import math
from itertools import combinations

import numpy as np
import scipy  # parts by attribute: they load when used
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.laws.scores import LEVELS, judge
from shuffle_sim.auditing.laws.sequences import (
    check_frames,
    check_lags,
    check_products,
    check_repeats,
)
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.laws.tails import check_ends

_CELLS = 8  # parts of the range of a message, of which pairs are looked at
_SUBSETS = 256  # looked at, where there are more
_MULTIPLES = 2, 3, -2, -3
_COLUMNS = 200  # messages whose linear relations are looked at
_LABELS = 8  # whose messages are looked at together
_PLACES = 6  # pairs of places of a message, of which the same is done for all users
_RESTS = 1680  # 2^4 x 3 x 5 x 7: sums modulo its divisors
_LARGEST_FACTOR = 1 << 16  # of the modulus that is searched for
Ints = NDArray[np.int64]


def check_shares(symbols: Ints, modulus: int, rng: np.random.Generator, alarm: float) -> None:
    """All messages but one of each report are uniform over Z_q, within users and across them.

    Args:
        symbols: of independent rounds, (rounds, users, labels, messages).
        modulus: q.
        rng: chooses which message of a report is left out, and subsets.
        alarm: probability of a false alarm.

    Raises:
        LawError: naming what is not uniform.
    """
    _, users, labels, many = symbols.shape
    left_out = rng.integers(0, many, (users, labels))
    kept = np.arange(many) != left_out[..., None]  # (users, labels, messages)
    for label in range(labels):
        mine = symbols[:, :, label]
        flat = mine.reshape(-1, many)
        # Shares: 4/6 + 2/12 here, and 2/12 where labels are compared.
        _check_subsets(flat, modulus, rng, alarm / 6 / labels)
        _check_pairs(flat, modulus, alarm / 6 / labels)
        row = mine[:, kept[:, label]]  # (rounds, users * (many - 1))
        check_rows(row, modulus, alarm / 6 / labels)
        ranked = [row[:, :_COLUMNS]]
        for one, other in list(combinations(range(many), 2))[:_PLACES] if many > 2 else ():
            ranked.append(np.concatenate([mine[:, :, one], mine[:, :, other]], axis=1))
        for columns in ranked:
            _check_rank(columns, modulus, alarm / 6 / labels / len(ranked))
        check_ends(row, modulus, alarm / 12 / labels, "messages at an end of the range")
        for place in range(many):
            angles = 2 * np.pi * mine[:, :, place] / modulus
            for each in (np.cos(angles), np.sin(angles)):
                what = f"message {place} of users"
                # 1/2 is the variance of a cosine and of a sine, which are uncorrelated, for q > 2.
                check_lags(each, 0.5, alarm / 24 / labels / many, what)
    if labels > 1:
        by_label = [symbols[:, :, label][:, kept[:, label]] for label in range(labels)]
        every = np.concatenate([row[:, : _COLUMNS // 2] for row in by_label[:_LABELS]], axis=1)
        check_rows(every, modulus, alarm / 12)
        _check_rank(every[:, : 2 * _COLUMNS], modulus, alarm / 12)


def _check_subsets(reports: Ints, modulus: int, rng: np.random.Generator, alarm: float) -> None:
    """Sums of proper subsets, and with signs, are uniform."""
    many = reports.shape[1]
    if 2**many - 2 <= _SUBSETS:
        chosen = (np.arange(1, 2**many - 1)[:, None] >> np.arange(many)) & 1
    else:
        one = np.eye(many, dtype=np.int64)
        first, second = np.triu_indices(many, 1)
        some = rng.integers(0, 2, (_SUBSETS, many))
        # One is left out of each: the sum of all is the datum, and not uniform.
        some[np.arange(_SUBSETS), rng.integers(0, many, _SUBSETS)] = 0
        chosen = np.concatenate([one, 1 - one, one[first] + one[second], some])
    signed = chosen * rng.choice([-1, 1], chosen.shape)
    signs = np.concatenate([chosen, signed])
    signs = signs[signs.any(axis=1)]
    sums = np.empty((len(signs), len(reports)), np.int64)
    for place, each in enumerate(signs):
        sums[place] = (reports * each).sum(axis=1) % modulus
    # As many numbers as each part really has: q need be no multiple of 32.
    wide = np.diff(_edges(modulus, LEVELS)) / modulus
    counted = _counted(_part(sums, modulus, LEVELS), LEVELS)
    _judge(counted, wide, len(reports), alarm / 2, "subset")
    first, second = np.triu_indices(many, 1)
    one = np.eye(many, dtype=np.int64)
    _check_rests(reports, np.concatenate([signs, one[first] - one[second]]), modulus, alarm / 2)


def _check_rests(reports: Ints, signs: Ints, modulus: int, alarm: float) -> None:
    """Sums of proper subsets, with signs, modulo small numbers; and with what a report hides.

    A character of such a sum is a product of those of its messages, which are independent.
    """
    size, turns = len(reports), np.arange(_RESTS)
    each = np.fft.fft((modulus - 1 - turns) // _RESTS + 1) / modulus  # of one message
    hidden = reports.sum(axis=1) % modulus
    one = np.eye(signs.shape[1], dtype=np.int64)
    rows = [*((sign, 0) for sign in signs), *((sign, 1) for sign in one), *((-one[0], 1),)]
    sums = np.empty((len(rows), _RESTS), complex)
    spread = np.empty((len(rows), _RESTS))
    for place, (sign, more) in enumerate(rows):
        found = _turned((reports * sign).sum(axis=1) + more * hidden)
        plus, minus = int((sign > 0).sum()), int((sign < 0).sum())
        mean = each**plus * each.conj() ** minus
        # Given what reports hide, all their messages but one are what they always are.
        known = _turned(hidden) if more else np.full(_RESTS, float(size))
        sums[place] = found - mean * known
        spread[place] = size * (1 + np.abs(mean[2 * turns % _RESTS])) / 2
    # Twice: a character and its mean are at most 2 apart.
    for part in (sums.real, sums.imag):
        check_products(part[:, 1:] / 2, spread[:, 1:] / 4, alarm / 2, "subset, rest of a sum")


def _turned(sums: Ints) -> NDArray[np.complex128]:
    """All characters of numbers modulo `_RESTS`, added up."""
    return np.asarray(np.fft.fft(np.bincount(sums % _RESTS, minlength=_RESTS)))


def _check_pairs(reports: Ints, modulus: int, alarm: float) -> None:
    """Every two messages together."""
    first, second = np.triu_indices(reports.shape[1], 1)
    parts = _part(reports.T, modulus, _CELLS)
    narrow = np.diff(_edges(modulus, _CELLS)) / modulus
    both = _counted(_CELLS * parts[first] + parts[second], _CELLS**2)
    _judge(both, np.outer(narrow, narrow).ravel(), len(reports), alarm, "two messages")


def _judge(found: Floats, pmf: Floats, size: int, alarm: float, what: str) -> None:
    judge(
        LEVELS * found,
        np.broadcast_to(LEVELS * size * pmf, found.shape),
        np.broadcast_to(LEVELS**2 * size * pmf * (1 - pmf), found.shape),
        alarm,
        f"{what}, part of the range",
    )


def check_rows(row: Ints, modulus: int, alarm: float) -> None:
    """Messages of all users in a row: they do not repeat, cancel or follow, at any lag.

    row: of independent rounds, (rounds, messages).
    """
    check_repeats([row], 1 / modulus, alarm / 4, "messages")
    angles = 2 * np.pi * row / modulus
    # Cosine and sine of a message add up to cos(a - b) in a product: in [-1, 1] as one draw.
    frames = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    check_frames(frames, np.full(frames.shape[1], 0.5), alarm / 4, "messages")
    for each in (np.cos(angles), np.sin(angles)):
        check_lags(each, 0.5, alarm / 8, "messages")
    size = row.shape[1]
    padded = scipy.fft.next_fast_len(2 * size)
    one = scipy.fft.fft(np.exp(1j * angles), padded, axis=1)
    for times in _MULTIPLES:
        other = scipy.fft.fft(np.exp(1j * times * angles), padded, axis=1)
        found = scipy.fft.ifft((one.conj() * other).sum(axis=0))
        # Lag 0 is a message and itself.
        sums = np.concatenate([found[1:size], found[-size + 1 :]])  # both before and after
        # A multiple's square has mean 0 if q divides none of 4 and 6: then its variance is 1/2.
        if modulus > 6:
            both = np.concatenate([sums.real, sums.imag])
            seen = np.full(len(both), row.size / 2.0)
            what = f"a message and another times {times}, lag"
            check_products(both, seen, alarm / 4 / len(_MULTIPLES), what)


def _check_rank(row: Ints, modulus: int, alarm: float) -> None:
    """No message follows from others by a linear relation over Z_q."""
    columns, rows = row.shape[1], len(row) - 1
    prime = _factor(modulus)
    # Random columns over Z_p: they depend on each other with probability p^(columns - rows) or so.
    if (rows - columns) * math.log(prime) < -math.log(alarm) + 1:
        columns = rows - math.ceil((1 - math.log(alarm)) / math.log(prime))
        if columns < 2:
            return
    # Less the first row: a relation with a constant is one, too.
    matrix = (row[1:, :columns] - row[0, :columns]) % prime
    if _rank(matrix.astype(object if prime >= 1 << 31 else np.int64), prime) < columns:
        raise LawError(f"of {columns} messages one follows from the others, modulo {prime}")


def _factor(modulus: int) -> int:
    """The smallest prime factor, or the modulus where none is small."""
    return next((p for p in range(2, _LARGEST_FACTOR) if modulus % p == 0), modulus)


def _rank(matrix: NDArray[np.generic], prime: int) -> int:
    """The rank over Z_p; where p is no prime, of the columns whose pivots are units."""
    found = 0
    for column in range(matrix.shape[1]):
        units = [
            row
            for row in range(found, len(matrix))
            if math.gcd(int(matrix[row, column]), prime) == 1
        ]
        if not units:
            continue
        matrix[[found, units[0]]] = matrix[[units[0], found]]
        # A unit, also where no prime factor was found: rows stay equivalent.
        inverse = pow(int(matrix[found, column]), -1, prime)
        matrix[found] = matrix[found] * inverse % prime
        # Rows above need no zeros: only the pivots are counted.
        below = matrix[found + 1 :]
        below[...] = (below - below[:, column : column + 1] * matrix[found]) % prime
        found += 1
    return found


def _edges(modulus: int, parts: int) -> Ints:
    """Where the parts of 0, ..., modulus - 1 begin and end."""
    edges = np.arange(parts + 1, dtype=object) * modulus // parts
    return np.asarray(edges, np.int64)


def _part(numbers: Ints, modulus: int, parts: int) -> NDArray[np.intp]:
    """In which part each number lies."""
    return np.searchsorted(_edges(modulus, parts)[1:], numbers, side="right")


def _counted(places: NDArray[np.intp], many: int) -> Floats:
    """How often each place comes in each row."""
    rows = np.arange(len(places))[:, None] * many
    found = np.bincount((rows + places).ravel(), minlength=len(places) * many)
    return found.reshape(-1, many).astype(float)
