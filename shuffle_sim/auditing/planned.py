"""The randomizers that a protocol plans after its first round: each other one is looked at, too."""

from collections.abc import Iterator
from copy import copy
from typing import Any

from shuffle_sim.protocol.base import Protocol, RoundSpec
from shuffle_sim.protocol.task import walked

MOST = 4
"""Other randomizers that are looked at; those of a class that was not seen yet come first."""


def others(protocol: Protocol[Any], first: RoundSpec) -> tuple[list[tuple[int, RoundSpec]], int]:
    """Rounds, counted from 1, whose randomizer no round before has, and how many were left out.

    Rounds are planned with sums from the middle of what can be in place of views.
    """
    found = list(_distinct(protocol, first))
    classes = {type(first.randomizer)}
    new: list[tuple[int, RoundSpec]] = []
    known: list[tuple[int, RoundSpec]] = []
    for each in found:
        kind = type(each[1].randomizer)
        (known if kind in classes else new).append(each)
        classes.add(kind)
    room = max(0, MOST - len(new))
    kept = [*new[:MOST], *(known[-1:] + known[:-1])[:room]]  # the last one is farthest
    return sorted(kept, key=lambda each: each[0]), len(found) - len(kept)


def _distinct(protocol: Protocol[Any], first: RoundSpec) -> Iterator[tuple[int, RoundSpec]]:
    seen, ids = [first.randomizer], {id(first.randomizer)}
    for index, spec in enumerate(walked(copy(protocol)), 1):
        one = spec.randomizer
        if id(one) in ids:
            continue
        if not any(type(one) is type(each) and one == each for each in seen[-_BACK:]):
            seen.append(one)  # kept: ids stay their own
            ids.add(id(one))
            yield index, spec


_BACK = 64  # randomizers that a new one is compared with
