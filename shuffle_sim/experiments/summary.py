"""Points over their repetitions: means, standard errors, and which columns can be drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from shuffle_sim.experiments.points import written
from shuffle_sim.experiments.store import Kept
from shuffle_sim.experiments.trial import measured_names


@dataclass(frozen=True)
class Group:
    """The points of the same parameters.

    Attributes:
        study: its name.
        parameters: of all of them; lists and mappings as JSON.
        mean: of each measured number, over the repetitions that ran; `measured_` comes before the
            name of a parameter.
        error: its standard error; 0 of a single repetition.
        texts: measured texts on which all repetitions agree.
        ran: repetitions that ran.
        reasons: why others did not, each reason once.
    """

    study: str
    parameters: dict[str, Any]
    mean: dict[str, float]
    error: dict[str, float]
    texts: dict[str, str]
    ran: int
    reasons: tuple[str, ...]


def groups_of(rows: Sequence[Kept]) -> list[Group]:
    """The points by study and parameters, in the order in which they come."""
    found: dict[tuple[str, str], list[Kept]] = {}
    for each in rows:
        found.setdefault((each.study, written(each.point.parameters)), []).append(each)
    return [_group(members) for members in found.values()]


def _group(members: Sequence[Kept]) -> Group:
    rows = [each.row for each in members if each.row is not None]
    names = measured_names((name for row in rows for name in row), members[0].point.parameters)
    columns = {
        told: [row[name] for row in rows if row.get(name) is not None]
        for name, told in names.items()
    }
    numbers = {
        name: [float(each) for each in values]
        for name, values in columns.items()
        if values and all(type(each) in (int, float) for each in values)
    }
    texts = {
        name: values[0]
        for name, values in columns.items()
        if values and isinstance(values[0], str) and set(values) == {values[0]}
    }
    parameters = {
        name: written(value) if isinstance(value, list | dict) else value
        for name, value in members[0].point.parameters.items()
    }
    return Group(
        members[0].study,
        parameters,
        {name: fmean(values) for name, values in numbers.items()},
        {
            # One repetition has no spread: 0, and no bar is drawn.
            name: stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
            for name, values in numbers.items()
        },
        texts,
        len(rows),
        tuple(dict.fromkeys(each.reason for each in members if each.reason)),
    )


def varied(groups: Sequence[Group]) -> list[str]:
    """The parameters that differ between groups, in their order."""
    names = dict.fromkeys(name for each in groups for name in each.parameters)
    return [
        name for name in names if len({written(each.parameters.get(name)) for each in groups}) > 1
    ]


def said(group: Group, name: str) -> str:
    """A parameter as people read it."""
    value = group.parameters.get(name)
    return "none" if value in (None, "") else str(value)


def described(group: Group, names: Iterable[str]) -> str:
    """The parameters of these names in one line; empty for none."""
    return ", ".join(f"{name} {said(group, name)}" for name in names)
