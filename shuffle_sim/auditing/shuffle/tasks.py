"""What users hold a server to: every field of a round that makes it another one."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.errors import FrameError, ShuffleSimError
from shuffle_sim.protocol.base import RoundSpec
from shuffle_sim.protocol.task import Task
from shuffle_sim.wire.codec import by_name, plain

_FACTORS = 0.5, 0.9, 2.0


def check_task(task: Task, spec: RoundSpec, vocabulary: tuple[type, ...]) -> None:
    """Rounds whose randomizer differs in a field are refused, by form and by strength apart.

    Fields that move between rounds are not in a form; what moves none of it costs no more.

    Raises:
        LawError: one is not.
    """
    classes, query, cohort = by_name(vocabulary), spec.query, spec.cohort
    own = _strength(spec, spec.randomizer)
    for name, other in _others(spec.randomizer):
        what = f"a round with another {name} of {type(other).__name__}"
        if task.events and own is not None and _strength(spec, other) not in (own, *task.events):
            with suppress(FrameError):
                task.check(0, cohort, query, other, spec.minimum)
                raise LawError(f"{what} has another strength, and is answered")
        if name not in (*other.moves, *task.chosen):
            tree = plain(replace(spec, randomizer=other).broadcast(vocabulary))
            with suppress(FrameError):
                task.demand(tree, classes)
                raise LawError(f"{what} is answered")


def _strength(spec: RoundSpec, randomizer: Any) -> Any:
    """What a view of it costs."""
    with suppress(ShuffleSimError):
        return randomizer.event(spec.cohort.size, spec.query)
    return None


def _others(randomizer: Any) -> Iterator[tuple[str, Any]]:
    """The same with one number changed: the field's name, and the other."""
    for each in fields(randomizer) if is_dataclass(randomizer) else ():
        value = getattr(randomizer, each.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for factor in _FACTORS:
            changed = factor * value if isinstance(value, float) else round(factor * value) or 1
            if changed == value:
                continue
            with suppress(ShuffleSimError, ValueError, OverflowError):
                yield each.name, replace(randomizer, **{each.name: changed})
