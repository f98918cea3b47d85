"""Estimators of a trusted curator: scikit-learn's contract, units, refusals."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from protocols import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    privatize,
)
from protocols.learning.estimators import ClippingWarning
from shuffle_sim import ParameterError


def people(n=20_000, d=3, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    scores = x @ rng.normal(size=(d, classes)) * 4 + rng.gumbel(size=(n, classes))
    return x, scores.argmax(axis=1)


@pytest.mark.full
@pytest.mark.parametrize(
    "estimator",
    [
        PrivateLogisticRegression(mechanism="gibbs", delta=1e-5),
        PrivateLogisticRegression(mechanism="objective", ridge=1.0, solver="lbfgs"),
        PrivateLogisticRegression(mechanism="objective", ridge=1.0, delta=1e-5),
        PrivateRidge(solver=Ridge(), delta=1e-5),
    ],
    ids=lambda each: f"{type(each).__name__}-{each.mechanism}-{each.delta:g}-{each.solver}",
)
def test_scikit_learn_s_own_checks_pass(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_fail=None, on_skip=None)
    assert [each for each in found if each["status"] not in ("passed", "skipped")] == []
    assert len(found) > 50


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_with_little_noise_it_is_the_exact_model(kind, classes):
    x, y = people(2000, classes=classes)
    private = kind(epsilon=1e6, ridge=0.05, random_state=7).fit(x, y)
    again = kind(epsilon=1e6, ridge=0.05, random_state=8, solver="lbfgs").fit(x, y)
    assert private.coef_ == pytest.approx(again.coef_, abs=1e-3)
    if kind is PrivateLogisticRegression and classes == 2:
        inside = np.column_stack([x, np.ones(len(x))]) / np.sqrt(2)
        exact = LogisticRegression(C=1 / (0.05 * len(x)), fit_intercept=False, tol=1e-9)
        theta = exact.fit(inside, y).coef_[0] / np.sqrt(2)
        assert private.coef_[0] == pytest.approx(theta[:-1], abs=1e-3)
        assert private.intercept_[0] == pytest.approx(theta[-1], abs=1e-3)


@pytest.mark.parametrize("mechanism", ["output", "objective", "gibbs"])
def test_every_mechanism_learns_and_states_its_guarantee(mechanism):
    x, y = people()
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, mechanism=mechanism, ridge=0.02, classes=[0, 1], random_state=7
    ).fit(x, y)
    exact = LogisticRegression().fit(x, y).score(x, y)
    assert model.score(x, y) > exact - 0.03
    assert 0.9 < model.privacy_.epsilon <= 1.0
    assert model.privacy_.delta == 1e-6
    assert model.n_iter_ == 1
    assert "the set of classes is public (given)" in model.privacy_.assumptions
    assert not any(hasattr(model, name) for name in ("passes_", "certificate_"))


def test_bounds_are_public_and_rows_beyond_are_clipped():
    x, y = people(2000)
    with pytest.warns(ClippingWarning):
        clipped = PrivateLogisticRegression(feature_bound=0.5, random_state=7).fit(x, y)
    assert clipped.clipped_ > 1000
    target = 3.0 + 2.0 * x[:, 0]
    model = PrivateRidge(epsilon=5000.0, ridge=1e-3, target_bounds=(1.0, 5.0), random_state=7)
    assert model.fit(x, target).predict(x) == pytest.approx(target, abs=0.5)


@pytest.mark.parametrize(
    ("estimator", "given", "ridge"),
    [
        (LogisticRegression(C=0.01), {"classes": [0, 1]}, 1 / (0.01 * 2000)),
        (LinearSVC(C=0.01), {"classes": [0, 1]}, 1 / (0.01 * 2000)),
        (SGDClassifier(alpha=0.02), {"classes": [0, 1]}, 0.02),
        (Ridge(alpha=50.0), {"target_bounds": (0.0, 1.0)}, 50.0 / 2000),
    ],
    ids=lambda each: type(each).__name__,
)
def test_privatize_takes_over_the_ridge_of_a_model(estimator, given, ridge):
    x, y = people(2000)
    model = privatize(estimator, epsilon=1.0, feature_bound=1.0, random_state=7, **given)
    model.fit(x, y)
    assert model.algorithm_.risk.ridge == pytest.approx(ridge)
    assert model.privacy_.epsilon == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("made", "parameter"),
    [
        (lambda x, y: PrivateLogisticRegression(mechanism="magic").fit(x, y), "mechanism"),
        (lambda x, y: PrivateLogisticRegression(mechanism="gibbs").fit(x, y), "delta"),
        (lambda x, y: PrivateLogisticRegression(ridge=0.0).fit(x, y), "ridge"),
        (lambda x, y: PrivateLogisticRegression(C=1.0).fit(x, y), "ridge, C"),
        (lambda x, y: PrivateLogisticRegression(solver="magic").fit(x, y), "solver"),
        (lambda x, y: PrivateLogisticRegression(fit_intercept="no").fit(x, y), "fit_intercept"),
        (lambda x, y: PrivateLogisticRegression(feature_bound=0).fit(x, y), "feature_bound"),
        (lambda x, y: PrivateLogisticRegression().fit(x, y, groups=y), "groups"),
        (lambda x, y: PrivateLinearSVC(mechanism="objective").fit(x, y), "loss"),
        (
            lambda x, y: PrivateLogisticRegression(mechanism="objective").fit(x, y + (x[:, 0] > 0)),
            "classes",
        ),
        (lambda x, y: PrivateRidge(mechanism="gibbs", delta=1e-5).fit(x, y), "loss"),
        (lambda x, y: PrivateRidge(target_bounds=(1.0, 0.0)).fit(x, y), "target_bounds"),
        (lambda x, y: privatize(Ridge(), epsilon=1.0, feature_bound=1.0), "target_bounds"),
        (lambda x, y: privatize(LinearSVC(), epsilon=1.0, feature_bound=1.0), "classes"),
        (lambda x, y: privatize(3, epsilon=1.0, feature_bound=1.0), "estimator"),
        (
            lambda x, y: privatize(
                LogisticRegression(class_weight="balanced"), epsilon=1.0, feature_bound=1.0
            ),
            "class_weight",
        ),
    ],
)
def test_bad_input_is_refused_by_name(made, parameter):
    with pytest.raises(ParameterError) as caught:
        made(*people(50))
    assert caught.value.parameter == parameter
