"""One user's row is another one, or far out: what all others send in the first round stays."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.auditing.shuffle.watching import Watched
from shuffle_sim.errors import ParameterError
from shuffle_sim.wire.frames import Kind

_FAR = 1e6, -1e6, 1e200  # times a row; of the last one squares are beyond doubles
_SURE, _SEEDS, _SECONDS = 30, 12, 5.0  # bits of chance; runs; for all of them


def check_far(
    on: Callable[[NDArray[Any], int], Watched],
    rows: NDArray[Any],
    block: int,
    bits: float,
    categories: bool,
) -> None:
    """Users are not reordered, scaled or chosen by one row, and its own block draws anew.

    Args:
        on: a run of one seed on a table, watched.
        rows: of all users.
        block: users of one.
        bits: of chance in what a user sends.
        categories: whether rows hold categories, which are not scaled.

    Raises:
        LawError: what other users send follows from it, or its block sends the same by other seeds.
    """
    began, usual = time.perf_counter(), _first(on(rows, 0))
    own = (len(rows) - 1) // block
    for table in _tables(rows, categories):
        if time.perf_counter() - began > _SECONDS:
            break
        with suppress(ParameterError):  # such rows are refused
            sent = _first(on(table, 0))
            for key in usual.keys() & sent.keys():
                if key[2] != own and usual[key] != sent[key]:
                    raise LawError("what users send follows from the row of another one")
            known, place = 0.0, 0
            while known < _SURE and place < _SEEDS:
                place, again = place + 1, _first(on(table, place + 1))
                here = [key for key in sent.keys() & again.keys() if key[2] == own]
                if not here or any(sent[key] != again[key] for key in here):
                    break
                # Of a sum no more is known than of one user in it.
                users = sum(sent[key][0] if key[0] is not Kind.TALLY else 1 for key in here)
                known += users * bits
            if known >= _SURE:
                raise LawError("a block with a row far out sends the same in every run")


def _first(seen: Watched) -> dict[tuple[Any, ...], tuple[int, bytes]]:
    """What users send in the first round."""
    return {
        key: each for key, each in seen.frames.items() if key[0] is not Kind.VIEW and not key[1]
    }


def _tables(rows: NDArray[Any], categories: bool) -> Iterator[NDArray[Any]]:
    """The last row is an extreme one, or far out; the last of several columns may be a label."""
    wide = rows.reshape(len(rows), -1)
    # By the last column first, and by the first.
    orders = np.lexsort(wide.T), np.lexsort(wide.T[::-1])
    for place in dict.fromkeys(each for order in orders for each in order[[0, -1]].tolist()):
        moved = rows.copy()
        moved[-1] = rows[place]
        yield moved
    for times in () if categories else _FAR:
        scale = np.full(wide.shape[1], times)
        scale[1:][-1:] = 1.0
        moved = rows.copy()
        moved[-1] *= scale.reshape(rows[-1].shape)
        yield moved
