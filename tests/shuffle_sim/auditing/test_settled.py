"""What theorems give for their examples is what was settled, and a weaker one is refused."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mutants.running import uncached

from shuffle_sim import ParameterError
from shuffle_sim.auditing.claims import settled
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.composition import Parts
from shuffle_sim.privacy.events import LaplaceEvent
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.registry import names, registered


@pytest.mark.long
def test_every_theorem_gives_what_was_settled():
    """More, too: who proves more prints the table anew."""
    every = {name: registered("theorem", name) for name in names("theorem")}
    ours = {name for name, each in every.items() if each.__module__.startswith("shuffle_sim")}
    assert ours == settled.SETTLED.keys()
    for name, most in settled.SETTLED.items():
        found = settled.stated(registered("theorem", name))
        np.testing.assert_allclose(found, most, rtol=1e-5, err_msg=name)
        settled.check_settled(registered("theorem", name).event)


@pytest.mark.parametrize("name", ["LaplaceEvent", "GaussianEvent", "CarrySumEvent"])
def test_power_one_part_in_ten_thousand_less_is_seen(name, monkeypatch):
    known = settled.SETTLED[name]
    for place, most in enumerate(known):
        less = list(known)
        less[place] = most / 1.0001
        monkeypatch.setitem(settled.SETTLED, name, tuple(less))
        with pytest.raises(LawError, match=f"number {place} of"):
            settled.check_settled(registered("theorem", name).event)


def test_events_of_others_are_not_known(monkeypatch):
    monkeypatch.delitem(settled.SETTLED, "LaplaceEvent")
    monkeypatch.setattr(type(theorem_of(LaplaceEvent)), "pure", lambda self, event: 0.0)
    settled.check_settled(LaplaceEvent)


@pytest.mark.long
def test_two_kinds_together_cost_what_was_settled(monkeypatch):
    found = [settled.together(*both) for both in settled.pairs()]
    np.testing.assert_allclose(found, settled.TOGETHER, rtol=1e-5)
    uncached()
    true = Parts.__add__

    def first_steps(self, other):
        return replace(true(self, other), steps=self.steps or other.steps)

    monkeypatch.setattr(Parts, "__add__", first_steps)
    with pytest.raises(LawError, match="PureEvent and PureObjectiveEvent"):
        settled.check_together({"PureObjectiveEvent"})
    uncached()


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of a field, or of a part of it, by its name."""
    if is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            for _, other in others(getattr(value, part.name)):
                with suppress(ParameterError):
                    yield part.name, replace(value, **{part.name: other})
    elif isinstance(value, bool):
        yield "", not value
    elif isinstance(value, int):
        yield from (("", other) for other in (value + 1, value - 1, 2 * value, value // 2))
    elif isinstance(value, float):
        yield from (("", value * factor) for factor in (1.3, 1 / 1.3))


def stated(examples: tuple[Any, ...]) -> tuple[float, ...]:
    return settled.stated(cast(Any, SimpleNamespace(examples=examples)))


def seen(examples: tuple[Any, ...]) -> dict[str, bool]:
    """Fields of an event, and whether what is stated of examples depends on each."""
    known, found = stated(examples), dict[str, bool]()
    for place, example in enumerate(examples):
        for field in fields(example):
            for part, other in others(getattr(example, field.name)):
                name = f"{field.name} {part}".strip()
                if found.setdefault(name, False):
                    continue
                with suppress(ParameterError):
                    changed = replace(example, **{field.name: other})
                    moved = stated((*examples[:place], changed, *examples[place + 1 :]))
                    found[name] = not np.allclose(moved, known, rtol=1e-4, atol=1e-7)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", settled.SETTLED)
def test_what_is_settled_depends_on_every_number_of_an_event(name):
    """Else a theorem that forgets it would state the same."""
    found = seen(registered("theorem", name).examples)
    assert [field for field, moves in found.items() if not moves] == []


def test_power_a_number_that_no_example_shows_is_seen():
    examples = registered("theorem", "ShuffledEvent").examples
    assert seen(examples)["both"]
    assert not seen(tuple(replace(each, both=0.0, neither=0.0) for each in examples[:2]))["both"]
