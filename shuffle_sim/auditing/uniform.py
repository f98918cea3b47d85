"""Messages that hide a number together: all of a report but one are uniform, and independent."""

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.scores import LEVELS, judge

_CELLS = 8  # parts of the range of a message, of which pairs are looked at
_SEVERAL = 16  # sums of many messages
Ints = NDArray[np.int64]


def check_uniform(symbols: Ints, modulus: int, rng: np.random.Generator, alarm: float) -> None:
    """Sums of some messages with signs, modulo their number, are uniform; so are pairs of messages.

    Dependences that neither shows, as between multiples far from 1, are not found.

    Args:
        symbols: of independent reports, (reports, labels, messages).
        modulus: of the messages.
        rng: chooses sums of several.
        alarm: probability of a false alarm.

    Raises:
        LawError: naming what is not uniform.
    """
    size, many = symbols.shape[0], symbols.shape[2]
    first, second = np.triu_indices(many, 1)
    one = np.eye(many, dtype=np.int64)
    several = rng.integers(-1, 2, (_SEVERAL, many))
    # One message left out: then nothing that is known of all of them tells of the rest.
    several[np.arange(_SEVERAL), rng.integers(0, many, _SEVERAL)] = 0
    signs = np.concatenate([one, one[first] - one[second], several[several.any(axis=1)]])
    by_label = [_seen(symbols[:, label].T, signs, modulus) for label in range(symbols.shape[1])]
    sums, pairs = (np.stack(each, axis=1) for each in zip(*by_label, strict=True))
    wide, narrow = (np.diff(_edges(modulus, each)) / modulus for each in (LEVELS, _CELLS))
    for found, pmf, what in (
        (sums, wide, "combination of messages, label, part of their range"),
        (pairs, np.outer(narrow, narrow).ravel(), "two messages, label, parts of their range"),
    ):
        judge(
            LEVELS * found,
            np.broadcast_to(LEVELS * size * pmf, found.shape),
            np.broadcast_to(LEVELS**2 * size * pmf * (1 - pmf), found.shape),
            alarm / 2,
            what,
        )


def _edges(modulus: int, parts: int) -> Ints:
    """Where the parts of 0, ..., modulus - 1 begin and end."""
    edges = np.arange(parts + 1, dtype=object) * modulus // parts
    return np.asarray(edges, np.int64)


def _part(numbers: Ints, modulus: int, parts: int) -> NDArray[np.intp]:
    """In which part each number lies."""
    return np.searchsorted(_edges(modulus, parts)[1:], numbers, side="right")


def _seen(messages: Ints, signs: Ints, modulus: int) -> tuple[Floats, Floats]:
    """Of messages (many, reports) how often sums, and pairs, lie in each part."""
    first, second = np.triu_indices(len(messages), 1)
    parts = _part(messages, modulus, _CELLS)
    sums = _part(signs @ messages % modulus, modulus, LEVELS)
    return _counted(sums, LEVELS), _counted(_CELLS * parts[first] + parts[second], _CELLS**2)


def _counted(places: NDArray[np.intp], many: int) -> Floats:
    """How often each place comes in each row."""
    rows = np.arange(len(places))[:, None] * many
    found = np.bincount((rows + places).ravel(), minlength=len(places) * many)
    return found.reshape(-1, many).astype(float)
