"""Every public model that predicts, found by name: checks, pickles, pipelines, grid search."""

import inspect
import pickle
import traceback
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier, is_clusterer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import protocols
from shuffle_sim import ParameterError

KINDS = ("dense", "sparse")
EVERY = [
    each
    for each in (getattr(protocols, name) for name in protocols.__all__)
    if inspect.isclass(each) and issubclass(each, BaseEstimator) and hasattr(each, "predict")
    if not is_clusterer(each())  # test_clusters has these
]
UNSEEN = {  # without pandas or scikit-learn's array API switch
    "check_array_api_input",
    "check_classifier_data_not_an_array",
    "check_regressor_data_not_an_array",
    "check_sample_weights_pandas_series",
}


def halved(rows):
    """A public scaling."""
    return rows / 2


def table(kind, n=500):
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.6, 0.6, (n, 2))
    y = x @ [0.8, -0.5]
    return x, (y > 0 if is_classifier(kind()) else y)


@pytest.fixture(autouse=True)
def quiet():
    """The checks' rows ignore the default bounds; few users make some guarantees weak."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_there_are_the_estimators_of_every_family():
    names = {each.__name__ for each in EVERY}
    assert {"ShuffleRegressor", "PrivateRidge", "HeavyTailedClassifier"} <= names
    assert len(names) >= 8


@pytest.mark.slow_parameters(
    "PrivateRidge", "PrivateLinearSVC", "PrivateLogisticRegression", "ShuffleLinearSVC"
)
@pytest.mark.full
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.long
def test_scikit_learn_s_own_checks_pass_but_for_weights(kind):
    found = check_estimator(kind(), on_fail=None, on_skip=None)
    failed = {each["check_name"] for each in found if each["status"] not in ("passed", "skipped")}
    # How many users there are is public: a weight of 2 is not a user more, 0 not one less.
    weighted = "sample_weight" in inspect.signature(kind.fit).parameters
    repeats = {f"check_sample_weight_equivalence_on_{each}_data" for each in KINDS}
    assert failed <= (repeats if weighted else set())
    assert len(found) > 40
    assert {each["check_name"] for each in found if each["status"] == "skipped"} <= UNSEEN


SECRET = "KANARIE"


def spoilt(kind):
    """Rows, labels and weights that are wrong, each with a text in it."""
    x, y = table(kind, 60)
    mixed, labels = x.astype(object), np.where(np.arange(60) == 7, SECRET, y.astype(int))
    mixed[3, 0] = SECRET
    yield {"X": mixed, "y": y}
    yield {"X": x, "y": np.full(60, SECRET)}
    if is_classifier(kind()):
        yield {"X": x, "y": labels, "classes": ["0", "1"]}
    else:
        yield {"X": x, "y": labels.astype(object)}
    if "sample_weight" in inspect.signature(kind.fit).parameters:
        yield {"X": x, "y": y, "sample_weight": [SECRET] * 60}


@pytest.mark.parametrize("kind", EVERY)
def test_no_error_nor_its_cause_shows_a_row_or_a_label(kind):
    for given in spoilt(kind):
        classes = {"classes": given.pop("classes")} if "classes" in given else {}
        with pytest.raises(ParameterError) as caught:
            kind(**classes).fit(**given)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


class Frame(np.ndarray):
    """An array whose columns have names, as a table's have."""

    columns = ("age", "dose")


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_names_the_column_that_does_not_fit(kind):
    x, y = np.full((8, 2), 0.25).astype(object), np.resize([1.0, -1.0], 8)
    x[3, 1] = "much"
    for rows, named in ((x, "X[:, 1]"), (x.view(Frame), "X['dose']")):
        with pytest.raises(ParameterError) as caught:
            kind().fit(rows, y)
        assert caught.value.parameter == named
    labels = np.resize(np.array(["yes", None], object), 8)
    with pytest.raises(ParameterError) as caught:
        kind().fit(np.full((8, 2), 0.25), labels)
    assert caught.value.parameter == ("y[1]" if is_classifier(kind()) else "y")
    others: list[Any] = [pd.Series([None, "yes"] * 4, dtype=each) for each in (None, "string")]
    others += [] if is_classifier(kind()) else [pd.Series([None, 1.0] * 4, dtype=object)]
    for blank in others:
        with pytest.raises(ParameterError) as caught:
            kind().fit(np.full((8, 2), 0.25), blank)
        assert caught.value.parameter.startswith("y")
    if is_classifier(kind()):
        with pytest.raises(ParameterError, match="one kind"):
            kind().fit(np.full((8, 2), 0.25), np.resize(np.array(["yes", 1.0], object), 8))


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.full
def test_clones_and_pickles_predict_the_same(kind):
    x, y = table(kind)
    fitted = clone(kind(random_state=1)).fit(x, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(x), fitted.predict(x))
    assert again.privacy_ == fitted.privacy_
    assert clone(fitted).get_params() == fitted.get_params()


@pytest.mark.full
@pytest.mark.parametrize("kind", EVERY)
def test_pipelines_and_grid_search_take_it(kind):
    x, y = table(kind, 300)
    line = make_pipeline(FunctionTransformer(halved), kind(random_state=1))
    name = line.steps[1][0]
    searched = GridSearchCV(line, {f"{name}__fit_intercept": [True, False]}, cv=2).fit(x, y)
    assert len(searched.cv_results_["params"]) == 2
    assert searched.predict(x).shape == y.shape


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.full
def test_a_fit_says_it_is_no_guarantee_of_a_choice_among_fits(kind):
    x, y = table(kind)
    search = GridSearchCV(kind(random_state=1), {"epsilon": [1.0, 2.0]}, cv=2).fit(x, y)
    privacy = search.best_estimator_.privacy_
    assert any("other fits on these rows" in each for each in privacy.assumptions)
