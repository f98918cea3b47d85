"""A paid selection of one model of a few: who answers what, what it costs, and who wins."""

import numpy as np
import pytest
from sklearn.base import clone

from protocols import (
    Absolute,
    Hinge,
    L2Ball,
    Linear,
    Logistic,
    Problem,
    ShuffleGD,
    ShuffleLogisticRegression,
    ShuffleRegressor,
    Squared,
)
from protocols.problems import Softmax
from protocols.problems.weighted import Weighted
from protocols.selection import Selected
from protocols.selection.budget import spends
from protocols.selection.models import MOST, Scores, grid
from protocols.shuffle.practice import practical
from shuffle_sim import ParameterError, Privacy, run
from shuffle_sim.arrays import dense

PRIVACY = Privacy(1.0, 1e-6)
N = 3000


def make(users, privacy, radius=5.0, rounds=6.0):
    problem = Problem(Squared(labels=1.0), L2Ball(3, radius))
    return practical(ShuffleGD, n=users, problem=problem, privacy=privacy, rounds=int(rounds))


def selected(values=(1e-4, 50.0), **given) -> Selected:
    return Selected.calibrated(grid({"radius": values}, make), n=N, privacy=PRIVACY, **given)


def rows(n: int = N) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, (n, 2))
    y = x @ [1.2, -0.6]
    return np.column_stack([x, np.full(n, 0.25), y])


LOSSES = [
    (Logistic(), 3, [-1.0, 1.0]),
    (Hinge(), 3, [-1.0, 1.0]),
    (Squared(labels=1.0), 3, [-1.0, 0.2, 1.0]),
    (Absolute(labels=1.0), 3, [-1.0, 0.2, 1.0]),
    (Softmax(3), 9, [0.0, 1.0, 2.0]),
]


@pytest.mark.parametrize(("loss", "d", "labels"), LOSSES, ids=lambda each: type(each).__name__)
def test_no_score_is_longer_than_the_norm_bound(loss, d, labels):
    rng = np.random.default_rng(1)
    x = rng.uniform(-9, 9, (300, 3))
    thetas = rng.normal(0, 20, (4, d))
    table = np.column_stack([x, rng.choice(labels, 300)])
    weights = rng.uniform(0, 3, (300, 1))
    found = dense(Scores(loss, thetas)(table))
    heavy = dense(Scores(Weighted(loss, 2.0), thetas)(np.hstack([table, weights])))
    lengths = np.linalg.norm(np.vstack([found, heavy]), axis=1)
    assert lengths.max() <= 1 + 1e-12
    assert lengths.max() * 1.1 > 1 + 1e-12 or loss in (LOSSES[2][0], LOSSES[3][0])  # it is reached
    assert np.allclose(heavy, found * np.minimum(weights / 2, 1))


@pytest.mark.full
def test_those_who_score_train_nothing():
    made = selected(fraction=0.2)
    found = run(made, rows(), seed=1)
    *training, scoring = [charge.cohort.ranges for charge in found.ledger.charges]
    assert set(training) == {((0, 2400),)}
    assert scoring == ((2400, N),)
    assert len(training) == 12 == made.rounds - 1 == made.rounds_per_user
    assert 0.95 < found.privacy.epsilon <= 1.0
    assert found.privacy.epsilon == pytest.approx(spends(made))
    # The planted defect: every candidate gets the whole budget.
    greedy = Selected(
        {f"{radius}": make(2400, PRIVACY, radius) for radius in (1e-4, 50.0)}, made.total
    )
    assert spends(greedy) > 1.3


def test_the_better_model_wins_and_scores_are_right():
    made, table = selected(), rows()
    found = run(made, table, seed=2).value
    assert found.chosen == "radius 50"
    held = table[made.trained :]
    true = np.mean(1 - 2 * np.minimum((held[:, :-1] @ found.theta - held[:, -1]) ** 2, 1))
    error = made.total.standard_error * np.sqrt(2) / made.total.n
    assert abs(found.scores["radius 50"] - true) < 5 * error
    assert max(found.scores, key=found.scores.get) == found.chosen


def test_every_combination_is_a_candidate():
    made = Selected.calibrated(
        grid({"radius": [1.0, 2.0], "rounds": [2, 3]}, make), n=N, privacy=PRIVACY
    )
    assert made.names == [
        "radius 1, rounds 2",
        "radius 1, rounds 3",
        "radius 2, rounds 2",
        "radius 2, rounds 3",
    ]
    assert made.rounds == 11


@pytest.mark.parametrize(
    ("values", "given", "named"),
    [
        ([1.0], {}, "select"),
        ([1.0, 1.0], {}, "select radius"),
        ([], {}, "select radius"),
        (range(1, MOST + 2), {}, "select"),
        ([1.0, 2.0], {"fraction": 0.0}, "select_fraction"),
        ([1.0, 2.0], {"fraction": 1.0}, "select_fraction"),
        ([1.0, 2.0], {"fraction": 1e-9}, "select_fraction"),
        ([1.0, -2.0], {}, "radius"),
    ],
)
def test_what_cannot_be_selected_is_refused_by_name(values, given, named):
    with pytest.raises(ParameterError, match=named):
        selected(values, **given)


@pytest.mark.parametrize("weigh", [lambda loss: loss, lambda loss: Weighted(loss, 1.0)])
def test_a_loss_without_a_scale_of_scores_is_refused(weigh):
    """0 at the margin 0, whatever the label: a score divided by it."""
    problem = Problem(weigh(Linear()), L2Ball(3, 5.0))
    how = {"problem": problem, "privacy": PRIVACY, "rounds": 6}
    candidates = {name: practical(ShuffleGD, n=N, **how) for name in "ab"}
    with pytest.raises(ParameterError, match="loss"):
        Selected(candidates, selected().total)


def test_estimators_select_and_say_what_won():
    table = rows()
    model = ShuffleRegressor(select={"radius": [1e-4, 50]}, rounds=6, random_state=1)
    fitted = clone(model).fit(table[:, :2], table[:, -1])
    assert fitted.selection_.chosen == "radius 50"
    assert fitted.score(table[:, :2], table[:, -1]) > 0.8
    assert fitted.privacy_.epsilon <= 1
    assert clone(model).set_params(select=None).fit(table[:, :2], table[:, -1]).selection_ is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"select": {"epsilon": [1, 2]}}, "select"),
        ({"select": [1, 2]}, "select"),
        ({"select": {"radius": [1, 2]}, "phases": True, "ridge": 0.1, "choose": "bound"}, "select"),
        ({"select": {"radius": [1, 2]}, "select_fraction": 2}, "select_fraction"),
    ],
)
def test_estimators_refuse_what_cannot_be_selected(given, named):
    table = rows(200)
    with pytest.raises(ParameterError, match=named):
        ShuffleRegressor(**given).fit(table[:, :2], table[:, -1])


def test_persons_are_refused():
    table = rows(200)
    model = ShuffleLogisticRegression(select={"radius": [1, 2]})
    with pytest.raises(ParameterError, match="persons"):
        model.fit(table[:, :2], table[:, -1] > 0, groups=np.arange(200) // 2)
