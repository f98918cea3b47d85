"""Runs on other rows that are given the same releases: they go the same way, and tell the same."""

import io
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np

from shuffle_sim.arrays import Floats
from shuffle_sim.auditing.claims.aside import aside, check_errors, listened, logged
from shuffle_sim.auditing.curator.calls import sampled, value_of
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.data.persons import population_for
from shuffle_sim.data.population import Population
from shuffle_sim.errors import ParameterError
from shuffle_sim.execution.setup import suited
from shuffle_sim.protocol.release import CentralAlgorithm
from shuffle_sim.wire.fingerprint import fingerprint

_RELEASES, _TABLES = 200, 6  # that are followed; with the longest rows
_SHRUNK = 0.3  # times all features


def check_followed(
    algorithm: CentralAlgorithm[Any],
    first: Floats,
    second: Floats,
    others: Sequence[Population],
    seconds: float,
) -> None:
    """What an algorithm asks, and its result, follow from what was released alone.

    Args:
        algorithm: of a curator.
        first: rows, or persons.
        second: rows of which one differs.
        others: more tables; those with the largest numbers are taken.
        seconds: of a processor, for more than two tables.

    Raises:
        LawError: they follow from rows, too.
    """
    shrunk, began = _shrunk(first), time.process_time()
    longest = sorted(others, key=_largest, reverse=True)[:_TABLES]
    own = population_for(algorithm.unit, first, algorithm.most_records)
    tables: list[Any] = [second, shrunk, *longest]
    for place, rows in enumerate(tables):
        if place > 1 and time.process_time() - began > seconds:
            break
        with suppress(ParameterError):  # rows that are not allowed are not looked at
            _follow(algorithm, own, population_for(algorithm.unit, rows, algorithm.most_records))


def check_untold(run: Callable[[Any], object], first: Floats, second: Floats) -> None:
    """A run writes no file, logs nothing of rows, and errors show no row.

    Args:
        run: of rows, in this process.
        first: rows, or persons.
        second: others.

    Raises:
        LawError: rows are told beside what is released.
    """
    check_errors(run, first)
    aside(run, [first])
    logs = io.StringIO(), io.StringIO()
    for rows, said in zip((first, second), logs, strict=True):
        with logged(said):
            run(rows)
    # A caller's algorithm may log its releases; this package has no reason to log anything of them.
    if logs[0].getvalue() != logs[1].getvalue():
        raise LawError("what a run logs follows from rows")


def _shrunk(rows: Floats) -> Floats:
    """All features are shorter."""
    found = rows.copy()
    found[..., :-1] *= _SHRUNK
    return found


def _follow(algorithm: CentralAlgorithm[Any], own: Population, other: Population) -> None:
    """A run on one table, and one on the other that is given its releases."""
    pair, rng = [deepcopy(algorithm) for _ in range(2)], np.random.default_rng(own.users)
    told = list[str](), list[str]()

    def heard(side: int, call: Callable[..., Any], *given: Any) -> Any:
        with listened(told[side]):
            return call(*given)

    for side, data in enumerate((own, other)):
        heard(side, suited, pair[side], data)
    one, two = pair
    state, follows = heard(0, one.init), heard(1, two.init)
    opened: dict[int, int] = {}
    for place in range(_RELEASES):
        release, asked = heard(0, one.plan, state), heard(1, two.plan, follows)
        if release is None or asked is None:
            if release is not asked:
                raise LawError(f"release {place} is asked for by rows, not by earlier releases")
            break
        if release.public() != asked.public():
            raise LawError(f"release {place} follows from rows, not from earlier releases")
        released = sampled(release, place, heard(0, value_of, release, own), rng, opened)
        state = heard(0, one.update, state, deepcopy(released))
        heard(1, value_of, asked, other)  # what the statistic keeps of it must not be used
        follows = heard(1, two.update, follows, deepcopy(released))
    if told[0] != told[1]:
        raise LawError("what an algorithm prints, or warns of, follows from rows")
    # A long run is followed so far.
    ended = release is None
    if ended and fingerprint(one.result(state)) != fingerprint(two.result(follows)):
        raise LawError("the result follows from rows, not from releases alone")


def _largest(data: Population) -> float:
    return max(float(np.abs(np.asarray(row, float)).max()) for row in data.rows(0, data.users))
