"""Algorithms of a curator by name, with tables that are hard to hide."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.central.person.grouped_descent import PlainDescent
from protocols.comparison.games import game_of, steepest_game_of
from protocols.erm.tilted import TiltedRisk
from shuffle_sim import ParameterError, Privacy
from shuffle_sim.auditing.central import check_distances
from shuffle_sim.registry import loaded

PRIVACY = Privacy(1.0, 1e-6)


@pytest.mark.parametrize("hardest", [False, True])
@pytest.mark.parametrize("name", ["gradient", "output", *loaded("algorithm")])
@pytest.mark.full
def test_every_registered_algorithm_has_a_game(name, hardest):
    """Tables of one shape that differ in one row or person, and that the algorithm takes."""
    if name == "deletion-stability":  # a demonstration, at large budgets
        with pytest.raises(ParameterError, match="removals"):
            game_of(name, 500, 2, PRIVACY, hardest=hardest)
        return
    made, tables = game_of(name, 500, 2, PRIVACY, hardest=hardest)
    for first, second in tables.values():
        assert first.shape == second.shape
        assert (first != second).reshape(500, -1).any(axis=1).sum() == 1
        if first.ndim == 2:
            made.check(first)
            made.check(second)


def test_the_hardest_games_are_harder():
    """By how far a minimiser moves, over what is stated. The tilted one needs a pulled table."""
    ratios = []
    for hardest in (False, True):
        made, tables = game_of("tilted-erm", 300, 2, PRIVACY, hardest=hardest)
        moved = [
            np.linalg.norm(made.statistic.of(a) - made.statistic.of(b)) for a, b in tables.values()
        ]
        ratios.append(max(moved) / made.statistic.sensitivity.value)
    assert 2 * ratios[0] < ratios[1] <= 1


def as_if_independent(patch):
    """What m records of a person move adds up as noise would: by sqrt(m)."""
    true: Any = vars(PlainDescent)["sensitivity"]

    def least(self):
        stated = true.fget(self)
        return replace(stated, value=stated.value / math.sqrt(self.records))

    patch.setattr(PlainDescent, "sensitivity", property(least))


def half_the_spread(patch):
    """Losses of a tilted risk are half as far apart."""
    true = TiltedRisk.spread
    patch.setattr(TiltedRisk, "spread", lambda self, radius: true(self, radius) / 2)


@pytest.mark.parametrize(
    ("name", "plant"),
    [("linear-time-phased-sgd", as_if_independent), ("tilted-erm", half_the_spread)],
)
@pytest.mark.long
def test_the_linear_loss_shows_what_others_hide(name, plant, monkeypatch):
    """Slopes of the logistic loss are half of what is stated, so neighbours' models are, too."""
    case = name, 200, 2, PRIVACY
    clean = steepest_game_of(*case, loss="logistic")
    assert check_distances(*clean).passed
    plant(monkeypatch)
    made, tables = game_of(*case)
    assert check_distances(made, tables).passed
    assert check_distances(*steepest_game_of(*case)).passed is False


def test_what_the_linear_loss_cannot_be_given_has_no_steepest_game():
    assert steepest_game_of("output", 200, 2, PRIVACY, domain="nowhere") is None


def test_an_unknown_name_is_refused():
    with pytest.raises(ParameterError, match="gradient, accelerated-phased-erm"):
        game_of("magic", 100, 2, PRIVACY)
