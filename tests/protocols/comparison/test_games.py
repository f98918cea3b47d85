"""Algorithms of a curator by name, with tables that are hard to hide."""

import numpy as np
import pytest

from protocols.comparison.games import game_of
from shuffle_sim import ParameterError, Privacy
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


def test_an_unknown_name_is_refused():
    with pytest.raises(ParameterError, match="gradient, accelerated-phased-erm"):
        game_of("magic", 100, 2, PRIVACY)
