"""Draws of density ~ e^(-k F) are held to their events, not to their own word on k."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from protocols.central.record.density import ExponentialDraw, GibbsDraw
from protocols.comparison.games import game_of
from shuffle_sim import Privacy
from shuffle_sim.auditing import LawError
from shuffle_sim.auditing.curator.distances import bent, check_event_of
from shuffle_sim.auditing.curator.release_law import check_distance


@pytest.mark.parametrize(
    ("name", "kind"), [("gibbs", GibbsDraw), ("exponential-mechanism", ExponentialDraw)]
)
def test_a_density_sharper_than_its_event_is_seen(name, kind, monkeypatch):
    """The root of two in mu, or twice epsilon; a draw of another law would not show it."""
    made, tables = game_of(name, 40, 2, Privacy(1.0, 1e-6))
    release = made.plan(made.init())
    values = [release.statistic.of(rows) for rows in tables["split"]]
    assert check_distance(release, *values)
    true = kind.sharpness
    monkeypatch.setattr(kind, "sharpness", lambda *given: 2 * true(*given))
    with pytest.raises(LawError, match="2 times as sharp"):
        check_distance(release, *values)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_an_event_of_less_curvature_is_seen(delta):
    """Of objective perturbation; rows at right angles bend apart as fast as is stated."""
    made, _ = game_of("objective", 40, 2, Privacy(1.0, delta))
    release, rows = made.plan(made.init()), np.zeros((40, 3))
    rows[:, 2], other = 1.0, rows.copy()
    rows[0, 0] = other[0, 1] = 1.0
    values = [release.statistic.of(each) for each in (rows, other)]
    assert bent(release, *values) == pytest.approx(1.0, rel=1e-5)
    assert check_distance(release, *values)
    less = replace(release.event, curvature=release.event.curvature / 2)
    own = {"mechanism": release.mechanism, "sensitivity": release.sensitivity}
    stated: Any = SimpleNamespace(event=less, **own)
    with pytest.raises(LawError, match="bend apart"):
        check_event_of(stated, *values)
