"""A curator's choice of one model: its sensitivity, its budget, and that it chooses well.

Seeds are fixed, so every figure here is deterministic.
"""

import dataclasses
from itertools import product

import numpy as np
import pytest

from protocols.learning.training import Trainer
from protocols.problems.losses import Logistic
from protocols.problems.regression import Squared
from protocols.selection import CuratedSelection
from protocols.selection.curator import MeanScores
from protocols.selection.models import Scores
from shuffle_sim import ParameterError, Privacy, run

N = 400


def rows(seed=0, n=N):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.5, 0.5, size=(n, 3))
    return np.column_stack([x, np.where(x @ [6.0, -4, 1] + rng.logistic(size=n) / 3 > 0, 1, -1)])


def selected(mechanism="output", delta=0.0, ridges=(0.3, 100.0), epsilon=1.0, loss="logistic"):
    trainer = Trainer.of(loss, 3, Privacy(epsilon, delta))
    return trainer.selected_by_curator(mechanism, N, {"ridge": ridges})


@pytest.mark.parametrize("loss", [Logistic(), Squared(labels=1.0)])
def test_no_neighbours_change_scores_beyond_the_sensitivity(loss):
    """All pairs of a row on a grid, ten times three models; a bound a tenth smaller is caught."""
    rng, n, worst = np.random.default_rng(0), 20, 0.0
    each = np.array(list(product([-0.7, 0.0, 0.7], [-0.7, 0.7], [-1.0, 1.0])))
    for _ in range(10):
        made = MeanScores(Scores(loss, rng.normal(size=(3, 2)) * 9), n)
        scores = np.array([made.part(row[None]) / n for row in each])
        changes = scores[:, None] - scores[None]
        worst = max(worst, float(np.ptp(changes, axis=2).max()))
        assert worst <= made.sensitivity.value + 1e-12
    assert worst > 0.9 * 4 / n


@pytest.mark.parametrize(("mechanism", "delta"), [("output", 0.0), ("gibbs", 1e-5)])
def test_candidates_and_the_choice_share_one_budget(mechanism, delta):
    made = selected(mechanism, delta)
    found = run(made, rows(), seed=1)
    assert len(found.ledger.charges) == made.rounds == 3
    assert 0.9 < found.privacy.epsilon <= 1
    assert found.privacy.delta == delta
    assert found.value.scores == {}


@pytest.mark.full
def test_the_better_model_is_drawn_most_often():
    """Of 40 runs; with a choice at next to no epsilon it is a coin."""
    made = selected(epsilon=8.0, loss="squared")  # a ridge of 100 leaves hardly a model
    won = [run(made, rows(), seed=seed).value.chosen == "ridge 0.3" for seed in range(40)]
    assert np.mean(won) > 0.9
    coin = CuratedSelection(
        dict(zip(made.names, made.candidates, strict=True)),
        made.loss,
        dataclasses.replace(made.choice, epsilon=1e-9),
        0.0,
    )
    drawn = [run(coin, rows(), seed=seed).value.chosen == "ridge 0.3" for seed in range(40)]
    assert 0.2 < np.mean(drawn) < 0.8


def test_what_is_no_choice_among_single_releases_is_refused():
    trainer = Trainer.of("logistic", 3, Privacy(1.0, 1e-5))
    with pytest.raises(ParameterError, match="one release"):
        trainer.selected_by_curator("gaussian-gd", N, {"radius": [1.0, 2.0]})
    with pytest.raises(ParameterError, match="2 to 16"):
        selected(ridges=(0.1,))
    with pytest.raises(ParameterError, match="radius, ridge, norm_bound"):
        Trainer.of("logistic", 3, Privacy(1.0)).selected_by_curator("output", N, {"eta": [1, 2]})
