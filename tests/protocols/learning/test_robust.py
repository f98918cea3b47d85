"""Estimators for unbounded features: scikit-learn's checks, purity, robustness, refusals."""

import math

import numpy as np
import pytest

from protocols import HeavyTailedClassifier, HeavyTailedRegressor, Moments
from shuffle_sim import ParameterError

ESTIMATORS = [HeavyTailedClassifier, HeavyTailedRegressor]


def rows(n=20_000, seed=0, index=2.5):
    rng = np.random.default_rng(seed)
    x = rng.standard_t(index, size=(n, 3))
    return x, x @ [1.0, -0.5, 0.25] + 0.5 + 0.2 * rng.standard_t(index, size=n)


@pytest.mark.parametrize("given", [{}, {"moments": (4, 12.0, 6.0, 4.0)}, {"feature_bound": 5.0}])
@pytest.mark.full
def test_a_regressor_learns_from_rows_without_bounds(given):
    x, y = rows()
    model = HeavyTailedRegressor(radius=3.0, random_state=1, **given).fit(x, y)
    assert (model.privacy_.epsilon, model.privacy_.delta) == (1.0, 0.0)
    assert model.coef_ == pytest.approx([1.0, -0.5, 0.25], abs=0.15)
    assert model.intercept_ == pytest.approx(0.5, abs=0.2)
    piloted = "pilot" in model.algorithm_.choices
    assert piloted == (not given)


@pytest.mark.full
def test_one_row_of_1e300_moves_nothing_and_a_classifier_learns():
    x, y = rows()
    labels = np.where(y > 0.5, "yes", "no")
    model = HeavyTailedClassifier(radius=4.0, random_state=2, classes=["no", "yes"])
    plain = model.fit(x, labels).coef_.copy()
    assert np.mean(model.predict(x) == labels) > 0.85
    assert "classes is public (given)" in model.privacy_.assumptions[-1]
    x[5] = 1e300
    assert model.fit(x, labels).coef_ == pytest.approx(plain, abs=0.05)


def test_several_classes_have_one_joint_model():
    x, _ = rows()
    labels = np.array(["a", "b", "c"])[np.clip(np.floor(x[:, 0] + 1.5), 0, 2).astype(int)]
    model = HeavyTailedClassifier(radius=6.0, epsilon=3.0, random_state=3).fit(x, labels)
    assert (model.coef_.shape, model.intercept_.shape) == ((3, x.shape[1]), (3,))
    assert (model.privacy_.epsilon, model.privacy_.delta) == (3.0, 0.0)
    assert np.mean(model.predict(x) == labels) > 0.6 > 1.2 * np.mean(labels == "b")
    x[5] = 1e300
    moved = HeavyTailedClassifier(radius=6.0, epsilon=3.0, random_state=3).fit(x, labels)
    assert moved.coef_ == pytest.approx(model.coef_, abs=0.1)


def test_bad_parameters_are_refused_by_name():
    x, y = rows(200)
    for bad, name in (
        ({"moments": 3}, "moments"),
        ({"moments": (4, 1.0, 2.0)}, "g2"),
        ({"feature_bound": -1.0}, "feature_bound"),
        ({"loss": "softmax"}, "loss"),
        ({"noise": "gaussian"}, "noise"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"scale": math.inf}, "scale"),
    ):
        with pytest.raises(ParameterError) as refused:
            HeavyTailedRegressor(**bad).fit(x, y)
        assert refused.value.parameter == name
    assert HeavyTailedRegressor(moments=Moments(4, 9.0, 6.0, 4.0)).fit(x, y).n_iter_ >= 1


def test_hinges_of_several_classes_have_phases():
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, size=(6000, 2))
    y = (x @ rng.normal(size=(2, 3))).argmax(axis=1)
    model = HeavyTailedClassifier(loss="hinge", epsilon=20.0, random_state=1).fit(x, y)
    assert model.privacy_.delta == 0
    assert np.mean(model.predict(x) == y) > np.bincount(y).max() / len(y) + 0.1


def test_a_pilot_and_what_follows_name_both_their_theorems():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    model = HeavyTailedRegressor(epsilon=5.0).fit(x, x @ [1, 2, 3])
    assert "Laplace mechanism" in model.privacy_.basis
    assert "l2 mechanism" in model.privacy_.basis
    alone = HeavyTailedRegressor(epsilon=5.0, moments=(2, 30.0)).fit(x, x @ [1, 2, 3])
    assert "Laplace mechanism" not in alone.privacy_.basis  # the control
