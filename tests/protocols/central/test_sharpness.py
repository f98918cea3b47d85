"""Draws of density ~ e^(-k F) are held to their events, not to their own word on k."""

import pytest

from protocols.central.record.density import ExponentialDraw, GibbsDraw
from protocols.comparison.games import game_of
from shuffle_sim import Privacy
from shuffle_sim.auditing.conformance import LawError
from shuffle_sim.auditing.release_law import check_distance


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
