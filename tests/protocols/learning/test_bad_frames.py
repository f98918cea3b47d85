"""What people get wrong in tables: each estimator says it in one line that names what is wrong."""

import numpy as np
import pandas as pd
import pytest

from protocols import (
    PrivateCovariance,
    PrivateKMeans,
    PrivateLogisticRegression,
    ShuffleKMeans,
    ShuffleLogisticRegression,
    ShufflePCA,
)
from shuffle_sim import ParameterError

CLASSIFIERS = (ShuffleLogisticRegression, PrivateLogisticRegression)
SUMS = (ShufflePCA, PrivateCovariance, ShuffleKMeans, PrivateKMeans)
EVERY = (*CLASSIFIERS, *SUMS)


def table(n=40):
    rng = np.random.default_rng(0)
    age, job = rng.uniform(18, 80, n), np.resize(["clerk", "cook"], n)
    return pd.DataFrame({"age": age, "job": job, "dose": np.full(n, np.nan)})


def told(kind, X, y=None, **given):
    with pytest.raises(ParameterError) as caught:
        kind(**given).fit(X, y)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", EVERY)
def test_a_column_without_bounds_or_values_is_named(kind):
    y = np.resize([0, 1], 40)
    assert told(kind, table(), y, schema={"age": None}).startswith("bounds of age")
    found = told(kind, table(), y, schema={"job": ["clerk", "baker"], "age": (18,)})
    assert found.startswith("schema of column age")
    wrong = {"job": {"type": "category", "categories": ["clerk", "baker"], "other": False}}
    assert "job" in told(kind, table(), y, schema=wrong)
    assert "column dose" in told(kind, table(), y, schema={"dose": (0, 1)})
    blank = np.column_stack([np.ones(40) / 4, np.full(40, np.nan)])
    assert told(kind, blank, y).startswith("X[:, 1]")
    assert told(kind, table()[["age", "dose"]], y).startswith("X['dose']")


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.full
def test_a_class_must_be_stated_but_need_not_be_anybody_s(kind):
    """Whether somebody has it is private: the fit goes on, and hardly predicts it."""
    x, y = np.random.default_rng(0).uniform(-0.6, 0.6, (2000, 2)), np.resize([0, 1], 2000)
    assert told(kind, x, y, classes=[0, 2]).startswith("y[1]")
    model = kind(classes=[0, 1, 2], epsilon=8.0, random_state=1).fit(x, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.predict(x) == 2).mean() < 0.05


@pytest.mark.parametrize("kind", EVERY)
def test_one_row_is_too_few_for_anything(kind):
    y = None if kind in SUMS else [1]
    with pytest.raises(ValueError, match=r"1 sample|one sample|1 class|one class"):
        kind().fit(np.full((1, 2), 0.5), y)


def test_a_descent_has_no_pure_mechanism_and_says_which_have():
    x, y = np.full((40, 2), 0.1), np.resize([0, 1], 40)
    found = told(PrivateLogisticRegression, x, y, delta=0.0, mechanism="gradient")
    assert found.startswith("delta")
    assert "objective" in found
    assert told(ShuffleLogisticRegression, x, y, delta=0.0).startswith("delta")


@pytest.mark.parametrize("kind", [ShuffleKMeans, PrivateKMeans])
def test_more_clusters_than_rows_are_refused(kind):
    found = told(kind, np.full((5, 2), 0.1), n_clusters=6)
    assert "5 samples" in found
    assert "n_clusters = 6" in found
