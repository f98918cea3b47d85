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
    ShuffleLogisticRegression,
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


@pytest.mark.slow_parameters("PrivateLogisticRegression-objective-1e-06-lbfgs")
@pytest.mark.full
@pytest.mark.parametrize(
    "estimator",
    [
        PrivateLogisticRegression(mechanism="gibbs", delta=1e-5),
        PrivateLogisticRegression(mechanism="objective", ridge=1.0, solver="lbfgs"),
        PrivateLogisticRegression(mechanism="objective", ridge=1.0, delta=1e-5),
        PrivateRidge(mechanism="output", solver=Ridge()),
        PrivateRidge(delta=0.0),
        PrivateLogisticRegression(delta=0.0),
    ],
    ids=lambda each: f"{type(each).__name__}-{each.mechanism}-{each.delta:g}-{each.solver}",
)
def test_scikit_learn_s_own_checks_pass(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [each["check_name"] for each in found if each["status"] not in ("passed", "skipped")]
    assert [name for name in failed if "weight" not in name] == []  # "gradient" takes them
    assert len(found) > 50


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_with_little_noise_it_is_the_exact_model(kind, classes):
    x, y = people(2000, classes=classes)
    private = kind(epsilon=1e6, delta=0.0, mechanism="output", ridge=0.05, random_state=7).fit(x, y)
    again = kind(**(private.get_params() | {"random_state": 8, "solver": "lbfgs"})).fit(x, y)
    assert private.coef_ == pytest.approx(again.coef_, abs=1e-3)
    if kind is PrivateLogisticRegression and classes == 2:
        inside = np.column_stack([x, np.ones(len(x))]) / np.sqrt(2)
        exact = LogisticRegression(C=1 / (0.05 * len(x)), fit_intercept=False, tol=1e-9)
        theta = exact.fit(inside, y).coef_[0] / np.sqrt(2)
        assert private.coef_[0] == pytest.approx(theta[:-1], abs=1e-3)
        assert private.intercept_[0] == pytest.approx(theta[-1], abs=1e-3)


@pytest.mark.parametrize("mechanism", ["gradient", "output", "objective", "gibbs"])
@pytest.mark.full
def test_every_mechanism_learns_and_states_its_guarantee(mechanism):
    x, y = people()
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, mechanism=mechanism, classes=[0, 1], random_state=7
    ).fit(x, y)
    exact = LogisticRegression().fit(x, y).score(x, y)
    assert model.score(x, y) > exact - 0.03
    assert 0.9 < model.privacy_.epsilon <= 1.0
    assert model.privacy_.delta == 1e-6
    assert (model.n_iter_ == 1) == (mechanism != "gradient")
    assert "the set of classes is public (given)" in model.privacy_.assumptions
    assert not any(hasattr(model, name) for name in ("passes_", "certificate_"))


def test_bounds_are_public_and_rows_beyond_are_clipped():
    x, y = people(2000)
    with pytest.warns(ClippingWarning):
        clipped = PrivateLogisticRegression(feature_bound=0.5, random_state=7).fit(x, y)
    assert clipped.clipped_ > 1000
    target = 3.0 + 2.0 * x[:, 0]
    model = PrivateRidge(
        epsilon=5000.0,
        delta=0.0,
        mechanism="output",
        ridge=1e-3,
        target_bounds=(1.0, 5.0),
        random_state=7,
    )
    assert model.fit(x, target).predict(x) == pytest.approx(target, abs=0.5)


def score_of(kind, x, y, **given):
    half = len(x) // 2
    return kind(random_state=7, **given).fit(x[:half], y[:half]).score(x[half:], y[half:])


@pytest.mark.full
def test_the_default_is_the_shuffle_descent_with_less_noise():
    x, y = people(2000, d=8)
    ours = PrivateLogisticRegression(random_state=7).fit(x, y)
    shuffled = ShuffleLogisticRegression(random_state=7).fit(x, y)
    assert ours.privacy_.delta == shuffled.privacy_.delta == 1e-6
    noise, theirs = (
        each.momentum.noise for each in (ours.algorithm_.optimiser, shuffled.protocol_)
    )
    assert 0.9 * theirs < noise < theirs
    charges = ours.result_.ledger.charges
    assert len(charges) == ours.n_iter_ == ours.algorithm_.rounds_per_user
    assert 0.999 < ours.privacy_.epsilon <= 1.0  # Gaussian releases compose exactly
    far = score_of(PrivateLogisticRegression, x, y, mechanism="output", delta=1e-6)
    assert score_of(PrivateLogisticRegression, x, y) > far + 0.02  # some 5 standard errors


def test_at_delta_0_the_mechanism_follows_from_loss_and_classes():
    x, y = people(2000)
    _, three = people(2000, classes=3)
    for kind, labels, name in (
        (PrivateLogisticRegression, y, "CentredObjective"),
        (PrivateLogisticRegression, three, "OutputPerturbation"),
        (PrivateLinearSVC, y, "OutputPerturbation"),
        (PrivateRidge, x[:, 0], "PureSGD"),
    ):
        model = kind(delta=0.0, random_state=7).fit(x, labels)
        assert type(model.algorithm_).__name__ == name
        assert model.privacy_.delta == 0
        assert 0.99 < model.privacy_.epsilon <= 1.0
        assert model.score(x, labels) > (0.5 if labels is not three else 0.4)


@pytest.mark.full
def test_a_curator_trains_on_persons_and_weights_too():
    x, y = people(3000)
    groups = np.arange(3000) // 3
    model = PrivateLogisticRegression(records=3, random_state=7).fit(x, y, groups)
    assert str(model.result_.unit) == "person"
    assert model.algorithm_.users == 1000
    heavy = PrivateLogisticRegression(weight_bound=2.0, random_state=7)
    equal, lone = (heavy.fit(x, y, sample_weight=each).intercept_ for each in (None, 2.0 * y))
    assert lone > equal + 1  # the others count nothing


@pytest.mark.full
def test_a_curator_pays_for_bounds_that_nobody_stated():
    x, y = people(4000)
    raw = 300 * x + [1000, 0, -50]
    model = PrivateLogisticRegression(choose_bounds=0.2, random_state=7).fit(raw, y)
    assert model.score(raw, y) > 0.85
    assert model.bounds_.shape == (2, 3)
    assert 0.97 < model.privacy_.epsilon <= 1.0
    assert len(model.result_.ledger.charges) == model.n_iter_
    first, second = (each.event for each in model.result_.ledger.charges[:2])
    assert first != second  # the histogram has its own part of the budget
    with pytest.raises(ParameterError, match="a larger share, or left out"):
        PrivateLogisticRegression(choose_bounds=0.2).fit(raw[:40], y[:40])


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
        (lambda x, y: PrivateLogisticRegression(mechanism="gibbs", delta=0.0).fit(x, y), "delta"),
        (
            lambda x, y: PrivateLogisticRegression(mechanism="gradient", delta=0.0).fit(x, y),
            "delta",
        ),
        (lambda x, y: PrivateLogisticRegression(delta=0.0, ridge=0.0).fit(x, y), "ridge"),
        (lambda x, y: PrivateLogisticRegression(ridge=-1.0).fit(x, y), "ridge"),
        (lambda x, y: PrivateLogisticRegression(C=1.0, ridge=1.0).fit(x, y), "ridge, C"),
        (lambda x, y: PrivateRidge(delta=0.0, rounds=3).fit(x, y), "rounds"),
        (lambda x, y: PrivateRidge(delta=0.0, choose_bounds=0.2).fit(x, y), "choose_bounds"),
        (lambda x, y: PrivateRidge(delta=0.0).fit(x, y, None, y), "sample_weight"),
        (lambda x, y: PrivateLogisticRegression(solver="lbfgs").fit(x, y), "solver"),
        (
            lambda x, y: PrivateLogisticRegression(mechanism="output", solver="magic").fit(x, y),
            "solver",
        ),
        (lambda x, y: PrivateLogisticRegression(fit_intercept="no").fit(x, y), "fit_intercept"),
        (lambda x, y: PrivateLogisticRegression(feature_bound=0).fit(x, y), "feature_bound"),
        (lambda x, y: PrivateLogisticRegression(delta=0.0).fit(x, y, groups=y), "groups"),
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
