import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from protocols import (
    PrivateLogisticRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleRegressor,
)
from protocols.problems import Weighted
from shuffle_sim import ParameterError

N = 3000
COMMON = {"epsilon": 4.0, "rounds": 15, "random_state": 1}


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Half of the rows say the opposite of the others; weights say whom to believe."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-0.7, 0.7, size=(N, 2))
    honest = rng.random(N) < 0.5
    y = np.where((X[:, 0] > 0) == honest, "b", "a")
    return X, y, np.where(honest, 1.0, 0.0)


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleLinearSVC])
@pytest.mark.full
def test_rows_without_weight_do_not_count(kind):
    X, y, weights = data()
    model = kind(**COMMON).fit(X, y, sample_weight=weights)
    other = kind(**COMMON).fit(X, y, sample_weight=1 - weights)
    assert model.coef_[0, 0] > 0.4 > -0.4 > other.coef_[0, 0]
    assert model.privacy_.epsilon <= 4.0


def test_a_regressor_takes_weights_and_persons_keep_theirs():
    X, _, weights = data()
    y = np.where(weights > 0, X[:, 0], -X[:, 0])
    assert ShuffleRegressor(**COMMON).fit(X, y, sample_weight=weights).coef_[0] > 0.1
    groups = np.repeat(np.arange(N // 3), 3)
    model = ShuffleRegressor(records=3, **COMMON).fit(X, y, groups, sample_weight=weights)
    assert model.coef_[0] > 0.1
    assert model.privacy_.unit.value == "person"


def test_noise_is_for_the_heaviest_row_that_is_allowed():
    X, y, weights = data()
    usual = ShuffleLogisticRegression(**COMMON).fit(X, y)
    one = ShuffleLogisticRegression(**COMMON).fit(X, y, sample_weight=np.ones(N))
    five = ShuffleLogisticRegression(weight_bound=5.0, **COMMON).fit(X, y, sample_weight=weights)
    bounds = [model.protocol_.mean.sum.norm_bound for model in (usual, one, five)]
    assert bounds[0] == bounds[1] == bounds[2] / 5
    assert isinstance(five.protocol_.problem.loss, Weighted)
    beyond = ShuffleLogisticRegression(**COMMON).fit(X, y, sample_weight=np.full(N, 9.0))
    np.testing.assert_array_equal(beyond.coef_, one.coef_)


def test_weights_of_classes_move_the_border():
    X, _, _ = data()
    y = np.where(X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=N) > 0, "b", "a")
    fair = ShuffleLogisticRegression(**COMMON).fit(X, y)
    heavy = ShuffleLogisticRegression(class_weight={"b": 5.0}, **COMMON).fit(X, y)
    assert (heavy.predict(X) == "b").mean() > (fair.predict(X) == "b").mean() + 0.1
    ratio = heavy.protocol_.mean.sum.norm_bound / fair.protocol_.mean.sum.norm_bound
    assert ratio == pytest.approx(5.0)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.full
def test_sparse_rows_give_the_model_of_dense_ones(several):
    X, _, _ = data()
    X = np.where(np.abs(X) > 0.3, X, 0.0)
    y = np.digitize(X[:, 0], [-0.4, 0.4] if several else [0.1])
    dense = ShuffleLogisticRegression(**COMMON).fit(X, y)
    sparse = ShuffleLogisticRegression(**COMMON).fit(csr_array(X), y)
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    np.testing.assert_array_equal(dense.predict(X), sparse.predict(csr_array(X)))
    curator = PrivateLogisticRegression(random_state=1).fit(csr_array(X), y)
    np.testing.assert_array_equal(
        curator.coef_, PrivateLogisticRegression(random_state=1).fit(X, y).coef_
    )


BAD = {
    "no bound": ({"weight_bound": math.inf}, np.ones(N), "weight_bound"),
    "None as bound": ({"weight_bound": None}, np.ones(N), "weight_bound"),
    "below 0": ({}, np.full(N, -1.0), "sample_weight[0]"),
    "not a number": ({}, np.full(N, np.nan), "sample_weight[0]"),
    "infinite": ({"weight_bound": 2.0}, np.full(N, np.inf), "sample_weight[0]"),
    "too few": ({}, np.ones(3), "sample_weight"),
    "all zero": ({}, np.zeros(N), "sample_weight"),
    "text": ({}, ["x"] * N, "sample_weight"),
    "balanced": ({"class_weight": "balanced"}, None, "class_weight"),
    "unbounded class": ({"class_weight": {"b": math.inf}}, None, "class_weight['b']"),
    "unknown class": ({"class_weight": {"c": 1.0}}, None, "class_weight"),
    "no class counts": ({"class_weight": {"a": 0.0, "b": 0.0}}, None, "class_weight"),
}


@pytest.mark.parametrize("case", BAD)
def test_weights_without_a_bound_are_refused_before_a_release(case):
    parameters, weights, parameter = BAD[case]
    X, y, _ = data()
    model = ShuffleLogisticRegression(**COMMON, **parameters)
    with pytest.raises(ParameterError) as caught:
        model.fit(X, y, sample_weight=weights)
    assert caught.value.parameter == parameter
    assert not hasattr(model, "result_")
