"""What theorems give for their examples is what was settled, and a weaker one is refused."""

import numpy as np
import pytest

from shuffle_sim.auditing.claims import settled
from shuffle_sim.auditing.laws.statistics import LawError
from shuffle_sim.privacy.events import LaplaceEvent
from shuffle_sim.privacy.theorems import theorem_of
from shuffle_sim.registry import names, registered


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
