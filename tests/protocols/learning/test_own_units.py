"""choose_bounds of the estimators: one budget, a model in the rows' own units, clear refusals.

Seeds are fixed, so every figure here is deterministic.
"""

import numpy as np
import pytest

from protocols import ShuffleLogisticRegression, ShuffleRegressor
from protocols.learning import descent
from shuffle_sim import ParameterError
from shuffle_sim.privacy.accountant import ShuffleAccountant

SHORT = {"choose_bounds": 0.2, "rounds": 6, "random_state": 1}


def people(n=3_000, seed=0):
    """Age in years and income, and which of three thirds of a score a person is in."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(18, 80, n), rng.uniform(2_000, 90_000, n)])
    score = X[:, 0] / 80 + X[:, 1] / 60_000
    return X, score


@pytest.mark.full
def test_the_choice_of_bounds_and_the_training_share_one_budget():
    X, score = people()
    model = ShuffleLogisticRegression(**SHORT).fit(X, score > 1.3)
    accountant = ShuffleAccountant()
    for charge in model.result_.ledger.charges:
        accountant.compose(charge.event)
    assert model.privacy_.epsilon == pytest.approx(accountant.get_epsilon(model.delta), rel=1e-6)
    assert 0.95 < model.privacy_.epsilon <= 1
    assert len(model.result_.ledger.charges) == model.n_iter_ == 7
    low, high = model.bounds_
    assert (low <= np.quantile(X, 0.1, axis=0)).all()  # bins with few people are cut
    assert (high >= X.max(axis=0)).all()
    assert (high <= 4 * X.max(axis=0)).all()
    assert model.clipped_ == ((low > X) | (high < X)).any(axis=1).sum() < 300


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.full
def test_a_model_speaks_of_rows_as_they_are(classes):
    """It beats guessing by far, without any bound stated; coefficients fit the columns' units."""
    (X, score), (others, held_out) = people(8_000), people(2_000, seed=1)
    ends = np.quantile(score, np.arange(1, classes) / classes)
    model = ShuffleLogisticRegression(choose_bounds=0.2, rounds=20, random_state=1)
    model.fit(X, np.digitize(score, ends))
    assert model.score(others, np.digitize(held_out, ends)) > 1 / classes + 0.25
    years, income = np.abs(model.coef_).max(axis=0)
    assert 100 < years / income < 10_000  # 60,000/80 = 750


@pytest.mark.full
def test_a_regressor_takes_rows_as_they_are_beside_weights():
    X, score = people(8_000)
    model = ShuffleRegressor(choose_bounds=0.2, target_bounds=(0, 3), random_state=1)
    model.fit(X, score, sample_weight=np.ones(len(X)))
    assert model.score(X, score) > 0.8


@pytest.mark.full
def test_models_are_selected_within_chosen_bounds():
    X, score = people()
    model = ShuffleLogisticRegression(select={"rounds": [2, 6]}, choose_bounds=0.2, random_state=1)
    model.fit(X, score > 1.3)
    assert model.privacy_.epsilon <= 1
    assert model.selection_.chosen in ("rounds 2", "rounds 6")
    assert model.bounds_ is not None


def test_rows_are_mapped_back_exactly():
    rng = np.random.default_rng(0)
    X, theta = rng.normal(50, 9, size=(20, 3)), rng.normal(size=(2, 4))
    by = descent.free_columns(3, 2).bounded(np.zeros(3), np.full(3, 128.0))
    mapped = by(np.column_stack([X, np.full(20, 0.25), np.ones(20)]))
    coefficients, intercepts = descent.in_own_units(theta, by, 3, 0.25)
    assert np.linalg.norm(mapped[:, :3], axis=1).max() <= 1
    assert np.allclose(mapped[:, :4] @ theta.T, X @ coefficients.T + intercepts)
    assert not descent.beyond(np.column_stack([X, np.ones((20, 2))]), by).any()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"choose_bounds": 1.5}, "choose_bounds"),
        ({"choose_bounds": 0.2, "feature_bound": 2.0}, "feature_bound"),
        ({"choose_bounds": 0.2, "fit_intercept": False}, "fit_intercept"),
    ],
)
def test_what_does_not_go_with_chosen_bounds_is_refused(given, named):
    X, score = people(100)
    with pytest.raises(ParameterError, match=named):
        ShuffleLogisticRegression(**given).fit(X, score > 1.3)


@pytest.mark.full
def test_persons_and_few_users_are_refused():
    X, score = people(100)
    with pytest.raises(ParameterError, match="groups"):
        ShuffleLogisticRegression(choose_bounds=0.2).fit(X, score > 1.3, np.arange(100) // 2)
    with pytest.raises(ParameterError, match="told from noise"):
        ShuffleLogisticRegression(choose_bounds=0.2).fit(X[:20], score[:20] > 1.3)
